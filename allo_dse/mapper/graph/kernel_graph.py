"""Kernels and the streams between them: in which order kernels can be chained, and which chains are legal together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from allo_dse.compiler.program.tensors import IntArray

from ..graph_algorithms import topological_ranks
from .groups import NodeGroup
from .stream_arrays import TaskGraph

Chains = tuple[tuple[int, ...], ...]
"""Sets of kernels that share their nodes, by position, each in the order in which its members run."""

MOST_IN_RUNS = 16
"""Kernels from which on not even runs of neighbours share nodes: there are 2^(kernels - 1) partitions."""
MOST_PARTITIONED = 8
"""Programs of more kernels are partitioned into runs of neighbours in the order of streams only."""


def node_sets(chains: Sequence[Sequence[int]], kernels: Sequence[int]) -> list[Sequence[int]]:
    """Kernels in sets that have nodes of their own: those of a chain together, others alone."""
    chained = {kernel for members in chains for kernel in members}
    return [*chains, *((kernel,) for kernel in kernels if kernel not in chained)]


class KernelGraph(Struct, frozen=True, eq=False, dict=True):
    """The kernels of a program, as far as streams order them.

    Attributes:
        feeds: whether streams lead from one kernel to another: (kernels, kernels).
    """

    feeds: NDArray[np.bool_]

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Kernels so that streams lead forwards as far as possible; otherwise in program order."""
        left, result = list(range(len(self.feeds))), []
        while left:
            free = (k for k in left if not any(self.feeds[other, k] for other in left))
            result.append(next(free, left[0]))
            left.remove(result[-1])
        return tuple(result)

    @cached_property
    def rank(self) -> tuple[int, ...]:
        """Position of each kernel in `order`."""
        return tuple(self.order.index(kernel) for kernel in range(len(self.feeds)))

    def refusal(self, chains: Chains) -> tuple[int, int] | None:
        """Two kernels that cannot be chained, because a path of streams leads from the second back to the first.

        Chains are made one after the other, member by member, as `VMG.chain` would. None when all of them are legal.
        """
        node = list(range(len(self.feeds)))
        feeds = self.feeds.copy()
        for first, *rest in chains:
            for member in rest:
                if _leads(feeds, node[member], node[first]):
                    return first, member
                keep, drop = node[first], node[member]
                feeds[keep] |= feeds[drop]
                feeds[:, keep] |= feeds[:, drop]
                feeds[drop], feeds[:, drop], feeds[keep, keep] = False, False, False
                node = [keep if n == drop else n for n in node]
        return None

    @cached_property
    def partitions(self) -> tuple[Chains, ...]:
        """Every legal choice of kernels to chain; none first."""
        found = _partitions(self.order) if len(self.order) <= MOST_PARTITIONED else _runs(self.order)
        return tuple(chains for chains in map(self.normalised, found) if self.refusal(chains) is None)

    def normalised(self, chains: Sequence[Sequence[int]]) -> Chains:
        """Members in the order of streams, chains in the order of their first kernels, none with one member only."""
        ordered = (tuple(sorted(members, key=self.rank.__getitem__)) for members in chains if len(members) > 1)
        return tuple(sorted(ordered, key=lambda members: self.rank[members[0]]))


def _leads(feeds: NDArray[np.bool_], start: int, goal: int) -> bool:
    """Return whether a path leads from one kernel to another."""
    seen, todo = {start}, [start]
    while todo:
        new = set(np.flatnonzero(feeds[todo.pop()]).tolist()) - seen
        if goal in new:
            return True
        seen |= new
        todo += new
    return False


def _partitions(members: Sequence[int]) -> Iterator[list[list[int]]]:
    """All partitions of a set, the one into single members first."""
    if not members:
        yield []
        return
    last = members[-1]
    for parts in _partitions(members[:-1]):
        yield [*parts, [last]]
        for position, part in enumerate(parts):
            yield [*parts[:position], [*part, last], *parts[position + 1 :]]


def _runs(members: Sequence[int]) -> Iterator[list[list[int]]]:
    """All partitions into runs of neighbours; of more than `MOST_IN_RUNS` members only the one into single members."""
    cuts = len(members) - 1 if len(members) <= MOST_IN_RUNS else 0
    for joined in range(1 << cuts):
        parts = [[members[0]]] if members else []
        for position, member in enumerate(members[1:]):
            if joined >> position & 1:
                parts[-1].append(member)
            else:
                parts.append([member])
        yield parts


# Executability of a folded graph: there must be an order of tasks in which none waits for a later one.


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
