"""Who breeds, and the front of what has been evaluated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]

AT_ONCE = 512  # results that are compared with each other
PAIRS = 8192  # of points that are compared at once


class Individual(Struct, frozen=True):
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


class Results(Struct, frozen=True):
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

    Args:
        size: how many are kept.
    """

    def __init__(self, size: int) -> None:
        self.best = Results.of([])
        self._size = size

    def renew(self, children: Results, starts: Sequence[int] | None = None) -> None:
        """Choose among the parents and the children of one generation, or of many, one after the other.

        Args:
            children: ordered by number.
            starts: where each generation begins, and where the last one ends.
        """
        known = self.best + children
        ends = len(self.best) + np.array([0, len(children)] if starts is None else starts)
        if len(known):
            from .ranking import selected  # imports Numba: a quarter of the time of a command of a few trials

            self.best = known[selected(known.losses, known.penalty, ends, self._size)]

    def revise(self, results: Mapping[int, tuple[tuple[float, ...], float]]) -> None:
        """Losses and penalties of the parents have changed, by number."""
        numbers = self.best.numbers
        losses, penalty = zip(*(results[n] for n in numbers.tolist()), strict=True) if len(numbers) else ((), ())
        self.best = Results(numbers, np.array(losses, float), np.array(penalty, float))


def dominates(losses: Floats, others: Floats) -> NDArray[np.bool_]:
    """Which of `losses` (rows) dominates which of `others` (columns): nowhere worse, and better somewhere."""
    # Objectives first: reducing over a short last axis is several times slower.
    left, right = losses.T[:, :, None], others.T[:, None, :]
    dominating: NDArray[np.bool_] = np.logical_and.reduce(left <= right) & np.logical_or.reduce(left < right)
    return dominating


def beaten(points: Floats, front: Floats) -> Booleans:
    """Which of many points, (designs, objectives), some point of a front is nowhere worse than."""
    left, columns = np.arange(len(points)), np.ascontiguousarray(points.T)
    start = 0
    while start < len(front) and len(left):
        # Few beat most: of many points some are left soon, and those are compared with more at once.
        some = front[start : start + max(1, PAIRS // len(left))]
        start += len(some)
        under = np.logical_and.reduce(some.T[:, :, None] <= columns[:, None, :]).any(0)
        if under.any():
            left, columns = left[~under], columns[:, ~under]
    found = np.ones(len(points), bool)
    found[left] = False
    return found


def front_with(front: Floats, results: Results) -> Floats:
    """A front, (designs, objectives), when feasible results have been added to it."""
    losses = results.losses[results.penalty <= 0]
    for start in range(0, len(losses), AT_ONCE):
        some = losses[start : start + AT_ONCE]
        some = some[~beaten(some, front)]
        if not len(some):
            continue
        found = np.unique(some, axis=0)
        found = found[~dominates(found, found).any(0)]
        front = np.concatenate((front[~dominates(found, front).any(0)], found)) if len(front) else found
    return front
