"""Kernels and the streams between them: in which order kernels can be chained, and which chains are legal together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

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
    """Attributes:
    feeds: whether streams lead from a kernel to another one: (kernels, kernels).
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
    """Whether a path leads from one kernel to another."""
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
