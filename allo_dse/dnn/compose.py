"""A network in launches: what runs when and where, how long it takes, and what is proved of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

from allo_dse.device.device import NpuDevice
from allo_dse.eval.npu.together import Part, ends_together

from .execute import run_program
from .fronts import Fronts, Point
from .network import Array, Arrays, Step
from .operators.work import Work
from .problem import TICK_US, Problem, problem_of
from .solve import WORK_LIMIT, Solution, solve


@dataclass(frozen=True)
class Run:
    """An operator in a launch: its design, its columns, and when it runs.

    Attributes:
        first_column: of the neighbouring columns that it has.
    """

    step: Step
    point: Point
    first_column: int
    start_us: float
    end_us: float


@dataclass(frozen=True)
class Launch:
    """One configuration of the array, and what runs in it."""

    number: int
    runs: tuple[Run, ...]

    @property
    def start_us(self) -> float:
        return min(run.start_us for run in self.runs)

    @property
    def end_us(self) -> float:
        return max(run.end_us for run in self.runs)

    @property
    def designs(self) -> dict[str, Run]:
        """What the array is configured with: one run of each kind of operator, by the key of its work."""
        return {run.point.design.study.name: run for run in self.runs}

    @property
    def columns(self) -> int:
        return sum(run.point.columns for run in self.designs.values())

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

    @property
    def period_us(self) -> float:
        """Time from input to input, at best, while they follow each other through it: until the busiest columns have
        done one, and the DRAM has moved its tensors."""
        columns: dict[int, float] = {}
        for run in self.runs:
            columns[run.first_column] = columns.get(run.first_column, 0.0) + run.end_us - run.start_us
        moving = sum(run.point.bound.get("DRAM", 0.0) * (run.end_us - run.start_us) for run in self.runs)
        return max(moving, *columns.values())


@dataclass(frozen=True)
class Composition:
    """A network in launches.

    Attributes:
        bound_us: no composition of these fronts is faster.
    """

    fronts: Fronts
    launches: tuple[Launch, ...]
    latency_us: float
    bound_us: float

    @property
    def columns(self) -> int:
        """The most that a launch uses."""
        return max(launch.columns for launch in self.launches)

    @property
    def gap(self) -> float:
        """How much faster another composition may be, as a share of this one's time."""
        return 1 - self.bound_us / self.latency_us

    @cached_property
    def simulated_us(self) -> float:
        """The latency, with designs that run at once simulated together, tile by tile over one DRAM."""
        longer = [
            launch.simulated_us(self.fronts.device) - (launch.end_us - launch.start_us)
            for launch in self.launches
            if launch.at_once
        ]
        return self.latency_us + sum(longer)

    def inputs_per_s(self, batch: int = 1) -> float:
        """Inputs of a stream that are done in a second, with so many going through a launch before the next is begun.

        With one it follows from the latency; more overlap as far as the columns and the DRAM allow, at best.
        """
        between = self._between_us if len(self.launches) > 1 else 0.0
        more = sum(launch.period_us for launch in self.launches)
        return 1e6 * batch / (self.latency_us + between + (batch - 1) * more)

    @property
    def certificate(self) -> str:
        """What is proved, in words."""
        whole = "no composition of these designs is faster" if self.gap <= 0 else f"at most {self.gap:.1%} faster"
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
        board = self.fronts.device.board
        return max(0.0, board.relaunch_us - board.launch_us)


def compose(fronts: Fronts, *, columns: int | None = None, work_limit: float = WORK_LIMIT) -> Composition:
    """The fastest composition of a network's operators.

    Args:
        columns: that launches may use; all of the device by default.
        work_limit: CP-SAT's deterministic time; then the best so far is taken, and its gap is known.

    Raises:
        StudyError: where there is none within the limit, or an operator needs more columns.
    """
    problem = problem_of(fronts)
    problem = replace(problem, columns=problem.columns if columns is None else columns)
    solution = solve(problem, work_limit=work_limit)
    launches = _launches(fronts, problem, solution)
    return Composition(fronts, launches, solution.length * TICK_US, solution.bound * TICK_US)


def compositions(fronts: Fronts, *, work_limit: float = WORK_LIMIT) -> list[Composition]:
    """The front of compositions over latency and columns, the fewest columns first."""
    least = max(points[0].columns for points in fronts.points.values())
    widths = sorted({p.columns for points in fronts.points.values() for p in points} | {fronts.device.array.columns})
    found: list[Composition] = []
    for width in widths:
        if width >= least:
            one = compose(fronts, columns=width, work_limit=work_limit)
            if not found or one.latency_us < found[-1].latency_us:
                found.append(one)
    return found


def _launches(fronts: Fronts, problem: Problem, solution: Solution) -> tuple[Launch, ...]:
    steps = [one.step for one in fronts.candidates]
    found: list[Launch] = []
    for number in sorted(set(solution.launch) - {-1}):
        members = [o for o in range(len(steps)) if solution.launch[o] == number]
        members.sort(key=lambda o: (solution.start[o], o))
        first = _first_columns(problem, solution, members)
        found.append(
            Launch(len(found), tuple(_run(fronts, steps[o], solution, o, first[problem.kinds[o]]) for o in members))
        )
    return tuple(found)


def _first_columns(problem: Problem, solution: Solution, members: Sequence[int]) -> dict[int, int]:
    """The first column of each kind of a launch, one after another."""
    first: dict[int, int] = {}
    used = 0
    for o in members:
        kind = problem.kinds[o]
        if kind not in first:
            first[kind] = used
            used += problem.choices[kind][solution.choice[o]].columns
    return first


def _run(fronts: Fronts, step: Step, solution: Solution, o: int, first_column: int) -> Run:
    point = fronts.points[fronts.operators[step.name]][solution.choice[o]]
    start = solution.start[o] * TICK_US
    return Run(step, point, first_column, start, start + point.latency_us)
