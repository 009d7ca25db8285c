"""Solver of the launch problem: the fastest solution, or the best one found with a bound on what is left to gain.

If several launches are allowed, `by_launches` solves them one by one. Then CP-SAT solves the whole from the best known
solution, unless that is proved optimal already.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from functools import cached_property

from allo_dse.common.cp_sat import answer, cp_model
from allo_dse.common.errors import StudyError
from allo_dse.common.records import replace

from .problem import ALLOWED, BANDWIDTH, Problem, Solution, least_of, needs_in_words
from .shortest_path import by_launches


class Model:
    """Variables and constraints of a problem for CP-SAT."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.model = cp_model.CpModel()
        model, count = self.model, len(problem.kinds)
        self.launches = range(problem.launches or problem.steps)
        # `runs`: the operator runs in the launch with the choice. `has`: the kind has columns for the choice there.
        self.runs = {
            (o, c, at): model.new_bool_var(f"runs_{o}_{c}_{at}")
            for o, kind in enumerate(problem.kinds)
            for c in range(len(problem.choices[kind]))
            for at in self.launches
        }
        self.has = {
            (k, c, at): model.new_bool_var(f"has_{k}_{c}_{at}")
            for k, choices in enumerate(problem.choices)
            for c in range(len(choices))
            for at in self.launches
        }
        self.present = [model.new_bool_var(f"present_{o}") for o in range(count)]
        self._groups()
        edges = [(edge.source, edge.target) for edge in problem.edges]
        self.streams = {edge: model.new_bool_var("streams_{}_{}".format(*edge)) for edge in edges}
        # An operator that reads a stream is called with its source, but starts only when it need not wait any more.
        called = [model.new_int_var(0, problem.horizon, f"called_{o}") for o in range(count if problem.edges else 0)]
        self.called = called or self.start
        self.begin = [model.new_int_var(0, problem.horizon, f"begin_{at}") for at in self.launches]
        self.length = model.new_int_var(0, problem.horizon, "length")
        self._one_design_each()
        if problem.effects:
            model.add(sum(map(operator.mul, problem.effects, self.present)) <= ALLOWED)
        self._resources()
        self._order()
        self._streamed()
        self._in_their_launches()
        self._side_by_side()
        if not problem.edges:
            self._at_least()
        model.minimize(self.length)

    def _groups(self) -> None:
        """Give operators that do the same steps one launch, one start and one size.

        At most one of them runs.
        """
        model, most, horizon = self.model, len(self.launches) - 1, self.problem.horizon
        self.alike = self.problem.alike
        self.group = {o: number for number, own in enumerate(self.alike) for o in own}
        self.any = [model.new_bool_var(f"any_{own[0]}") for own in self.alike]
        launch = [model.new_int_var(0, most, f"launch_{own[0]}") for own in self.alike]
        start = [model.new_int_var(0, horizon, f"start_{own[0]}") for own in self.alike]
        size = [
            model.new_int_var_from_domain(
                cp_model.Domain.from_values([0, *(ticks for o in own for ticks in self.problem.ticks(o))]),
                f"size_{own[0]}",
            )
            for own in self.alike
        ]
        places = [self.group[o] for o in range(len(self.present))]
        self.launch, self.start, self.size = ([one[at] for at in places] for one in (launch, start, size))

    def _one_design_each(self) -> None:
        """Do every step once, by an operator in one launch, with the choice of its kind there."""
        for step in range(self.problem.steps):
            self.model.add_exactly_one(one for (o, _, _), one in self.runs.items() if step in self.problem.does[o])
        for o, kind in enumerate(self.problem.kinds):
            choices = range(len(self.problem.choices[kind]))
            self.model.add(self.present[o] == sum(self.runs[o, c, at] for c in choices for at in self.launches))
            for c in choices:
                for at in self.launches:
                    self.model.add_implication(self.runs[o, c, at], self.has[kind, c, at])

        ticks = [self.problem.ticks(o) for o in range(len(self.problem.kinds))]
        runs: dict[int, list[tuple[int, int, int]]] = {}
        for one in self.runs:
            runs.setdefault(self.group[one[0]], []).append(one)
        for number, own in enumerate(self.alike):
            self.model.add(self.any[number] == sum(self.present[o] for o in own))
            self.model.add(self.launch[own[0]] == sum(one[2] * self.runs[one] for one in runs[number]))
            self.model.add(self.size[own[0]] == sum(ticks[o][c] * self.runs[o, c, at] for o, c, at in runs[number]))

    def _resources(self) -> None:
        """Make the designs of a launch fit the device, and give each kind at most one."""
        for at in self.launches:
            for number, limit in enumerate(self.problem.limits):
                needs = [(self.problem.choices[k][c].needs[number], k, c) for k, c, own in self.has if own == at]
                saved = sum(e.saves[number] * self.streams[e.source, e.target] for e in self.problem.edges)
                self.model.add(sum(need * self.has[k, c, at] for need, k, c in needs) - saved <= limit)
            for k, choices in enumerate(self.problem.choices):
                self.model.add_at_most_one(self.has[k, c, at] for c in range(len(choices)))

    def _order(self) -> None:
        """Start operators after their inputs are ready; the end is after all of them."""
        for o, waits in enumerate(self.problem.after):
            self.model.add(self.called[o] >= self.problem.release[o]).only_enforce_if(self.present[o])
            end = self.start[o] + self.size[o] + self.problem.tail[o]
            self.model.add(self.length >= end).only_enforce_if(self.present[o])
            for before, wait in waits.items():
                both = (self.present[o], self.present[before])
                through_dram = [~self.streams[before, o]] if (before, o) in self.streams else []
                if wait or self.problem.edges:
                    self.model.add(self.called[o] >= self.start[before] + self.size[before] + wait).only_enforce_if(
                        *both, *through_dram
                    )
        for number, own in enumerate(self.alike):
            first = own[0]
            self.model.add(self.start[first] == min(self.problem.release[o] for o in own)).only_enforce_if(
                ~self.any[number]
            )
            for other in {self.group[before] for o in own for before in self.problem.after[o]}:
                both = (self.any[number], self.any[other])
                before = self.alike[other][0]
                self.model.add(self.launch[first] >= self.launch[before]).only_enforce_if(*both)
                if not self.problem.edges:
                    self.model.add(self.start[first] >= self.start[before] + self.size[before]).only_enforce_if(*both)

    def _streamed(self) -> None:
        """Keep streaming operators on hardware of their own, and start each late enough never to wait for a stream."""
        kinds, choices = self.problem.kinds, self.problem.choices
        alike: dict[int, list[int]] = {}
        for o, kind in enumerate(kinds):
            alike.setdefault(kind, []).append(o)
        for o in range(len(kinds) if self.problem.edges else 0):
            self.model.add(self.start[o] >= self.called[o]).only_enforce_if(self.present[o])
        for edge in self.problem.edges:
            streams, ends = self.streams[edge.source, edge.target], (edge.source, edge.target)
            if kinds[edge.source] == kinds[edge.target]:
                self.model.add(streams == 0)
            for o in sorted({*alike[kinds[edge.source]], *alike[kinds[edge.target]]}):
                self.model.add_implication(streams, self.present[o] if o in ends else ~self.present[o])
            self.model.add(self.called[edge.target] == self.called[edge.source]).only_enforce_if(streams)
            # A redundant bound that holds with and without the stream: without it the solver's bound is loose.
            least = [
                min([choice.ticks, *(lag for lag in lags if lag is not None)]) * self.runs[edge.source, c, 0]
                for c, (choice, lags) in enumerate(zip(choices[kinds[edge.source]], edge.lags, strict=True))
            ]
            both = (self.present[edge.source], self.present[edge.target])
            self.model.add(self.start[edge.target] >= self.start[edge.source] + sum(least)).only_enforce_if(*both)
            targets = [self.runs[edge.target, c, 0] for c in range(len(choices[kinds[edge.target]]))]
            for c, lags in enumerate(edge.lags):
                source = self.runs[edge.source, c, 0]
                lag = sum((lag or 0) * target for lag, target in zip(lags, targets, strict=True))
                self.model.add(self.start[edge.target] >= self.start[edge.source] + lag).only_enforce_if(
                    streams, source
                )
                for at, one in enumerate(lags):
                    if one is None:
                        self.model.add_bool_or(~streams, ~source, ~targets[at])

    def _in_their_launches(self) -> None:
        """Run operators between the begin of their launch and that of the next, before the array is configured."""
        for own in self.alike:
            o = own[0]
            for at in self.launches:
                here = [self.runs[one, c, at] for one in own for c in range(len(self.problem.designs(one)))]
                inside = self.model.new_bool_var(f"in_{o}_{at}")
                self.model.add(inside == sum(here))
                self.model.add(self.start[o] >= self.begin[at]).only_enforce_if(inside)
                for later in self.launches[at + 1 :]:
                    wait = self.problem.between
                    self.model.add(self.begin[later] >= self.start[o] + self.size[o] + wait).only_enforce_if(
                        inside, self._used[later]
                    )
        for at in self.launches[1:]:
            self.model.add(self.begin[at] >= self.begin[at - 1])
            self.model.add_implication(self._used[at], self._used[at - 1])

    def period(self) -> cp_model.IntVar:
        """Return the variable of the ticks from input to input.

        It covers the busiest kind, operators that stream to each other and are called again when all have ended, and
        the DRAM's transfers.
        """
        period = self.model.new_int_var(0, self.problem.horizon, "period")
        busy: dict[int, list[cp_model.LinearExpr]] = {}
        moving = []
        for (o, c, _), one in self.runs.items():
            choice = self.problem.designs(o)[c]
            busy.setdefault(self.problem.kinds[o], []).append(choice.ticks * one)
            moving.append(choice.ticks * choice.bandwidth * one)
        for times in busy.values():
            self.model.add(period >= sum(times))
        self.model.add(BANDWIDTH * period >= sum(moving))
        for ends, streams in self.streams.items():
            for o in ends:
                took = self.start[o] + self.size[o] - self.called[o]
                self.model.add(period >= took).only_enforce_if(streams)
        return period

    def _at_least(self) -> None:
        """Add bounds on the length that the solver does not see by itself.

        Launches follow each other. They take as long as the longest path of dependences, and as their columns are busy.
        """
        problem, model = self.problem, self.model
        used = self._used
        between = problem.between * (sum(used) - 1)
        for at in self.launches:
            for number, limit in enumerate(problem.limits):
                needs = [
                    problem.choices[k][c].needs[number] * one for (k, c, own), one in self.has.items() if own == at
                ]
                model.add(sum(needs) <= limit * used[at])
        path = problem.longest_path
        in_turn = sum(self.size[own[0]] for own in self.alike if path & set(problem.does[own[0]]))
        model.add(self.length >= between + in_turn)
        ticks = {o: problem.ticks(o) for o in range(len(problem.kinds))}
        for number, limit in enumerate(problem.limits):
            areas = [
                problem.choices[problem.kinds[o]][c].needs[number] * ticks[o][c] * one
                for (o, c, _), one in self.runs.items()
            ]
            model.add(limit * (self.length - between) >= sum(areas))

    @cached_property
    def _used(self) -> list[cp_model.IntVar]:
        """The variables that are true if a launch has operators."""
        uses = [self.model.new_bool_var(f"used_{at}") for at in self.launches]
        for at, used in enumerate(uses):
            self.model.add_max_equality(used, [one for (_, _, own), one in self.runs.items() if own == at])
        return uses

    def _side_by_side(self) -> None:
        """Run operators of a kind one after another, and share the bandwidth among concurrent ones."""
        times: dict[int, list[cp_model.IntervalVar]] = {kind: [] for kind in self.problem.kinds}
        demands: dict[int, list[int]] = {kind: [] for kind in self.problem.kinds}
        for o, kind in enumerate(self.problem.kinds):
            for c, choice in enumerate(self.problem.designs(o)):
                chosen = self.model.new_bool_var(f"chosen_{o}_{c}")
                self.model.add(chosen == sum(self.runs[o, c, at] for at in self.launches))
                end = self.start[o] + choice.ticks
                times[kind].append(
                    self.model.new_optional_interval_var(self.start[o], choice.ticks, end, chosen, f"time_{o}_{c}")
                )
                demands[kind].append(choice.bandwidth)
        for intervals in times.values():
            self.model.add_no_overlap(intervals)
        self.model.add_cumulative(
            [one for kind in times for one in times[kind]], [one for kind in times for one in demands[kind]], BANDWIDTH
        )


WORK_LIMIT = 60.0
"""CP-SAT's deterministic time, about as many seconds: then the best so far is taken, with what is proved of it."""
LAUNCH_SHARE = 1 / 20
"""Share of the limit that one launch may take; all launches together may take half."""

WHOLE = 2
"""Level of the linear relaxation. Operator times depend on choices, which lower levels do not see. For GPT-2's block,
one launch of 163 designs on a U280, the optimum is proved in 8 s of work. Without it, 60 s do not find the optimum, and
the bound is a quarter of it."""

MOST_RUNS = 10_000
"""Most designs in launches for which one model of the whole network is solved; larger networks keep the solution found
launch by launch. A model of 25,197 (an LSTM of 16 steps) takes 10 s to build, and proves nothing within minutes."""


def solve(problem: Problem, *, work_limit: float = WORK_LIMIT, stream: bool = False) -> Solution:
    """Return the shortest solution, or the best one found within a limit of work.

    Args:
        stream: minimise the time from input to input first, then the length; for one launch.

    Raises:
        StudyError: if the designs of the operators do not fit the device.
    """
    work, known, bound = _Work(work_limit), one_by_one(problem, max(work_limit, 1.0)), least_of(problem)
    if problem.alone and known:
        return known
    if problem.launches is None:
        path, least = by_launches(problem, work.launch, work.more)
        bound = max(bound, least)
        if path and sum(own for own, at in zip(problem.effects, path.launch, strict=False) if at >= 0) > ALLOWED:
            path = None
        known = min((one for one in (known, path) if one), key=lambda one: one.length, default=None)
        runs = sum(len(problem.designs(o)) for o in range(len(problem.kinds))) * problem.steps
        if known is not None and (known.length <= bound or (path and runs > MOST_RUNS)):
            return replace(known, bound=bound)
    made = Model(problem)
    if known is not None and not stream:
        made.model.add(made.length >= bound)
        made.model.add(made.length <= known.length)
    found = work.found(made, known, work_limit - work.done, stream=stream)
    if found is not None and stream:
        return found
    best = min((one for one in (known, found) if one), key=lambda one: one.length, default=None)
    if best is None:
        raise StudyError(
            "no designs of the network's operators were found that fit the device together",
            hint="more trials find smaller ones; give a larger device",
        )
    return replace(best, bound=max(bound, found.bound if found else 0))


def one_by_one(problem: Problem, work_limit: float) -> Solution | None:
    """Return the operators whose times add up to the least, each with its fastest design in a launch of its own.

    Conversions between element types count. If the solver finds nothing within the limit of work, each step is an
    operator of its own, the most exact one. None if fewer launches are allowed.

    Raises:
        StudyError: if no designs fit the device, or keep the outputs within the limit.
    """
    fit = [[one for one in own if all(map(operator.le, one.needs, problem.limits))] for own in problem.choices]
    best = {o: min(fit[kind], key=lambda one: one.ticks) for o, kind in enumerate(problem.kinds) if fit[kind]}
    model = cp_model.CpModel()
    runs = {o: model.new_bool_var(f"runs_{o}") for o in best}
    converts = [model.new_int_var(0, problem.horizon, f"converts_{step}") for step in range(problem.steps)]
    for step in range(problem.steps):
        does = [o for o, steps in enumerate(problem.does) if step in steps]
        if not best.keys() & does:
            raise StudyError(
                f"an operator of the network has no design within {needs_in_words(problem.limits)} of the device",
                hint=f"it needs {needs_in_words(problem.designs(does[0])[0].needs)}",
            )
        model.add_exactly_one(runs[o] for o in does if o in runs)
    if problem.effects:
        model.add(sum(problem.effects[o] * one for o, one in runs.items()) <= ALLOWED)
    for o, waits in enumerate(problem.after):
        for before, wait in waits.items():
            step = problem.does[before][-1]
            more = wait - min(own for other, own in waits.items() if problem.does[other][-1] == step)
            if more and {o, before} <= best.keys():
                model.add(converts[step] >= more).only_enforce_if(runs[o], runs[before])
    model.minimize(sum(best[o].ticks * one for o, one in runs.items()) + sum(converts))
    status, solver = answer(model, work=work_limit, linear=WHOLE)
    if status == cp_model.INFEASIBLE:
        raise StudyError("no operators of the network fit the device and the tolerance together")
    if problem.launches is not None and problem.launches < problem.steps:
        return None
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        chosen, bound = [o for o, one in runs.items() if solver.value(one)], round(solver.best_objective_bound)
    else:
        effects, bound = problem.effects or (0,) * len(problem.kinds), least_of(problem)
        singles = [[o for o in best if problem.does[o] == (step,)] for step in range(problem.steps)]
        chosen = [min(own, key=lambda o: (effects[o], best[o].ticks)) for own in singles if own]
        if len(chosen) < problem.steps or sum(effects[o] for o in chosen) > ALLOWED:
            raise StudyError("no composition of the network was found within the limit of work")
    launch, start, choice = ([-1] * len(problem.kinds) for _ in range(3))
    ends, clock = dict[int, int](), 0
    for o in sorted(chosen, key=lambda o: problem.does[o][-1]):  # topological order
        earliest = [ends[before] + wait for before, wait in problem.after[o].items() if before in ends]
        launch[o], choice[o] = len(ends), problem.designs(o).index(best[o])
        start[o] = max(problem.release[o], clock, *earliest)
        ends[o] = start[o] + best[o].ticks
        clock = ends[o] + problem.between
    length = max(problem.tail[o] + end for o, end in ends.items())
    return Solution(tuple(launch), tuple(start), tuple(choice), length, bound)


@dataclass
class _Work:
    """CP-SAT's work so far, and its limit.

    Attributes:
        refuted: the last model has no solution.
    """

    limit: float
    done: float = 0.0
    refuted: bool = False

    def more(self) -> bool:
        return self.done < self.limit / 2

    def launch(self, part: Problem) -> tuple[float, Solution | None]:
        """Return the bound and the best solution of one launch."""
        found = self.found(Model(part), None, self.limit * LAUNCH_SHARE)
        return (found.bound if found else math.inf if self.refuted else 0), found

    def found(self, made: Model, begun: Solution | None, limit: float, *, stream: bool = False) -> Solution | None:
        """Return a model's best solution within a limit, with its bound; None if none is found."""
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
        launch, choice = zip(*(chosen.get(o, (-1, -1)) for o in range(len(made.start))), strict=True)
        return Solution(
            launch,
            tuple(solver.value(one) if o in chosen else -1 for o, one in enumerate(made.start)),
            choice,
            length=solver.value(made.length),
            bound=bound if stream else round(solver.best_objective_bound),
            streams=tuple(e for e, one in enumerate(made.streams.values()) if solver.value(one)),
        )
