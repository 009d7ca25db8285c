"""Selection of parents, and the Pareto front of evaluated designs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from allo_dse.common.numba_kernels import called, compiled, inlined

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]

AT_ONCE = 512  # points that are compared with a front


FAILED = "failed"  # name of the constraint that a failed design violates


class Individual(Struct, frozen=True):
    """An evaluated design as the sampler sees it.

    Attributes:
        number: of the proposal.
        losses: objective values, all to be minimised; infinite for a failed design.
        constraints: values of constraints, satisfied up to 0.
    """

    number: int
    genes: Mapping[str, int]
    losses: tuple[float, ...]
    constraints: Mapping[str, float] = {}

    @property
    def penalty(self) -> float:
        """Total violation of the constraints; 0 when feasible."""
        return sum(max(0.0, value) for value in self.constraints.values())


class Results(Struct, frozen=True):
    """Evaluated designs without their genes, in columns.

    Selection computes on a few dozen at a time, thousands of times when a search is resumed.

    Attributes:
        numbers: of the proposals, (designs,).
        losses: (designs, objectives).
        penalty: (designs,).
    """

    numbers: Integers
    losses: Floats
    penalty: Floats

    @classmethod
    def of(cls, individuals: Sequence[Individual]) -> Results:
        return cls(
            np.array([i.number for i in individuals], np.int64),
            np.array([i.losses for i in individuals], float),
            np.array([i.penalty for i in individuals], float),
        )

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, which: slice | Integers) -> Results:
        return Results(self.numbers[which], self.losses[which], self.penalty[which])

    def __add__(self, others: Results) -> Results:
        if not len(self) or not len(others):
            return self if len(self) else others
        return Results(
            np.concatenate((self.numbers, others.numbers)),
            np.concatenate((self.losses, others.losses)),
            np.concatenate((self.penalty, others.penalty)),
        )


class Parents:
    """The best known designs, best first, chosen anew after every generation.

    Args:
        size: number of parents.
    """

    def __init__(self, size: int) -> None:
        self.best = Results.of([])
        self._size = size

    def renew(self, children: Results, starts: Sequence[int] | None = None) -> None:
        """Select among the parents and the children of one or several generations, one after the other.

        Args:
            children: ordered by number.
            starts: the start of each generation, and the end of the last one.
        """
        known = self.best + children
        ends = len(self.best) + np.array([0, len(children)] if starts is None else starts)
        if len(known):
            self.best = known[selected(known.losses, known.penalty, ends, self._size)]

    def revise(self, designs: Mapping[int, Individual]) -> None:
        """Replace losses and penalties of the parents, by number."""
        self.best = Results.of([designs[n] for n in self.best.numbers.tolist()])


def dominates(losses: Floats, others: Floats) -> NDArray[np.bool_]:
    """Return a matrix: `losses` (rows) that dominate `others` (columns), nowhere worse and somewhere better."""
    # Objectives first: reducing over a short last axis is several times slower.
    left, right = losses.T[:, :, None], others.T[:, None, :]
    dominating: NDArray[np.bool_] = np.logical_and.reduce(left <= right) & np.logical_or.reduce(left < right)
    return dominating


def beaten(points: Floats, front: Floats) -> Booleans:
    """Return a mask of points, (designs, objectives), that some point of a front matches or beats everywhere."""
    found = np.zeros(len(points), bool)
    for start in range(0, len(points), AT_ONCE):
        some = points[start : start + AT_ONCE].T
        found[start : start + AT_ONCE] = np.logical_and.reduce(front.T[:, :, None] <= some[:, None, :]).any(0)
    return found


def pareto_positions(losses: Floats, costs: Floats | None = None) -> list[int]:
    """Positions of the designs that nothing dominates; of equal ones only the cheapest, or the first.

    Args:
        losses: (n, objectives), all to be minimised.
        costs: (n,), compared between designs with equal losses.
    """
    if costs is not None:
        order = np.argsort(costs, kind="stable")
        return sorted(order[pareto_positions(losses[order])].tolist())
    left, positions, sums = losses, np.arange(len(losses)), losses.sum(1)
    front: list[int] = []
    while len(left):
        # A dominating design has no larger sum. So nothing dominates the smallest, and it rules out many others.
        equal = np.flatnonzero(sums == sums.min())
        best = equal[np.lexsort(left[equal].T[::-1])[0]] if len(equal) > 1 else sums.argmin()
        front.append(int(positions[best]))
        kept = ~(left[best] <= left).all(1)
        kept[best] = False
        left, positions, sums = left[kept], positions[kept], sums[kept]
    return sorted(front)


def front_with(front: Floats, results: Results) -> Floats:
    """Return a front, (designs, objectives), with feasible results added to it."""
    losses = results.losses[results.penalty <= 0]
    losses = losses[~beaten(losses, front)] if len(losses) else losses
    if len(losses):
        losses = np.concatenate((front, losses)) if len(front) else losses
        front = losses[pareto_positions(losses)]
    return front


# Selection as in NSGA-II (domination rank, then crowding distance), compiled to machine code: each step has a few dozen
# designs, but resuming a search replays up to 10^5 generations.


@inlined
def _dominates(losses: Floats, penalty: Floats, one: int, other: int) -> bool:
    if penalty[one] > 0 or penalty[other] > 0:
        return bool(penalty[one] < penalty[other])
    better = False
    for objective in range(losses.shape[1]):
        if losses[one, objective] > losses[other, objective]:
            return False
        better |= losses[one, objective] < losses[other, objective]
    return better


@called
def _by(ranks: Integers, values: Floats) -> Integers:
    """Return positions sorted by rank, then by value; ties stay in order."""
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
def domination_ranks(losses: Floats, penalty: Floats, those: Integers) -> Integers:
    """Return the domination rank of the designs at these positions.

    Rank 0 is dominated by nothing, rank 1 by rank 0 only, and so on. Infeasible designs follow, by penalty.
    """
    left = count = len(those)
    ranks = np.full(count, count)
    rank = 0
    while left:
        for one in range(count):
            free = ranks[one] == count
            for other in range(count):
                free = free and not (ranks[other] >= rank and _dominates(losses, penalty, those[other], those[one]))
            if free:
                ranks[one] = rank
                left -= 1
        rank += 1
    return ranks


def front_mask(losses: Floats, penalty: Floats) -> Booleans:
    """Return a mask of the feasible designs that none dominates."""
    found = penalty <= 0
    found[found] = ~dominates(losses[found], losses[found]).any(0)
    return found


@compiled
def crowding_distances(losses: Floats, those: Integers, ranks: Integers) -> Floats:
    """Return the crowding distance of each design within its rank.

    It is the sum over objectives of the gap between its two neighbours, as a share of the rank's span. An objective
    counts nothing if it is constant within the rank, or not finite.
    """
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
def selected(losses: Floats, penalty: Floats, starts: Integers, size: int) -> Integers:
    """Return the positions of the parents, best first, after some generations.

    Args:
        losses: (designs, objectives), penalty: (designs,): of the parents so far, then of the children by number.
        starts: (generations + 1,), the start of each generation, and the end of the last one.
        size: number of parents.
    """
    best = np.arange(starts[0])
    for generation in range(len(starts) - 1):
        those = np.concatenate((best, np.arange(starts[generation], starts[generation + 1])))
        ranks = domination_ranks(losses, penalty, those)
        best = those[_by(ranks, -crowding_distances(losses, those, ranks))[:size]]
    return best
