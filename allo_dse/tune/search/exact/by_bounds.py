"""Searches that end with a proof: designs in the order of their bounds, and those that cannot be better never built.

A design whose bounds are no better than a design of the front, in every objective, is decided without being built. What
is proposed next depends on bounds and results alone, not on what was looked at before: a run that was interrupted goes
on as if it had not been.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, islice
from typing import TypeVar

import numpy as np

from allo_dse.space.regions import Region, regions_of
from allo_dse.space.space import Candidate, Space

from ...store.certificate import Certificate, Gap
from ...store.record import Record
from ..least import LeastLosses, Losses
from ..protocol import Proposal, Told
from ..screening import Screen
from .undecided import REGION, Undecided

AnItem = TypeVar("AnItem", Region, Candidate)
_T = TypeVar("_T")

MOST_KEPT = 256
"""Designs that wait with what their bounds were computed from: a graph and a transport plan each."""
_AT_ONCE = 1024  # regions or designs whose bounds are computed before they are taken in


class ExactProposer:
    """Proposes designs by their bounds until all are decided: next the one that the front is furthest from.

    No design can turn out further away from the front than its bounds are (`undecided.py`), so that the front soon is
    near to all that is open. The parts of a region, and then their designs, are made when it is what the front is
    furthest from.

    Args:
        strict: whether proposals must not depend on the time evaluations take.

    Attributes:
        meanwhile: called often while it decides about designs, which takes long without any being proposed; whether
            time is up, so that the next design is proposed without asking whether better bounds rule it out.
    """

    name = "exact"

    def __init__(self, space: Space, screen: Screen, least: LeastLosses, *, strict: bool) -> None:
        self._space, self._screen, self._least, self._strict = space, screen, least, strict
        self._signs = [o.sign for o in least.objectives]
        self._undecided = Undecided(len(self._signs))
        self._built: OrderedDict[int, None] = OrderedDict()
        self._proposed: dict[int, Losses] = {}  # bounds, by proposal
        self._number = self._evaluated = self._failed = self._designs = 0
        self.meanwhile: Callable[[], bool] = lambda: False
        self._listed = False
        self.exhausted = False

    def ask(self, count: int, outstanding: int) -> list[Proposal]:
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
        """Take in all regions, or all designs, with their first bounds."""
        regions = regions_of(self._space) if self._least.knows_regions else None
        if regions is None:
            places = enumerate(self._space.designs(), 1)
            self._take_in(((Undecided.rank(0, place), one) for place, one in places), self._bound_of_design, 0)
        else:
            every = ((Undecided.rank(number), region) for number, region in enumerate(regions))
            self._take_in(every, self._bound_of_region, REGION)
        self._listed = True

    def _take_in(
        self, items: Iterable[tuple[int, AnItem]], bound: Callable[[AnItem], Losses | None], level: int
    ) -> None:
        """Take in items of one level by their ranks; those that break a constraint, or are known, are decided."""
        for batch in batched(items, _AT_ONCE):
            bounded: list[tuple[int, AnItem, Losses]] = []
            for rank, item in batch:
                self.meanwhile()
                if not self._listed:
                    self._designs += getattr(item, "size", 1)
                least = bound(item)
                if least is not None:
                    bounded.append((rank, item, least))
            if bounded:
                ranks, found, bounds = zip(*bounded, strict=True)
                self._undecided.add(found, np.array(bounds, float), ranks, level)

    def _bound_of_region(self, region: Region) -> Losses | None:
        return self._least.of_region(region)

    def _bound_of_design(self, candidate: Candidate) -> Losses | None:
        return self._least(candidate.design, 0)

    def _next(self) -> Candidate | None:
        """The next design to evaluate."""
        undecided = self._undecided
        while (position := self._ahead()) is not None:
            item, bounds = undecided.items[position], tuple(undecided.bounds[position].tolist())
            undecided.decide(position)
            if isinstance(item, Candidate) and self._screen.judge(item) == "new":
                self._proposed[self._number] = bounds
                return item
        return None

    def _ahead(self) -> int | None:
        """Where the next design is that has all its bounds and is not known; None when every design is decided."""
        if not self._listed:
            self._list()
        undecided = self._undecided
        while (position := undecided.next()) is not None:
            item = undecided.items[position]
            if isinstance(item, Region):
                self._expand(position, item)
                continue
            assert item is not None
            # A better bound costs less than an evaluation: a design is evaluated only when its last bound has not ruled
            # it out.
            if self._screen.anything_known and self._screen.knows(item.key):
                undecided.decide(position)
                continue
            if undecided.level[position] + 1 < self._least.levels and not self.meanwhile():
                self._refine(position, item)
                continue
            return position
        return None

    def _expand(self, position: int, region: Region) -> None:
        """Make the parts of a region, or the designs of a part."""
        rank = self._undecided.rank_of(position)
        self._undecided.decide(position)
        if region.layout is None:
            parts = list(region.parts())
            ranks = accumulate((part.size for part in parts), initial=rank)
            self._take_in(zip(ranks, parts, strict=False), self._bound_of_region, REGION)
        else:
            self._take_in(enumerate(region.candidates(), rank), self._bound_of_design, 0)
        if self._undecided.compact():
            self._built.clear()

    def _refine(self, position: int, candidate: Candidate) -> None:
        """Compute the next bounds of a design, which may bring it nearer to the front or decide it."""
        undecided = self._undecided
        undecided.level[position] += 1
        found = self._least(candidate.design, int(undecided.level[position]))
        if found is None:
            undecided.decide(position)
        elif undecided.tighten(position, found):
            self._built[position] = None
            if len(self._built) > MOST_KEPT:
                oldest, _ = self._built.popitem(last=False)
                kept = undecided.items[oldest]
                if isinstance(kept, Candidate):
                    undecided.items[oldest] = replace(kept, design=replace(kept.design))

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
        self._undecided.found(np.array([s * v for s, v in zip(self._signs, told.values, strict=True)]))

    def revise(self, told: Mapping[int, Told]) -> None:
        """Values change where there are rungs above the first, and then nothing is ruled out by bounds."""

    def restore(self, history: Sequence[Record], told: Callable[[Record], Told], next_number: int) -> None:
        for record in history:
            self._take(told(record))
        self._number = next_number

    def certificate(self) -> Certificate:
        """What is decided by now."""
        evaluated, refused = self._evaluated, self._screen.invalid
        # It may hold designs that an earlier run has decided, until they would come next.
        still = self._undecided.open + len(self._proposed)
        return Certificate(
            designs=self._designs,
            listed=self._listed,
            evaluated=evaluated,
            failed=self._failed,
            refused=refused,
            bounded=max(0, self._designs - evaluated - refused - still) if self._listed else 0,
            open=still,
            gaps=self._gaps(),
            unbounded=tuple(self._least.unbounded),
            feasible=len(self._undecided.front) > 0,
        )

    def _gaps(self) -> tuple[Gap, ...]:
        """By how much a design that is not decided can be better at most, in each objective."""
        objectives = self._least.objectives
        if not self._listed:
            return tuple(Gap(o.name, o.direction, None) for o in objectives)
        best = self._undecided.front.min(0, initial=math.inf)
        # What is still open may be as good as its bound; what is being evaluated as good as the bound it was proposed
        # with.
        undecided = np.vstack([best, self._undecided.least, *self._proposed.values()])
        return tuple(
            Gap(o.name, o.direction, _share(found, bound), None if math.isinf(bound) else o.sign * bound)
            for o, found, bound in zip(objectives, best.tolist(), undecided.min(0).tolist(), strict=True)
        )


def _share(found: float, bound: float) -> float | None:
    """By how much a bound is better than what was found; None where that cannot be said."""
    if math.isinf(found) or math.isinf(bound):
        return None
    return (found - bound) / abs(found) if found else None if bound < 0 else 0.0


def batched(items: Iterable[_T], size: int) -> Iterator[list[_T]]:
    """Items in lists of so many."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch
