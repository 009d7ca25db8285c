"""The shortest solution as a shortest path: nodes are the sets of steps done when a launch ends, edges are launches.

Launches follow each other, so their times add up, and each is a small problem of its own. A node is a set of steps with
all their predecessors. A network has few such sets, as it is nearly a chain. The lower bound of an edge follows from
its operators one by one. Only launches on the path that looks shortest are solved, until all of its launches are solved
and it is still the shortest. No solution is shorter: a path ignores only waits for earlier launches and the common
limit of the deviation, and both only add to the length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from heapq import heappop, heappush
from itertools import pairwise

from .problem import ALLOWED, Choice, Problem, Solution, longest

MOST_SETS, MOST_LAUNCHES = 20_000, 100_000
"""Sets of steps and launches between them that are looked at; a network with more has many branches side by side."""
Solved = tuple[float, Solution | None]
"""The ticks that a launch takes at least, infinite where its designs do not fit, and the best that is found of it."""
Solve = Callable[[Problem], Solved]


@dataclass
class ByLaunches:
    """A problem whose launches follow each other, and whose steps each have an operator of their own.

    Attributes:
        known: launches that were solved, by their problem.
    """

    problem: Problem
    known: dict[str, Solved] = field(default_factory=dict)

    @property
    def whole(self) -> int:
        return (1 << self.problem.steps) - 1

    @cached_property
    def masks(self) -> list[int]:
        """Steps of each operator, as bits."""
        return [sum(1 << step for step in steps) for steps in self.problem.does]

    @cached_property
    def _before(self) -> list[int]:
        """The same as bits."""
        return [sum(1 << step for step in own) for own in self.problem.before]

    @cached_property
    def launches(self) -> dict[int, list[int]] | None:
        """Steps that may be done after one more launch, by those done before, smallest first; None if too many."""
        found: dict[int, list[int]] = {}
        waiting, known, count = [(0, 0)], {0}, 0
        while waiting:
            _, done = heappop(waiting)
            found[done] = [done | launch for launch in self._next(done)]
            count += len(found[done])
            for after in set(found[done]) - known:
                heappush(waiting, (after.bit_count(), after))
            known.update(found[done])
            if len(known) > MOST_SETS or count > MOST_LAUNCHES:
                return None
        return found

    def _next(self, done: int) -> Iterator[int]:
        """Yield the sets of steps that one launch may do next, each with its predecessors."""
        seen, waiting = {0}, [0]
        left = [(1 << step, needs) for step, needs in enumerate(self._before) if not done >> step & 1]
        while waiting:
            launch = waiting.pop()
            for step, needs in left:
                more = launch | step
                if not launch & step and not needs & ~(done | launch) and more not in seen:
                    seen.add(more)
                    if self._fits(more):
                        waiting.append(more)
                        yield more

    @cached_property
    def _kinds_of(self) -> list[list[tuple[int, int]]]:
        """Kinds that may do each step, with all steps that they can do and the columns that they need."""
        can = [0] * len(self.problem.choices)
        for kind, mask in zip(self.problem.kinds, self.masks, strict=True):
            can[kind] |= mask
        needs = [min(choice.needs[0] for choice in choices) for choices in self.problem.choices]
        return [[(can[k], needs[k]) for k in range(len(can)) if can[k] >> s & 1] for s in range(self.problem.steps)]

    def _fits(self, launch: int) -> bool:
        """Return whether some kinds can do all steps of a launch within the device's columns."""

        def covered(left: int, columns: int) -> bool:
            if not left:
                return True
            kinds = self._kinds_of[(left & -left).bit_length() - 1]
            return any(needs <= columns and covered(left & ~can, columns - needs) for can, needs in kinds)

        return covered(launch, self.problem.limits[0])

    @cached_property
    def _designs(self) -> list[tuple[Choice, ...]]:
        """Designs of each operator that fit the device.

        An operator that alone exceeds the allowed deviation has none.
        """
        limit, effects = self.problem.limits[0], self.problem.effects or (0,) * len(self.masks)
        return [
            tuple(one for one in self.problem.designs(o) if one.needs[0] <= limit) if effect <= ALLOWED else ()
            for o, effect in enumerate(effects)
        ]

    @cached_property
    def _operators(self) -> list[tuple[int, int, float]]:
        """Steps, fewest ticks, and fewest columns times ticks for each step, of every operator that fits."""
        return [
            (
                mask,
                min(one.ticks for one in own),
                min(one.ticks * one.needs[0] for one in own) / mask.bit_count(),
            )
            for mask, own in zip(self.masks, self._designs, strict=True)
            if own
        ]

    def least(self, launch: int) -> float:
        """Return a lower bound of a launch's ticks: its operators one after another, and its busy columns."""
        inside = [one for one in self._operators if not one[0] & ~launch]
        ticks, areas = dict[int, int](), dict[int, float]()
        for mask, own, area in inside:
            for step in _bits(mask):
                areas[step] = min(area, areas.get(step, math.inf))
                if mask == 1 << step:
                    ticks[step] = min(own, ticks.get(step, own))
        if len(ticks) < launch.bit_count():
            return math.inf
        area = sum(areas.values()) / self.problem.limits[0]
        return max(self._in_turn(longest(ticks, self.problem.before), inside), math.ceil(area - 1e-6))

    def _in_turn(self, path: list[int], inside: list[tuple[int, int, float]]) -> float:
        """The least ticks of operators that do all of a path."""
        bits = sum(1 << step for step in path)
        place = {step: at for at, step in enumerate(path)}
        took = [0.0] + [math.inf] * len(path)
        spans: dict[int, list[tuple[int, int]]] = {}
        for mask, ticks, _ in inside:
            if mask & bits:
                places = [place[step] for step in _bits(mask & bits)]
                spans.setdefault(max(places), []).append((min(places), ticks))
        for last in range(len(path)):
            took[last + 1] = min(took[first] + ticks for first, ticks in spans[last])
        return took[-1]

    def part(self, done: int, launch: int) -> tuple[Problem, list[int]]:
        """A launch as a problem of its own, and the operators that it is about.

        What is waited for from before is left out, but for what the first launch, from whose begin time counts, waits
        for, and the last one has after it.
        """
        own = [o for o, mask in enumerate(self.masks) if not mask & ~launch and self._designs[o]]
        problem = self.problem
        place = {o: at for at, o in enumerate(own)}
        steps = {step: at for at, step in enumerate(_bits(launch))}
        kinds = {kind: at for at, kind in enumerate(dict.fromkeys(problem.kinds[o] for o in own))}
        none, last = (0,) * len(own), done | launch == self.whole
        return Problem(
            kinds=tuple(kinds[problem.kinds[o]] for o in own),
            choices=tuple(problem.choices[kind] for kind in kinds),
            does=tuple(tuple(steps[step] for step in problem.does[o]) for o in own),
            after=tuple({place[b]: wait for b, wait in problem.after[o].items() if b in place} for o in own),
            limits=problem.limits,
            between=0,
            release=none if done else tuple(problem.release[o] for o in own),
            tail=tuple(problem.tail[o] for o in own) if last else none,
            launches=1,
        ), own

    def solved(self, done: int, launch: int, solve: Solve) -> Solved:
        part, _ = self.part(done, launch)
        key = repr(part)
        if key not in self.known:
            self.known[key] = solve(part)
        return self.known[key]


def by_launches(problem: Problem, solve: Solve, more: Callable[[], bool]) -> tuple[Solution | None, int]:
    """Return the solution of the shortest path, if one is found, and a lower bound of the length.

    Args:
        solve: solver of one launch.
        more: returns whether another may be solved.
    """
    own = ByLaunches(problem)
    alone = {steps for steps, fit in zip(problem.does, own._designs, strict=True) if fit and len(steps) == 1}
    if len(alone) < problem.steps or own.launches is None:  # some step has no operator of its own that fits
        return None, 0
    least = cache(own.least)
    takes = {done: {after: least(after & ~done) for after in nexts} for done, nexts in own.launches.items()}
    parts: dict[tuple[int, int], Solved] = {}
    while True:
        path, ticks = _shortest(own, takes)
        new = [edge for edge in pairwise(path) if edge not in parts]
        if not new or not more():
            break
        for done, after in new:
            parts[done, after] = own.solved(done, after & ~done, solve)
            takes[done][after] = max(takes[done][after], parts[done, after][0])
    bound = math.ceil(ticks) if math.isfinite(ticks) else 0
    found = [solution for edge in pairwise(path) if (solution := parts.get(edge, (0, None))[1]) is not None]
    return (_joined(own, path, found) if len(found) == len(path) - 1 else None), bound


def _shortest(own: ByLaunches, takes: Mapping[int, Mapping[int, float]]) -> tuple[list[int], float]:
    """Return the shortest way from no steps to all: the steps done after each launch, and the ticks.

    Args:
        takes: ticks of a launch, by the steps done before it, smallest first, and by those done after it.
    """
    between = own.problem.between
    best: dict[int, float] = {0: -between}
    come_from: dict[int, int] = {}
    for done, nexts in takes.items():
        took = best[done] + between
        for after, ticks in nexts.items():
            ends = took + ticks
            if after not in best or ends < best[after]:
                best[after], come_from[after] = ends, done
    path = [own.whole]
    while path[-1]:
        path.append(come_from[path[-1]])
    return path[::-1], best[own.whole]


def _joined(own: ByLaunches, path: Sequence[int], parts: Sequence[Solution]) -> Solution:
    """Launches one after another, each begun as soon as its operators need not wait as they are in it."""
    problem, count = own.problem, len(own.masks)
    launch, start, choice = ([-1] * count for _ in range(3))
    ends: dict[int, int] = {}
    begin = 0
    for number, ((done, after), part) in enumerate(zip(pairwise(path), parts, strict=True)):
        _, operators = own.part(done, after & ~done)
        runs = [(o, at) for at, o in enumerate(operators) if part.launch[at] >= 0]
        late = [ends[b] + wait - part.start[at] for o, at in runs for b, wait in problem.after[o].items() if b in ends]
        begin = max([begin, *late, *(problem.release[o] - part.start[at] for o, at in runs)])
        for o, at in runs:
            launch[o], start[o], choice[o] = number, begin + part.start[at], part.choice[at]
        ends |= {o: start[o] + problem.ticks(o)[choice[o]] for o, _ in runs}
        begin = max(ends.values()) + problem.between
    length = max(end + problem.tail[o] for o, end in ends.items())
    return Solution(tuple(launch), tuple(start), tuple(choice), length, 0)


def _bits(mask: int) -> list[int]:
    return [at for at in range(mask.bit_length()) if mask >> at & 1]
