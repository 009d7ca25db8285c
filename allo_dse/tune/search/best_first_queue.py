"""Queue of undecided designs and of regions that are not expanded, with their bounds."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from allo_dse.space.regions import Region
from allo_dse.space.sampler.pareto import beaten
from allo_dse.space.space import Candidate

from .pareto_front import Points

Item = Candidate | Region

REGION = -1  # level of an item that is not a design yet
_DECIDED, _LEAST = -math.inf, -sys.float_info.max  # priorities of decided items, and of open ones at least
_MOST_DECIDED = 4096  # decided items to tolerate before compaction
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # of Fibonacci hashing (Knuth, TAOCP 3, 6.4): 2^64 over the golden ratio
_PLACES = 32  # bits of the place of a design within its region


class BestFirstQueue:
    """Priority queue of items by the distance of their bounds from the front.

    The distance is the factor, as a logarithm, by which the nearest design of the front is worse than the bounds in its
    worst objective. No design can turn out further away. The order does not depend on when items were added. At equal
    distance regions come first, then designs in the order of the space.

    Attributes:
        open: number of designs that are not decided.
        share: share of the designs that come first, a sample from all over the space. It doubles when none is open.
    """

    def __init__(self, objectives: int) -> None:
        fields = [("bounds", "f8", (objectives,)), ("level", "i8"), ("rank", "i8"), ("size", "i8")]
        self.items: list[Item | None] = []
        self._rows = np.empty(_MOST_DECIDED, fields)
        self._worths = np.empty(_MOST_DECIDED)  # apart from the rest: a choice looks at all of them
        self._best: list[int] = []  # items that were worth most, the next one last
        self._most = math.inf  # what they are worth
        self.front: Points = np.empty((0, objectives))
        self.open, self.share = 0, 1.0

    @staticmethod
    def rank(region: int, place: int = 0) -> int:
        """Return the position of a design, or of its region (place 0), in the order of the space."""
        return (region << _PLACES) + place

    @property
    def bounds(self) -> Points:
        """Bounds of each item."""
        found: Points = self._rows["bounds"][: len(self.items)]
        return found

    @property
    def level(self) -> NDArray[np.int64]:
        """Level of each item's bounds."""
        found: NDArray[np.int64] = self._rows["level"][: len(self.items)]
        return found

    @property
    def _worth(self) -> NDArray[np.float64]:
        return self._worths[: len(self.items)]

    @property
    def open_bounds(self) -> Points:
        """Bounds of all that is open."""
        found: Points = self.bounds[self._worth > _DECIDED]
        return found

    def rank_of(self, position: int) -> int:
        return int(self._rows["rank"][position])

    def add(self, items: Sequence[Item], bounds: Points, ranks: Sequence[int], level: int) -> None:
        """Add items of one level, except those that the front has decided."""
        kept = np.flatnonzero(~beaten(bounds, self.front))
        first, last = len(self.items), len(self.items) + len(kept)
        if last > len(self._rows):
            self._rows, self._worths = np.resize(self._rows, 2 * last), np.resize(self._worths, 2 * last)
        self.items += [items[n] for n in kept.tolist()]
        rows = self._rows[first:last]
        self._worths[first:last] = self._worth_of(bounds[kept])
        self._best.clear()
        rows["bounds"], rows["level"], rows["rank"] = bounds[kept], level, np.array(ranks, np.int64)[kept]
        rows["size"] = [item.size if isinstance(item, Region) else 1 for item in self.items[first:] if item]
        self.open += int(rows["size"].sum())

    def _worth_of(self, bounds: Points) -> NDArray[np.float64]:
        """Return the priority of items with these bounds; the highest comes first."""
        if len(self.front):
            worth = distance(self.front, bounds[:, None]).min(1)
        else:
            with np.errstate(invalid="ignore"):  # as good as can be in one objective, as bad as can be in another
                worth = -magnitude(bounds).sum(-1)
        return np.maximum(np.where(np.isnan(worth), math.inf, worth), _LEAST)

    def next(self) -> int | None:
        """The item that the front is furthest from; before there is a front, one that may be best in everything."""
        while self.open:
            while self._best:
                if self._worth[self._best[-1]] == self._most:
                    return self._best[-1]
                self._best.pop()
            worth, ranks = self._worth, self._rows["rank"][: len(self.items)]
            if self.share < 1:
                ranks = ranks.astype(np.uint64) * _GOLDEN
                limit, first = self.share * 2.0**64, ranks[worth > _DECIDED].min()
                while limit < first:
                    limit *= 2
                worth = np.where(ranks <= limit, worth, _DECIDED)
            self._most = worth.max()
            best = np.flatnonzero(worth == self._most)
            self._best = best[np.lexsort((ranks[best], self.level[best] != REGION))[::-1]].tolist()
        return None

    def decide(self, position: int) -> None:
        """Mark an item as decided, so that it never comes next."""
        self.open -= int(self._rows["size"][position])
        self._worth[position], self.items[position] = _DECIDED, None

    def tighten(self, position: int, bounds: Sequence[float]) -> bool:
        """Tighten the bounds of an item; return whether it is still open."""
        # Each level is a lower bound for itself, so the larger of two is one, too.
        own = self.bounds[position] = np.maximum(self.bounds[position], bounds)
        if (self.front <= own).all(1).any():
            self.decide(position)
            return False
        worth = self._worth_of(own[None])[0]
        if worth > self._worth[position]:
            self._best.clear()
        self._worth[position] = worth
        return True

    def found(self, point: NDArray[np.float64]) -> None:
        """Add a design to the front: some items are decided, and others come nearer to it."""
        if (self.front <= point).all(1).any():
            return
        is_first = not len(self.front)
        self.front = np.vstack([self.front[(self.front < point).any(1)], point])
        is_open = self._worth > _DECIDED
        # No loss of a design is below its bound. So a point at least as good as the bound is as good as the design.
        decided = is_open & (point <= self.bounds).all(1)
        for position in np.flatnonzero(decided).tolist():
            self.decide(position)
        left = np.flatnonzero(is_open & ~decided)
        # The distance to a front is the distance to its nearest point. A running minimum is exact: a point leaves the
        # front only for one that is nowhere worse, and so at least as near.
        near = np.maximum(distance(point, self.bounds[left]), _LEAST)
        self._worth[left] = near if is_first else np.minimum(self._worth[left], near)
        self._best.clear()

    def compact(self) -> bool:
        """Drop decided items if they are the majority, which changes positions; return whether it did."""
        keep = np.flatnonzero(self._worth > _DECIDED)
        if len(self.items) - len(keep) <= max(_MOST_DECIDED, len(keep)):
            return False
        self._rows, self._worths = self._rows[keep], self._worths[keep]
        self.items = [self.items[n] for n in keep.tolist()]
        self._best.clear()
        return True


def magnitude(losses: Points) -> Points:
    """Map losses to a logarithmic scale, on which equal ratios are equal distances."""
    with np.errstate(divide="ignore"):
        logarithm = np.log(np.abs(losses))
    found: Points = np.where(losses < 0, -logarithm, logarithm)
    return np.where(np.isneginf(losses), -math.inf, found)


def distance(found: Points, bounds: Points) -> NDArray[np.float64]:
    """Return how far found designs are from bounds, in the objective in which they are furthest.

    Numbers of different sign count as infinitely far apart. A design that is nowhere worse than another is never
    further away.
    """
    with np.errstate(invalid="ignore"):
        apart = magnitude(found) - magnitude(bounds)
    if found.min(initial=0.0) < 0 or bounds.min(initial=0.0) < 0:
        apart = np.where(np.sign(found) == np.sign(bounds), apart, np.where(found < bounds, -math.inf, math.inf))
    worst = apart.max(-1)
    return np.where(np.isnan(worst), math.inf, worst)
