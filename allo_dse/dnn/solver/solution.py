"""What is decided, and the simplest that can be: every step in a launch of its own."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from msgspec import Struct

from allo_dse.common.errors import StudyError
from allo_dse.device.fpga_model import RESOURCES

from .problem import ALLOWED, Problem


class Solution(Struct, frozen=True):
    """Attributes:
    launch, start, choice: of each operator; the choice is the position among its kind's. -1 of one that does not run.
    length: ticks from the start to the end of everything. bound: no solution is shorter, or, for a stream, does with
        less time from input to input. streams: numbers of the problem's edges.
    """

    launch: tuple[int, ...]
    start: tuple[int, ...]
    choice: tuple[int, ...]
    length: int
    bound: int
    streams: tuple[int, ...] = ()

    @property
    def gap(self) -> float:
        """How much shorter another solution may be, as a share of this one's length."""
        return 1 - self.bound / self.length if self.length else 0.0


def in_turn(problem: Problem) -> Solution | None:
    """Every step by itself, on its fastest design, in a launch of its own; none where there are fewer launches."""
    launch, start, choice = ([-1] * len(problem.kinds) for _ in range(3))
    ends: dict[int, int] = {}
    taken = 0
    singles: dict[int, list[int]] = {}
    for o, steps in enumerate(problem.does):
        if len(steps) == 1:
            singles.setdefault(steps[0], []).append(o)
    for step in range(problem.steps):  # in an order in which they can run
        o, c = _fastest(problem, singles.get(step, []))
        taken += problem.effects[o] if problem.effects else 0
        earliest = [ends[b] + wait for b, wait in problem.after[o].items() if b in ends]
        launch[o], choice[o] = len(ends), c
        start[o] = max(problem.release[o], *earliest, max(ends.values(), default=-problem.between) + problem.between)
        ends[o] = start[o] + problem.ticks(o)[c]
    length = max(end + problem.tail[o] for o, end in ends.items())
    if taken > ALLOWED or (problem.launches is not None and problem.launches < problem.steps):
        return None
    return Solution(tuple(launch), tuple(start), tuple(choice), length, least_of(problem))


def _fastest(problem: Problem, operators: Sequence[int]) -> tuple[int, int]:
    """Of operators the one with the least effect, of these the fastest, and its design."""
    found, needs = [], problem.limits
    for o in operators:
        effect, needs = problem.effects[o] if problem.effects else 0, problem.choices[problem.kinds[o]][0].needs
        found += [
            (effect, design.ticks, o, c)
            for c, design in enumerate(problem.designs(o))
            if design and all(map(operator.le, design.needs, problem.limits))
        ]
    if not found:
        raise StudyError(
            f"an operator of the network has no design within {_words(problem.limits)} of the device",
            hint=f"it needs {_words(needs)}",
        )
    return min(found)[2:]


def least_of(problem: Problem) -> int:
    """No solution is shorter than the step that takes longest however it is done."""
    least = [min(c.ticks for c in problem.designs(o) if c) for o in range(len(problem.kinds))]
    return max(
        min(problem.release[o] + least[o] + problem.tail[o] for o, steps in enumerate(problem.does) if step in steps)
        for step in range(problem.steps)
    )


def _words(needs: Sequence[int]) -> str:
    return f"{needs[0]} columns" if len(needs) == 1 else f"({', '.join(map(str, needs[1:]))}) of {', '.join(RESOURCES)}"
