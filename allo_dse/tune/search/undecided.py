"""What a search has not decided yet: designs, and regions of designs that were not made, with their bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from allo_dse.space.regions import Region
from allo_dse.space.space import Candidate

from .front import Points

Item = Candidate | Region

REGION = -1  # level of what is no design yet
_DECIDED = -math.inf
_MOST_DECIDED = 4096  # that are kept among those that are not
_PLACES = 32  # bits of the place of a design within its region


class Undecided:
    """Items, how far the front is from the bounds of each, and which comes next.

    How far the front is from an item is the factor by which, in its worst objective, the nearest design of the front is
    worse than the bounds: a logarithm. No design can turn out further away. What comes next does not depend on when
    items were added: of those that are equally far regions come first, then designs in the order of the space.

    Attributes:
        bounds, level: of each item.
        open: how many designs are not decided.
    """

    def __init__(self, objectives: int) -> None:
        self.items: list[Item | None] = []
        self.bounds: Points = np.empty((0, objectives))
        self.level = np.empty(0, np.int64)
        self._far = np.empty(0)
        self._rank = np.empty(0, np.int64)
        self._size = np.empty(0, np.int64)
        self.front: Points = np.empty((0, objectives))
        self.open = 0

    @staticmethod
    def rank(region: int, place: int = 0) -> int:
        """Where a design, or its region (place 0), comes in the order of the space."""
        return (region << _PLACES) + place

    @property
    def _is_open(self) -> NDArray[np.bool_]:
        return self._far > _DECIDED

    @property
    def least(self) -> Points:
        """Bounds of all that is open."""
        found: Points = self.bounds[self._is_open]
        return found

    def rank_of(self, position: int) -> int:
        return int(self._rank[position])

    def add(self, items: Sequence[Item], bounds: Points, ranks: Sequence[int], level: int) -> None:
        """Take in items of one level, but for those that the front has decided."""
        beaten = np.zeros(len(items), bool)
        far = np.full(len(items), math.inf)  # before anything is found, what may be good in everything comes first
        for point in self.front:
            beaten |= (point <= bounds).all(1)
            far = np.minimum(far, distance(point, bounds))
        kept = np.flatnonzero(~beaten)
        sizes = [item.size if isinstance(item, Region) else 1 for item in (items[n] for n in kept.tolist())]
        self.items += [items[n] for n in kept.tolist()]
        self.bounds = np.vstack([self.bounds, bounds[kept]])
        self.level = np.append(self.level, np.full(len(kept), level))
        self._far = np.append(self._far, far[kept])
        self._rank = np.append(self._rank, np.array(ranks, np.int64)[kept])
        self._size = np.append(self._size, np.array(sizes, np.int64))
        self.open += sum(sizes)

    def next(self) -> int | None:
        """The item that the front is furthest from; before there is a front, one that may be best in everything."""
        if not self.open:
            return None
        if len(self.front):
            worth = self._far
        else:
            promise = np.where(self._is_open, -magnitude(self.bounds).sum(1), _DECIDED)
            worth = promise if np.isfinite(promise).any() else self._far
        ties = np.flatnonzero(worth == worth.max())
        regions = ties[self.level[ties] == REGION]
        ties = regions if len(regions) else ties
        return int(ties[np.argmin(self._rank[ties])])

    def decide(self, position: int) -> None:
        """An item is decided, or is not to be asked for any more."""
        self.open -= int(self._size[position])
        self._far[position], self.items[position] = _DECIDED, None

    def tighten(self, position: int, bounds: Sequence[float]) -> bool:
        """Take in other bounds of an item; returns whether it is open still."""
        # Each level is a lower bound for itself, so the larger of two is one, too.
        own = self.bounds[position] = np.maximum(self.bounds[position], bounds)
        if (self.front <= own).all(1).any():
            self.decide(position)
            return False
        if len(self.front):
            self._far[position] = distance(self.front, own).min()
        return True

    def found(self, point: NDArray[np.float64]) -> None:
        """Take in that a design was found: some are decided, the front is nearer to others."""
        if (self.front <= point).all(1).any():
            return
        self.front = np.vstack([self.front[(self.front < point).any(1)], point])
        is_open = self._is_open
        # No loss of a design is below its bound: a point that is no worse than the bound anywhere is no worse than the
        # design.
        beaten = is_open & (point <= self.bounds).all(1)
        for position in np.flatnonzero(beaten).tolist():
            self.decide(position)
        left = np.flatnonzero(is_open & ~beaten)
        # The distance to a front is that to its nearest point, and points are only added: a running minimum is exact,
        # because a point leaves the front for one that is nowhere worse, and so as near.
        self._far[left] = np.minimum(self._far[left], distance(point, self.bounds[left]))

    def compact(self) -> bool:
        """Forget what is decided when that is most of all; positions change then."""
        keep = np.flatnonzero(self._is_open)
        if len(self._far) - len(keep) <= max(_MOST_DECIDED, len(keep)):
            return False
        self.items = [self.items[n] for n in keep.tolist()]
        self.bounds, self.level, self._far = self.bounds[keep], self.level[keep], self._far[keep]
        self._rank, self._size = self._rank[keep], self._size[keep]
        return True


def magnitude(losses: Points) -> Points:
    """Losses such that equal ratios are equal distances."""
    with np.errstate(divide="ignore"):
        logarithm = np.log(np.abs(losses))
    found: Points = np.where(losses < 0, -logarithm, logarithm)
    return np.where(np.isneginf(losses), -math.inf, found)


def distance(found: Points, bounds: Points) -> NDArray[np.float64]:
    """How far designs that were found are from bounds, in the objective in which they are furthest."""
    with np.errstate(invalid="ignore"):
        apart = (magnitude(found) - magnitude(bounds)).max(-1)
    return np.where(np.isnan(apart), math.inf, apart)
