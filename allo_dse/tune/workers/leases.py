"""An exact search whose space is leased to workers in parts.

Workers list their parts, bound, make and check designs; the driver keeps what they have found in the order in which one
process would look at it, gives it out for evaluation like everything else, and tells them the front with each lease.
What is decided of the space is what is decided of its parts. A part that is lost with its worker is looked at again
from the beginning, by another and with the front of then: nothing that was proposed is proposed again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

import numpy as np

from ..search.exact.prospect import Next
from ..search.exact.undecided import Undecided
from ..search.front import Points
from ..search.screening import Screen
from ..store.described import Bred
from .breeders import Breeders
from .surveyor import Lease, Survey, Surveyor

EFFORT = 256  # designs looked at for a lease: about a second of work, so that the front that it was told is not old
LEAST_LEASED = 8  # designs asked for with a lease
MOST_TOLD = 20_000  # keys of known designs that a worker is told, who finds others in vain
HERE = -1  # a holder that is the driver
MOST_LOST = 3  # times in a row that a part is lost before the driver looks at it itself, and sees why


@dataclass
class Part:
    """What the driver knows of a part of the space.

    Attributes:
        holder: the worker that can go on with it; None where it has to be begun.
        turn: surveys that came from there.
        lost: how often in a row it was lost.
    """

    number: int
    survey: Survey | None = None
    holder: int | None = None
    turn: int = 0
    lost: int = 0

    @property
    def closed(self) -> bool:
        """Whether nothing in it is open."""
        return self.survey is not None and self.survey.listed and not self.survey.open

    def give(self, holder: int | None) -> None:
        """Let another look at it, from the beginning; what is known of it holds."""
        if holder != self.holder:
            self.holder, self.turn = holder, 0


class Leases:
    """Where an exact search finds its designs when workers look for them (a `Ground`).

    Args:
        here: what looks for designs in this process, while there is no worker.
        objectives: how many there are.
    """

    def __init__(
        self, screen: Screen, breeders: Breeders[Lease, Survey], here: Callable[[], Surveyor], objectives: int
    ) -> None:
        self._screen, self._breeders, self._make_here = screen, breeders, here
        self._objectives = objectives
        self._stock = Undecided(objectives)  # what was found and not given out
        self._parts = [Part(number) for number in range(breeders.hired())]
        self._waiting = set(range(len(self._parts)))  # parts that are open and not leased
        self._here: Surveyor | None = None
        self._unlisted = set(self._waiting)
        self._ordered = 0  # designs
        self.meanwhile: Callable[[], bool] = lambda: False

    # -- what is decided ----------------------------------------------------------------------------------------------

    @property
    def _surveys(self) -> list[Survey]:
        self._take()  # the last ones come when nothing is asked for any more
        return [part.survey for part in self._parts if part.survey is not None]

    @property
    def designs(self) -> int:
        return sum(survey.designs for survey in self._surveys)

    @property
    def listed(self) -> bool:
        self._take()
        return not self._unlisted

    @property
    def open(self) -> int:
        return sum(survey.open for survey in self._surveys) + self._stock.open

    @property
    def least(self) -> Points:
        rows = [survey.least for survey in self._surveys if survey.least]
        return np.vstack([np.array(rows, float).reshape(-1, self._objectives), self._stock.least])

    @property
    def front(self) -> Points:
        return self._stock.front

    def found(self, points: Points) -> None:
        for point in points:
            self._stock.found(point)

    def left(self) -> bool:
        return bool(self._stock.open) or not all(part.closed for part in self._parts)

    # -- what comes next ----------------------------------------------------------------------------------------------

    def next(self) -> Next | None:
        self._take()
        if self._waiting and (self._unlisted or self._stock.open < self._breeders.appetite() - self._ordered):
            self._lease()
        while self._waiting and not self._ordered and (self._unlisted or not self._stock.open):
            self.meanwhile()
            self._look_here()  # the run would end when nothing is under way
        stock = self._stock
        # What is best is not known before all that there is was looked at once.
        position = None if self._unlisted else stock.next()
        if position is None:
            return None
        design = stock.items[position]
        assert isinstance(design, Bred)
        one = Next(design, tuple(stock.bounds[position].tolist()), stock.rank_of(position))
        stock.decide(position)
        stock.compact()
        return one

    def _lease(self) -> None:
        """Let workers that have nothing to look at go on with what they had, or begin with what nobody has."""
        idle = dict.fromkeys(self._breeders.idle())
        waiting = sorted((self._parts[number] for number in self._waiting), key=lambda part: (part.turn, part.number))
        for part in waiting:
            if part.holder in idle:
                self._order(part, part.holder, idle)
        for part in waiting:
            if idle and part.holder in (None, HERE) and part.lost < MOST_LOST:
                self._order(part, next(iter(idle)), idle)

    def _order(self, part: Part, worker: int, idle: dict[int, None]) -> None:
        del idle[worker]
        part.give(worker)
        lease = self._terms(part)
        self._waiting.discard(part.number)
        self._ordered += lease.count
        self._breeders.order(worker, lease)

    def _terms(self, part: Part) -> Lease:
        known = () if part.turn else islice(self._screen.known, MOST_TOLD)
        count = max(LEAST_LEASED, self._breeders.share())
        return Lease(part.number, len(self._parts), part.turn, count, EFFORT, self._stock.front, list(known))

    def _take(self) -> None:
        """Take in what has come back."""
        for lease, survey in self._breeders.litters():
            part = self._parts[lease.part]
            self._ordered -= lease.count
            if survey is None:
                part.give(None)
                part.lost += 1
                self._waiting.add(part.number)
            else:
                part.lost = 0
                self._admit(part, survey)

    def _admit(self, part: Part, survey: Survey) -> None:
        part.turn += 1
        if survey.listed:
            self._unlisted.discard(part.number)
        if survey.listed or part.number in self._unlisted:  # else what was known of it says more
            part.survey = survey
        (self._waiting.discard if part.closed else self._waiting.add)(part.number)
        for broken, violations in survey.broken:
            self._screen.rule_out(broken, violations)
        new = [one for one in survey.found if not self._screen.knows(one.candidate.key)]
        if new:
            for one in new:
                self._screen.remember(one.candidate.key, None)
            designs, bounds, ranks = zip(*new, strict=True)
            self._stock.add(designs, np.array(bounds, float), ranks, 0)

    def _look_here(self) -> None:
        """Look at a part in this process: at the one that it knows, or that was lost most often."""
        self._here = self._here or self._make_here()
        waiting = (self._parts[number] for number in self._waiting)
        part = max(waiting, key=lambda part: (part.holder == HERE, part.lost, -part.number))
        part.give(HERE)
        survey = self._here.survey(self._terms(part))
        assert survey is not None
        self._admit(part, survey)
