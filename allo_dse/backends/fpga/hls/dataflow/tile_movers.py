"""Processes that move tiles between DRAM and the nodes of a folded program, turn by turn.

A table gives the destination of each tile, because nodes take their tasks in any order. Tiles that several nodes read
in one turn are loaded once. A tensor that streams to another kernel is sent, not stored, and that kernel loads it from
the memory that receives it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.errors import AlloDseError
from allo_dse.compiler.program.tensors import Tensor

from ..cpp.expressions import Names, element_of_dtype, interface_type
from ..cpp.operations import nested
from .functions import array_pragmas_of, by_reference
from .movers import Arrival, inside, loaded, loop, over_part, over_tile, stored, table, tensor_name
from .tensor_plan import ClassPlan, PortPlan
from .top import Top


@dataclass
class TileMover:
    """Process that loads a tensor's tiles into streams of nodes, or stores tiles from them.

    Attributes:
        streams: the array of the nodes' streams, once it is declared.
        nodes: that take part, with the numbers of their streams.
        tiles: by turn, place of the first element and extents, the streams of the nodes that use the tile.
    """

    tensor: Tensor
    load: bool
    streams: str = ""
    nodes: dict[int, int] = field(default_factory=dict)
    tiles: dict[tuple[int, int, tuple[int, ...]], list[int]] = field(default_factory=lambda: defaultdict(list))
    ports: list[PortPlan] = field(default_factory=list)

    @property
    def type(self) -> str:
        return f"hls::stream<{self.ports[0].word}, {self.depth}>"

    @property
    def depth(self) -> int:
        return max(port.stream_depth for port in self.ports)

    def stream(self, node: int) -> str:
        """Return the stream of a node."""
        return f"{self.streams}[{self.nodes[node]}]"

    def add(self, turn: int, port: PortPlan, place: int, node: int) -> None:
        """The tile of one task, which a node gets or gives once in a turn."""
        if port not in self.ports:
            self.ports.append(port)
        number, others = self.nodes.setdefault(node, len(self.nodes)), self.tiles[turn, place, port.box.extents]
        if number not in others:
            others.append(number)

    def declare(self, top: Top) -> None:
        """Declare the streams in the top function."""
        self.streams = top.names.new(f"{tensor_name(self.tensor)}_{'in' if self.load else 'out'}")
        top.lines.append(f"  {self.type} {self.streams}[{len(self.nodes)}];")
        top.lines.append(f"#pragma HLS stream variable={self.streams} depth={self.depth}")

    def emit(self, top: Top, argument: str) -> str:
        """Call the process in the top function; returns its function.

        Args:
            argument: how that of the tensor is called.
        """
        name, moves = tensor_name(self.tensor), self._moves()
        function = top.names.new(f"{'load' if self.load else 'store'}_{name}")
        sent, arrival = None, top.streams.received.get(self.tensor.name) if self.load else None
        if arrival is not None:
            return self._receive(top, argument, function, arrival)
        if self.tensor.name in top.streams.sent and not self.load:
            sent = Arrival.of(self.tensor, self.ports[0], [one[:2] for one in moves])
            pointer, memory = top.stream(self.tensor, argument, sent, writes=True), f"{sent.stream} &{name}"
        else:
            pointer, const = top.argument(self.tensor, argument, writes=not self.load), "const " if self.load else ""
            memory = f"{const}{interface_type(self.tensor.dtype)} *{name}"
        top.lines.append(f"  ALLO_PROCESS({function}, {pointer}, {self.streams});")
        return "\n".join([f"void {function}({memory}, {self._parameter}) {{", *self._body(moves, sent), "}"])

    def _receive(self, top: Top, argument: str, function: str, arrival: Arrival) -> str:
        """Processes that receive the tensor into a memory, and load it from there.

        Raises:
            AlloDseError: where the tensor comes in other words than those that are loaded.
        """
        name, moves = tensor_name(self.tensor), self._moves()
        if arrival.word != self.ports[0].word or arrival.words * arrival.lanes != math.prod(self.tensor.shape):
            raise AlloDseError(f"HLS C++: {self.tensor.name} arrives in words of another size than it is loaded in")
        pointer = top.stream(self.tensor, argument, arrival, writes=False)
        receive, memory, there = (top.names.new(f"{one}_{name}") for one in ("receive", "memory", "there"))
        top.lines += [
            f"  ALLO_MEMORY {arrival.word} {memory}[{arrival.words}];",
            f"#pragma HLS bind_storage variable={memory} type=ram_2p impl={top.streams.memory}",
            f"#pragma HLS stream variable={memory} type=unsync",
            f'  hls::stream<bool, {len(arrival.places)}> {there}("{there}");',
            f"#pragma HLS stream variable={there} depth={len(arrival.places)}",
            f"  ALLO_PROCESS({receive}, {pointer}, {memory}, {there});",
            f"  ALLO_PROCESS({function}, {memory}, {there}, {self.streams});",
        ]
        parameters = f"const {arrival.word} {name}[{arrival.words}], hls::stream<bool> &there, {self._parameter}"
        head = f"void {function}({parameters}) {{"
        return "\n".join([arrival.receiver(receive, name), "", head, *self._body(moves, arrival), "}"])

    @property
    def _parameter(self) -> str:
        return f"{self.type} (&{self.streams})[{len(self.nodes)}]"

    def _moves(self) -> list[tuple[tuple[int, ...], int, tuple[int, ...]]]:
        """Extents and place of each tile as they go, and the streams of the nodes that it goes to or comes from."""
        found = []
        for (_, place, extents), nodes in sorted(self.tiles.items()):
            # A tile that several nodes read at once is loaded once; written tiles are stored one after the other.
            taken = [tuple(nodes)] if self.load else [(node,) for node in nodes]
            found += [(extents, place, one) for one in taken]
        return found

    def _body(
        self, moves: Sequence[tuple[tuple[int, ...], int, tuple[int, ...]]], arrival: Arrival | None
    ) -> list[str]:
        """A loop over the tiles, in which each goes one of the ways that there are.

        Args:
            arrival: how the tensor comes into the memory from which it is loaded, or is sent in place of being stored.
        """
        ways = list(dict.fromkeys(way for _, _, way in moves))
        numbers = {way: number for number, way in enumerate(ways)}
        shapes = list(dict.fromkeys(extents for extents, _, _ in moves))
        lines = [table("place", [place for _, place, _ in moves])] if self.load or arrival is None else []
        lines.append(table("way", [numbers[way] for _, _, way in moves]))
        lines += [table("shape", [shapes.index(extents) for extents, _, _ in moves])] if len(shapes) > 1 else []
        receives = arrival if self.load else None
        if receives is not None:
            lines.append(table("asked", receives.asked([one[:2] for one in moves], self.tensor.strides)))
            lines.append("  int came = 0;")
        lines.append(loop(1, "tile", len(moves)))
        if receives is not None:
            count = len(receives.places)
            lines.append(f"    for (; came < {count} && asked[came] <= tile; came++) there.read();")
        for number, extents in enumerate(shapes):
            body = self._move(extents, ways, arrival)
            lines += body if len(shapes) == 1 else [f"    if (shape[tile] == {number}) {{", *body, "    }"]
        rest = [] if receives is None else [f"  for (; came < {len(receives.places)}; came++) there.read();"]
        return [*lines, "  }", *rest]

    def _move(self, extents: tuple[int, ...], ways: Sequence[tuple[int, ...]], arrival: Arrival | None) -> list[str]:
        """Loops over the elements of one tile, row-major."""
        port, name = self.ports[0], tensor_name(self.tensor)

        def moved(address: str, depth: int) -> list[str]:
            indent = "  " * depth
            turns = [
                f"{indent}if (way[tile] == {number}) {{ {' '.join(map(self._one, nodes))} }}"
                for number, nodes in enumerate(ways)
            ]
            if self.load and arrival is not None:
                return [f"{indent}const {port.word} element = {name}[{arrival.place_of(address)}];", *turns]
            if self.load:
                return [*loaded(port, address, depth), *turns]
            element = f"{indent}{port.word} element;"
            if arrival is not None:
                return [element, *turns, f"{indent}allo::send({name}, element);"]
            return [element, *turns, *stored(port, address, "element", depth)]

        return over_tile(2, extents, self.tensor.strides, port.lanes, moved)

    def _one(self, node: int) -> str:
        stream = f"{self.streams}[{node}]"
        return f"{stream}.write(element);" if self.load else f"element = {stream}.read();"


# Arrays of a process that hold the parts of tensors that its tasks use, from before the first to after the last.


class Slot(NamedTuple):
    """One part in an array of several, as an argument."""

    array: str
    number: int


@dataclass
class _Array:
    """The parts of one tensor that have the same extents.

    Attributes:
        ports: of the task classes that use it.
        number: of each part, by the place of its first element in the tensor; in ascending order.
        loaded, stored: places of those that come, and that go.
        table: elements of the tensor, if they are constants.
    """

    name: str
    tensor: Tensor
    ports: list[tuple[ClassPlan, PortPlan]] = field(default_factory=list)
    number: dict[int, int] = field(default_factory=dict)
    loaded: set[int] = field(default_factory=set)
    stored: set[int] = field(default_factory=set)
    table: NDArray[np.generic] | None = None

    @property
    def port(self) -> PortPlan:
        return self.ports[0][1]

    @property
    def has_several(self) -> bool:
        return len(self.number) > 1

    def argument(self, place: int) -> str | Slot:
        return Slot(self.name, self.number[place]) if self.has_several else self.name

    @property
    def dims(self) -> str:
        return f"[{len(self.number)}]{self.port.dims}" if self.has_several else self.port.dims

    @property
    def parameter(self) -> str:
        return by_reference(element_of_dtype(self.tensor.dtype), self.name, self.dims)

    def declared(self, top: Top) -> Iterator[str]:
        """Its declaration with its pragmas."""
        element, extents = element_of_dtype(self.tensor.dtype), self.port.box.extents
        if self.table is None:
            yield f"  {element} {self.name}{self.dims};"
        else:
            places = np.array([*self.number])[:, None] + inside(extents, self.tensor.strides)
            values = self.table.ravel()[places].reshape(-1, *(n for n in extents if n > 1))
            text = nested(values if self.has_several else values[0], element)
            top.tables.append(f"static const {element} {self.name}{self.dims} = {text};")
        own = (-1, *self.port.kept) if self.has_several else self.port.kept
        said = (array_pragmas_of(top.pragmas(plan.task_class), plan, p, self.name, own) for plan, p in self.ports)
        yield from dict.fromkeys(f"#pragma HLS {text}" for texts in said for text in texts)

    def moved(self, first: int, count: int, stream: str, *, load: bool) -> list[str]:
        """Loops over the words of some of its parts, which come from a stream or go to it."""
        tile = "tile" if not first else f"{first} + tile"
        part = f"{self.name}[{tile if count > 1 else first}]" if self.has_several else self.name
        inner = over_part(self.port, part, stream, 2 if count > 1 else 1, load=load)
        return [loop(1, "tile", count), *inner, "  }"] if count > 1 else inner


class KeptTiles:
    """Parts of tensors that one process keeps for its tasks.

    Args:
        used: the task classes' ports that it keeps, with the places of the parts that its tasks use.
    """

    def __init__(self, names: Names, used: Iterable[tuple[ClassPlan, PortPlan, int]], top: Top) -> None:
        self._top = top
        self._arrays: dict[tuple[str, tuple[int, ...]], _Array] = {}
        # In the order of the region's tensors, so that no two processes that load them can wait for each other.
        position = {tensor.name: number for number, tensor in enumerate(top.program.tensors)}
        for plan, port, place in sorted(used, key=lambda one: (position[one[1].port.tensor.name], one[2])):
            key = port.port.tensor.name, port.box.extents
            if key not in self._arrays:
                table = top.streams.tables.get(key[0])
                name = names.new(key[0] if table is None else top.names.new(key[0]))
                self._arrays[key] = _Array(name, port.port.tensor, table=table)
            array = self._arrays[key]
            array.number.setdefault(place, len(array.number))
            if (plan, port) not in array.ports:
                array.ports.append((plan, port))
            array.loaded.update([place] * port.copies_in)
            array.stored.update([place] * port.copies_out)

    def argument(self, port: PortPlan, place: int) -> str | Slot:
        """A part as the argument of a task's call."""
        return self._arrays[port.port.tensor.name, port.box.extents].argument(place)

    def declared(self) -> Iterator[str]:
        """The declarations of the arrays."""
        return chain.from_iterable(array.declared(self._top) for array in self._arrays.values())

    def moved(self, streams: Mapping[tuple[str, str], str], *, load: bool) -> list[str]:
        """Return the statements that fill the arrays, or send the parts that tasks have written.

        Args:
            streams: by tensor and "in" or "out".
        """
        calls = []
        for name, group in groupby(self._arrays.values(), key=lambda array: array.tensor.name):
            arrays = list(group)
            # In order of arrival: by place, then by extents.
            parts = sorted(
                (place, array.port.box.extents, array.number[place], array)
                for array in arrays
                for place in (array.loaded if load else array.stored)
            )
            if not parts:
                continue
            stream, lines = streams[name, "in" if load else "out"], list[str]()
            for _, run in groupby(enumerate(parts), key=lambda one: (one[1][1], one[1][2] - one[0])):
                (_, (_, _, first, array)), *rest = run
                lines += array.moved(first, 1 + len(rest), stream, load=load)
            parameters = *(array.parameter for array in arrays), f"hls::stream< {arrays[0].port.word} > &{stream}"
            function = self._top.copiers.function(f"{'fill' if load else 'send'}_{name}", parameters, lines)
            calls.append(f"  {function}({', '.join([*(array.name for array in arrays), stream])});")
        return calls
