"""Searches that end with a proof: every design in the order of its bounds, and those that cannot be better never built.

A design whose bounds are no better than a design of the front, in every objective, is decided without being built. What
is proposed next depends on bounds and results alone, not on what was looked at before: a run that was interrupted goes
on as if it had not been.
"""

from __future__ import annotations

import heapq
import itertools
import math
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from allo_dse.space.space import Candidate, Space

from ..store.certificate import Certificate, Gap
from ..store.record import Record
from .front import Points
from .least import LeastLosses, Losses
from .protocol import Proposal, Told
from .screening import Screen

MOST_KEPT = 256
"""Designs that wait with what their bounds were computed from: a graph and a transport plan each."""

_Entry = tuple[float, float, int, int]


@dataclass(slots=True)
class _Open:
    """A design that is not decided.

    Attributes:
        least: what its losses are at least.
        rank: its place among the bounds of all designs, added up over the objectives.
        level: of its bounds; those of a smaller level in the queues are outdated.
    """

    candidate: Candidate
    least: Losses
    rank: float = 0.0
    level: int = 0


class ExactProposer:
    """Proposes designs in the order of their bounds until all are decided.

    The queues take turns: designs that may be best in all objectives together, then those that may be best in each.

    Args:
        strict: whether proposals must not depend on the time evaluations take.
    """

    name = "exact"

    def __init__(self, space: Space, screen: Screen, least: LeastLosses, *, strict: bool) -> None:
        self._space, self._screen, self._least, self._strict = space, screen, least, strict
        self._signs = [o.sign for o in least.objectives]
        self._open: dict[int, _Open] = {}
        self._queues: list[list[_Entry]] = []
        self._sorted: list[list[float]] = []
        self._built: OrderedDict[int, None] = OrderedDict()
        self._proposed: dict[int, tuple[int, Losses]] = {}  # by proposal: which design, and its bounds
        self._front: Points = np.empty((0, len(self._signs)))
        self._number = self._listed = self._evaluated = self._failed = self._bounded = 0
        self._all_listed = self._changed = False
        self.exhausted = False

    def ask(self, count: int, outstanding: int) -> list[Proposal]:
        if not self._all_listed:
            self._list()
        if self._strict:
            count = min(count, 0 if outstanding else 1)
        proposals: list[Proposal] = []
        while len(proposals) < count:
            found = self._next()
            if found is None:
                self.exhausted = True
                break
            self._proposed[self._number] = found, self._open[found].least
            proposals.append(Proposal(self._number, self._open.pop(found).candidate))
            self._number += 1
        return proposals

    def _list(self) -> None:
        """Take in all designs with their first bounds, but for those that are known."""
        known, every = self._screen.anything_known, []
        for number, candidate in enumerate(self._space.designs()):
            self._listed += 1
            least = self._least(candidate.design, 0)
            every.append(self._least.nothing if least is None else least)
            if known and self._screen.knows(candidate.key):
                continue
            if least is None:
                self._bounded += 1
            else:
                self._open[number] = _Open(candidate, least)
        self._all_listed = True
        self._order(every)

    def _order(self, every: Sequence[Losses]) -> None:
        """Fill the queues; `every` has the first bounds of all designs, by which they are ranked."""
        self._sorted = [sorted(set(column)) for column in zip(*every, strict=True)]
        self._queues = [[] for _ in range(self._orders)]
        for number, design in self._open.items():
            design.rank = self._rank(design.least)
            for queue, entry in zip(self._queues, self._entries(number, design), strict=True):
                queue.append(entry)
        for queue in self._queues:
            heapq.heapify(queue)

    @property
    def _orders(self) -> int:
        """Of all objectives together, and of each of several."""
        return 1 + (len(self._signs) if len(self._signs) > 1 else 0)

    def _rank(self, least: Losses) -> float:
        return float(sum(map(bisect_left, self._sorted, least)))

    def _entries(self, number: int, design: _Open) -> list[_Entry]:
        """Its places in the queues: what is no worse in any objective is never behind."""
        own = [design.rank, *design.least][: self._orders]
        return [(value, design.rank, number, design.level) for value in own]

    def _next(self) -> int | None:
        """The next design to evaluate, out of the queue whose turn it is."""
        turn = self._number % max(1, len(self._queues))
        while (number := self._first(turn)) is not None:
            design = self._open[number]
            if design.level + 1 < self._least.levels:
                self._refine(number, design)
            elif self._screen.judge(design.candidate) == "new":
                return number
            else:
                del self._open[number]
        return None

    def _first(self, turn: int) -> int | None:
        """The first undecided design of a queue, which stays there."""
        queue = self._queues[turn] if self._queues else []
        while queue:
            _, _, number, level = queue[0]
            design = self._open.get(number)
            if design is not None and level == design.level:
                if not self._is_beaten(design.least):
                    return number
                del self._open[number]
                self._bounded += 1
            heapq.heappop(queue)
        return None

    def _is_beaten(self, least: Losses) -> bool:
        """Whether a design that was found is at least as good in everything."""
        return bool((self._front <= np.array(least)).all(1).any())

    def _refine(self, number: int, design: _Open) -> None:
        """Compute the next bounds of a design, which may take it back in the queues."""
        found = self._least(design.candidate.design, design.level + 1)
        if found is None:
            del self._open[number]
            self._bounded += 1
            return
        design.level += 1
        design.least = tuple(map(max, design.least, found))
        design.rank = self._rank(design.least)
        for queue, entry in zip(self._queues, self._entries(number, design), strict=True):
            heapq.heappush(queue, entry)
        self._built[number] = None
        if len(self._built) > MOST_KEPT:
            oldest, _ = self._built.popitem(last=False)
            if oldest in self._open:
                kept = self._open[oldest]
                kept.candidate = replace(kept.candidate, design=replace(kept.candidate.design))

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
            self._changed = True
            self._front = np.vstack([self._front[(self._front < losses).any(1)], losses])

    def revise(self, told: Mapping[int, Told]) -> None:
        """Values change where there are rungs above the first, and then nothing is ruled out by bounds."""

    def restore(self, history: Sequence[Record], told: Callable[[Record], Told], next_number: int) -> None:
        for record in history:
            self._take(told(record))
        self._number = next_number

    def certificate(self) -> Certificate:
        """What is decided by now."""
        self._sweep()
        objectives = self._least.objectives
        shares = [self._gap(position) for position in range(len(objectives))]
        gaps = tuple(Gap(o.name, o.direction, share) for o, share in zip(objectives, shares, strict=True))
        return Certificate(
            designs=self._listed,
            listed=self._all_listed,
            evaluated=self._evaluated,
            failed=self._failed,
            refused=self._screen.invalid,
            bounded=self._bounded,
            open=len(self._open) + len(self._proposed),
            gaps=gaps,
            unbounded=tuple(self._least.unbounded),
        )

    def _sweep(self) -> None:
        """Take out what has been beaten since it was last looked at: the queues only notice when its turn comes."""
        if not self._changed or not self._open:
            return
        self._changed = False
        numbers = list(self._open)
        least = np.array([design.least for design in self._open.values()])
        for point in self._front:
            beaten = (point <= least).all(1)
            for position in np.flatnonzero(beaten):
                del self._open[numbers[position]]
            self._bounded += int(beaten.sum())
            least, numbers = least[~beaten], list(itertools.compress(numbers, ~beaten))

    def _gap(self, position: int) -> float | None:
        """By how much a design that is not decided can be better at most, as a share of the best value found."""
        if not len(self._front):
            return None
        best = float(self._front[:, position].min())
        bounds = [least[position] for _, least in self._proposed.values()]
        first = self._first(position + 1 if self._orders > 1 else 0) if self._all_listed else None
        if first is not None:
            bounds.append(self._open[first].least[position])
        least = min(bounds, default=best)
        if not self._all_listed or math.isinf(least):
            return None
        return max(0.0, best - least) / abs(best) if best else None
