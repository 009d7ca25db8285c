"""Tensors that stream at the region's edge: which ones, through which interface."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np

from allo_dse.common.records import MOST_KEPT, Frozen, replace
from allo_dse.compiler.ir.nest import BANK, Branch, Loop, Nest, Node, Op, accesses_of, loops_of, read_nest, walk
from allo_dse.compiler.program.compiled import (
    DATAFLOW,
    CompiledProgram,
    Directive,
    TaskBody,
    TaskClass,
    is_region,
    kernel_of,
    of_region,
)
from allo_dse.compiler.program.tensors import StreamArray, StreamPort, stream_of
from allo_dse.compiler.schedule.edges import Edged, EdgeTensor, edge_tensors, with_edges
from allo_dse.compiler.schedule.streams import accesses, touches
from allo_dse.lang.types import DType

from .cost.memory import BANKS, OUTSTANDING, word_of
from .cost.plan import LoopPlan, Planner

INTERFACE = "interface"
"""The kind of directives about the ports of tensors."""
M_AXI, AXIS = "m_axi", "axis"


class Transfers(Frozen):
    """Transactions of an AXI adapter. Defaults are those of Vitis HLS (UG1399, "pragma HLS interface").

    Attributes:
        burst: elements of one burst. outstanding: requests under way.
    """

    burst: int = 16
    outstanding: int = OUTSTANDING


def has_axis(dtype: DType) -> bool:
    """Return whether the generated C++ sends elements of a type through an AXI-Stream port."""
    return dtype.bits in (8, 16, 32, 64) and not dtype.is_fixed and (dtype.kind, dtype.bits) != ("float", 16)


def _options(about: Sequence[Directive]) -> Mapping[str, Any]:
    return next((d.options for d in reversed(about) if d.kind == INTERFACE), {})


def interface_of(about: Sequence[Directive]) -> str | None:
    """Return the interface that directives about a tensor say."""
    return _options(about).get("mode")


def transfers_of(about: Sequence[Directive]) -> Transfers:
    """Return the transactions that directives about a tensor say."""
    said = _options(about)
    return Transfers(**{name: said[name] for name in ("burst", "outstanding") if name in said})


PIPO = "pipo"
"""The memory of a stream that is a ping-pong buffer."""


@lru_cache(MOST_KEPT)
def block_streams(program: CompiledProgram) -> frozenset[str]:
    """Return the names of the streams that can be ping-pong buffers: both tasks work in their blocks.

    A block is an array that is only read once got, or all written until put, in one body of loops and conditions.
    """
    found = {stream.name for stream in program.streams if word_of(stream)[1] > 1}
    for task_class in program.task_classes:
        bound, nest = task_class.body.streams, read_nest(task_class.body.mlir)
        found -= {one.name for one in bound if isinstance(one, StreamArray)}
        found -= {op.stream.name for op in task_class.stream_ops if not op.blocking}
        branches = (node for node in walk(nest.body) if isinstance(node, Branch))
        loops = (node.body for node in walk(nest.body) if isinstance(node, Loop))
        for nodes in (nest.body, *loops, *chain.from_iterable(branch.sides for branch in branches)):
            for op in nodes:
                if isinstance(op, Op) and op.stream is not None and op.block and not _is_bank(nest, nodes, op):
                    found.discard(stream_of(bound[op.stream]).name)
    return frozenset(found)


def _is_bank(nest: Nest, nodes: Sequence[Node], op: Op) -> bool:
    assert op.access is not None
    array, size = nest.arrays[op.access.array], math.prod(op.block)
    own = [node for node in nodes if touches(node, array.name)]
    is_alone = sum(1 for _ in accesses_of(own, array.name)) == sum(1 for _ in accesses_of(nest.body, array.name))
    if array.argument is not None or array.shape != op.block or array.name in nest.escaped or not is_alone:
        return False
    if op.access.write:
        return own[0] is op and not any(touches(node, array.name, write=True) for node in own[1:])
    found = accesses(own[:-1], array.name, array.shape, write=None) if own[-1] is op else None
    if found is None:
        return False
    elements, first = np.unique(found % size, return_index=True)
    return len(elements) == size and bool((found[first] < size).all())  # none is read before it is written


def buffered_streams(program: CompiledProgram, schedule: Sequence[Directive]) -> frozenset[str]:
    """Return the names of the streams that a schedule makes ping-pong buffers."""
    places = {d.name: d.options["memory"] for d in schedule if d.kind == "place" and is_region(d.scope, program)}
    asked = frozenset(name for name, place in places.items() if place == PIPO)
    return asked & block_streams(program) if asked else asked


@lru_cache(MOST_KEPT)
def with_banks(edged: Edged, names: frozenset[str]) -> Edged:
    """The program with tokens in place of the blocks of some streams, and streams that say which banks are in use."""
    program = edged.program
    banks = {
        stream.name: StreamArray(f"{stream.name} banks", stream.dtype, (), BANKS, stream.shape)
        for stream in program.streams
        if stream.name in names
    }
    kernels = (
        replace(kernel, classes=tuple(_with_banks(task_class, banks) for task_class in kernel.classes))
        for kernel in program.kernels
    )
    changed = {"kernels": tuple(kernels)}
    return replace(edged, program=CompiledProgram(**program.compiled_fields | changed), banks=banks) if banks else edged


def _with_banks(task_class: TaskClass, banks: Mapping[str, StreamArray]) -> TaskClass:
    own = task_class.body
    text, streams = own.mlir, list(own.streams)
    for number, port in enumerate(own.streams):
        if isinstance(port, StreamPort) and port.stream.name in banks:
            marked = rf"\g<0>{BANK} = {len(streams)} : i64, "
            text = re.sub(rf'"df\.(get|put)_block"\(%s{number}, %\w+\) \{{', marked, text)
            streams.append(replace(port, stream=banks[port.stream.name]))
    return replace(task_class, body=TaskBody(own.symbol, text, tuple(streams)))


def edged_program(program: CompiledProgram, schedule: Sequence[Directive]) -> Edged:
    """The program with streams at its edge, as a schedule has them.

    A tensor that its only task accesses once, in order, is a stream if nothing else is said of its place and no round
    of the loop around needs several elements: they would pass one by one.
    """
    return _edged(program, tuple(d for d in schedule if d.kind in _DECIDING))


_DECIDING = ("pipeline", "unroll", "place", INTERFACE, DATAFLOW)


@lru_cache(MOST_KEPT)
def _edged(program: CompiledProgram, schedule: tuple[Directive, ...]) -> Edged:
    edges = edge_tensors(program)
    every = of_region(program, (*program.schedule, *schedule))
    names = (name for name, edge in edges.items() if _streams(program, edge, every, schedule))
    return with_edges(program, frozenset(names))


def _streams(
    program: CompiledProgram, edge: EdgeTensor, every: Sequence[Directive], schedule: Sequence[Directive]
) -> bool:
    about = [
        d
        for d in every
        if (d.name == edge.tensor.name and is_region(d.scope, program))
        or (d.name == edge.argument and d.kind == "place" and kernel_of(d.scope, program) == edge.kernel)
    ]
    places = [d.options["memory"] for d in about if d.kind == "place"]
    if (is_port := interface_of(about) == AXIS) or places:
        return is_port or places[-1] == "stream"
    if any(d.kind == DATAFLOW and d.scope == edge.kernel for d in every):
        return False
    kernel = program.kernel(edge.kernel)
    (task_class,) = (one for one in kernel.classes if any(p.tensor == edge.tensor for p in one.used_ports))
    nest = read_nest(task_class.body.mlir)
    said = Planner(program, task_class, nest).plan(schedule).loops
    trips = {loop.source: loop.trips.constant for loop in loops_of(nest.body) if loop.trips is not None}
    for loops in edge.loops:
        pipelined = False
        for number in loops:
            own = said.get(-1 if number is None else number, LoopPlan())
            if (trips[number] if pipelined or not own.unroll else own.unroll) > 1:
                return False
            pipelined = pipelined or own.interval is not None
    return True
