"""Undecided designs of an exact search, and the choice of the next one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, islice
from typing import NamedTuple

import numpy as np

from allo_dse.common.records import replace
from allo_dse.space.regions import Region, regions_of
from allo_dse.space.space import Candidate, Space

from .least import LeastLosses, Losses
from .pareto_front import Points
from .screening import Screen
from .undecided import REGION, Undecided

MOST_KEPT = 256
"""Number of waiting designs that keep the inputs of their bounds: a graph and a transport plan each."""
_AT_ONCE = 256  # regions or designs whose bounds are computed in one batch


class Next(NamedTuple):
    """A design to evaluate, with its bounds."""

    candidate: Candidate
    bounds: Losses


class Prospect:
    """The designs of a space that an exact search has not decided.

    Attributes:
        designs: number of listed designs.
        listed: whether these are all.
        meanwhile: called often during long decisions; returns whether time is up. Then the next design is proposed
            without computing tighter bounds.
    """

    def __init__(self, space: Space, screen: Screen, least: LeastLosses) -> None:
        self._space, self._screen, self._least = space, screen, least
        self._undecided = Undecided(len(least.objectives))
        self._built: OrderedDict[int, None] = OrderedDict()
        self._listing: Iterator[list[tuple[int, Region | Candidate]]] | None = None
        self.meanwhile: Callable[[], bool] = lambda: False
        self.designs, self.listed = 0, False

    @property
    def open(self) -> int:
        """Number of designs that are not decided."""
        return self._undecided.open

    @property
    def least(self) -> Points:
        """Bounds of all that is open."""
        return self._undecided.least

    @property
    def front(self) -> Points:
        return self._undecided.front

    def found(self, points: Points) -> None:
        """Take in losses of evaluated designs."""
        for point in points:
            self._undecided.found(point)

    def left(self) -> bool:
        """Return whether a design is open."""
        return self._ahead() is not None

    def next(self) -> Next | None:
        """The next design to evaluate; None when all are decided."""
        undecided = self._undecided
        while (position := self._ahead()) is not None:
            item, bounds = undecided.items[position], tuple(undecided.bounds[position].tolist())
            undecided.decide(position)
            if isinstance(item, Candidate) and self._screen.judge(item) == "new":
                return Next(item, bounds)
        return None

    def _ahead(self) -> int | None:
        """Return the position of the next unknown design with all its bounds; None if all are decided."""
        if not self.listed:
            self._list()
        undecided = self._undecided
        while (position := undecided.next()) is not None:
            item = undecided.items[position]
            if isinstance(item, Region):
                self._expand(position, item)
                continue
            assert isinstance(item, Candidate)
            # Keys are slow to compute, and this search never repeats its own designs: check only if there are others.
            if self._screen.was_told and self._screen.knows(item.key):
                undecided.decide(position)
                continue
            # A tighter bound costs less than an evaluation. So evaluate a design only if its last bound does not rule
            # it out, or time is up.
            level = undecided.level[position]
            if level + 1 >= self._least.levels or self.meanwhile():
                return position
            if level == 0 and self._screen.refuses_soon(item):
                undecided.decide(position)
            else:
                self._refine(position, item)
        return None

    def _list(self) -> None:
        """Take in all regions, or all designs, with their first bounds."""
        self._listing = self._listing or batched(self._every())
        for batch in self._listing:
            for _, item in batch:
                self.designs += item.size if isinstance(item, Region) else 1
            self._take_in(batch)
        self.listed = True

    def _every(self) -> Iterator[tuple[int, Region | Candidate]]:
        """Regions or designs, by their ranks."""
        regions = regions_of(self._space) if self._least.knows_regions else None
        if regions is None:
            return ((Undecided.rank(0, place), one) for place, one in enumerate(self._space.designs(), 1))
        return ((Undecided.rank(number), region) for number, region in enumerate(regions))

    def _take_in(self, items: Iterable[tuple[int, Region | Candidate]]) -> None:
        """Add regions or designs by rank; those that break a constraint or are known count as decided."""
        for batch in batched(items):
            bounded: list[tuple[int, Region | Candidate, Losses]] = []
            for rank, item in batch:
                self.meanwhile()
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
