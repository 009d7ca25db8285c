"""The choice of parents, generation after generation, in machine code: for searches that are resumed.

The rules are those of `selection.Parents`, with the same sums in the same order, so that the outcome is the same bit
for bit. Arrays of a few dozen numbers take NumPy 80 us per generation, and this 2 us; but loading Numba takes as long
as some thousand generations.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.numba_kernels import compiled, inlined

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@inlined
def _dominates(losses: Floats, one: int, other: int) -> bool:
    better = False
    for objective in range(losses.shape[1]):
        if losses[one, objective] > losses[other, objective]:
            return False
        better |= losses[one, objective] < losses[other, objective]
    return better


@compiled
def _ranks(losses: Floats, penalty: Floats, those: Integers) -> Integers:
    """`selection.domination_ranks` of the designs at positions."""
    count = len(those)
    ranks = np.full(count, -1, np.int64)
    left, rank = 0, 0
    for one in range(count):
        left += penalty[those[one]] <= 0
    while left:
        for one in range(count):
            free = ranks[one] < 0 and penalty[those[one]] <= 0
            for other in range(count):
                if free and (ranks[other] < 0 or ranks[other] == rank) and penalty[those[other]] <= 0:
                    free = not _dominates(losses, those[other], those[one])
            if free:
                ranks[one] = rank
                left -= 1
        rank += 1
    for one in range(count):
        if penalty[those[one]] > 0:
            ranks[one] = rank
            for other in range(count):  # one rank for each smaller penalty
                first = penalty[those[other]] > 0 and penalty[those[other]] < penalty[those[one]]
                for before in range(other):
                    first = first and penalty[those[before]] != penalty[those[other]]
                ranks[one] += first
    return ranks


@compiled
def _by(ranks: Integers, values: Floats) -> Integers:
    """Positions by rank, then by value; in order where both are equal."""
    order = np.arange(len(ranks))
    for one in range(1, len(ranks)):
        moved, place = order[one], one
        while place > 0 and (
            ranks[order[place - 1]] > ranks[moved]
            or (ranks[order[place - 1]] == ranks[moved] and values[order[place - 1]] > values[moved])
        ):
            order[place] = order[place - 1]
            place -= 1
        order[place] = moved
    return order


@compiled
def _crowding(losses: Floats, those: Integers, ranks: Integers) -> Floats:
    """`selection.crowding_distances` of the designs at positions."""
    count = len(those)
    distance = np.zeros(count)
    values = np.empty(count)
    for objective in range(losses.shape[1]):
        for one in range(count):
            values[one] = losses[those[one], objective]
        order = _by(ranks, values)
        start = 0
        while start < count:
            end = start
            while end + 1 < count and ranks[order[end + 1]] == ranks[order[start]]:
                end += 1
            low, high = values[order[start]], values[order[end]]
            if low != high and np.isfinite(low) and np.isfinite(high):
                distance[order[start]] += np.inf
                distance[order[end]] += np.inf
                for place in range(start + 1, end):
                    distance[order[place]] += (values[order[place + 1]] - values[order[place - 1]]) / (high - low)
            start = end + 1
    return distance


@compiled
def _outranked(losses: Floats, penalty: Floats, fence: Integers, start: int, end: int) -> bool:
    """Whether each child is infeasible or dominated by a parent of the worst rank."""
    for child in range(start, end):
        beaten = penalty[child] > 0
        for parent in fence:
            beaten = beaten or _dominates(losses, parent, child)
        if not beaten:
            return False
    return True


@compiled
def selected(losses: Floats, penalty: Floats, starts: Integers, size: int) -> Integers:
    """The positions of the parents, best first, after all generations of a search.

    Args:
        losses: (designs, objectives), penalty: (designs,), by number of the proposal.
        starts: (generations + 1,) where each generation begins, and where the last one ends.
        size: how many parents are kept.
    """
    best = np.zeros(0, np.int64)
    fence = np.zeros(0, np.int64)
    fenced = settled = False
    for generation in range(len(starts) - 1):
        start, end = starts[generation], starts[generation + 1]
        out = fenced and _outranked(losses, penalty, fence, start, end)
        if out and settled:
            continue
        those = best if out else np.concatenate((best, np.arange(start, end)))
        settled = False
        if not len(those):
            continue
        ranks = _ranks(losses, penalty, those)
        order = _by(ranks, -_crowding(losses, those, ranks))[:size]
        settled = out and len(order) == len(best) and bool((those[order] == best).all())
        best = those[order]
        fenced = len(best) == size and not penalty[best].any()
        fence = best[ranks[order] == ranks[order[-1]]]
    return best
