"""Searches that end with a proof: designs in the order of their bounds, and those that cannot be better never built.

A design whose bounds are no better than a design of the front, in every objective, is decided without being built. What
is proposed next depends on bounds and results alone, not on what was looked at before: a run that was interrupted goes
on as if it had not been.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from allo_dse.space.space import Candidate, Space

from ..store.certificate import Certificate, Gap
from ..store.record import Record
from .front import Points
from .least import LeastLosses, Losses
from .protocol import Proposal, Told
from .screening import Screen

MOST_KEPT = 256
"""Designs that wait with what their bounds were computed from: a graph and a transport plan each."""

_CLOSED = -math.inf


class ExactProposer:
    """Proposes designs by their bounds until all are decided: next the one that the front is furthest from.

    How far the front is from a design is the factor by which, in its worst objective, the nearest design of the front
    is worse than the bounds: no design can turn out further away, so that the front soon is near to all that is open.

    Args:
        strict: whether proposals must not depend on the time evaluations take.

    Attributes:
        meanwhile: called often while it decides about designs, which takes long without any being proposed.
    """

    name = "exact"

    def __init__(self, space: Space, screen: Screen, least: LeastLosses, *, strict: bool) -> None:
        self._space, self._screen, self._least, self._strict = space, screen, least, strict
        self._signs = [o.sign for o in least.objectives]
        self._candidates: list[Candidate | None] = []
        self._bounds: Points = np.empty((0, len(self._signs)))
        self._level = np.empty(0, np.int64)
        self._far = np.empty(0)  # by design, a logarithm; minus infinity once it is proposed or decided
        self._built: OrderedDict[int, None] = OrderedDict()
        self._proposed: dict[int, Losses] = {}  # bounds, by proposal
        self._front: Points = np.empty((0, len(self._signs)))
        self._number = self._evaluated = self._failed = self._bounded = 0
        self.meanwhile: Callable[[], None] = lambda: None
        self._listed = False
        self.exhausted = False

    def ask(self, count: int, outstanding: int) -> list[Proposal]:
        if not self._listed:
            self._list()
        if self._strict:
            count = min(count, 0 if outstanding else 1)
        proposals: list[Proposal] = []
        while len(proposals) < count:
            found = self._next()
            if found is None:
                self.exhausted = True
                break
            proposals.append(Proposal(self._number, found))
            self._number += 1
        return proposals

    def _list(self) -> None:
        """Take in all designs with their first bounds; those that are known are decided."""
        known, bounds, far = self._screen.anything_known, [], []
        for candidate in self._space.designs():
            self.meanwhile()
            self._candidates.append(candidate)
            least = self._least(candidate.design, 0)
            is_known = known and self._screen.knows(candidate.key)
            self._bounded += least is None and not is_known
            bounds.append(self._least.nothing if least is None else least)
            far.append(_CLOSED if least is None or is_known else 0.0)
        self._bounds = np.array(bounds, float).reshape(-1, len(self._signs))
        self._far, self._level = np.array(far), np.zeros(len(far), np.int64)
        # Before anything is found, what may be good in everything comes first.
        self._far[self._is_open] = math.inf
        self._listed = True
        for point in self._front:
            self._approach(point)

    @property
    def _is_open(self) -> NDArray[np.bool_]:
        """Which designs are neither proposed nor decided."""
        return self._far > _CLOSED

    def _next(self) -> Candidate | None:
        """The next design to evaluate."""
        while len(self._far) and self._far[number := self._furthest()] > _CLOSED:
            candidate = self._candidates[number]
            assert candidate is not None
            # A better bound costs less than an evaluation: a design is evaluated only when its last bound has not ruled
            # it out.
            if self._level[number] + 1 < self._least.levels:
                self.meanwhile()
                self._refine(number, candidate)
                continue
            self._far[number], self._candidates[number] = _CLOSED, None
            if self._screen.judge(candidate) == "new":
                self._proposed[self._number] = tuple(self._bounds[number].tolist())
                return candidate
        return None

    def _furthest(self) -> int:
        """The design that the front is furthest from; before there is a front, one that may be best in everything."""
        if len(self._front) or not self._is_open.any():
            return int(np.argmax(self._far))
        promise = np.where(self._is_open, _magnitude(self._bounds).sum(1), math.inf)
        return int(np.argmin(promise)) if (promise < math.inf).any() else int(np.argmax(self._far))

    def _refine(self, number: int, candidate: Candidate) -> None:
        """Compute the next bounds of a design, which may bring it nearer to the front or decide it."""
        self._level[number] += 1
        found = self._least(candidate.design, int(self._level[number]))
        if found is not None:
            # Each level is a lower bound for itself, so the larger of two is one, too.
            self._bounds[number] = np.maximum(self._bounds[number], found)
        if found is None or (self._front <= self._bounds[number]).all(1).any():
            self._far[number], self._candidates[number] = _CLOSED, None
            self._bounded += 1
            return
        if len(self._front):
            self._far[number] = _distance(self._front, self._bounds[number]).min()
        self._built[number] = None
        if len(self._built) > MOST_KEPT:
            oldest, _ = self._built.popitem(last=False)
            kept = self._candidates[oldest]
            if kept is not None:
                self._candidates[oldest] = replace(kept, design=replace(kept.design))

    def _approach(self, point: NDArray[np.float64]) -> None:
        """Take into account that a design of the front was found: some are decided, the front is nearer to others."""
        is_open = self._is_open
        # No loss of a design is below its bound: a point that is no worse than the bound anywhere is no worse than the
        # design.
        beaten = is_open & (point <= self._bounds).all(1)
        self._far[beaten] = _CLOSED
        self._bounded += int(beaten.sum())
        for number in np.flatnonzero(beaten).tolist():
            self._candidates[number] = None
        left = np.flatnonzero(is_open & ~beaten)
        # The distance to a front is that to its nearest point, and points are only added: a running minimum is exact,
        # because a point leaves the front for one that is nowhere worse, and so as near.
        self._far[left] = np.minimum(self._far[left], _distance(point, self._bounds[left]))

    def tell(self, number: int, told: Told) -> None:
        del self._proposed[number]
        self._take(told)

    def learn(self, key: str, genes: dict[str, int], told: Told) -> int:
        self._take(told)
        self._number += 1
        return self._number - 1

    def _take(self, told: Told) -> None:
        self._evaluated += 1
        self._failed += told.values is None
        if told.values is None or told.penalty > 0:
            return
        losses = np.array([s * v for s, v in zip(self._signs, told.values, strict=True)])
        if not (self._front <= losses).all(1).any():
            self._front = np.vstack([self._front[(self._front < losses).any(1)], losses])
            if self._listed:
                self._approach(losses)

    def revise(self, told: Mapping[int, Told]) -> None:
        """Values change where there are rungs above the first, and then nothing is ruled out by bounds."""

    def restore(self, history: Sequence[Record], told: Callable[[Record], Told], next_number: int) -> None:
        for record in history:
            self._take(told(record))
        self._number = next_number

    def certificate(self) -> Certificate:
        """What is decided by now."""
        return Certificate(
            designs=len(self._candidates),
            listed=self._listed,
            evaluated=self._evaluated,
            failed=self._failed,
            refused=self._screen.invalid,
            bounded=self._bounded,
            open=int(self._is_open.sum()) + len(self._proposed),
            gaps=self._gaps(),
            unbounded=tuple(self._least.unbounded),
        )

    def _gaps(self) -> tuple[Gap, ...]:
        """By how much a design that is not decided can be better at most, in each objective."""
        objectives = self._least.objectives
        if not len(self._front) or not self._listed:
            return tuple(Gap(o.name, o.direction, None) for o in objectives)
        best = self._front.min(0)
        # What is still open may be as good as its bound; what is being evaluated as good as the bound it was proposed
        # with.
        undecided = np.vstack([best, self._bounds[self._is_open], *self._proposed.values()])
        return tuple(
            Gap(o.name, o.direction, None)
            if math.isinf(bound) or not found
            else Gap(o.name, o.direction, (found - bound) / abs(found), o.sign * bound)
            for o, found, bound in zip(objectives, best.tolist(), undecided.min(0).tolist(), strict=True)
        )


def _magnitude(losses: Points) -> Points:
    """Losses such that equal ratios are equal distances."""
    with np.errstate(divide="ignore"):
        logarithm = np.log(np.abs(losses))
    found: Points = np.where(losses < 0, -logarithm, logarithm)
    return np.where(np.isneginf(losses), -math.inf, found)


def _distance(found: Points, bounds: Points) -> NDArray[np.float64]:
    """How far designs that were found are from bounds, in the objective in which they are furthest."""
    with np.errstate(invalid="ignore"):
        apart = (_magnitude(found) - _magnitude(bounds)).max(-1)
    return np.where(np.isnan(apart), math.inf, apart)
