"""A placed design on the array: nodes, their memory and channels, streams between neighbours, and every wire.

Each tile has its switch at the lower left; wires to the north and south run to the left of the cores, wires to the east
and west below them. A wire's place in its bundle is its port.
"""

from __future__ import annotations

from collections import Counter

from allo_dse.drawing.svg import BOLD, GREY, Canvas, Point, fit, styles, text_width

from .place.array import OPPOSITE, Link, Tile, TileLimits
from .place.placed_design import Hop, PlacedDesign, Port

_SWITCH = 46.0
_BOX_WIDTH, _BOX_HEIGHT = 132.0, 66.0
_GAP = 12.0
_CELL_WIDTH = _SWITCH + _GAP + _BOX_WIDTH + _GAP
_LEFT, _TOP = 16.0, 52.0
_WIRE, _SIDE_WIRE = 4.2, 3.9


def placement_svg(placed: PlacedDesign) -> str:
    """The picture."""
    return str(_Picture(placed).drawn())


class _Picture:
    def __init__(self, placed: PlacedDesign) -> None:
        self.placed = placed
        self.limits = placed.problem.limits
        self.canvas = Canvas(str(placed))
        names = [route.name for route in placed.routes] + [s.stream for s in placed.problem.streams]
        self.styles = styles(names)
        rows = 2 + self.limits.core_rows
        self.bottoms: dict[int, float] = {}
        y = _TOP
        for row in range(rows - 1, -1, -1):
            y += _SWITCH + _GAP + (_BOX_HEIGHT if row > 1 else _GAP)
            self.bottoms[row] = y

    def drawn(self) -> Canvas:
        canvas = self.canvas
        first, *rest = str(self.placed).split(", ")
        canvas.text(_LEFT, 24, first, size=15, bold=True)
        canvas.text(_LEFT, 42, f"{', '.join(rest)}; small squares are switches", faint=True)
        tiles = {Tile(c, row) for c in range(self.limits.columns) for row in (0, 1)}
        for tile in sorted(tiles | set(self.limits.cores)):
            self._tile(tile)
        for route in self.placed.routes:
            color, dash = self.styles[route.name]
            tip = f"{route.kind} {route.index} ({route.name}): {route.source} to {', '.join(map(str, route.sinks))}"
            for hop in route.hops:
                self._hop(hop, color, dash, tip)
        self._shared_streams()
        bottom = self.bottoms[0] + 24
        entries = [(self._legend(name), *style) for name, style in self.styles.items()]
        canvas.legend(_LEFT, bottom, entries, max(_CELL_WIDTH * self.limits.columns, 420))
        return canvas

    def _legend(self, name: str) -> str:
        flows = [flow for flow in self.placed.problem.flows if flow.tensor == name]
        streams = sum(stream.stream == name for stream in self.placed.problem.streams)
        if not flows:
            return f"{name}: {streams} stream{'s' if streams > 1 else ''}"
        kinds = Counter(flow.direction for flow in flows)
        return f"{name}: " + ", ".join(f"{n} flow{'s' if n > 1 else ''} {kind}" for kind, n in kinds.items())

    # -- tiles --------------------------------------------------------------------------------------------------------

    def _corner(self, tile: Tile) -> Point:
        """Upper left corner of a tile's switch."""
        return _LEFT + tile.column * _CELL_WIDTH, self.bottoms[tile.row] - _SWITCH

    def _box(self, tile: Tile) -> tuple[float, float, float, float]:
        """x, y, width and height of the core, or of what else the tile is."""
        x, y = self._corner(tile)
        if tile.row > 1:
            return x + _SWITCH + _GAP, y - _BOX_HEIGHT + 2, _BOX_WIDTH, _BOX_HEIGHT
        return x + _SWITCH + _GAP, y, _BOX_WIDTH, _SWITCH

    def _tile(self, tile: Tile) -> None:
        canvas = self.canvas
        use = self.placed.usage.get(tile)
        have = self._has(tile)
        x, y = self._corner(tile)
        busy = use is not None and bool(use.ports or use.dma_in or use.dma_out)
        ports = ", ".join(f"{n} {side}" for side, n in use.ports.items()) if use else ""
        canvas.box(
            x, y, _SWITCH, _SWITCH, tip=f"switch of {tile}: {ports or 'no'} ports out", opacity=0.06 if busy else 0
        )
        left, top, width, height = self._box(tile)
        node = self.placed.tiles.index(tile) if tile in self.placed.tiles else None
        name = self.placed.problem.nodes[node].name if node is not None else str(tile)
        empty = use is None or (tile.row > 1 and node is None)
        canvas.box(left, top, width, height, tip=f"{name} on {tile}", opacity=0.0 if empty else 0.15)
        self._name(left + 7, top + 14, name, width - 14, empty)
        if use is None or empty:
            return
        channels = f"DMA in {use.dma_in}/{have.dma_in}, out {use.dma_out}/{have.dma_out}"
        canvas.text(left + 7, top + 28, channels, size=10, faint=True)
        if tile.row:
            text = f"{_kib(use.bytes)} of {_kib(have.bytes)}"
            canvas.text(left + 7, top + (42 if tile.row > 1 else 40), text, size=10, faint=True)
        if tile.row > 1:
            tip = f"{use.bytes:,} of {have.bytes:,} bytes"
            canvas.box(left + 7, top + 49, width - 14, 6, radius=0, opacity=0, tip=tip)
            canvas.fill(left + 7, top + 49, (width - 14) * min(1.0, use.bytes / max(1, have.bytes)), 6, GREY)

    def _name(self, x: float, y: float, name: str, width: float, empty: bool) -> None:
        """A tile's name, smaller rather than shortened: the ends of nodes' names are what tells them apart."""
        bold = not empty and text_width(name) * BOLD <= width
        size = 11 if bold or empty else 10
        self.canvas.text(x, y, fit(name, width, size), size=size, bold=bold, faint=empty)

    # -- wires --------------------------------------------------------------------------------------------------------

    def _at(self, tile: Tile, port: Port, entering: bool) -> Point:
        """Return the point at which a wire meets the switch: both ends of a wire are in line."""
        x, y = self._corner(tile)
        northward = entering if port.side == "south" else not entering
        eastward = entering if port.side == "west" else not entering
        if port.side in ("north", "south"):
            first = 0 if northward else self._most("north")
            return x + 3 + _WIRE * (first + port.number), y if port.side == "north" else y + _SWITCH
        if port.side in ("east", "west"):
            first = 0 if eastward else self._most("east")
            return x if port.side == "west" else x + _SWITCH, y + _SWITCH - 3 - _SIDE_WIRE * (first + port.number)
        number = port.number + (0 if entering else self._has(tile).dma_out)
        return x + _SWITCH, y + 2 + (2.6 if tile.row > 1 else 3.6) * number

    def _most(self, side: str) -> int:
        """The widest link towards a side."""
        return max((n for link, n in self.limits.links.items() if link.side == side), default=0)

    def _has(self, tile: Tile) -> TileLimits:
        return {0: self.limits.shim, 1: self.limits.memory}.get(tile.row, self.limits.core)

    def _hop(self, hop: Hop, color: str, dash: str, tip: str) -> None:
        points = [self._at(hop.tile, hop.source, True), self._at(hop.tile, hop.target, False)]
        if hop.source.side == "dma":
            points.insert(0, self._memory(hop.tile, points[0]))
        if hop.target.side == "dma":
            points.append(self._memory(hop.tile, points[-1]))
            if hop.tile.row > 1:
                points.insert(-1, (points[-1][0], points[-2][1]))
            self.canvas.line(points, color, dash=dash, tip=tip, arrow=True)
            return
        if hop.source.side == "dma" and hop.tile.row > 1:
            points.insert(1, (points[0][0], points[1][1]))
        link = Link(hop.tile, hop.target.side)
        points.append(self._at(link.target, Port(OPPOSITE[link.side], hop.target.number), True))
        self.canvas.line(points, color, dash=dash, tip=tip)

    def _memory(self, tile: Tile, port: Point) -> Point:
        """Return the point at which a DMA channel meets its memory: above the switch for cores, beside it for other
        tiles.
        """
        left, top, _, height = self._box(tile)
        if tile.row <= 1:
            return left, port[1]
        offset = (port[1] - self._corner(tile)[1]) * 2.4
        return left + 4 + offset, top + height

    # -- streams between neighbours -----------------------------------------------------------------------------------

    def _shared_streams(self) -> None:
        beside: Counter[frozenset[Tile]] = Counter()
        for stream, owner in zip(self.placed.problem.streams, self.placed.owners, strict=True):
            if owner is None:
                continue
            source, target = self.placed.tiles[stream.source], self.placed.tiles[stream.target]
            pair = frozenset((source, target))
            start, end = self._between(source, target, beside[pair])
            beside[pair] += 1
            color, dash = self.styles[stream.stream]
            tip = f"stream {stream.stream}: {stream.bytes:,} bytes in the memory of {owner}"
            self.canvas.line([start, end], color, width=3, dash=dash, tip=tip, arrow=True)
            x, y = start if owner == source else end
            self.canvas.fill(x - 4, y - 4, 8, 8, color, tip)

    def _between(self, source: Tile, target: Tile, number: int) -> tuple[Point, Point]:
        """From one core to its neighbour."""
        x1, y1, width, height = self._box(source)
        x2, y2, _, _ = self._box(target)
        if source.column == target.column:
            x = x1 + width - 14 - 12 * number
            return ((x, y1), (x, y2 + height)) if y1 > y2 else ((x, y1 + height), (x, y2))
        y = y1 + 22 + 11 * number
        return ((x1 + width, y), (x2, y)) if x1 < x2 else ((x1, y), (x2 + width, y))


def _kib(size: int) -> str:
    return f"{size / 1024:.1f} KiB" if size % 1024 else f"{size // 1024} KiB"
