"""Processes that move tensors between DRAM and the tasks' streams."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec import field as struct_field
from numpy.typing import NDArray

from allo_dse.common.errors import AlloDseError
from allo_dse.common.records import Frozen
from allo_dse.compiler.program.tensors import IntArray, Tensor

from ...linear import Atom, IndexSum
from ..cpp.expressions import LOCALS, Names, counter_of, element_of_dtype, interface_type
from .tensor_plan import Group, PortPlan


class TileStream(Frozen):
    """The streams between a mover and the tasks of a group, one per task.

    Attributes:
        name: of the stream, or of the array of streams if the group has several tasks.
    """

    name: str
    group: Group
    port: PortPlan

    @property
    def type(self) -> str:
        return f"hls::stream<{self.port.word}, {self.port.stream_depth}>"

    @property
    def dims(self) -> str:
        return "".join(f"[{self.group.extent[axis]}]" for axis in self.group.axes)

    @property
    def parameter(self) -> str:
        return (
            f"{self.type} (&{self.name}){self.dims}" if self.dims else f"hls::stream< {self.port.word} > &{self.name}"
        )

    def of(self, pid: Sequence[str]) -> str:
        """The stream of one task, given C++ text per mesh axis, counted from the group's first."""
        return self.name + "".join(f"[{pid[axis]}]" for axis in self.group.axes)


def mover(name: str, tensor: Tensor, streams: Sequence[TileStream], *, load: bool) -> str:
    """The function that loads a tensor into the tasks' streams, or stores from them."""
    const = "const " if load else ""
    pointer = f"{const}{interface_type(tensor.dtype)} *{tensor_name(tensor)}"
    lines = [f"void {name}({', '.join([pointer, *(s.parameter for s in streams)])}) {{"]
    for stream in streams:
        lines += _group_loops(tensor, stream, load=load)
    return "\n".join([*lines, "}"])


def tensor_name(tensor: Tensor) -> str:
    """Return the name of a tensor in the processes that move it."""
    return Names(LOCALS).new(tensor.name)


def _group_loops(tensor: Tensor, stream: TileStream, *, load: bool) -> list[str]:
    group, port = stream.group, stream.port
    moving = {axis for start in port.corner for axis in start.terms}
    outer = [axis for axis in group.axes if axis in moving or not load]
    shared = [axis for axis in group.axes if axis not in outer]
    pid, extents = [f"p{axis}" for axis in range(len(group.start))], port.box.extents
    depth = 1 + len(outer)
    around = [text for at, axis in enumerate(outer) for text in (loop(1 + at, pid[axis], group.extent[axis]), _UNROLL)]
    counters = [counter_of(dim) if extent > 1 else "" for dim, extent in enumerate(extents)]
    if shared and depth == 1 and not any(counters):  # what it declares is of this group
        around.append("  {")
        depth += 1

    def moved(deepest: int) -> list[str]:
        return _element(tensor, stream, counters, pid, shared, deepest, load=load)

    closed = ("  " * level + "}" for level in reversed(range(1, depth)))
    return [f"  // for tasks of {group.plan.symbol}", *around, *_over(depth, extents, port.lanes, moved), *closed]


_UNROLL = "#pragma HLS unroll"


def loop(depth: int, counter: str, extent: int, step: int = 1) -> str:
    by = f"{counter}++" if step == 1 else f"{counter} += {step}"
    return f"{'  ' * depth}for (int {counter} = 0; {counter} < {extent}; {by}) {{"


def over_tile(
    depth: int, extents: Sequence[int], strides: Sequence[int], lanes: int, inside: Callable[[str, int], list[str]]
) -> list[str]:
    """Loops over the words of the tile that begins at `place[tile]`, row-major.

    Args:
        depth: of the outermost loop. extents: of the tile. strides: of the tensor. lanes: elements of a word.
        inside: what is done at an address, so deep inside.
    """
    address = "place[tile]"
    for dim, (extent, stride) in enumerate(zip(extents, strides, strict=True)):
        if extent > 1:
            address += f" + {counter_of(dim)}" + (f" * {stride}" if stride > 1 else "")
    return _over(depth, extents, lanes, lambda deepest: inside(address, deepest))


def _over(
    depth: int, extents: Sequence[int], lanes: int, inside: Callable[[int], list[str]], *, pipelined: bool = False
) -> list[str]:
    """Loops over the words of a box; a loop around them is `pipelined` where there are none."""
    dims = [dim for dim, extent in enumerate(extents) if extent > 1]
    deepest = depth + len(dims)
    steps = [lanes if dim == len(extents) - 1 else 1 for dim in dims]
    loops = [loop(depth + n, counter_of(dim), extents[dim], steps[n]) for n, dim in enumerate(dims)]
    pragmas = ["#pragma HLS pipeline II=1"] if loops or pipelined else []
    closed = ["  " * level + "}" for level in range(deepest - 1, depth - 1, -1)]
    return [*loops, *pragmas, *inside(deepest), *closed]


def over_part(port: PortPlan, array: str, stream: str, depth: int, *, load: bool) -> list[str]:
    """Loops over the words of a task's part of a tensor in an array, which come from a stream or go to it.

    Args:
        array: what holds the part. depth: of the outermost loop.
    """
    place = array + "".join(f"[{counter_of(dim)}]" for dim in port.kept)

    def moved(deepest: int) -> list[str]:
        indent = "  " * deepest
        if port.lanes == 1:
            return [f"{indent}{place} = {stream}.read();" if load else f"{indent}{stream}.write({place});"]
        lane = f"{place[:-1]} + lane]"
        if load:
            word = f"{indent}const {port.word} word = {stream}.read();"
            return [word, *_each_lane(port, f"{lane} = word[lane];", deepest)]
        sent = _each_lane(port, f"word[lane] = {lane};", deepest)
        return [f"{indent}{port.word} word;", *sent, f"{indent}{stream}.write(word);"]

    return _over(depth, port.box.extents, port.lanes, moved, pipelined=depth > 1)


@dataclass
class Copiers:
    """Functions that fill arrays from a stream or send what they hold, each written once.

    A task or a node calls one for each tensor: HLS tools run functions that have nothing in common at the same time,
    and loops one after the other (UG1399, "Loop Parallelism").

    Attributes:
        names: of functions.
        texts: of those that were asked for.
    """

    names: Names
    texts: list[str] = field(default_factory=list)
    _known: dict[tuple[str, ...], str] = field(default_factory=dict)

    def function(self, wanted: str, parameters: Sequence[str], lines: Sequence[str]) -> str:
        """The name of one."""
        key = wanted, *parameters, *lines
        if key not in self._known:
            name = self._known[key] = self.names.new(wanted)
            head = f"void {name}({', '.join(parameters)}) {{"
            self.texts.append("\n".join([head, "#pragma HLS inline off", *lines, "}"]))
        return self._known[key]


def table(name: str, values: Sequence[int]) -> str:
    """A constant array."""
    return f"  static const int {name}[{len(values)}] = {{{', '.join(map(str, values))}}};"


def _element(
    tensor: Tensor,
    stream: TileStream,
    counters: Sequence[str],
    pid: Sequence[str],
    shared: Sequence[int],
    depth: int,
    *,
    load: bool,
) -> list[str]:
    """Move one element, or one word."""
    port, indent, own = stream.port, "  " * depth, stream.of(pid)
    address = _address(tensor, stream, counters)
    if not load and port.lanes == 1:
        return stored(port, address, f"{own}.read()", depth)
    if not load:
        return [f"{indent}const {port.word} word = {own}.read();", *stored(port, address, "word", depth)]
    if port.lanes == 1 and not shared:
        return [f"{indent}{own}.write({_value(port, address)});"]
    lines = loaded(port, address, depth)
    for level, axis in enumerate(shared):
        lines += [loop(depth + level, pid[axis], stream.group.extent[axis]), "#pragma HLS unroll"]
    lines.append(f"{'  ' * (depth + len(shared))}{own}.write(element);")
    return [*lines, *("  " * (depth + len(shared) - 1 - level) + "}" for level in range(len(shared)))]


def loaded(port: PortPlan, address: str, depth: int) -> list[str]:
    """Load one element, or one word, into `element`."""
    indent, value = "  " * depth, _value(port, address)
    if port.lanes == 1:
        return [f"{indent}const {port.word} element = {value};"]
    return [f"{indent}{port.word} element;", *_each_lane(port, f"element[lane] = {value};", depth)]


def stored(port: PortPlan, address: str, value: str, depth: int) -> list[str]:
    """Store one element, or one word."""
    target = f"{_there(port, address)}{'.range()' if port.port.tensor.dtype.is_fixed else ''}"
    if port.lanes == 1:
        return [f"{'  ' * depth}{target} = {value};"]
    return _each_lane(port, f"{target} = {value}[lane];", depth)


def _each_lane(port: PortPlan, line: str, depth: int) -> list[str]:
    indent = "  " * depth
    return [loop(depth, "lane", port.lanes), _UNROLL, f"{indent}  {line}", f"{indent}}}"]


def _there(port: PortPlan, address: str) -> str:
    return f"{tensor_name(port.port.tensor)}[{address}{' + lane' if port.lanes > 1 else ''}]"


def _value(port: PortPlan, address: str) -> str:
    there, dtype = _there(port, address), port.port.tensor.dtype
    return f"({element_of_dtype(dtype)}){there}.range()" if dtype.is_fixed else there


def _address(tensor: Tensor, stream: TileStream, counters: Sequence[str]) -> str:
    """Return the row-major address of the element in DRAM."""
    named: dict[Atom, IndexSum] = {
        axis: IndexSum(start, {f"p{axis}": 1} if axis in stream.group.axes else {})
        for axis, start in enumerate(stream.group.start)
    }
    place = IndexSum()
    for corner, counter, stride in zip(stream.port.corner, counters, tensor.strides, strict=True):
        index = corner.replaced(named) + IndexSum(0, {counter: 1} if counter else {})
        place = place + index * stride
    return place.text(str)


# Tensors passed from kernel to kernel: AXI streams of their tiles, in the order in which the first kernel sends them.
#
# The second kernel receives them into a memory, tile by tile. Its tasks' loads from there wait for their tiles.


class Arrival(Frozen):
    """Order and layout of a tensor that arrives through a stream.

    Attributes:
        places: of the first elements of the tiles, as they come. extents: of a tile, `strides` of the tensor, by
            dimension. word: the C++ type of what comes at once, which is so many `bits` and `lanes` elements.
    """

    places: tuple[int, ...]
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    word: str
    bits: int
    lanes: int

    @classmethod
    def of(cls, tensor: Tensor, port: PortPlan, moves: Sequence[tuple[tuple[int, ...], int]]) -> Arrival:
        """Build the arrival from the extents and places of tiles, in the order in which they are sent.

        Raises:
            AlloDseError: where these are not all of the tensor once, in tiles of one shape.
        """
        shapes, places = {extents for extents, _ in moves}, tuple(place for _, place in moves)
        if len(shapes) != 1:
            raise AlloDseError(f"HLS C++: {tensor.name} cannot be a stream: its tiles have several shapes")
        arrival = cls(places, shapes.pop(), tensor.strides, port.word, port.lanes * tensor.dtype.bits, port.lanes)
        if not np.array_equal(np.sort(arrival.elements, axis=None), np.arange(math.prod(tensor.shape))):
            raise AlloDseError(f"HLS C++: {tensor.name} cannot be a stream: not every element is written once")
        return arrival

    @property
    def elements(self) -> IntArray:
        """Places of all elements as they come: (tiles, elements of a tile)."""
        return np.array(self.places)[:, None] + inside(self.extents, self.strides)

    @property
    def words(self) -> int:
        """Size of the memory for the whole tensor, in words."""
        return len(self.places) * math.prod(self.extents) // self.lanes

    @property
    def stream(self) -> str:
        """The C++ type of the stream."""
        return f"hls::stream<ap_axiu<{self.bits}, 0, 0, 0>>"

    def asked(self, moves: Sequence[tuple[tuple[int, ...], int]], strides: Sequence[int]) -> list[int]:
        """Return, for each tile in order of arrival, the first of some moves that needs it or a later tile.

        The number of moves stands for a tile that none needs.

        Args:
            moves: extents and places of tiles in a tensor of these strides.
        """
        came, first = np.empty(self.words * self.lanes, np.int64), np.full(len(self.places), len(moves))
        came[self.elements] = np.arange(len(self.places))[:, None]
        for (extents, place), number in {move: number for number, move in reversed([*enumerate(moves)])}.items():
            np.minimum.at(first, came[place + inside(extents, strides)], number)
        return [int(number) for number in np.minimum.accumulate(first[::-1])[::-1]]

    def receiver(self, function: str, name: str) -> str:
        """Return the process that writes arriving words into the memory, and reports each complete tile."""
        parameters = f"{self.stream} &{name}, {self.word} memory[{self.words}], hls::stream<bool> &there"

        def received(address: str, depth: int) -> list[str]:
            return [f"{'  ' * depth}allo::receive({name}, memory[{self.place_of(address)}]);"]

        head = [f"void {function}({parameters}) {{", table("place", self.places), loop(1, "tile", len(self.places))]
        tile = over_tile(2, self.extents, self.strides, self.lanes, received)
        return "\n".join([*head, *tile, "    there.write(true);", "  }", "}"])

    def place_of(self, address: str) -> str:
        """Return the position of a word in the memory."""
        return f"({address}) / {self.lanes}" if self.lanes > 1 else address


class KernelStreams(Frozen):
    """Tensors of a kernel that are not in DRAM, by name: streams that it sends, and the arrivals of received ones.

    Attributes:
        memory: what holds those, "uram" or "bram".
        tables: elements of the tensors that the bitstream has.
    """

    sent: frozenset[str] = frozenset()
    received: Mapping[str, Arrival] = struct_field(default_factory=dict)
    memory: str = "bram"
    tables: Mapping[str, NDArray[np.generic]] = struct_field(default_factory=dict)


def inside(extents: Sequence[int], strides: Sequence[int]) -> IntArray:
    """Places of a tile's elements, row-major, from its first."""
    inside = np.zeros((), np.int64)
    for extent, stride in zip(extents, strides, strict=True):
        inside = inside[..., None] + np.arange(extent) * stride
    return inside.ravel()
