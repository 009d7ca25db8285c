"""What is to be decided when operators are put into launches, as numbers: times in ticks, shares of the bandwidth.

A launch is one configuration of the device. In it every kind of operator that it serves has resources of its own, for
which one design is chosen; operators of that kind run on them one after another. Operators of different kinds run at
once where their inputs are there and the DRAM gives what both ask for. Launches follow each other; of an FPGA there is
one, and operators that are alike may be of several kinds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from allo_dse.device.device import Device, FpgaDevice, NpuDevice
from allo_dse.device.fpga_model import RESOURCES

from .fronts import Fronts, Point
from .network import Arrange, Network, Step
from .operators.work import Work

TICK_US = 0.1
UNLIMITED = 1_000_000
BANDWIDTH = 1000
"""The DRAM's bandwidth, in the unit of which designs use a share."""


@dataclass(frozen=True)
class Choice:
    """A design that may be chosen for a kind: what it needs of each resource of the device, ticks, and the share of the
    bandwidth it uses meanwhile."""

    needs: tuple[int, ...]
    ticks: int
    bandwidth: int


@dataclass(frozen=True)
class Edge:
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


@dataclass(frozen=True)
class Problem:
    """Operators do one step each, or several that are fused; of those that do a step, one runs.

    Attributes:
        kinds: of each operator. choices: of each kind. does: of each operator the steps that it does.
        after: of each operator those that it waits for, where both run, with the ticks that the host or a rearrangement
            takes between them. limits: of each resource in a launch. between: ticks from one launch to the next.
        release: ticks of what precedes an operator and depends on no other one.
        tail: by operator, ticks of what follows it and no operator. launches: at most; one for each step if not given.
        edges: that may be streams, of a problem of one launch. All that is streamed is called at once: what else it
            reads must be there before the first of it starts.
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

    @property
    def steps(self) -> int:
        return 1 + max(step for steps in self.does for step in steps)

    @property
    def horizon(self) -> int:
        """Ticks in which any order is done: each operator in a launch of its own, one after another, at its slowest."""
        slowest = sum(max(c.ticks for c in self.choices[kind]) for kind in self.kinds) + sum(
            map(self._late, self.edges)
        )
        waits = sum(sum(waits.values()) for waits in self.after) + sum(self.release) + sum(self.tail)
        return slowest + waits + self.between * self.steps

    def _late(self, edge: Edge) -> int:
        """Ticks after the end of the source that the target of a stream may have to wait."""
        choices = self.choices[self.kinds[edge.source]]
        lags = [(lag, own.ticks) for own, row in zip(choices, edge.lags, strict=True) for lag in row if lag is not None]
        return max([0, *(lag - took for lag, took in lags)])


def ticks(us: float) -> int:
    return math.ceil(us / TICK_US)


def choice_of(point: Point, device: Device) -> Choice:
    """A design uses the bandwidth for the share of its time in which the DRAM is busy, in its busier direction; on an
    FPGA, whose designs have memory ports of their own, for the share of all ports' bandwidth that it moves."""
    if isinstance(device, FpgaDevice):
        share = point.dram_bytes / (point.latency_us * 1e3 * dram_gb_s(device))
    else:
        share = point.bound.get("DRAM", 0.0)
    needs = (point.columns, *(point.resources[name] for name in RESOURCES if point.resources))
    return Choice(needs, ticks(point.latency_us), min(BANDWIDTH, math.ceil(share * BANDWIDTH)))


def limits_of(device: Device) -> tuple[int, ...]:
    """What a launch may use: columns of an array; of an FPGA every resource, for any number of operators."""
    if isinstance(device, NpuDevice):
        return (device.array.columns,)
    assert isinstance(device, FpgaDevice)
    return (UNLIMITED, *(device.limit(name) for name in RESOURCES))


def between_us(device: Device) -> float:
    """From one launch to the next; an FPGA is configured once."""
    board = device.board if isinstance(device, NpuDevice) else None
    return max(0.0, board.relaunch_us - board.launch_us) if board else 0.0


def dram_gb_s(device: Device) -> float:
    """Bandwidth of the DRAM, in one direction of an NPU; of all memory ports of an FPGA."""
    if isinstance(device, NpuDevice):
        return device.board.dram_gb_s
    assert isinstance(device, FpgaDevice)
    return device.external.ports * device.external.port_gb_s


def moved_us(network: Network, step: Step, fronts: Fronts) -> float:
    """What a rearrangement takes that is not free, or a step of the host: every element that is not in its place
    is written once at the DRAM's bandwidth, while others are read."""
    if isinstance(step.work, Arrange) and step.work.free:
        return 0.0
    in_place = step.work.written if isinstance(step.work, Arrange) else 0
    elements = in_place or math.prod(network.shapes[step.output])
    return elements * ELEMENT_BYTES / (dram_gb_s(fronts.device) * 1e3)


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
    network, device = fronts.network, fronts.device
    number = {step.name: position for position, (step, _) in enumerate(network.worked)}
    keys = [(key, copy) for key in fronts.points for copy in range(1 + max(one.copy for one in fronts.candidates))]
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
        kinds=tuple(keys.index((fronts.operators[one.step.name], one.copy)) for one in fronts.candidates),
        choices=tuple(tuple(choice_of(p, device) for p in fronts.points[key]) for key, _ in keys),
        does=does,
        after=fused_waits([{b: t for b, t in waits.items() if b >= 0} for waits in waits_of], does),
        limits=limits_of(device),
        between=ticks(between_us(device)),
        release=tuple(max(waits_of[step].get(-1, 0) for step in steps) for steps in does),
        tail=tuple(max(tail[step] for step in steps) for steps in does),
        launches=None if isinstance(device, NpuDevice) else 1,
    )
