"""The Pareto front and its hypervolume, kept up to date one design at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from allo_dse.space.sampler.acquisition import REFERENCE_MARGIN
from allo_dse.space.sampler.pareto import beaten, pareto_positions

Points = NDArray[np.float64]
Losses = tuple[float, ...]

REFERENCE_AFTER = 20  # feasible designs that fix the reference point
BLOCK = 256  # designs that are compared with the front at once


def hypervolume(points: Points, reference: NDArray[np.float64]) -> float:
    """The volume that the points dominate below the reference point (all objectives minimised)."""
    inside = points[(points < reference).all(1)]
    return _volume(inside[pareto_positions(inside)], reference)


def _volume(front: Points, reference: NDArray[np.float64]) -> float:
    """Hypervolume of mutually non-dominated points (the "while" algorithm of While, Bradstreet and Barone, 2012)."""
    if len(front) == 0:
        return 0.0
    if front.shape[1] == 2:
        ordered = front[np.argsort(front[:, 0])]
        heights = np.concatenate(([reference[1]], ordered[:-1, 1])) - ordered[:, 1]
        return float(((reference[0] - ordered[:, 0]) * heights).sum())
    ordered = front[np.argsort(-front[:, -1])]
    return sum(_exclusive(ordered[i], ordered[i + 1 :], reference) for i in range(len(ordered)))


def _exclusive(point: NDArray[np.float64], others: Points, reference: NDArray[np.float64]) -> float:
    """The volume that only `point` dominates."""
    own = float(np.prod(reference - point))
    if len(others) == 0:
        return own
    limited = np.maximum(others, point)
    return own - _volume(limited[pareto_positions(limited)], reference)


@dataclass
class ParetoFront:
    """The non-dominated designs so far.

    Attributes:
        limits: largest losses of interest, if any; designs beyond are on the front only as long as all are.
        keys: design keys, in the order in which they entered.
        reference: the hypervolume's reference point, fixed once `REFERENCE_AFTER` feasible designs are known: a little
            beyond the worst of them in each objective.
        hypervolume: share of the box between the reference point and zero (or, for objectives whose reference is not
            positive, of a box of the same size) that the front dominates; None until the reference point is fixed.
    """

    objectives: int
    limits: Sequence[float] = ()
    keys: list[str] = field(default_factory=list)
    reference: Losses | None = None
    hypervolume: float | None = None
    _first: list[Losses] = field(default_factory=list)
    _within: bool = False
    losses: Points = field(init=False)

    def __post_init__(self) -> None:
        self.losses = np.empty((0, self.objectives))

    def add(self, key: str, losses: Sequence[float]) -> bool:
        """Add a feasible design; True when it enters the front."""
        point = tuple(float(v) for v in losses)
        within = all(loss <= limit for loss, limit in zip(point, self.limits, strict=False))
        if within and not self._within:
            self._within, self.keys, self.losses = True, [], self.losses[:0]
        entered = within >= self._within and self._insert(key, point)
        if self.reference is None:
            self._first.append(point)
            if len(self._first) >= REFERENCE_AFTER:
                self._fix_reference()
        return entered

    def extend(self, keys: Sequence[str], losses: Points) -> NDArray[np.float64]:
        """Add many feasible designs, with the same outcome as one by one. `losses`: (designs, objectives).

        Returns:
            The hypervolume after each; NaN until the reference point is fixed.
        """
        history = np.full(len(keys), np.nan)
        done = 0
        for position in self._promising(losses):
            history[done:position] = np.nan if self.hypervolume is None else self.hypervolume
            self.add(keys[position], losses[position])
            done = position
        history[done:] = np.nan if self.hypervolume is None else self.hypervolume
        return history

    def volume_up_to(self, reference: ParetoFront) -> float | None:
        """The hypervolume up to the reference point of another front; None until that is fixed."""
        if reference.reference is None:
            return None
        return hypervolume(reference._scale(self.losses), np.ones(self.objectives))

    def _promising(self, losses: Points) -> Iterator[int]:
        """Yield positions of designs that may enter the front, given that those before them have."""
        start = 0
        while start < len(losses) and self.reference is None:
            yield start
            start += 1
        for first in range(start, len(losses), BLOCK):
            block = losses[first : first + BLOCK]
            # Designs that the front dominates now stay dominated, whatever enters before them.
            kept = ~beaten(block, self.losses)
            yield from (first + np.flatnonzero(kept)).tolist()

    def _insert(self, key: str, point: Losses) -> bool:
        array = self.losses
        if (array <= point).all(1).any():
            return False
        if self.hypervolume is not None:
            self.hypervolume += self._gain(array, point)
        kept = np.any(array < point, axis=1)
        self.keys = [*compress(self.keys, kept), key]
        self.losses = np.concatenate([array[kept], [point]])
        return True

    def _gain(self, array: Points, point: Losses) -> float:
        scaled = self._scale(np.array([point]))
        if (scaled >= 1).any():
            return 0.0
        others = self._scale(array)
        return _exclusive(scaled[0], others[(others < 1).all(1)], np.ones(self.objectives))

    def _fix_reference(self) -> None:
        worst = np.array(self._first).max(0)
        worst += REFERENCE_MARGIN * np.maximum(np.abs(worst), 1e-9)
        limits = self.limits or [math.inf] * self.objectives
        self.reference = tuple(w if math.isinf(v) else v for w, v in zip(worst.tolist(), limits, strict=True))
        self.hypervolume = hypervolume(self._scale(self.losses), np.ones(self.objectives))
        self._first = []

    def _scale(self, points: Points) -> Points:
        """Scale losses: 1 is the reference point in every objective, and 0 lies one magnitude of it below."""
        assert self.reference is not None
        reference = np.array(self.reference)
        found: Points = 1 - (reference - points) / np.maximum(np.abs(reference), 1e-30)
        return found


def knee(losses: Points) -> int:
    """Position of the design with the best balance: nearest to the ideal corner when every objective spans 0 to 1."""
    low, high = losses.min(0), losses.max(0)
    span = np.where(high > low, high - low, 1.0)
    return int(np.argmin((((losses - low) / span) ** 2).sum(1)))
