"""Who breeds: selection by domination rank, then by crowding distance, as in NSGA-II."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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


class Parents:
    """The best designs known, best first, chosen anew after every generation.

    Late in a search few children get among them. Those generations are recognised with one comparison, so that a
    search of a hundred thousand designs is replayed in a second when it is resumed.

    Args:
        size: how many are kept.
    """

    def __init__(self, size: int) -> None:
        self.best: list[Individual] = []
        self._size = size
        self._fence: NDArray[np.float64] | None = None  # losses of the worst rank, when all are feasible
        self._settled = False  # whether choosing again among the parents alone would change nothing

    def renew(self, children: Sequence[Individual]) -> None:
        """Choose among the parents and a generation of children, which are ordered by number."""
        if not self._outranked(children):
            self._choose([*self.best, *children])
            self._settled = False
        elif not self._settled:
            # Children of a worse rank than every parent change neither ranks nor crowding of the parents.
            before = self.best
            self._choose(before)
            self._settled = all(a is b for a, b in zip(before, self.best, strict=True))

    def _outranked(self, children: Sequence[Individual]) -> bool:
        """Whether each child is infeasible or dominated by a parent of the worst rank, so that none gets in."""
        if self._fence is None:
            return False
        losses = np.array([child.losses for child in children if child.penalty <= 0], float)
        return not len(losses) or bool(dominates(self._fence, losses).any(0).all())

    def _choose(self, individuals: list[Individual]) -> None:
        if not individuals:
            return
        losses = np.array([i.losses for i in individuals], float)
        penalty = np.array([i.penalty for i in individuals], float)
        ranks = domination_ranks(losses, penalty)
        crowding = np.zeros(len(individuals))
        for rank in range(int(ranks.max()) + 1):
            members = np.flatnonzero(ranks == rank)
            crowding[members] = crowding_distances(losses[members])
        order = np.lexsort((-crowding, ranks))[: self._size]
        self.best = [individuals[i] for i in order]
        full = len(order) == self._size and not (penalty[order] > 0).any()
        self._fence = losses[order[ranks[order] == ranks[order].max()]] if full else None


def dominates(losses: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which of `losses` (rows) dominates which of `others` (columns): nowhere worse, and better somewhere."""
    no_worse = np.ones((len(losses), len(others)), bool)
    no_better = no_worse.copy()
    for a, b in zip(losses.T, others.T, strict=True):  # several times faster than reducing over a short last axis
        no_worse &= np.less_equal.outer(a, b)
        no_better &= np.greater_equal.outer(a, b)
    return no_worse & ~no_better


def domination_ranks(losses: NDArray[np.float64], penalty: NDArray[np.float64]) -> NDArray[np.int64]:
    """Rank 0: dominated by nothing; 1: by rank 0 only, and so on; infeasible designs follow, ordered by penalty."""
    ranks = np.full(len(losses), -1, np.int64)
    rank = 0
    left = np.flatnonzero(penalty <= 0)
    worse = dominates(losses[left], losses[left])
    while len(left):
        dominated = np.logical_or.reduce(worse)
        ranks[left[~dominated]] = rank
        left, worse, rank = left[dominated], worse[np.ix_(dominated, dominated)], rank + 1
    infeasible = np.flatnonzero(penalty > 0)
    if len(infeasible):
        ranks[infeasible] = rank + np.unique(penalty[infeasible], return_inverse=True)[1]
    return ranks


def crowding_distances(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """How lonely each design of one rank is: the sum over objectives of the gap between its two neighbours."""
    distance = np.zeros(len(losses))
    for column in losses.T:
        order = np.argsort(column, kind="stable")
        values = column[order]
        low, high = float(values[0]), float(values[-1])
        if low == high or not (math.isfinite(low) and math.isfinite(high)):
            continue
        distance[order[0]] = distance[order[-1]] = np.inf
        distance[order[1:-1]] += (values[2:] - values[:-2]) / (high - low)
    return distance
