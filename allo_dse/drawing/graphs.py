"""A folded or unfolded graph, layer by layer: streams lead downwards as far as they form no cycle."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from allo_dse.common.records import Frozen
from allo_dse.mapper.fold.vmg import VMG

from .summary import Box, Flow, Summary, summarise
from .svg import BOLD, Canvas, Point, fit, styles, text_width

# Layered layout of a graph: every box lies below its sources, except in cycles.


GAP_X, GAP_Y = 30.0, 66.0
_WIDEST = 1500.0
_MARGIN = 9.0


class Arrangement(Frozen):
    """The positions of boxes (upper left corners), and the size of each."""

    corners: tuple[Point, ...]
    width: float
    height: float

    @property
    def bottom(self) -> float:
        return max(y for _, y in self.corners) + self.height

    def lane(self, top: float, bottom: float, wanted: float) -> float:
        """Return the place nearest to the wanted one where a line from top to bottom crosses no box."""
        between = sorted(x for x, y in self.corners if top < y + self.height and y < bottom)
        blocked = [(x - _MARGIN, x + self.width + _MARGIN) for x in between]
        edges = [wanted, *(edge for interval in blocked for edge in interval)]
        free = [x for x in edges if not any(low < x < high for low, high in blocked)]
        return min(free, key=lambda x: abs(x - wanted))


def lay_out(summary: Summary, width: float, height: float, origin: Point, *, gap: float = GAP_X) -> Arrangement:
    """Place boxes layer by layer from the top, `gap` apart; layers that are too wide continue in further rows."""
    layers = _layers(summary)
    most = max(1, int((_WIDEST + gap) // (width + gap)))
    edges = {(flow.source, flow.target) for flow in summary.flows}
    if not edges:
        most = min(most, max(1, round(len(summary.boxes) ** 0.5)))
    corners: list[Point] = [(0.0, 0.0)] * len(summary.boxes)
    rows = [row for layer in _untangled(layers, edges) for row in _rows(layer, most)]
    widest = max(len(row) for row in rows)
    left, y = origin
    for row in rows:
        indent = (widest - len(row)) * (width + gap) / 2
        for position, box in enumerate(row):
            corners[box] = (left + indent + position * (width + gap), y)
        y += height + (GAP_Y if edges else GAP_X)
    return Arrangement(tuple(corners), width, height)


def _rows(layer: list[int], most: int) -> list[list[int]]:
    """A layer in as few rows as hold it, evenly filled."""
    count = -(-len(layer) // most)
    size = -(-len(layer) // count)
    return [layer[i : i + size] for i in range(0, len(layer), size)]


def _layers(summary: Summary) -> list[list[int]]:
    """Boxes by their longest path from a source; edges that close a cycle do not count."""
    after: dict[int, list[int]] = {n: [] for n in range(len(summary.boxes))}
    for flow in summary.flows:
        if flow.source != flow.target:
            after[flow.source].append(flow.target)
    order = _finish_order(after)
    rank = {box: position for position, box in enumerate(order)}
    depth = dict.fromkeys(order, 0)
    for box in order:
        for target in after[box]:
            if rank[target] > rank[box]:
                depth[target] = max(depth[target], depth[box] + 1)
    layers: list[list[int]] = [[] for _ in range(max(depth.values()) + 1)]
    for box in range(len(summary.boxes)):
        layers[depth[box]].append(box)
    return layers


def _finish_order(after: dict[int, list[int]]) -> list[int]:
    """Boxes so that as many edges as depth-first search finds lead onwards: a topological order of an acyclic graph."""
    entered = {target for targets in after.values() for target in targets}
    seen: set[int] = set()
    finished: list[int] = []
    for start in sorted(after, key=lambda box: (box in entered, box)):
        stack = [(start, iter(after[start]))] if start not in seen else []
        seen.add(start)
        while stack:
            box, targets = stack[-1]
            target = next((t for t in targets if t not in seen), None)
            if target is None:
                finished.append(box)
                stack.pop()
            else:
                seen.add(target)
                stack.append((target, iter(after[target])))
    return finished[::-1]


def _untangled(layers: list[list[int]], edges: set[tuple[int, int]]) -> list[list[int]]:
    """Each layer in the order of the mean position of its boxes' neighbours above, to cross fewer edges."""
    before: dict[int, list[int]] = {}
    for source, target in edges:
        before.setdefault(target, []).append(source)
    position: dict[int, float] = {}
    result = []
    for layer in layers:
        place = {box: index / len(layer) for index, box in enumerate(layer)}

        def middle(box: int, place: dict[int, float] = place) -> tuple[float, float]:
            above = [position[b] for b in before.get(box, ()) if b in position]
            return (sum(above) / len(above) if above else place[box]), place[box]

        ordered = sorted(layer, key=middle)
        position.update({box: index / len(ordered) for index, box in enumerate(ordered)})
        result.append(ordered)
    return result


# Placing texts beside lines: clear of boxes and other texts, and across as few lines as possible.


Area = tuple[float, float, float, float]
"""Left, top, right and bottom."""

SIZE = 9.5
_SWATCH = 9.0
_TEXT_MARGIN = 3.0
_MOST_CROSSED = 1
_STEP = 4.0


def curve(points: Sequence[Point], bend: float) -> list[Point]:
    """Return points a few pixels apart on the curve that `Canvas.path` draws."""
    found: list[Point] = []
    for (x1, y1), (x2, y2) in pairwise(points):
        count = max(2, int((abs(x2 - x1) + abs(y2 - y1)) / _STEP))
        for n in range(count + 1):
            t = n / count
            a, b, c, d = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3
            found.append(((a + b) * x1 + (c + d) * x2, a * y1 + b * (y1 + bend) + c * (y2 - bend) + d * y2))
    return found


def straight(points: Sequence[Point]) -> list[Point]:
    """Return points a few pixels apart on straight lines from point to point."""
    found: list[Point] = []
    for (x1, y1), (x2, y2) in pairwise(points):
        count = max(1, int((abs(x2 - x1) + abs(y2 - y1)) / _STEP))
        found += [(x1 + (x2 - x1) * n / count, y1 + (y2 - y1) * n / count) for n in range(count + 1)]
    return found


def beside(line: Sequence[Point]) -> list[Point]:
    """Places for a text right of a line, those near its middle first."""
    middle = len(line) / 2
    order = sorted(range(len(line)), key=lambda n: abs(n - middle))
    return [(line[n][0] + 5, line[n][1] + SIZE / 3) for n in order]


class LineTexts:
    """Texts on a canvas that avoid boxes, lines and each other."""

    def __init__(self, canvas: Canvas, boxes: Iterable[Area]) -> None:
        self._canvas = canvas
        self._taken = list(boxes)
        self._lines: list[Point] = []

    def avoid(self, line: Iterable[Point]) -> None:
        """Record a line that texts should not cross."""
        self._lines += line

    def write(self, text: str, places: Iterable[Point], color: str) -> bool:
        """Write a text at the best of some places, with its line's colour in front; return False if none is free.

        Args:
            places: where the text may begin, on its base line, the preferred one first; it may also end at its line.
        """
        width = _SWATCH + text_width(text, SIZE)
        best: tuple[int, float, float] | None = None
        for x, y in places:
            for left in (x, x - 10 - width):
                crossed = self._crossed(left, y, width)
                if crossed is not None and (best is None or crossed < best[0]):
                    best = crossed, left, y
            if best is not None and best[0] == 0:
                break
        if best is None or best[0] > _MOST_CROSSED:
            return False
        _, left, y = best
        self._taken.append(_area(left, y, width))
        self._canvas.fill(left, y - 6.5, 6, 6, color)
        self._canvas.text(left + _SWATCH, y, text, size=SIZE)
        return True

    def _crossed(self, left: float, y: float, width: float) -> int | None:
        """Count the points of lines that a text would cover; None if the place is not free."""
        x1, y1, x2, y2 = _area(left, y, width)
        if x1 < 0 or any(x1 < right and own < x2 and y1 < low and top < y2 for own, top, right, low in self._taken):
            return None
        return sum(x1 < x < x2 and y1 < own < y2 for x, own in self._lines)


def _area(left: float, y: float, width: float) -> Area:
    return left - _TEXT_MARGIN, y - SIZE - 1, left + width + _TEXT_MARGIN, y + _TEXT_MARGIN


MOST_LABELS = 24
_BEND = GAP_Y * 0.55
_SHADOW = 6.0
_APART = 5.0

_LINE, _PAD = 14.0, 8.0
_LEFT, _TOP = 16.0, 70.0
_FEW = 10
"""Boxes that are set so far apart that the streams' amounts fit between them, which takes this much beside the text."""
_BESIDE = 52.0


def vmg_svg(vmg: VMG) -> str:
    """Draw a graph: a box per node, or per group of alike nodes if there are too many."""
    summary = summarise(vmg)
    canvas = Canvas(f"{vmg.program.name}: {vmg.node_count:,} nodes")
    nodes = f" on {vmg.node_count:,} nodes" if vmg.node_count != vmg.task_count else ""
    canvas.text(_LEFT, 24, f"{vmg.program.name}: {vmg.task_count:,} tasks{nodes}", size=15, bold=True)
    canvas.text(_LEFT, 42, _subtitle(summary), faint=True)
    colors = styles(flow.array for flow in summary.flows)
    widest = (
        max(text_width(box.name, 12) * BOLD, *(text_width(line, 10) for line in box.lines), 60.0)
        for box in summary.boxes
    )
    width = min(230.0, max(widest)) + 2 * _PAD + 1
    height = max(2 * _PAD + _LINE * (1 + len(box.lines)) for box in summary.boxes)
    texts = [amount([flow]) for flow in summary.flows]
    roomy = len(summary.boxes) <= _FEW and 0 < len(texts) <= MOST_LABELS
    gap = max(text_width(text, SIZE) for text in texts) + _BESIDE if roomy else GAP_X
    layout = lay_out(summary, width, height, (_LEFT, _TOP), gap=gap)
    Wires(canvas, layout, summary.flows, colors).draw()
    for box, (x, y) in zip(summary.boxes, layout.corners, strict=True):
        _draw_box(canvas, box, x, y, width, height)
    flows = {name: [flow for flow in summary.flows if flow.array == name] for name in colors}
    legend = [(f"{name}: {amount(flows[name])}", *style) for name, style in colors.items()]
    canvas.legend(_LEFT, layout.bottom + 34, legend, max(560.0, canvas.width - _LEFT))
    return str(canvas)


def _subtitle(summary: Summary) -> str:
    streams = sum(flow.streams for flow in summary.flows)
    what = {
        "node": "each box is a node",
        "group": "nodes with one schedule are one box",
        "kernel": "one box per kernel",
    }
    return f"{streams:,} stream{'' if streams == 1 else 's'} between nodes; {what[summary.level]}"


def _draw_box(canvas: Canvas, box: Box, x: float, y: float, width: float, height: float) -> None:
    for shadow in (6, 3) if box.nodes > 1 else ():
        canvas.box(x + shadow, y - shadow, width, height, opacity=0.0)
    canvas.box(x, y, width, height, tip=box.tip, opacity=0.15)
    canvas.text(x + _PAD, y + _PAD + 10, fit(box.name, (width - 2 * _PAD) / BOLD, 12), size=12, bold=True)
    for number, line in enumerate(box.lines, 1):
        text = fit(line, width - 2 * _PAD, 10)
        canvas.text(x + _PAD, y + _PAD + 10 + _LINE * number, text, size=10, faint=True)


def amount(flows: Sequence[Flow]) -> str:
    """Streams and tokens of some flows of one array."""
    streams = sum(flow.streams for flow in flows)
    known = [flow.tokens for flow in flows if flow.tokens is not None]
    text = f"{streams:,} stream{'s' if streams > 1 else ''}"
    if len(known) == len(flows):
        text += f", {sum(known):,} token{'s' if sum(known) > 1 else ''}"
    return text


class Wires:
    """The streams of a graph on its layout."""

    def __init__(
        self, canvas: Canvas, layout: Arrangement, flows: Sequence[Flow], colors: dict[str, tuple[str, str]]
    ) -> None:
        self.canvas = canvas
        self.layout = layout
        self.flows = flows
        self.colors = colors
        areas = [(x, y - _SHADOW, x + layout.width + _SHADOW, y + layout.height) for x, y in layout.corners]
        title = 0.0, 0.0, math.inf, min(y for _, y in layout.corners) - GAP_Y / 3
        self.labels = LineTexts(canvas, [title, *areas])
        self.lanes: list[tuple[float, float, float]] = []
        self.beside: list[tuple[Flow, list[Point]]] = []
        self.leaving = self._sides([f.source for f in flows], [f.target for f in flows])
        self.entering = self._sides([f.target for f in flows], [f.source for f in flows])

    def _sides(self, own: Sequence[int], others: Sequence[int]) -> list[tuple[int, int]]:
        """Per flow its place among those at the same box, in the order of their other ends, and how many there are."""
        at: dict[int, list[int]] = {}
        for number, (box, other) in enumerate(zip(own, others, strict=True)):
            if box != other:
                at.setdefault(box, []).append(number)
        result = [(0, 1)] * len(own)
        for numbers in at.values():
            ordered = sorted(numbers, key=lambda n: (self._reach(own[n], others[n]), n))
            for position, number in enumerate(ordered):
                result[number] = (position, len(ordered))
        return result

    def _reach(self, box: int, other: int) -> tuple[float, float]:
        """Return a sort key for streams at a box: where the other end is, then how far below or above.

        Streams that pass other boxes do so on the right.
        """
        (_, y1), (x2, y2) = self.layout.corners[box], self.layout.corners[other]
        return x2, abs(y2 - y1)

    def draw(self) -> None:
        loops = Counter[int]()
        for number, flow in enumerate(self.flows):
            if flow.source == flow.target:
                self._loop(flow, loops[flow.source])
                loops[flow.source] += 1
            elif self.layout.corners[flow.target][1] > self.layout.corners[flow.source][1]:
                self._down(number, flow)
            else:
                self._back(flow)
        if len(self.flows) <= MOST_LABELS:
            for flow, places in self.beside:
                self.labels.write(amount([flow]), places, self.colors[flow.array][0])

    def _lane(self, top: float, bottom: float, wanted: float) -> float:
        """Find and record a lane for a line past boxes, beside the lines that are there already."""
        lane = self.layout.lane(top, bottom, wanted)
        aside = _APART if lane >= wanted else -_APART
        low, high = min(top, bottom), max(top, bottom)
        while any(abs(lane - x) < _APART and low < end and begin < high for x, begin, end in self.lanes):
            lane += aside
        self.lanes.append((lane, low, high))
        return lane

    def _across(self, box: int, place: tuple[int, int]) -> float:
        position, count = place
        return self.layout.corners[box][0] + self.layout.width * (position + 1) / (count + 1)

    def _down(self, number: int, flow: Flow) -> None:
        height = self.layout.height
        start = self._across(flow.source, self.leaving[number]), self.layout.corners[flow.source][1] + height
        end = self._across(flow.target, self.entering[number]), self.layout.corners[flow.target][1]
        points = [start, end]
        if end[1] - start[1] > GAP_Y + 1:
            top, bottom = start[1] + GAP_Y, end[1] - GAP_Y
            lane = self._lane(top, bottom, start[0])
            points = [start, (lane, top), (lane, bottom), end]
        self.canvas.path(points, _BEND, **self._style(flow))
        self._note(flow, curve(points, _BEND))

    def _style(self, flow: Flow) -> dict[str, Any]:
        color, dash = self.colors[flow.array]
        return {"color": color, "dash": dash, "tip": f"{flow.array}: {amount([flow])}"}

    def _note(self, flow: Flow, line: list[Point]) -> None:
        """Record a line, and the places for its amount beside it."""
        self.labels.avoid(line)
        self.beside.append((flow, beside(line)))

    def _back(self, flow: Flow) -> None:
        """Draw a flow to a box that is not below: out at the bottom, up where there is room, in at the top."""
        layout = self.layout
        (x1, y1), (x2, y2) = layout.corners[flow.source], layout.corners[flow.target]
        start, end = (x1 + 0.9 * layout.width, y1 + layout.height), (x2 + 0.9 * layout.width, y2)
        below, above = start[1] + 12, end[1] - 18
        lane = layout.lane(above, below, start[0] + 0.1 * layout.width)
        points: list[Point] = [start, (start[0], below), (lane, below), (lane, above), (end[0], above), end]
        self.canvas.line(points, **self._style(flow), arrow=True)
        self._note(flow, straight(points))

    def _loop(self, flow: Flow, number: int) -> None:
        """Draw a flow from a box to itself, between alike nodes."""
        x, y = self.layout.corners[flow.source]
        x, y = x + self.layout.width, y + self.layout.height / 2
        size = 9.0 + 7 * number
        points = [(x, y - size), (x + 16, y - size), (x + 16, y + size), (x, y + size)]
        self.canvas.line(points, **self._style(flow), arrow=True)
        self.labels.avoid(straight(points))
        below = self.layout.height / 2 + 14
        places = [(x + 22, y + 12 * step) for step in (number, number - 1, number + 1)]
        self.beside.append((flow, [*places, *((x - 8, y + below + 12 * n) for n in range(3))]))
