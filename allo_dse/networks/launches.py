"""Launches: operators in one configuration of the device, with their times and places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from msgspec import field

from allo_dse.common.records import Frozen, replace
from allo_dse.device.device import Device
from allo_dse.eval.launches import LaunchedDesign
from allo_dse.mapper.graph_algorithms import DisjointSets

from .fronts import Point, launches_of
from .network import Network, Step
from .operators.execute import Work
from .problem import Calls, choice_of
from .solver.problem import BANDWIDTH

HOST = "host"
"""Its share of a design's time, in which nothing of the device is busy."""


class Run(Frozen, dict=True):
    """An operator in a launch: its design, its columns, and its times.

    Attributes:
        first_column: the first of its neighbouring columns; on an FPGA, the number of its hardware.
        copy: number of its hardware among that of equal operators.
        streams: its program's tensors that are streams from or to other operators, with their names in the network.
        call: number of the call of the device that it is part of.
    """

    step: Step
    point: Point
    first_column: int
    start_us: float
    end_us: float
    copy: int = 0
    streams: Mapping[str, str] = field(default_factory=dict)
    call: int = 0

    @property
    def key(self) -> str:
        """The key of its work."""
        return self.point.design.study.name

    @property
    def constants(self) -> dict[int, str]:
        """The constants that the bitstream has, by position among the inputs."""
        return {at: self.step.inputs[at] for at in self.point.tables}

    @property
    def spent(self) -> dict[str, float]:
        """Shares of its time: of the host, while the device waits, and of the busiest resource for the rest."""
        took, own_us = self.end_us - self.start_us, self.point.latency_us
        waits = max(0.0, 1 - (1 - self.point.bound.get(HOST, 0.0)) * own_us / took) if took else 0.0
        device = {name: share for name, share in self.point.bound.items() if name != HOST}
        busiest = max(device, key=lambda name: device[name])
        return {busiest: 1 - waits} | ({HOST: waits} if waits else {})

    @property
    def design(self) -> str:
        """The name of the design, with the number of its copy if it is not the first."""
        return self.key + (f"_{self.copy}" if self.copy else "")

    @property
    def dram_bytes(self) -> int:
        """Bytes that it reads from DRAM and writes there, without its streams."""
        design = self.point.design.design
        return self.point.dram_bytes - sum(launches_of(design.device).moved_bytes(design, own) for own in self.streams)


def in_order(network: Network, launches: Sequence[Launch]) -> Iterator[tuple[Step, Run | None]]:
    """Yield a network's steps launch by launch; steps of the host and rearrangements as soon as their inputs are there.

    Args:
        network: of the operators that run, with the steps between them.
    """
    known, made = {*network.inputs, *network.constants}, {step.output: step for step, _ in network.worked}
    waiting = [step for step in network.steps if not isinstance(step.work, Work)]
    for run in (None, *(run for launch in launches for run in launch.runs)):
        if run is not None:
            known.add(run.step.output)
            yield made[run.step.output], run
        for step in list(waiting):  # topological order
            if known.issuperset(step.inputs):
                waiting.remove(step)
                known.add(step.output)
                yield step, None


def in_turn(
    network: Network, launches: Sequence[Launch], calls: Calls, moves: Mapping[str, float]
) -> tuple[tuple[Launch, ...], float]:
    """Return the launches as a driver calls them, and the time of the whole, one step after another.

    Launches with several programs keep their times.

    Args:
        moves: time of each step that no program does, by its name.
    """
    clock, call, launch, runs = 0.0, 0, -1, dict[str, Run]()
    number = {run.step.output: one.number for one in launches for run in one.runs}
    ready: dict[str, int] = {}  # the first call that can read a tensor
    for step, run in in_order(network, launches):
        needed = max((ready.get(name, 0) for name in step.inputs), default=0)
        if run is None:
            clock += moves[step.name]
            ready[step.output] = needed + bool(needed and moves[step.name])
            continue
        if needed > call or not call or (calls.alone and not calls.call_us):
            clock, call, launch = clock + calls.call_us, call + 1, -1
        if number[step.output] != launch:
            clock, launch = clock + calls.between_us, number[step.output]
        begin, clock = clock, clock + run.point.latency_us + calls.more_us
        start_us = begin + max(0.0, calls.more_us)
        times = {"start_us": start_us, "end_us": clock} if calls.alone else {}
        runs[step.output] = replace(run, call=call - 1, **times)
        ready[step.output] = call
    return tuple(replace(one, runs=tuple(runs[run.step.output] for run in one.runs)) for one in launches), clock


class Launch(Frozen):
    """One configuration of the device, and the operators that run in it.

    Attributes:
        saved: resources of an FPGA that streams save.
    """

    number: int
    runs: tuple[Run, ...]
    saved: Mapping[str, int] = field(default_factory=dict)

    @property
    def start_us(self) -> float:
        return min(run.start_us for run in self.runs)

    @property
    def end_us(self) -> float:
        return max(run.end_us for run in self.runs)

    @property
    def designs(self) -> dict[str, Run]:
        """The designs that the device is configured with, by name, each with one of its runs."""
        return {run.design: run for run in self.runs}

    @property
    def columns(self) -> int:
        return sum(run.point.columns for run in self.designs.values())

    @property
    def resources(self) -> dict[str, int]:
        """An FPGA's resources in use, by name; empty for an NPU."""
        found = {name: -count for name, count in self.saved.items()}
        for run in self.designs.values():
            for name, count in run.point.resources.items():
                found[name] = found.get(name, 0) + count
        return found

    @property
    def streams(self) -> dict[str, tuple[Run, Run]]:
        """The tensors that are streams, by their names in the network, with their writer and reader."""
        ends = {name: run for run in self.runs for name in run.streams.values() if run.step.output == name}
        return {name: (ends[name], run) for run in self.runs for name in run.streams.values() if run != ends[name]}

    @property
    def at_once(self) -> bool:
        """True if any two of its operators run at the same time."""
        return any(later.start_us < run.end_us for run, later in combinations(self.runs, 2))

    def simulated_us(self, device: Device) -> float:
        """Return the time of the launch with all of its designs simulated together.

        Each run starts when those before it have ended, after the wait that was scheduled.
        """
        parts, launches = [], launches_of(device)
        for run in self.runs:
            after = [at for at, one in enumerate(self.runs) if one.end_us <= run.start_us]
            ready_us = max((self.runs[at].end_us for at in after), default=self.start_us)
            wait_us = run.start_us - ready_us - launches.call_us
            parts.append(LaunchedDesign(run.point.design.design, run.first_column, tuple(after), wait_us))
        ends = launches.ends_us(parts)
        return self.end_us - self.start_us if ends is None else max(ends)

    def period_us(self, device: Device) -> float:
        """Return the shortest time from input to input while inputs follow each other through the launch.

        It is the longest of three times: of the busiest columns, of operators that stream to each other and are
        called again when all have ended, and of the DRAM for its tensors.
        """
        columns: dict[int, float] = {}
        for run in self.runs:
            columns[run.first_column] = columns.get(run.first_column, 0.0) + run.end_us - run.start_us
        launches = launches_of(device)
        moving = sum(
            choice_of(run.point, launches).bandwidth / BANDWIDTH * (run.end_us - run.start_us) for run in self.runs
        )
        joined = DisjointSets[int]()
        for source, target in self.streams.values():
            joined.join(source.first_column, target.first_column)
        runs = {run.first_column: run for run in self.runs if run.streams}
        groups = ([runs[hardware] for hardware in group] for group in joined.groups())
        spans = (max(run.end_us for run in group) - min(run.start_us for run in group) for group in groups)
        return max([moving, *columns.values(), *spans])
