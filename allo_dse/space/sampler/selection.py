"""Who breeds: selection by domination rank, then by crowding distance, as in NSGA-II."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]

AT_ONCE = 512  # results that are compared with each other
MANY_GENERATIONS = 5000  # take as long as loading Numba and the machine code that chooses parents


@dataclass(frozen=True)
class Individual:
    """An evaluated design as the sampler sees it.

    Attributes:
        number: of the proposal.
        losses: objective values, all to be minimised.
        penalty: how much the constraints are violated in all; 0 when feasible.
    """

    number: int
    genes: Mapping[str, int]
    losses: tuple[float, ...]
    penalty: float


@dataclass(frozen=True)
class Results:
    """Evaluated designs without their genes, in columns: selecting is arithmetic on a few dozen of them, thousands of
    times when a search is resumed.

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
    """The best designs known, best first, chosen anew after every generation.

    Late in a search few children get among them. Those generations are recognised with one comparison.

    Args:
        size: how many are kept.
    """

    def __init__(self, size: int) -> None:
        self.best = Results.of([])
        self._size = size
        self._fence: Floats | None = None  # losses of the worst rank, when all are feasible
        self._settled = False  # whether choosing again among the parents alone would change nothing

    def renew(self, children: Results) -> None:
        """Choose among the parents and a generation of children, which are ordered by number."""
        if not self._outranked(children):
            self._choose(self.best + children)
            self._settled = False
        elif not self._settled:
            # Children of a worse rank than every parent change neither ranks nor crowding of the parents.
            before = self.best
            self._choose(before)
            self._settled = bool((before.numbers == self.best.numbers).all())

    def replay(self, results: Results, starts: Sequence[int]) -> None:
        """Choose among the results of many generations, one after the other, before any other.

        Args:
            results: ordered by number.
            starts: where each generation begins, and where the last one ends.
        """
        if len(starts) <= MANY_GENERATIONS:
            for start, end in itertools.pairwise(starts):
                self.renew(results[start:end])
            return
        from .replayed_selection import selected

        self.best = results[selected(results.losses, results.penalty, np.array(starts), self._size)]

    def revise(self, results: Mapping[int, tuple[tuple[float, ...], float]]) -> None:
        """Losses and penalties of the parents have changed, by number."""
        numbers = self.best.numbers
        losses, penalty = zip(*(results[n] for n in numbers.tolist()), strict=True) if len(numbers) else ((), ())
        self.best = Results(numbers, np.array(losses, float), np.array(penalty, float))
        self._fence, self._settled = None, False

    def _outranked(self, children: Results) -> bool:
        """Whether each child is infeasible or dominated by a parent of the worst rank, so that none gets in."""
        if self._fence is None:
            return False
        losses = children.losses[children.penalty <= 0]
        return not len(losses) or bool(dominates(self._fence, losses).any(0).all())

    def _choose(self, candidates: Results) -> None:
        if not len(candidates):
            return
        losses, penalty = candidates.losses, candidates.penalty
        ranks = domination_ranks(losses, penalty)
        order = np.lexsort((-crowding_distances(losses, ranks), ranks))[: self._size]
        self.best = candidates[order]
        full = len(order) == self._size and not self.best.penalty.any()
        self._fence = self.best.losses[ranks[order] == ranks[order[-1]]] if full else None


def dominates(losses: Floats, others: Floats) -> NDArray[np.bool_]:
    """Which of `losses` (rows) dominates which of `others` (columns): nowhere worse, and better somewhere."""
    # Objectives first: reducing over a short last axis is several times slower.
    left, right = losses.T[:, :, None], others.T[:, None, :]
    dominating: NDArray[np.bool_] = np.logical_and.reduce(left <= right) & np.logical_or.reduce(left < right)
    return dominating


def front_with(front: Floats, results: Results) -> Floats:
    """A front, (designs, objectives), when feasible results have been added to it."""
    losses = results.losses[results.penalty <= 0]
    for start in range(0, len(losses), AT_ONCE):
        found = np.unique(losses[start : start + AT_ONCE], axis=0)
        if len(front):
            found = found[~(front.T[:, :, None] <= found.T[:, None, :]).all(0).any(0)]
        found = found[~dominates(found, found).any(0)]
        front = np.concatenate((front[~dominates(found, front).any(0)], found)) if len(front) else found
    return front


def domination_ranks(losses: Floats, penalty: Floats) -> Integers:
    """Rank 0: dominated by nothing; 1: by rank 0 only, and so on; infeasible designs follow, ordered by penalty."""
    infeasible = penalty > 0
    ranks = np.zeros(len(losses), np.int64)
    rank = 0
    feasible = np.flatnonzero(~infeasible)
    columns = losses[feasible].T.copy()
    no_worse = (columns[:, :, None] <= columns[:, None, :]).all(0)
    worse = no_worse > no_worse.T  # row dominates column
    left = np.add.reduce(worse, 0, np.int64)  # by how many designs of the ranks to come each one is dominated
    while len(free := np.flatnonzero(left == 0)):
        ranks[feasible[free]] = rank
        left -= np.add.reduce(worse[free], 0, np.int64)
        left[free] = -1
        rank += 1
    if infeasible.any():
        ranks[infeasible] = rank + np.unique(penalty[infeasible], return_inverse=True)[1]
    return ranks


def crowding_distances(losses: Floats, ranks: Integers) -> Floats:
    """How lonely each design is among those of its rank: the sum over objectives of the gap between its two neighbours,
    as a share of the rank's span. An objective in which a rank does not differ, or is not finite, counts nothing."""
    columns = losses.T.copy()
    order = np.lexsort((columns, np.broadcast_to(ranks, columns.shape)))
    values = np.take_along_axis(columns, order, 1)
    along = ranks[order[0]]  # the same for every objective
    edge = np.concatenate(([True], along[1:] != along[:-1], [True]))
    first, last = np.flatnonzero(edge[:-1]), np.flatnonzero(edge[1:])
    sizes = last - first + 1
    low, high = values[:, first], values[:, last]
    usable = np.repeat((low != high) & np.isfinite(low) & np.isfinite(high), sizes, 1)
    distance = np.zeros(len(losses))
    gaps = np.full(values.shape, np.inf)
    with np.errstate(invalid="ignore", divide="ignore"):  # of what is not usable
        gaps[:, 1:-1] = (values[:, 2:] - values[:, :-2]) / np.repeat(high - low, sizes, 1)[:, 1:-1]
    gaps[:, edge[:-1] | edge[1:]] = np.inf
    for column, found in zip(order, np.where(usable, gaps, 0.0), strict=True):
        distance[column] += found
    return distance
