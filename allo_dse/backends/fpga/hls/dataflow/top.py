"""The top function: streams, and one call per process."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from allo_dse.common.records import Frozen, once, replace
from allo_dse.compiler.program.compiled import CompiledProgram, TaskClass, tile_of
from allo_dse.compiler.program.tensors import IndexMap, StreamArray, Tensor

from ...linear import IndexSum
from ..cpp.expressions import Names, element_of_dtype, identifier, interface_type
from ..cpp.streams import Carrier
from ..task.pragmas import LoopPragmas
from .functions import Parameter, TaskFunction, array_pragmas_of, tensor_text
from .movers import Arrival, Copiers, KernelStreams, TileStream, mover, tensor_name
from .tensor_plan import ClassPlan, Group, PortPlan, tensors_of


class Argument(Frozen):
    """An argument of the top function.

    Attributes:
        tensor: position of the tensor among the region's arguments; several arguments can mean one tensor.
        text: its declaration.
        element: the C++ type of its elements.
        is_value: whether it is a scalar passed by value.
        extents: of a tensor in memory on the chip, whose declaration has its dimensions; empty for others.
        pragmas: about such memory.
        writes: whether the kernel writes it.
        stream: how it comes or goes where it is an AXI stream.
        is_shared: whether a task accesses the tensor in DRAM through it.
        size: elements behind the pointer.
    """

    name: str
    tensor: int
    text: str
    element: str
    size: int
    is_value: bool = False
    writes: bool = False
    extents: tuple[int, ...] = ()
    pragmas: tuple[str, ...] = ()
    stream: Arrival | None = None
    is_shared: bool = False

    def passed(self, buffer: str) -> str:
        """The argument of a call, given the buffer that holds the tensor."""
        if self.stream is not None:
            return f"{buffer}_stream"
        if self.is_value:
            return f"{buffer}[0]"
        inner = "".join(f"[{n}]" for n in self.extents[1:])
        return f"({self.element} (*){inner}){buffer}" if inner else buffer


@dataclass
class Top:
    """The top function under construction.

    Attributes:
        pragmas: what a schedule says of the loops and arrays of a task class.
        streams: tensors that are not in DRAM.
        transfers: options of the AXI adapters of arguments, where a schedule says some.
        memories: names of arguments that are memory on the chip which several kernels use, by tensor and tile.
        pointers: those through which tasks access a tensor in DRAM, by tensor and task.
        tables: definitions of tensors that are constants.
    """

    program: CompiledProgram
    functions: Mapping[str, TaskFunction]
    carriers: Mapping[str, Carrier]
    names: Names
    pragmas: Callable[[TaskClass], LoopPragmas]
    streams: KernelStreams
    copiers: Copiers
    memories: dict[tuple[str, int], str] = field(default_factory=dict)
    pointers: dict[str, str] = field(default_factory=dict)
    arguments: list[Argument] = field(default_factory=list)
    movers: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    tiles: dict[tuple[int, str, str], TileStream] = field(default_factory=dict)
    stream_names: dict[str, str] = field(default_factory=dict)
    transfers: dict[str, str] = field(default_factory=dict)
    tables: list[str] = field(default_factory=list)

    # -- arguments ---------------------------------------------------------------------------------------------------

    def argument(self, tensor: Tensor, wanted: str, *, writes: bool, raw: bool = False) -> str:
        """Add a pointer argument; returns its name."""
        element = str(element_of_dtype(tensor.dtype)) if raw else interface_type(tensor.dtype)
        text = f"{'' if writes else 'const '}{element} *{{}}"
        return self._added(tensor, wanted, text, element=element, writes=writes, is_shared=raw)

    def _added(self, tensor: Tensor, wanted: str, text: str, **more: Any) -> str:
        """Add an argument for a tensor, declared by `text` with `{}` for its name; returns that."""
        name, number = self.names.new(wanted), tensors_of(self.program).index(tensor)
        values = {"element": str(element_of_dtype(tensor.dtype)), "size": max(1, math.prod(tensor.shape)), **more}
        self.arguments.append(Argument(name, number, text.format(name), **values))
        return name

    def stream(self, tensor: Tensor, wanted: str, how: Arrival, *, writes: bool) -> str:
        """Add a tensor that is an AXI stream; returns its name."""
        return self._added(tensor, wanted, f"{how.stream} &{{}}", writes=writes, stream=how)

    def memory(self, plan: ClassPlan, port: PortPlan, wanted: str, tile: int = 0, *, writes: bool) -> str:
        """Add a tensor in memory on the chip; returns its name.

        Args:
            tile: which tile of it a task uses. Kernels that have the tensor in common have one memory for each.
        """
        tensor = port.port.tensor
        common = self.program.common_tensors.get(tensor.name)
        place = (tensor.name, tile if common and common.is_tiled else 0)
        if common and place in self.memories:
            return self.memories[place]
        writes = writes or common is not None
        text = tensor_text(tensor, "{}", writes=writes)
        name = self._added(tensor, tensor.name if common else wanted, text, writes=writes, extents=tensor.shape)
        pragmas = array_pragmas_of(self.pragmas(plan.task_class), plan, port, name, range(len(tensor.shape)))
        if common:
            self.memories[place] = name
            pragmas = (*pragmas, f"stream variable={name} type=unsync")
        self.arguments[-1] = replace(self.arguments[-1], pragmas=pragmas)
        return name

    def value(self, tensor: Tensor) -> str:
        """Add an argument passed by value, once; returns its name."""
        number = tensors_of(self.program).index(tensor)
        for argument in self.arguments:
            if argument.tensor == number:
                return argument.name
        return self._added(tensor, tensor.name, f"{element_of_dtype(tensor.dtype)} {{}}", is_value=True)


def declare_stream(top: Top, wanted: str, carrier: Carrier, shape: Sequence[int]) -> str:
    """A stream or an array of streams; returns its name."""
    name = top.names.new(wanted)
    dims = "".join(f"[{n}]" for n in shape)
    title = "" if dims or carrier.is_buffer else f'("{name}")'
    top.lines.append(f"  {carrier.type} {name}{dims}{title};")
    pragmas = (text for one in top.functions.values() for text in one.bank_pragmas.get(wanted, ()))
    top.lines += [f"#pragma HLS {text.format(name)}" for text in dict.fromkeys(pragmas)]
    if not carrier.is_buffer:
        top.lines.append(f"#pragma HLS stream variable={name} depth={carrier.depth}")
    return name


def declare_tiles(top: Top, groups: Sequence[Group]) -> None:
    """Streams between tasks and the processes that load and store tensors, and those processes' calls."""
    for number, group in enumerate(groups):
        for parameter in top.functions[group.plan.symbol].parameters:
            if parameter.kind in ("in", "out"):
                port = group.plan.ports[parameter.number]
                name = top.names.new(f"{port.port.tensor.name}_{group.plan.symbol}_{parameter.kind}")
                stream = TileStream(name, group, port)
                top.tiles[number, parameter.kind, port.port.tensor.name + str(parameter.number)] = stream
                top.lines.append(f"  {stream.type} {name}{stream.dims}" + (";" if stream.dims else f'("{name}");'))
                top.lines.append(f"#pragma HLS stream variable={name} depth={port.stream_depth}")


def call_movers(top: Top, kind: str) -> None:
    """Calls of the processes that load (kind "in") or store ("out") tensors."""
    for tensor in top.program.tensors:
        tiles = [(k, s) for (_, k, _), s in top.tiles.items() if s.port.port.tensor == tensor]
        streams = [stream for k, stream in tiles if k == kind]
        if not streams:
            continue
        is_first = kind == "in" and len(streams) < len(tiles)  # another process stores it
        pointer = top.argument(tensor, f"{tensor.name}_in" if is_first else tensor.name, writes=kind == "out")
        name = top.names.new(f"{'load' if kind == 'in' else 'store'}_{tensor_name(tensor)}")
        top.movers.append(mover(name, tensor, streams, load=kind == "in"))
        top.lines.append(f"  ALLO_PROCESS({name}, {', '.join([pointer, *(s.name for s in streams)])});")


def call_group(top: Top, number: int, group: Group) -> None:
    """Return the calls of a group's tasks: a nest of loops, or one by one if their streams do not follow the pid."""
    function = top.functions[group.plan.symbol]
    bindings = group.plan.task_class.body.streams
    tables = any(not isinstance(b, StreamArray) and not b.index.is_affine for b in bindings)
    # A pointer is another argument for each call, and template arguments and entries of tables are constants: none of
    # them follows the counter of a loop.
    if tables or function.has_state or any(p.kind == "pointer" for p in function.parameters):
        for offset in itertools.product(*(range(n) for n in group.extent)):
            _call(top, number, group, function, [str(o) for o in offset], 1)
        return
    depth = 1
    pid = ["0"] * len(group.start)
    for axis in group.axes:
        pid[axis] = f"p{axis}"
        top.lines.append(f"{'  ' * depth}for (int p{axis} = 0; p{axis} < {group.extent[axis]}; p{axis}++) {{")
        top.lines.append("#pragma HLS unroll")
        depth += 1
    _call(top, number, group, function, pid, depth)
    top.lines += ["  " * level + "}" for level in range(depth - 1, 0, -1)]


def _call(top: Top, number: int, group: Group, function: TaskFunction, offset: Sequence[str], depth: int) -> None:
    """One call; `offset` is C++ text of the pid relative to the group's first task, per axis."""
    pid = [
        IndexSum(start + int(text)) if text.isdigit() else IndexSum(start, {text: 1})
        for start, text in zip(group.start, offset, strict=True)
    ]
    arguments = [_argument(top, number, group, parameter, pid, offset) for parameter in function.parameters]
    name = function.symbol
    if function.has_state:
        name += f"<{int(np.ravel_multi_index(tuple(p.const for p in pid), group.plan.kernel.mesh))}>"
    top.lines.append(f"{'  ' * depth}ALLO_PROCESS({', '.join([name, *arguments])});")


def _argument(
    top: Top, number: int, group: Group, parameter: Parameter, pid: Sequence[IndexSum], offset: Sequence[str]
) -> str:
    plan = group.plan
    if parameter.kind == "pid":
        return pid[parameter.number].text(str)
    if parameter.kind == "stream":
        binding = plan.task_class.body.streams[parameter.number]
        if isinstance(binding, StreamArray):
            return top.stream_names[binding.name]
        return top.stream_names[binding.stream.name] + stream_index(binding.index, pid)
    port = plan.ports[parameter.number]
    tensor = port.port.tensor
    if parameter.kind == "value":
        return top.value(tensor)
    if parameter.kind in ("in", "out"):
        return top.tiles[number, parameter.kind, tensor.name + str(parameter.number)].of(offset)
    task = identifier("_".join([tensor.name, plan.kernel.name, *(str(p.const) for p in pid)]))
    users = [kernel for kernel in top.program.kernels if tensor in kernel.args]
    wanted = tensor.name if users == [plan.kernel] and plan.kernel.task_count == 1 else task
    if port.access == "onchip":
        tile = int(tile_of(port.port, np.array([[p.const for p in pid]], np.int64))[0])
        return top.memory(plan, port, wanted, tile, writes=port.copies_out)
    writes = any(one.copies_out for one in plan.ports if one.port.tensor == tensor)
    return once(top.pointers, wanted, lambda: top.argument(tensor, wanted, writes=writes, raw=True))


def stream_index(index: IndexMap, pid: Sequence[IndexSum]) -> str:
    """Subscripts of a stream of an array, for a pid whose axes are linear forms over names."""
    if index.table is not None:
        linear = int(index.table[tuple(p.const for p in pid)])
        return "".join(f"[{int(i)}]" for i in np.unravel_index(linear, index.grid))
    places = []
    for row, start in zip(index.matrix, index.offset, strict=True):
        form = sum((pid[axis] * factor for axis, factor in enumerate(row)), IndexSum(start))
        places.append(f"[{form.text(str)}]")
    return "".join(places)


def used_streams(program: CompiledProgram, plans: Sequence[ClassPlan]) -> list[StreamArray]:
    """The stream arrays that tasks use, in the order of their declaration."""
    names = {
        (binding if isinstance(binding, StreamArray) else binding.stream).name
        for plan in plans
        for binding in plan.task_class.body.streams
    }
    return [array for array in program.streams if array.name in names]


def interface_pragmas(arguments: Sequence[Argument], transfers: Mapping[str, str], port_bits: int) -> Iterator[str]:
    """Pragmas of the top function's arguments: an AXI master for each tensor, streams between kernels ports.

    One process can read through a port while another one writes (UG1399, "Interface Bundle Rules"). Each pointer has
    a port of its own where tasks access a tensor themselves.

    Args:
        port_bits: width of the device's AXI ports.
    """

    for argument in arguments:
        if argument.is_value:
            yield f"interface s_axilite port={argument.name}"
        elif argument.stream is not None:
            yield f"interface axis port={argument.name}"
        elif argument.extents:
            yield f"interface ap_memory port={argument.name}"
            yield from argument.pragmas
        else:
            names = [one.name for one in arguments if one.tensor == argument.tensor]
            bundle = argument.name if argument.is_shared else min(names, key=len)
            yield (
                f"interface m_axi port={argument.name} bundle=gmem_{bundle} offset=slave depth={argument.size} "
                f"max_widen_bitwidth={port_bits} {transfers.get(argument.name, '')}".rstrip()
            )
            yield f"interface s_axilite port={argument.name}"
    yield "interface s_axilite port=return"
