"""What is to be decided when operators are put into launches, as numbers: times in ticks, shares of the bandwidth.

A launch is one configuration of the array. In it every kind of operator that it serves has columns of its own, for
which one design is chosen; operators of that kind run on them one after another. Operators of different kinds run at
once where their inputs are there and the DRAM gives what both ask for. Launches follow each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
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
    """Attributes:
    kinds: of each operator. choices: of each kind. after: of each operator those that it waits for, with the ticks
        that the host or a rearrangement takes between them. columns: of the array. between: ticks from one launch to
        the next. release: ticks of what precedes an operator and depends on no other one.
    tail: by operator, ticks of what follows it and no operator.
    """

    kinds: tuple[int, ...]
    choices: tuple[tuple[Choice, ...], ...]
    after: tuple[Mapping[int, int], ...]
    columns: int
    between: int
    release: tuple[int, ...]
    tail: tuple[int, ...]

    @property
    def horizon(self) -> int:
        """Ticks in which any order is done: each operator in a launch of its own, one after another, at its slowest."""
        slowest = sum(max(c.ticks for c in self.choices[kind]) for kind in self.kinds)
        waits = sum(sum(waits.values()) for waits in self.after) + sum(self.release) + sum(self.tail)
        return slowest + waits + self.between * len(self.kinds)


def ticks(us: float) -> int:
    return math.ceil(us / TICK_US)


def choice_of(point: Point) -> Choice:
    """A design uses the bandwidth for the share of its time in which the DRAM is busy, in its busier direction."""
    share = min(BANDWIDTH, math.ceil(point.bound.get("DRAM", 0.0) * BANDWIDTH))
    return Choice(point.columns, ticks(point.latency_us), share)


def moved_us(network: Network, step: Step, fronts: Fronts) -> float:
    """What a rearrangement takes that is not free, or a step of the host: every element is written once at the DRAM's
    bandwidth, while others are read."""
    if isinstance(step.work, Arrange) and step.work.free:
        return 0.0
    elements = math.prod(network.shapes[step.output])
    return elements * ELEMENT_BYTES / (fronts.device.board.dram_gb_s * 1e3)


ELEMENT_BYTES = 2  # bfloat16's; a network of wider elements moves more in its operators, which know their types


def problem_of(fronts: Fronts) -> Problem:
    """What is to be decided about a network."""
    network, board = fronts.network, fronts.device.board
    names = [step.name for step, _ in network.worked]
    number = {name: position for position, name in enumerate(names)}
    keys = list(fronts.points)
    # Of every tensor, the operators it comes from and the ticks since they were done; -1 stands for the inputs.
    reached: dict[str, dict[int, int]] = {name: {-1: 0} for name in network.inputs}
    after: list[Mapping[int, int]] = []
    tail = [0] * len(names)
    for step in network.steps:
        waits: dict[int, int] = {}
        for name in step.inputs:
            for operator, time in reached.get(name, {}).items():
                waits[operator] = max(time, waits.get(operator, 0))
        if isinstance(step.work, Work):
            after.append(waits)
            reached[step.output] = {number[step.name]: 0}
        else:
            more = ticks(moved_us(network, step, fronts))
            reached[step.output] = {operator: time + more for operator, time in waits.items()}
    for name in network.outputs:
        for operator, time in reached.get(name, {}).items():
            if operator >= 0:
                tail[operator] = max(tail[operator], time)
    return Problem(
        kinds=tuple(keys.index(fronts.operators[name]) for name in names),
        choices=tuple(tuple(choice_of(p) for p in fronts.points[key]) for key in keys),
        after=tuple({o: t for o, t in waits.items() if o >= 0} for waits in after),
        columns=fronts.device.array.columns,
        between=ticks(max(0.0, board.relaunch_us - board.launch_us)),
        release=tuple(waits.get(-1, 0) for waits in after),
        tail=tuple(tail),
    )
