"""What is to be decided when operators are put into launches, as numbers: times in ticks, shares of the bandwidth.

A launch is one configuration of the device. In it every kind of operator that it serves has resources of its own, for
which one design is chosen; operators of that kind run on them one after another. Operators of different kinds run at
once where their inputs are there and the DRAM gives what both ask for. Launches follow each other; of an FPGA there is
one, and operators that are alike may be of several kinds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct, field

TICK_US = 0.1
BANDWIDTH = 1000
"""The DRAM's bandwidth, in the unit of which designs use a share."""
ALLOWED = 1_000_000
"""The deviation that is allowed, in the unit of which operators take a share."""


@dataclass(frozen=True)
class Choice:
    """A design that may be chosen for a kind: what it needs of each resource of the device, ticks, and the share of the
    bandwidth it uses meanwhile."""

    needs: tuple[int, ...]
    ticks: int
    bandwidth: int


class Edge(Struct, frozen=True):
    """Operators of which one may write what the other reads into a stream, where each has hardware of its own.

    Attributes:
        source, target: of a launch both. saves: of each resource what a stream takes less than memory ports do.
        lags: by choice of the source and of the target, ticks from start to start after which the target never waits;
            None where their designs cannot stream.
    """

    source: int
    target: int
    saves: tuple[int, ...]
    lags: tuple[tuple[int | None, ...], ...]


class Problem(Struct, frozen=True):
    """Operators do one step each, or several that are fused; of those that do a step, one runs.

    Attributes:
        kinds: of each operator. choices: of each kind. does: of each operator the steps that it does.
        after: of each operator those that it waits for, where both run, with the ticks that the host or a rearrangement
            takes between them. limits: of each resource in a launch. between: ticks from one launch to the next.
        release: ticks of what precedes an operator and depends on no other one.
        tail: by operator, ticks of what follows it and no operator. launches: at most; one for each step if not given.
        edges: that may be streams, of a problem of one launch. All that is streamed is called at once: what else it
            reads must be there before the first of it starts.
        own: of an operator that takes another time on them the designs of its kind; None where it cannot run.
        effects: of each operator what it takes of the deviation that is allowed, as a share of `ALLOWED`; none is.
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
    own: Mapping[int, tuple[Choice | None, ...]] = field(default_factory=dict)

    def designs(self, o: int) -> tuple[Choice | None, ...]:
        """The choices of an operator."""
        return self.own.get(o) or self.choices[self.kinds[o]]

    def ticks(self, o: int) -> list[int]:
        """What it takes on each, 0 where it cannot run."""
        return [choice.ticks if choice else 0 for choice in self.designs(o)]

    @property
    def alike(self) -> list[list[int]]:
        """Operators that do the same steps, of which one runs at most."""
        found: dict[tuple[int, ...], list[int]] = {}
        for o, steps in enumerate(self.does):
            found.setdefault(steps, []).append(o)
        return list(found.values())

    @property
    def before(self) -> list[set[int]]:
        """Of each step, those that it waits for."""
        found: list[set[int]] = [set() for _ in range(self.steps)]
        for steps, waits in zip(self.does, self.after, strict=True):
            if len(steps) == 1:
                found[steps[0]] |= {self.does[other][-1] for other in waits}
        return found

    @property
    def longest_path(self) -> frozenset[int]:
        """The steps that take longest, at their fastest, of those of which each waits for the one before."""
        single = {self.does[own[0]][0]: own for own in self.alike if len(self.does[own[0]]) == 1}
        ticks = {s: min((t for o in own for t in self.ticks(o) if t), default=0) for s, own in single.items()}
        return frozenset(longest(ticks, self.before))

    @property
    def steps(self) -> int:
        return 1 + max(step for steps in self.does for step in steps)

    @property
    def horizon(self) -> int:
        """Ticks in which any order is done: each operator in a launch of its own, one after another, at its slowest."""
        slowest = sum(max(self.ticks(o)) for o in range(len(self.kinds))) + sum(map(self._late, self.edges))
        waits = sum(sum(waits.values()) for waits in self.after) + sum(self.release) + sum(self.tail)
        return slowest + waits + self.between * self.steps

    def _late(self, edge: Edge) -> int:
        """Ticks after the end of the source that the target of a stream may have to wait."""
        choices = self.choices[self.kinds[edge.source]]
        lags = [(lag, own.ticks) for own, row in zip(choices, edge.lags, strict=True) for lag in row if lag is not None]
        return max([0, *(lag - took for lag, took in lags)])


def longest(ticks: Mapping[int, int], before: Sequence[Iterable[int]]) -> list[int]:
    """Of the steps that have ticks, those of which each waits for the one before that together take longest."""
    paths: dict[int, tuple[int, list[int]]] = {}
    for step in sorted(ticks):  # in an order in which they can run
        took, path = max((paths[one] for one in before[step] if one in paths), default=(0, []))
        paths[step] = took + ticks[step], [*path, step]
    return max(paths.values())[1]


def ticks(us: float) -> int:
    return math.ceil(us / TICK_US)
