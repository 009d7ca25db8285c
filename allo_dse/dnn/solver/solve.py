"""The fastest way to put operators into launches: exact, or with a bound on what is left to gain.

Launch by launch (`by_launches`) where the device may have several, then CP-SAT on the whole, from the best that is
known, unless that is proved already.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ortools.sat.python import cp_model

from allo_dse.common.cp_sat import answer
from allo_dse.common.errors import StudyError
from allo_dse.common.records import replace

from .by_launches import by_launches
from .model import Model
from .problem import ALLOWED, Problem
from .solution import Solution, in_turn, least_of

WORK_LIMIT = 60.0
"""CP-SAT's deterministic time, about as many seconds: then the best so far is taken, with what is proved of it."""
LAUNCH_SHARE = 1 / 20
"""Of the limit, that one launch may take; all of them, half."""

WHOLE = 2
"""Of the linear relaxation: how long operators take hangs on choices, which is not seen without. Of GPT-2's block, one
launch on a U280 of 163 designs, the best is proved in 8 s of work; without, 60 s do not find it, and the bound is a
quarter of it."""


def solve(
    problem: Problem, *, work_limit: float = WORK_LIMIT, stream: bool = False, near: Solution | None = None
) -> Solution:
    """The shortest solution, or the best that is found within a limit of work.

    Args:
        stream: the one with the least time from input to input instead, and the shortest of these; for one launch.
        near: where to look first.

    Raises:
        StudyError: where the designs of the operators do not fit the device.
    """
    work, known, bound = _Work(work_limit), in_turn(problem), least_of(problem)
    if problem.launches is None:
        path, least = by_launches(problem, work.launch, work.more)
        bound = max(bound, least)
        known = min((one for one in (known, path) if one and _allowed(problem, one)), key=_length, default=None)
        if known is not None and known.length <= bound:
            return replace(known, bound=bound)
    made = Model(problem)
    if known is not None and not stream:
        made.model.add(made.length >= bound)
        made.model.add(made.length <= known.length)
    found = work.found(made, near or known, work_limit - work.done, stream=stream)
    if found is None and known is None:
        raise StudyError(
            "no designs of the network's operators were found that fit the device together",
            hint="more trials find smaller ones; give a larger device",
        )
    if found is not None and not stream:
        bound = max(bound, found.bound)
        found = replace(found, bound=bound)
    if found is not None and (stream or known is None or found.length < known.length):
        return found
    assert known is not None
    return replace(known, bound=bound)


def _allowed(problem: Problem, one: Solution) -> bool:
    """Whether its operators together take no more of the deviation than is allowed."""
    return sum(effect for effect, at in zip(problem.effects, one.launch, strict=False) if at >= 0) <= ALLOWED


def _length(one: Solution) -> int:
    return one.length


@dataclass
class _Work:
    """What CP-SAT has done of the work that it may do.

    Attributes:
        refuted: the last model has no solution.
    """

    limit: float
    done: float = 0.0
    refuted: bool = False

    def more(self) -> bool:
        return self.done < self.limit / 2

    def launch(self, part: Problem) -> tuple[float, Solution | None]:
        """The bound and the best of one launch."""
        found = self.found(Model(part), None, self.limit * LAUNCH_SHARE)
        return (found.bound if found else math.inf if self.refuted else 0), found

    def found(self, made: Model, begun: Solution | None, limit: float, *, stream: bool = False) -> Solution | None:
        """The best of a model within a limit, with its bound; None where none is found."""
        if begun is not None:
            for (o, c, at), one in made.runs.items():
                made.model.add_hint(one, begun.launch[o] == at and begun.choice[o] == c)
        bound, limit = 0, max(limit, 0.0)
        if stream:
            period = made.period()
            made.model.minimize(period)
            status, solver = answer(made.model, work=limit, linear=WHOLE)
            if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
                bound = round(solver.best_objective_bound)
                made.model.add(period <= solver.value(period))
                made.model.minimize(made.length)
        status, solver = answer(made.model, work=limit, linear=WHOLE)
        self.done += solver.response_proto.deterministic_time
        self.refuted = status == cp_model.INFEASIBLE
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None
        chosen = {o: (at, c) for (o, c, at), one in made.runs.items() if solver.value(one)}
        count = range(len(made.problem.kinds))
        return Solution(
            launch=tuple(chosen.get(o, (-1, -1))[0] for o in count),
            start=tuple(solver.value(made.start[o]) if o in chosen else -1 for o in count),
            choice=tuple(chosen.get(o, (-1, -1))[1] for o in count),
            length=solver.value(made.length),
            bound=bound if stream else round(solver.best_objective_bound),
            streams=tuple(e for e, one in enumerate(made.streams.values()) if solver.value(one)),
        )
