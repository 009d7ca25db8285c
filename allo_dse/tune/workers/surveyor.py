"""Exact searches in workers: a driver leases them parts of the space, which come back with designs and what is proved.

A worker keeps what it has of a part from one lease to the next. It searches as one process does (`prospect.py`), but
lists a part of the designs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from allo_dse.eval.evaluator import Evaluator

from ..declare.spec import StudySpec
from ..search.exact.prospect import Next, Prospect
from ..search.front import Points
from ..search.least import Losses
from ..search.screening import Screen
from ..store.described import bred
from .nursery import Broken


class Lease(Struct, frozen=True):
    """A part of the space, to look for designs to evaluate.

    Attributes:
        part: which one, of how many.
        turn: how often its driver has got it back; 0: it is to be looked at from the beginning.
        count: designs wanted.
        effort: after which it is to come back all the same, in designs that are looked at.
        front: losses of the best designs: what cannot be better than one of them is decided.
        known: keys of designs that are not wanted.
    """

    part: int
    parts: int
    turn: int
    count: int
    effort: int
    front: Points
    known: list[str]


class Survey(Struct, frozen=True):
    """What was found in a part, and what is left of it.

    Attributes:
        found: designs to evaluate, which are not in the part any more.
        broken: those that break limits.
        designs: of the part that were listed; `listed`: whether these are all.
        open: how many are not decided, but for those that were found.
        least: what none of these can be better than; empty where there are none.
    """

    found: list[Next]
    broken: list[Broken]
    designs: int
    listed: bool
    open: int
    least: Losses


class Surveyor:
    """Looks for designs in the parts of a study's space that it was leased.

    Args:
        pause: called between designs.
    """

    def __init__(self, study: StudySpec, evaluator: Evaluator, pause: Callable[[], None] = lambda: None) -> None:
        self._study, self._least, self._pause = study, study.least_losses(evaluator), pause
        self._parts: dict[int, tuple[int, Prospect, Screen]] = {}

    def _meanwhile(self) -> bool:
        self._pause()
        return False

    def survey(self, lease: Lease) -> Survey | None:
        """Go on with a part; None when it is not known here how far it is."""
        # Where this is left by an exception, the part is in nobody's hands.
        turn, prospect, screen = self._parts.pop(lease.part, (-1, None, None))
        if not lease.turn:
            screen = Screen(self._study.space, self._study.check, self._study.check_soon)
            prospect = Prospect(self._study.space, screen, self._least, (lease.part, lease.parts))
            prospect.meanwhile = self._meanwhile
        elif turn != lease.turn:
            return None
        assert prospect is not None
        assert screen is not None
        screen.know(lease.known)
        prospect.found(lease.front)
        prospect.effort = lease.effort
        found: list[Next] = []
        while len(found) < lease.count and (one := prospect.next()) is not None:
            found.append(one)
        self._parts[lease.part] = lease.turn + 1, prospect, screen
        least = prospect.least
        return Survey(
            [Next(bred(c), bounds, rank) for c, bounds, rank in found],
            [(bred(candidate), violations) for candidate, violations in screen.taken()],
            prospect.designs,
            prospect.listed,
            prospect.open,
            tuple(np.min(least, 0).tolist()) if len(least) else (),
        )
