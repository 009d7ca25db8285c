"""What is to be decided when operators are put into launches, as numbers: times in ticks, shares of the bandwidth.

A launch is one configuration of the device. In it every kind of operator that it serves has resources of its own, for
which one design is chosen; operators of that kind run on them one after another. Operators of different kinds run at
once where their inputs are there and the DRAM gives what both ask for. Launches follow each other; of an FPGA there is
one, and operators that are alike may be of several kinds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from allo_dse.device.device import Device, FpgaDevice, NpuDevice
from allo_dse.device.fpga_model import RESOURCES
from allo_dse.lang.types import DType

from .fronts import Fronts, Point
from .network import Arrange, Convert, Host, Network, Step
from .operators.work import Work

TICK_US = 0.1
UNLIMITED = 1_000_000
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
    def longest_path(self) -> frozenset[int]:
        """The steps that take longest, at their fastest, of those of which each waits for the one before."""
        longest: dict[int, tuple[int, list[int]]] = {}
        single = {self.does[own[0]][0]: own for own in self.alike if len(self.does[own[0]]) == 1}
        for step, own in sorted(single.items()):  # in an order in which they can run
            waits = {self.does[b][0] for b in self.after[own[0]] if len(self.does[b]) == 1}
            took, path = max((longest[before] for before in waits), default=(0, []))
            longest[step] = (
                took + min((ticks for o in own for ticks in self.ticks(o) if ticks), default=0),
                [*path, step],
            )
        return frozenset(max(longest.values())[1])

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


def moved_us(network: Network, step: Step, device: Device, dtype: DType) -> float:
    """What a rearrangement takes that is not free, or a step of the host: every element that is not in its place
    is written once, in a type, at the DRAM's bandwidth, while others are read."""
    if isinstance(step.work, Arrange) and step.work.free:
        return 0.0
    in_place = step.work.written if isinstance(step.work, Arrange) else 0
    elements = in_place or math.prod(network.shapes[step.output])
    return elements * dtype.bytes / (dram_gb_s(device) * 1e3)


Origins = dict[int, tuple[int, bool]]
"""The steps that a tensor comes from, -1 for the inputs: the ticks since they were done, and whether its elements are
theirs, not what the host made of them."""


def origins_of(network: Network, device: Device, dtype: DType) -> dict[str, Origins]:
    """Of every tensor, where what is between programs writes a type."""
    found: dict[str, Origins] = {name: {-1: (0, False)} for name in network.inputs}
    number = 0
    for step in network.steps:
        if isinstance(step.work, Work):
            found[step.output] = {number: (0, True)}
            number += 1
            continue
        more, own = ticks(moved_us(network, step, device, dtype)), not isinstance(step.work, Host)
        merged: Origins = {}
        for before, (time, theirs) in (pair for name in step.inputs for pair in found.get(name, {}).items()):
            longest, any_theirs = merged.get(before, (0, False))
            merged[before] = max(time + more, longest), (theirs and own) or any_theirs
        found[step.output] = merged
    return found


def problem_of(fronts: Fronts) -> Problem:
    """What is to be decided about a network. Elements that an operator reads in another type than they were written in
    are converted first: all are written once at the DRAM's bandwidth, and what rearranges them follows."""
    network, device, candidates = fronts.network, fronts.device, fronts.candidates
    number = {step.name: position for position, (step, _) in enumerate(network.worked)}
    keys = [(key, copy) for key in fronts.points for copy in range(1 + max(one.copy for one in candidates))]
    does = tuple(tuple(number[name] for name in one.names) for one in candidates)
    reads, writes = [one.reads for one in candidates], [one.writes for one in candidates]
    types = {*writes, *(dtype for own in reads for dtype in own)}
    origins = {dtype: origins_of(network, device, dtype) for dtype in types}
    ending: dict[int, list[int]] = {}
    for o, steps in enumerate(does):
        ending.setdefault(steps[-1], []).append(o)
    after: list[dict[int, int]] = [{} for _ in candidates]
    release, tail = ([0] * len(candidates) for _ in range(2))
    for o, one in enumerate(candidates):
        for name, dtype in zip(one.step.inputs, reads[o], strict=True):
            for before, (time, theirs) in origins[dtype].get(name, {}).items():
                if before < 0:
                    release[o] = max(release[o], time)
                for other in ending.get(before, []):
                    if not set(does[other]) & set(does[o]):
                        converts = theirs and writes[other] != dtype
                        step = Step("", Convert.to(dtype), (), candidates[other].step.output)
                        wait = time + (ticks(moved_us(network, step, device, dtype)) if converts else 0)
                        after[o][other] = max(wait, after[o].get(other, 0))
        ends = (origins[writes[o]].get(name, {}).get(does[o][-1], (0, True)) for name in network.outputs)
        tail[o] = max((time for time, _ in ends), default=0)
    return Problem(
        kinds=tuple(keys.index((one.key, one.copy)) for one in candidates),
        choices=tuple(tuple(choice_of(p, device) for p in fronts.points[key]) for key, _ in keys),
        does=does,
        after=tuple(after),
        limits=limits_of(device),
        between=ticks(between_us(device)),
        release=tuple(release),
        tail=tuple(tail),
        launches=None if isinstance(device, NpuDevice) else 1,
        own={
            o: tuple(choice_of(point, device) if point else None for point in fronts.points_of(one))
            for o, one in enumerate(candidates)
            if one.walk
        },
    )
