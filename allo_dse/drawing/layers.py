"""Layered layout of a graph: every box below those it gets something from, as far as there are no cycles."""

from __future__ import annotations

from msgspec import Struct

from .canvas import Point
from .summary import Summary

GAP_X, GAP_Y = 30.0, 66.0
_WIDEST = 1500.0
_MARGIN = 9.0


class Layout(Struct, frozen=True):
    """Where boxes are: upper left corners, and the size of all."""

    corners: tuple[Point, ...]
    width: float
    height: float

    @property
    def bottom(self) -> float:
        return max(y for _, y in self.corners) + self.height

    def lane(self, top: float, bottom: float, wanted: float) -> float:
        """A place across, as near as can be to the wanted one, where a line from top to bottom meets no box."""
        between = sorted(x for x, y in self.corners if top < y + self.height and y < bottom)
        blocked = [(x - _MARGIN, x + self.width + _MARGIN) for x in between]
        edges = [wanted, *(edge for interval in blocked for edge in interval)]
        free = [x for x in edges if not any(low < x < high for low, high in blocked)]
        return min(free, key=lambda x: abs(x - wanted))


def lay_out(summary: Summary, width: float, height: float, origin: Point, *, gap: float = GAP_X) -> Layout:
    """Layer by layer from above, boxes `gap` apart. Layers that are too wide go on in further rows."""
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
    return Layout(tuple(corners), width, height)


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
