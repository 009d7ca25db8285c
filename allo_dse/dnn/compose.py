"""A network in launches: what runs when and where, how long it takes, and what is proved of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

from allo_dse.common.errors import StudyError
from allo_dse.device.device import Device, FpgaDevice, NpuDevice
from allo_dse.device.fpga_model import RESOURCES
from allo_dse.eval.npu.together import Part, ends_together

from .execute import run_program
from .fronts import Fronts, Point
from .fusion import Operator
from .network import Array, Arrays, Step
from .operators.work import Work
from .problem import BANDWIDTH, TICK_US, Problem, between_us, choice_of, problem_of
from .solve import WORK_LIMIT, Solution, solve
from .streams import edges_of, stream_ends

SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
"""Of an FPGA, on which compositions are looked for."""


@dataclass(frozen=True)
class Run:
    """An operator in a launch: its design, its columns, and when it runs.

    Attributes:
        first_column: of the neighbouring columns that it has; on an FPGA, number of its hardware.
        copy: of the hardware of operators that are alike.
        streams: tensors of its program that are streams from or to other operators, and what the network calls them.
    """

    step: Step
    point: Point
    first_column: int
    start_us: float
    end_us: float
    copy: int = 0
    streams: Mapping[str, str] = field(default_factory=dict)

    @property
    def design(self) -> str:
        """What the design is called, and a copy of it."""
        return self.point.design.study.name + (f"_{self.copy}" if self.copy else "")

    @property
    def dram_bytes(self) -> int:
        """That it reads and writes there."""
        mapping = self.point.design.design.mapping.fpga if self.streams else None
        saved = sum(mapping.moved_bytes(mapping.streamed[name]) for name in self.streams) if mapping else 0
        return self.point.dram_bytes - saved


@dataclass(frozen=True)
class Launch:
    """One configuration of the device, and what runs in it.

    Attributes:
        saved: of an FPGA's resources, by streams.
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
        """What the device is configured with: one run of each kind of operator, by its design."""
        return {run.design: run for run in self.runs}

    @property
    def columns(self) -> int:
        return sum(run.point.columns for run in self.designs.values())

    @property
    def resources(self) -> dict[str, int]:
        """Of an FPGA, by name; nothing of an NPU."""
        found = {name: -count for name, count in self.saved.items()}
        for run in self.designs.values():
            for name, count in run.point.resources.items():
                found[name] = found.get(name, 0) + count
        return found

    @property
    def streams(self) -> dict[str, tuple[Run, Run]]:
        """The tensors that are streams, by their names in the network: who writes and who reads them."""
        ends = {name: run for run in self.runs for name in run.streams.values() if run.step.output == name}
        return {name: (ends[name], run) for run in self.runs for name in run.streams.values() if run != ends[name]}

    @property
    def at_once(self) -> bool:
        """Whether any two of its operators run at the same time."""
        return any(later.start_us < run.end_us for run, later in combinations(self.runs, 2))

    def simulated_us(self, device: NpuDevice) -> float:
        """How long it takes with all of its designs simulated together, each as soon as those before it have ended."""
        parts = []
        for run in self.runs:
            after = [at for at, one in enumerate(self.runs) if one.end_us <= run.start_us]
            ready_us = max((self.runs[at].end_us for at in after), default=self.start_us)
            parts.append(Part(run.point.design.design, run.first_column, tuple(after), run.start_us - ready_us))
        return max(ends_together(parts, device))

    def period_us(self, device: Device) -> float:
        """Time from input to input, at best, while they follow each other through it: until the busiest columns have
        done one, or what streams to each other and is called again when all of it has ended, and the DRAM has moved its
        tensors."""
        columns: dict[int, float] = {}
        for run in self.runs:
            columns[run.first_column] = columns.get(run.first_column, 0.0) + run.end_us - run.start_us
        moving = sum(
            choice_of(run.point, device).bandwidth / BANDWIDTH * (run.end_us - run.start_us) for run in self.runs
        )
        return max([moving, *columns.values(), *(end - start for start, end in self._spans.values())])

    @property
    def _spans(self) -> dict[int, tuple[float, float]]:
        """Of what streams to each other, from when to when; by the hardware of any of it."""
        spans = {run.first_column: (run.start_us, run.end_us) for run in self.runs if run.streams}
        for _ in range(len(self.streams)):
            for ends in self.streams.values():
                both = [spans[run.first_column] for run in ends]
                spans |= {run.first_column: (min(a for a, _ in both), max(b for _, b in both)) for run in ends}
        return spans


@dataclass(frozen=True)
class Composition:
    """A network in launches.

    Attributes:
        bound_us: no composition of these fronts is faster, or, for a stream, does with less time from input to input.
        stream: it was made for a stream of inputs.
    """

    fronts: Fronts
    launches: tuple[Launch, ...]
    latency_us: float
    bound_us: float
    stream: bool = False

    @property
    def columns(self) -> int:
        """The most that a launch uses."""
        return max(launch.columns for launch in self.launches)

    @property
    def where(self) -> str:
        """What it uses of the device, in words."""
        used, device = self.launches[0].resources, self.fronts.device
        if not isinstance(device, FpgaDevice):
            return f"{self.columns} columns"
        shares = ", ".join(f"{name} {used[name] / device.limit(name):.0%}" for name in RESOURCES if used[name])
        return f"{len(self.launches[0].designs)} pieces of hardware: {shares}"

    @property
    def streamed(self) -> str:
        """Which operators stream to which, in words; nothing where none does."""
        ends = [pair for launch in self.launches for pair in launch.streams.values()]
        return ", ".join(f"{source.step.name} to {target.step.name}" for source, target in ends)

    @property
    def gap(self) -> float:
        """How much faster another composition may be, as a share of this one's time."""
        took = self.launches[0].period_us(self.fronts.device) if self.stream else self.latency_us
        return max(0.0, 1 - self.bound_us / took)

    @cached_property
    def simulated_us(self) -> float:
        """The latency, with designs that run at once simulated together, tile by tile over one DRAM."""
        device = self.fronts.device
        longer = [
            launch.simulated_us(device) - (launch.end_us - launch.start_us)
            for launch in self.launches
            if launch.at_once and isinstance(device, NpuDevice)
        ]
        return self.latency_us + sum(longer)

    def inputs_per_s(self, batch: int = 1) -> float:
        """Inputs of a stream that are done in a second, with so many going through a launch before the next is begun.

        With one it follows from the latency; more overlap as far as the columns and the DRAM allow, at best.
        """
        between = self._between_us if len(self.launches) > 1 else 0.0
        more = sum(launch.period_us(self.fronts.device) for launch in self.launches)
        return 1e6 * batch / (self.latency_us + between + (batch - 1) * more)

    @property
    def certificate(self) -> str:
        """What is proved, in words."""
        better = "takes more inputs" if self.stream else "is faster"
        whole = f"no composition of these designs {better}" if self.gap <= 0 else f"at most {self.gap:.1%} faster"
        points = [point for points in self.fronts.points.values() for point in points]
        proved = sum(point.proved for point in points)
        return f"{whole}; {proved} of {len(points)} designs are proved the fastest on their columns"

    def run(self, inputs: Mapping[str, Array]) -> Arrays:
        """All tensors that go to DRAM, by name, as the chosen designs compute them, folded as they are.

        Args:
            inputs: an array for each input of the network.
        """
        network = self.fronts.network
        runs = {run.step.output: run for launch in self.launches for run in launch.runs}
        known: Arrays = {**network.constants, **inputs}
        for step in network.steps:
            if step.output in runs:
                design = runs[step.output].point.design.design
                given = [known[name] for name in runs[step.output].step.inputs]
                made = run_program(design.program, given, design.vmg)
            elif isinstance(step.work, Work):
                continue  # its result stays inside a program that does more
            else:
                made = step.work.function(*(known[name] for name in step.inputs))
            known[step.output] = made.reshape(network.shapes[step.output])
        return {step.output: known[step.output] for step in network.steps if step.output in known}

    @cached_property
    def time_us(self) -> dict[str, float]:
        """Where the time goes: beginning launches, waiting for the host and for rearrangements, and for the rest by
        what holds up the operator that ends last among those that run."""
        parts = {"reconfiguration": (len(self.launches) - 1) * self._between_us}
        runs = sorted((run for launch in self.launches for run in launch.runs), key=lambda run: run.start_us)
        done = 0.0
        for run in runs:
            alone = max(0.0, run.end_us - max(done, run.start_us))
            name = max(run.point.bound, key=lambda name: run.point.bound[name])
            parts[name] = parts.get(name, 0.0) + alone
            done = max(done, run.end_us)
        parts["host and layouts"] = max(0.0, self.latency_us - sum(parts.values()))
        return parts

    @property
    def _between_us(self) -> float:
        return between_us(self.fronts.device)


def compose(
    fronts: Fronts,
    *,
    columns: int | None = None,
    share: float = 1.0,
    work_limit: float = WORK_LIMIT,
    stream: bool = False,
) -> Composition:
    """The fastest composition of a network's operators.

    Args:
        columns: that launches may use; all of the device by default. share: of an FPGA's resources to use.
        stream: on an FPGA, the one that takes the most inputs of a stream per second.
        work_limit: CP-SAT's deterministic time; then the best so far is taken, and its gap is known.

    Raises:
        StudyError: where there is none within the limit, or an operator needs more columns.
    """
    return _composed(fronts, _problem(fronts), columns=columns, share=share, work_limit=work_limit, stream=stream)


def _problem(fronts: Fronts) -> Problem:
    return replace(problem_of(fronts), edges=edges_of(fronts))


def _composed(
    fronts: Fronts,
    problem: Problem,
    *,
    work_limit: float,
    columns: int | None = None,
    share: float = 1.0,
    stream: bool = False,
) -> Composition:
    limits = tuple(int(limit * share) for limit in problem.limits) if columns is None else (columns,)
    problem = replace(problem, limits=limits)
    stream = stream and problem.launches == 1
    solution = solve(problem, work_limit=work_limit, stream=stream)
    launches = _launches(fronts, problem, solution)
    return Composition(fronts, launches, solution.length * TICK_US, solution.bound * TICK_US, stream)


def compositions(fronts: Fronts, *, work_limit: float = WORK_LIMIT) -> list[Composition]:
    """The front of compositions over latency and columns, or shares of an FPGA's resources, the fewest first."""
    limits: list[dict[str, Any]] = [{"share": share} for share in SHARES]
    if isinstance(fronts.device, NpuDevice):
        widths = {p.columns for points in fronts.points.values() for p in points} | {fronts.device.array.columns}
        limits = [{"columns": width} for width in sorted(widths)]
    problem = _problem(fronts)
    found: list[Composition] = []
    for limit in limits:
        try:
            one = _composed(fronts, problem, **limit, work_limit=work_limit)
        except StudyError:
            if limit == limits[-1]:
                raise
            continue  # the designs need more
        if not found or one.latency_us < found[-1].latency_us:
            found.append(one)
    return found


def _launches(fronts: Fronts, problem: Problem, solution: Solution) -> tuple[Launch, ...]:
    operators = fronts.candidates
    found: list[Launch] = []
    for number in sorted(set(solution.launch) - {-1}):
        members = [o for o in range(len(operators)) if solution.launch[o] == number]
        members.sort(key=lambda o: (solution.start[o], o))
        first = _first_columns(problem, solution, members)
        runs = [_run(fronts, operators[o], solution, o, first[problem.kinds[o]]) for o in members]
        streamed = [problem.edges[edge] for edge in solution.streams]
        for edge in streamed:
            ends = members.index(edge.source), members.index(edge.target)
            tensors = stream_ends(fronts.network, runs[ends[0]].step, runs[ends[1]].step)
            for at, name in zip(ends, tensors, strict=True):
                streams = {**runs[at].streams, name: runs[ends[0]].step.output}
                runs[at] = replace(runs[at], streams=streams)
        saved = {name: sum(edge.saves[1 + at] for edge in streamed) for at, name in enumerate(RESOURCES)}
        found.append(Launch(len(found), tuple(runs), saved if streamed else {}))
    return tuple(found)


def _first_columns(problem: Problem, solution: Solution, members: Sequence[int]) -> dict[int, int]:
    """The first column of each kind of a launch, one after another."""
    first: dict[int, int] = {}
    used = 0
    for o in members:
        kind = problem.kinds[o]
        if kind not in first:
            first[kind] = used
            used += problem.choices[kind][solution.choice[o]].needs[0]
    return first


def _run(fronts: Fronts, one: Operator, solution: Solution, o: int, first_column: int) -> Run:
    point = fronts.points[fronts.operators[one.step.name]][solution.choice[o]]
    start = solution.start[o] * TICK_US
    return Run(one.step, point, first_column, start, start + point.latency_us, one.copy)
