"""Processes between tensors at the region's edge and the streams of their tasks: bursts, or an AXI-Stream port."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from allo_dse.compiler.program.compiled import Directive
from allo_dse.compiler.program.tensors import Tensor
from allo_dse.compiler.schedule.edges import Edged

from ...edges import AXIS, INTERFACE, interface_of, transfers_of
from ..cpp.expressions import element_of_dtype, interface_type
from .movers import Arrival, loop, tensor_name
from .top import Top

Edges: TypeAlias = Callable[[Literal["get", "put"]], list[str]]
"""Calls of the processes of tensors in one direction."""


def edge_movers(top: Top, edged: Edged, directives: Sequence[Directive], direction: Literal["get", "put"]) -> list[str]:
    """Call the processes of the tensors that tasks get, or of those that they put; returns their functions."""
    return [
        _called(top, edge.tensor, top.stream_names[edged.streams[name].name], direction, directives)
        for name, edge in edged.edges.items()
        if edge.direction == direction
    ]


def _called(
    top: Top, tensor: Tensor, stream: str, direction: Literal["get", "put"], directives: Sequence[Directive]
) -> str:
    name, element = tensor_name(tensor), str(element_of_dtype(tensor.dtype))
    about = [d for d in directives if d.kind == INTERFACE and d.name == tensor.name]
    reads, words = direction == "get", math.prod(tensor.shape)
    function = top.names.new(f"{'load' if reads else 'store'}_{name}")
    if interface_of(about) == AXIS:
        arrival = Arrival((0,), tensor.shape, tensor.strides, element, tensor.dtype.bits, 1)
        argument = top.stream(tensor, tensor.name, arrival, writes=not reads)
        memory = f"{arrival.stream} &{name}"
        moved = [f"{element} element;", f"allo::receive({name}, element);", "elements.write(element);"]
        moved = moved if reads else [f"allo::send({name}, elements.read(), i == {words - 1});"]
    else:
        argument = top.argument(tensor, tensor.name, writes=not reads)
        memory = f"{'const ' if reads else ''}{interface_type(tensor.dtype)} *{name}"
        moved = [f"elements.write({name}[i]);" if reads else f"{name}[i] = elements.read();"]
        if about:
            transfers, does = transfers_of(about), "read" if reads else "write"
            options = f"max_{does}_burst_length={transfers.burst} num_{does}_outstanding={transfers.outstanding}"
            top.transfers[argument] = options
    top.lines.append(f"  ALLO_PROCESS({function}, {argument}, {stream});")
    lines = [loop(1, "i", words), "#pragma HLS pipeline II=1", *(f"    {line}" for line in moved), "  }"]
    head = f"void {function}({memory}, hls::stream< {element} > &elements) {{"
    return "\n".join([head, *lines, "}"])
