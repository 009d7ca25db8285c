"""Processes that move tiles between DRAM and the nodes of a folded program, turn by turn.

Which tile goes where next is a table: nodes take their tasks in any order. Tiles that several nodes read in one turn
are loaded once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from allo_dse.common.errors import AlloDseError
from allo_dse.program.tensors import Tensor

from ..cpp.elements import interface_type
from .footprint import Box
from .tensor_movers import loaded, loop, stored, tensor_name
from .tensor_plan import PortPlan
from .top import Top


@dataclass
class TileMover:
    """What loads a tensor's tiles into streams of nodes, or stores from them.

    Attributes:
        nodes: that take part, with the numbers of their streams.
        tiles: by turn, place of the first element and extents, the streams of the nodes that use the tile.
    """

    tensor: Tensor
    load: bool
    nodes: dict[int, int] = field(default_factory=dict)
    tiles: dict[tuple[int, int, tuple[int, ...]], list[int]] = field(default_factory=lambda: defaultdict(list))
    ports: list[PortPlan] = field(default_factory=list)

    @property
    def streams(self) -> str:
        """The array of the nodes' streams."""
        return f"{tensor_name(self.tensor)}_{'in' if self.load else 'out'}"

    @property
    def type(self) -> str:
        return f"hls::stream<{self.ports[0].word}, {self.depth}>"

    @property
    def depth(self) -> int:
        return max(port.stream_depth for port in self.ports)

    def stream(self, node: int) -> str:
        """That of one node."""
        return f"{self.streams}[{self.nodes[node]}]"

    def add(self, turn: int, port: PortPlan, pid: tuple[int, ...], node: int) -> None:
        """The tile of one task.

        Raises:
            AlloDseError: where tasks move their tiles in words of different widths.
        """
        if port not in self.ports:
            self.ports.append(port)
        if port.word != self.ports[0].word:
            raise AlloDseError(f"HLS C++: tasks move {self.tensor.name} in words of different widths")
        corner = Box(port.corner, port.box.extents).corners(np.array([pid], np.int64))[0]
        place = int(corner @ np.array(self.tensor.strides, np.int64))
        self.tiles[turn, place, port.box.extents].append(self.nodes.setdefault(node, len(self.nodes)))

    def declare(self, top: Top) -> None:
        """Declare the streams in the top function."""
        top.names.new(self.streams)
        top.lines.append(f"  {self.type} {self.streams}[{len(self.nodes)}];")
        top.lines.append(f"#pragma HLS stream variable={self.streams} depth={self.depth}")

    def emit(self, top: Top, argument: str) -> str:
        """Call the process in the top function; returns its function.

        Args:
            argument: how that of the tensor is called.
        """
        pointer = top.argument(self.tensor, argument, writes=not self.load)
        function = top.names.new(f"{'load' if self.load else 'store'}_{tensor_name(self.tensor)}")
        top.lines.append(f"  ALLO_PROCESS({function}, {pointer}, {self.streams});")
        const = "const " if self.load else ""
        memory = f"{const}{interface_type(self.tensor.dtype)} *{tensor_name(self.tensor)}"
        return "\n".join(
            [f"void {function}({memory}, {self.type} (&{self.streams})[{len(self.nodes)}]) {{", *self._body(), "}"]
        )

    def _body(self) -> list[str]:
        """A loop over the tiles, in which each goes one of the ways that there are."""
        ways: dict[tuple[int, ...], int] = {}
        moves: list[tuple[tuple[int, ...], int, int]] = []
        for (_, place, extents), nodes in sorted(self.tiles.items()):
            # What several nodes read at once is loaded once; what they have written is stored one after the other.
            taken = [tuple(nodes)] if self.load else [(node,) for node in nodes]
            moves += [(extents, place, ways.setdefault(one, len(ways))) for one in taken]
        shapes = list(dict.fromkeys(extents for extents, _, _ in moves))
        lines = [_table("place", [place for _, place, _ in moves]), _table("way", [way for _, _, way in moves])]
        lines += [_table("shape", [shapes.index(extents) for extents, _, _ in moves])] if len(shapes) > 1 else []
        lines.append(loop(1, "tile", len(moves)))
        for number, extents in enumerate(shapes):
            body = self._move(extents, list(ways))
            lines += body if len(shapes) == 1 else [f"    if (shape[tile] == {number}) {{", *body, "    }"]
        return [*lines, "  }"]

    def _move(self, extents: tuple[int, ...], ways: Sequence[tuple[int, ...]]) -> list[str]:
        """Loops over the elements of one tile, row-major."""
        port, address = self.ports[0], "place[tile]"
        lines: list[str] = []
        for dim, (extent, stride) in enumerate(zip(extents, self.tensor.strides, strict=True)):
            if extent > 1:
                counter, last = "ijklmn"[min(dim, 5)], dim == len(extents) - 1
                address += f" + {counter}" + (f" * {stride}" if stride > 1 else "")
                lines.append(loop(2 + len(lines), counter, extent, port.lanes if last else 1))
        opened = len(lines)
        indent = "  " * (2 + opened)
        lines += ["#pragma HLS pipeline II=1"] if opened else []
        turns = [
            f"{indent}if (way[tile] == {number}) {{ {' '.join(map(self._one, nodes))} }}"
            for number, nodes in enumerate(ways)
        ]
        if self.load:
            lines += [*loaded(port, address, 2 + opened), *turns]
        else:
            lines += [f"{indent}{port.word} element;", *turns, *stored(port, address, "element", 2 + opened)]
        return [*lines, *("  " * (1 + opened - level) + "}" for level in range(opened))]

    def _one(self, node: int) -> str:
        stream = f"{self.streams}[{node}]"
        return f"{stream}.write(element);" if self.load else f"element = {stream}.read();"


def _table(name: str, values: Sequence[int]) -> str:
    return f"  static const int {name}[{len(values)}] = {{{', '.join(map(str, values))}}};"
