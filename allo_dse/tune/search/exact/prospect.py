"""What an exact search looks at: designs of a space, or of a part of it, that are not decided, and which comes next."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, islice
from typing import NamedTuple, Protocol

import numpy as np

from allo_dse.common.records import replace
from allo_dse.space.regions import Region, regions_of
from allo_dse.space.space import Candidate, Space

from ...store.described import Bred
from ..front import Points
from ..least import LeastLosses, Losses
from ..screening import Screen
from .undecided import REGION, Undecided

MOST_KEPT = 256
"""Designs that wait with what their bounds were computed from: a graph and a transport plan each."""
_AT_ONCE = 256  # regions or designs whose bounds are computed before they are taken in


class Next(NamedTuple):
    """A design to evaluate, what it cannot be better than, and where it comes in the order of the space."""

    candidate: Candidate | Bred
    bounds: Losses
    rank: int


class Ground(Protocol):
    """Where an exact search finds its designs.

    Attributes:
        designs: how many were listed.
        listed: whether these are all.
        meanwhile: called often while it decides about designs, which takes long without any being proposed; whether
            time is up, so that the next design is proposed without asking whether better bounds rule it out.
    """

    meanwhile: Callable[[], bool]

    @property
    def designs(self) -> int: ...

    @property
    def listed(self) -> bool: ...

    @property
    def open(self) -> int:
        """How many designs are not decided."""
        ...

    @property
    def least(self) -> Points:
        """Bounds of all that is open."""
        ...

    @property
    def front(self) -> Points: ...

    def found(self, points: Points) -> None:
        """Take in what designs turned out to be."""
        ...

    def next(self) -> Next | None:
        """The next design to evaluate; None when all are decided, or when it is not known yet."""
        ...

    def left(self) -> bool:
        """Whether a design is open, as far as is known."""
        ...


class Prospect:
    """A space, or one of several parts that have each of its designs in one of them.

    Args:
        part: which one it is, of how many.

    Attributes:
        effort: bounds to compute, and designs to check against limits, before `next` gives up for now.
    """

    def __init__(self, space: Space, screen: Screen, least: LeastLosses, part: tuple[int, int] = (0, 1)) -> None:
        self._space, self._screen, self._least, self._part = space, screen, least, part
        self._undecided = Undecided(len(least.objectives))
        self._built: OrderedDict[int, None] = OrderedDict()
        self._listing: Iterator[list[tuple[int, Region | Candidate]]] | None = None
        self.meanwhile: Callable[[], bool] = lambda: False
        self.effort = math.inf
        self.designs, self.listed = 0, False

    @property
    def open(self) -> int:
        return self._undecided.open

    @property
    def least(self) -> Points:
        return self._undecided.least

    @property
    def front(self) -> Points:
        return self._undecided.front

    def found(self, points: Points) -> None:
        for point in points:
            self._undecided.found(point)

    def left(self) -> bool:
        return self._ahead() is not None

    def next(self) -> Next | None:
        undecided = self._undecided
        while (position := self._ahead()) is not None:
            item, bounds = undecided.items[position], tuple(undecided.bounds[position].tolist())
            rank = undecided.rank_of(position)
            undecided.decide(position)
            self.effort -= 1
            if isinstance(item, Candidate) and self._screen.judge(item) == "new":
                return Next(item, bounds, rank)
        return None

    def _ahead(self) -> int | None:
        """Where the next design is that has all its bounds and is not known; None when every design is decided, or its
        effort is spent."""
        if not self.listed:
            self._list()
        undecided = self._undecided
        while self.effort > 0 and self.listed and (position := undecided.next()) is not None:
            item = undecided.items[position]
            if isinstance(item, Region):
                self._expand(position, item)
                continue
            assert isinstance(item, Candidate)
            # Its own are not met again, and a key takes long to compute.
            if self._screen.was_told and self._screen.knows(item.key):
                undecided.decide(position)
                continue
            # A better bound costs less than an evaluation: a design is evaluated only when its last bound has not ruled
            # it out, or there is no time left for that.
            level = undecided.level[position]
            if level + 1 >= self._least.levels or self.meanwhile():
                return position
            if level == 0 and self._screen.refuses_soon(item):
                undecided.decide(position)
                self.effort -= 1
            else:
                self._refine(position, item)
        return None

    def _list(self) -> None:
        """Take in all regions, or all designs, with their first bounds, as far as effort goes."""
        if self._listing is None:
            self._listing = batched(islice(self._every(), self._part[0], None, self._part[1]))
        while self.effort > 0:
            batch = next(self._listing, None)
            if batch is None:
                self.listed = True
                return
            for _, item in batch:
                self.designs += item.size if isinstance(item, Region) else 1
            self._take_in(batch)

    def _every(self) -> Iterator[tuple[int, Region | Candidate]]:
        """Regions or designs, by their ranks."""
        regions = regions_of(self._space) if self._least.knows_regions else None
        if regions is None:
            return ((Undecided.rank(0, place), one) for place, one in enumerate(self._space.designs(), 1))
        return ((Undecided.rank(number), region) for number, region in enumerate(regions))

    def _take_in(self, items: Iterable[tuple[int, Region | Candidate]]) -> None:
        """Take in regions, or designs, by their ranks; those that break a constraint, or are known, are decided."""
        for batch in batched(items):
            bounded: list[tuple[int, Region | Candidate, Losses]] = []
            for rank, item in batch:
                self.meanwhile()
                self.effort -= 1
                least = self._least.of_region(item) if isinstance(item, Region) else self._least(item.design, 0)
                if least is not None:
                    bounded.append((rank, item, least))
            if bounded:
                ranks, found, bounds = zip(*bounded, strict=True)
                level = REGION if isinstance(found[0], Region) else 0
                self._undecided.add(found, np.array(bounds, float), ranks, level)

    def _expand(self, position: int, region: Region) -> None:
        """Make the parts of a region, or the designs of a part."""
        rank = self._undecided.rank_of(position)
        self._undecided.decide(position)
        if region.layout is None:
            parts = list(region.parts())
            ranks = accumulate((part.size for part in parts), initial=rank)
            self._take_in(zip(ranks, parts, strict=False))
        else:
            self._take_in(enumerate(region.candidates(), rank))
        if self._undecided.compact():
            self._built.clear()

    def _refine(self, position: int, candidate: Candidate) -> None:
        """Compute the next bounds of a design, which may bring it nearer to the front or decide it."""
        undecided = self._undecided
        self.effort -= 1
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


def batched(
    items: Iterable[tuple[int, Region | Candidate]],
) -> Iterator[list[tuple[int, Region | Candidate]]]:
    """Items in lists that are not too long."""
    rest = iter(items)
    while batch := list(islice(rest, _AT_ONCE)):
        yield batch
