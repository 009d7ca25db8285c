"""A folded or unfolded graph, layer by layer: streams lead downwards as far as they form no cycle."""

from __future__ import annotations

import math
from collections.abc import Sequence

from allo_dse.mapper.fold.vmg import VMG

from .canvas import BOLD, Canvas, Point, fit, styles, text_width
from .layers import GAP_X, GAP_Y, Layout, lay_out
from .line_texts import SIZE, LineTexts, beside, curve, straight
from .summary import Box, Flow, Summary, summarise

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
    """The picture: a box per node, or per group of alike nodes where there are too many to see."""
    summary = summarise(vmg)
    canvas = Canvas(f"{vmg.program.name}: {vmg.node_count:,} nodes")
    canvas.text(_LEFT, 24, _title(vmg), size=15, bold=True)
    canvas.text(_LEFT, 42, _subtitle(vmg, summary), faint=True)
    colors = styles(flow.array for flow in summary.flows)
    width = max(_box_width(box) for box in summary.boxes)
    height = max(2 * _PAD + _LINE * (1 + len(box.lines)) for box in summary.boxes)
    texts = [amount([flow]) for flow in summary.flows]
    roomy = len(summary.boxes) <= _FEW and 0 < len(texts) <= MOST_LABELS
    gap = max(text_width(text, SIZE) for text in texts) + _BESIDE if roomy else GAP_X
    layout = lay_out(summary, width, height, (_LEFT, _TOP), gap=gap)
    wires = Wires(canvas, layout, summary.flows, colors)
    wires.draw()
    for box, (x, y) in zip(summary.boxes, layout.corners, strict=True):
        _draw_box(canvas, box, x, y, width, height)
    legend = [(_legend(name, summary.flows), *style) for name, style in colors.items()]
    canvas.legend(_LEFT, layout.bottom + 34, legend, max(560.0, canvas.width - _LEFT))
    return str(canvas)


def _title(vmg: VMG) -> str:
    program = vmg.program.name
    if vmg.node_count == vmg.task_count:
        return f"{program}: {vmg.task_count:,} tasks"
    return f"{program}: {vmg.task_count:,} tasks on {vmg.node_count:,} nodes"


def _subtitle(vmg: VMG, summary: Summary) -> str:
    streams = sum(flow.streams for flow in summary.flows)
    what = {
        "node": "each box is a node",
        "group": "nodes with one schedule are one box",
        "kernel": "one box per kernel",
    }
    return f"{streams:,} stream{'' if streams == 1 else 's'} between nodes; {what[summary.level]}"


def _legend(name: str, flows: Sequence[Flow]) -> str:
    own = [flow for flow in flows if flow.array == name]
    return f"{name}: {amount(own)}"


def _box_width(box: Box) -> float:
    widest = max(text_width(box.name, 12) * BOLD, *(text_width(line, 10) for line in box.lines), 60.0)
    return min(230.0, widest) + 2 * _PAD + 1


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
        self, canvas: Canvas, layout: Layout, flows: Sequence[Flow], colors: dict[str, tuple[str, str]]
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
        """How far to the right a stream leads; those that pass other boxes do so on the right."""
        (_, y1), (x2, y2) = self.layout.corners[box], self.layout.corners[other]
        return x2, abs(y2 - y1)

    def draw(self) -> None:
        loops: dict[int, int] = {}
        for number, flow in enumerate(self.flows):
            if flow.source == flow.target:
                self._loop(flow, loops.get(flow.source, 0))
                loops[flow.source] = loops.get(flow.source, 0) + 1
            elif self.layout.corners[flow.target][1] > self.layout.corners[flow.source][1]:
                self._down(number, flow)
            else:
                self._back(flow)
        if len(self.flows) <= MOST_LABELS:
            for flow, places in self.beside:
                self.labels.write(amount([flow]), places, self.colors[flow.array][0])

    def _lane(self, top: float, bottom: float, wanted: float) -> float:
        """Where a line leads past boxes, beside the lines that do so already."""
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
        color, dash = self.colors[flow.array]
        tip = f"{flow.array}: {amount([flow])}"
        points = [start, end]
        if end[1] - start[1] > GAP_Y + 1:
            top, bottom = start[1] + GAP_Y, end[1] - GAP_Y
            lane = self._lane(top, bottom, start[0])
            points = [start, (lane, top), (lane, bottom), end]
        self.canvas.path(points, _BEND, color, dash=dash, tip=tip)
        self._note(flow, curve(points, _BEND))

    def _note(self, flow: Flow, line: list[Point]) -> None:
        """Where a line is, and that its amount stands beside it."""
        self.labels.avoid(line)
        self.beside.append((flow, beside(line)))

    def _back(self, flow: Flow) -> None:
        """To a box that is not below: out at the bottom, up where there is room, in at the top."""
        layout = self.layout
        (x1, y1), (x2, y2) = layout.corners[flow.source], layout.corners[flow.target]
        start, end = (x1 + 0.9 * layout.width, y1 + layout.height), (x2 + 0.9 * layout.width, y2)
        below, above = start[1] + 12, end[1] - 18
        lane = layout.lane(above, below, start[0] + 0.1 * layout.width)
        points: list[Point] = [start, (start[0], below), (lane, below), (lane, above), (end[0], above), end]
        color, dash = self.colors[flow.array]
        self.canvas.line(points, color, dash=dash, tip=f"{flow.array}: {amount([flow])}", arrow=True)
        self._note(flow, straight(points))

    def _loop(self, flow: Flow, number: int) -> None:
        """From alike nodes to alike nodes."""
        x, y = self.layout.corners[flow.source]
        x, y = x + self.layout.width, y + self.layout.height / 2
        size = 9.0 + 7 * number
        color, dash = self.colors[flow.array]
        points = [(x, y - size), (x + 16, y - size), (x + 16, y + size), (x, y + size)]
        self.canvas.line(points, color, dash=dash, tip=f"{flow.array}: {amount([flow])}", arrow=True)
        self.labels.avoid(straight(points))
        below = self.layout.height / 2 + 14
        places = [(x + 22, y + 12 * step) for step in (number, number - 1, number + 1)]
        self.beside.append((flow, [*places, *((x - 8, y + below + 12 * n) for n in range(3))]))
