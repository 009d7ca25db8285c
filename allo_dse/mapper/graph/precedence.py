"""Whether a folded graph can be executed at all: an order of tasks in which none waits for a later one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from allo_dse.program.index_maps import IntArray

from ..model.order import topological_ranks
from .groups import NodeGroup
from .stream_arrays import TaskGraph


def precedence_cycle(graph: TaskGraph, groups: Sequence[NodeGroup], node_of_task: IntArray) -> list[int] | None:
    """Task ids in order, each of which waits for the one before, and the first for the last; None without a cycle.

    If the graph of nodes is acyclic there is nothing to find. Otherwise tasks are looked at one by one: a task comes
    after the tasks before it on its node and after the producers of its streams. Tasks count as atomic here (all gets
    before all puts), so a program whose tasks talk back and forth has a cycle even if it runs with deep enough streams.
    """
    edges = graph.edges
    source, target = node_of_task[edges.source], node_of_task[edges.target]
    between = source != target
    if (topological_ranks(source[between], target[between], sum(group.count for group in groups)) >= 0).all():
        return None
    own = [(tasks[:, :-1].ravel(), tasks[:, 1:].ravel()) for tasks in (group.leaves.tasks() for group in groups)]
    different = edges.source != edges.target
    before = np.concatenate([edges.source[different], *(pair[0] for pair in own)])
    after = np.concatenate([edges.target[different], *(pair[1] for pair in own)])
    left = np.flatnonzero(topological_ranks(before, after, len(node_of_task)) < 0)
    return _find_cycle(before, after, left) if len(left) else None


def _find_cycle(before: IntArray, after: IntArray, left: IntArray) -> list[int]:
    """A cycle among nodes each of which has a predecessor that is left too: walk backwards until one comes again."""
    inside = np.isin(before, left) & np.isin(after, left)
    predecessor = dict(zip(after[inside].tolist(), before[inside].tolist(), strict=True))
    node = int(left[0])
    place: dict[int, int] = {}
    walk: list[int] = []
    while node not in place:
        place[node] = len(walk)
        walk.append(node)
        node = predecessor[node]
    return walk[place[node] :][::-1]
