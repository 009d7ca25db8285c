"""What is to be decided when operators are put into launches, as numbers: times in ticks, shares of the bandwidth.

A launch is one configuration of the array. In it every kind of operator that it serves has columns of its own, for
which one design is chosen; operators of that kind run on them one after another. Operators of different kinds run at
once where their inputs are there and the DRAM gives what both ask for. Launches follow each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .fronts import Fronts, Point
from .network import Arrange, Network, Step
from .operators.work import Work

TICK_US = 0.1
BANDWIDTH = 1000
"""The DRAM's bandwidth, in the unit of which designs use a share."""


@dataclass(frozen=True)
class Choice:
    """A design that may be chosen for a kind: columns, ticks, and the share of the bandwidth it uses meanwhile."""

    columns: int
    ticks: int
    bandwidth: int


@dataclass(frozen=True)
class Problem:
    """Operators do one step each, or several that are fused; of those that do a step, one runs.

    Attributes:
        kinds: of each operator. choices: of each kind. does: of each operator the steps that it does.
        after: of each operator those that it waits for, where both run, with the ticks that the host or a rearrangement
            takes between them. columns: of the array. between: ticks from one launch to the next.
        release: ticks of what precedes an operator and depends on no other one.
        tail: by operator, ticks of what follows it and no operator.
    """

    kinds: tuple[int, ...]
    choices: tuple[tuple[Choice, ...], ...]
    does: tuple[tuple[int, ...], ...]
    after: tuple[Mapping[int, int], ...]
    columns: int
    between: int
    release: tuple[int, ...]
    tail: tuple[int, ...]

    @property
    def steps(self) -> int:
        return 1 + max(step for steps in self.does for step in steps)

    @property
    def horizon(self) -> int:
        """Ticks in which any order is done: each operator in a launch of its own, one after another, at its slowest."""
        slowest = sum(max(c.ticks for c in self.choices[kind]) for kind in self.kinds)
        waits = sum(sum(waits.values()) for waits in self.after) + sum(self.release) + sum(self.tail)
        return slowest + waits + self.between * self.steps


def ticks(us: float) -> int:
    return math.ceil(us / TICK_US)


def choice_of(point: Point) -> Choice:
    """A design uses the bandwidth for the share of its time in which the DRAM is busy, in its busier direction."""
    share = min(BANDWIDTH, math.ceil(point.bound.get("DRAM", 0.0) * BANDWIDTH))
    return Choice(point.columns, ticks(point.latency_us), share)


def moved_us(network: Network, step: Step, fronts: Fronts) -> float:
    """What a rearrangement takes that is not free, or a step of the host: every element that is not in its place
    is written once at the DRAM's bandwidth, while others are read."""
    if isinstance(step.work, Arrange) and step.work.free:
        return 0.0
    in_place = step.work.written if isinstance(step.work, Arrange) else 0
    elements = in_place or math.prod(network.shapes[step.output])
    return elements * ELEMENT_BYTES / (fronts.device.board.dram_gb_s * 1e3)


ELEMENT_BYTES = 2  # bfloat16's; a network of wider elements moves more in its operators, which know their types


def fused_waits(waits: Sequence[Mapping[int, int]], does: Sequence[Sequence[int]]) -> tuple[Mapping[int, int], ...]:
    """From the waits of steps for each other to those of the operators that do them; none waits for one that does some
    of the same steps, as they do not run both."""
    doing: dict[int, list[int]] = {}
    for operator, steps in enumerate(does):
        for step in steps:
            doing.setdefault(step, []).append(operator)
    after: list[Mapping[int, int]] = []
    for steps in does:
        found: dict[int, int] = {}
        for step in steps:
            for before, ticks in waits[step].items():
                for other in doing[before]:
                    if not set(does[other]) & set(steps):
                        found[other] = max(ticks, found.get(other, 0))
        after.append(found)
    return tuple(after)


def problem_of(fronts: Fronts) -> Problem:
    """What is to be decided about a network."""
    network, board = fronts.network, fronts.device.board
    number = {step.name: position for position, (step, _) in enumerate(network.worked)}
    keys = list(fronts.points)
    # Of every tensor, the steps it comes from and the ticks since they were done; -1 stands for the inputs.
    reached: dict[str, dict[int, int]] = {name: {-1: 0} for name in network.inputs}
    waits_of: list[dict[int, int]] = []
    for step in network.steps:
        waits: dict[int, int] = {}
        for name in step.inputs:
            for before, time in reached.get(name, {}).items():
                waits[before] = max(time, waits.get(before, 0))
        if isinstance(step.work, Work):
            waits_of.append(waits)
            reached[step.output] = {number[step.name]: 0}
        else:
            more = ticks(moved_us(network, step, fronts))
            reached[step.output] = {before: time + more for before, time in waits.items()}
    tail = [0] * len(number)
    for name in network.outputs:
        for before, time in reached.get(name, {}).items():
            if before >= 0:
                tail[before] = max(tail[before], time)
    does = tuple(tuple(number[name] for name in one.names) for one in fronts.candidates)
    return Problem(
        kinds=tuple(keys.index(fronts.operators[one.step.name]) for one in fronts.candidates),
        choices=tuple(tuple(choice_of(p) for p in fronts.points[key]) for key in keys),
        does=does,
        after=fused_waits([{b: t for b, t in waits.items() if b >= 0} for waits in waits_of], does),
        columns=fronts.device.array.columns,
        between=ticks(max(0.0, board.relaunch_us - board.launch_us)),
        release=tuple(max(waits_of[step].get(-1, 0) for step in steps) for steps in does),
        tail=tuple(max(tail[step] for step in steps) for steps in does),
    )
