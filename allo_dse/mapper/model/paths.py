"""Paths between nodes of a graph that is being folded."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping

Adjacency = Mapping[int, Mapping[int, int]]
"""Per node its neighbours, each written `neighbour * types + element type`, with the number of streams."""


def find_path(
    out: Adjacency, inn: Adjacency, types: int, starts: Mapping[int, int], goals: Mapping[int, int]
) -> list[int] | None:
    """A path from a start to a goal that bears another label, or None.

    Searched from both ends in turn, one node at a time, so that it is over as soon as either side is exhausted: folding
    along a chain meets sources or sinks at once, and costs nothing however large the rest of the graph is.

    Args:
        types: how many element types neighbours are multiplied by.
        starts, goals: labels of the nodes a path may begin and end with; a node can be both.
    """
    forward = _search(out, types, starts, goals)
    backward = _search(inn, types, goals, starts)
    while True:
        for side in (forward, backward):
            try:
                next(side)
            except StopIteration as end:
                path: list[int] | None = end.value
                return path[::-1] if path and side is backward else path


def _search(
    neighbours: Adjacency, types: int, sources: Mapping[int, int], targets: Mapping[int, int]
) -> Generator[None, None, list[int] | None]:
    """Breadth-first from all sources at once; yields after each node, returns the path found.

    A node is visited for at most two labels: whatever a target's label is, one of two different ones differs from it.
    """
    came_from: dict[tuple[int, int], int | None] = {}
    labels: dict[int, int] = {}
    queue: deque[tuple[int, int]] = deque()
    for source, label in sources.items():
        came_from[source, label] = None
        labels[source] = 1
        queue.append((source, label))
    while queue:
        node, label = queue.popleft()
        for key in neighbours.get(node, ()):
            peer = key // types
            if targets.get(peer, label) != label:
                return [*_trace(came_from, node, label), peer]
            if labels.get(peer, 0) < 2 and (peer, label) not in came_from:
                came_from[peer, label] = node
                labels[peer] = labels.get(peer, 0) + 1
                queue.append((peer, label))
        yield
    return None


def _trace(came_from: Mapping[tuple[int, int], int | None], node: int, label: int) -> list[int]:
    """The nodes from a source to `node`."""
    path: list[int] = []
    step: int | None = node
    while step is not None:
        path.append(step)
        step = came_from[step, label]
    return path[::-1]
