"""Assignment of operators to launches as a problem of numbers: times in ticks, shares of the bandwidth.

A launch is one configuration of the device. Each kind of operator in it has resources of its own, and one design for
them; operators of a kind run one after another. Operators of different kinds overlap if their inputs are ready and the
DRAM has bandwidth for both. Launches follow each other. An FPGA has one launch, and equal operators may be of several
kinds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from allo_dse.common.records import Frozen
from allo_dse.device.fpga_model import RESOURCES

TICK_US = 0.1
BANDWIDTH = 1000
"""The DRAM's bandwidth, in the unit of the shares that designs use."""
ALLOWED = 1_000_000
"""The allowed deviation, in the unit of the shares that operators use."""


@dataclass(frozen=True)
class Choice:
    """A design of a kind: its needs of each resource, its ticks, and the share of the bandwidth that it uses."""

    needs: tuple[int, ...]
    ticks: int
    bandwidth: int


class Edge(Frozen):
    """Two operators on hardware of their own; one may stream its result to the other.

    Attributes:
        source, target: operators in one launch.
        saves: of each resource, the difference between memory ports and a stream.
        lags: by choice of the source and of the target, ticks from start to start after which the target never
            waits; None if these designs cannot stream.
    """

    source: int
    target: int
    saves: tuple[int, ...]
    lags: tuple[tuple[int | None, ...], ...]


class Problem(Frozen, dict=True):
    """Operators to schedule. Each does one step, or several fused ones; exactly one operator runs for every step.

    Attributes:
        kinds: of each operator.
        choices: of each kind.
        does: of each operator, its steps.
        after: of each operator, its predecessors (if both run), with the ticks of host and rearrangements in
            between.
        limits: of each resource in a launch.
        between: ticks from one launch to the next.
        release: of each operator, ticks of work before it that depends on no operator.
        tail: of each operator, ticks of work after it that no operator does.
        launches: the most launches; one for each step by default.
        edges: possible streams, in a problem of one launch. All operators that stream are called at once: their
            other inputs must be there before the first of them starts.
        effects: of each operator, its share of the allowed deviation in units of `ALLOWED`; empty without a limit.
        alone: every operator is a call of its own, and the host works between calls: times add up in any order.
    """

    kinds: tuple[int, ...]
    choices: tuple[tuple[Choice, ...], ...]
    does: tuple[tuple[int, ...], ...]
    after: tuple[Mapping[int, int], ...]
    limits: tuple[int, ...]
    between: int
    release: tuple[int, ...]
    tail: tuple[int, ...]
    launches: int | None = None
    edges: tuple[Edge, ...] = ()
    effects: tuple[int, ...] = ()
    alone: bool = False

    def designs(self, o: int) -> tuple[Choice, ...]:
        """Return the choices of an operator."""
        return self.choices[self.kinds[o]]

    def ticks(self, o: int) -> list[int]:
        """Return the ticks of an operator with each of its choices."""
        return [choice.ticks for choice in self.designs(o)]

    @property
    def alike(self) -> list[list[int]]:
        """Groups of operators that do the same steps; at most one of each group runs."""
        found: dict[tuple[int, ...], list[int]] = {}
        for o, steps in enumerate(self.does):
            found.setdefault(steps, []).append(o)
        return list(found.values())

    @cached_property
    def before(self) -> list[set[int]]:
        """Predecessors of each step."""
        found: list[set[int]] = [set() for _ in range(self.steps)]
        for steps, waits in zip(self.does, self.after, strict=True):
            if len(steps) == 1:
                found[steps[0]] |= {self.does[other][-1] for other in waits}
        return found

    @property
    def longest_path(self) -> frozenset[int]:
        """The steps on the path of dependences that takes longest, each at its fastest."""
        single = {self.does[own[0]][0]: own for own in self.alike if len(self.does[own[0]]) == 1}
        ticks = {s: min(t for o in own for t in self.ticks(o)) for s, own in single.items()}
        return frozenset(longest(ticks, self.before))

    @property
    def steps(self) -> int:
        return 1 + max(step for steps in self.does for step in steps)

    @property
    def horizon(self) -> int:
        """An upper bound of the length: one launch per operator, one after another, with the slowest designs."""
        slowest = sum(max(self.ticks(o)) for o in range(len(self.kinds)))
        for edge in self.edges:  # ticks after the end of the source that the target of a stream may have to wait
            rows = zip(self.ticks(edge.source), edge.lags, strict=True)
            slowest += max([0, *(lag - own for own, row in rows for lag in row if lag is not None)])
        waits = sum(sum(waits.values()) for waits in self.after) + sum(self.release) + sum(self.tail)
        return slowest + waits + self.between * self.steps


def longest(ticks: Mapping[int, int], before: Sequence[Iterable[int]]) -> list[int]:
    """Return the path of dependences that takes longest, among the steps that have ticks."""
    paths: dict[int, tuple[int, list[int]]] = {}
    for step in sorted(ticks):  # topological order
        took, path = max((paths[one] for one in before[step] if one in paths), default=(0, []))
        paths[step] = took + ticks[step], [*path, step]
    return max(paths.values())[1]


def ticks(us: float) -> int:
    return math.ceil(us / TICK_US)


class Solution(Frozen):
    """A schedule of a problem's operators.

    Attributes:
        launch, start, choice: of each operator, -1 if it does not run. The choice is a position among its kind's.
        length: ticks from the start to the end of everything.
        bound: lower bound of the length, or of the time from input to input of a stream.
        streams: numbers of the problem's edges.
    """

    launch: tuple[int, ...]
    start: tuple[int, ...]
    choice: tuple[int, ...]
    length: int
    bound: int
    streams: tuple[int, ...] = ()


def least_of(problem: Problem) -> int:
    """Return a lower bound of the length: the step that takes longest, done in the fastest way."""
    least = [min(problem.ticks(o)) for o in range(len(problem.kinds))]
    return max(
        min(problem.release[o] + least[o] + problem.tail[o] for o, steps in enumerate(problem.does) if step in steps)
        for step in range(problem.steps)
    )


def needs_in_words(needs: Sequence[int]) -> str:
    return f"{needs[0]} columns" if len(needs) == 1 else f"({', '.join(map(str, needs[1:]))}) of {', '.join(RESOURCES)}"
