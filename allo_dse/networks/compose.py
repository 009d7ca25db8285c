"""Composition of a network into launches: times and places of its operators, and the proved bounds."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.errors import StudyError, did_you_mean
from allo_dse.common.records import replace
from allo_dse.device.device import Device
from allo_dse.eval.backend import target as target_of
from allo_dse.eval.tolerances import MOST_ELEMENTS
from allo_dse.lang.types import float32
from allo_dse.space.design import Design

from .accuracy import Accuracy, accuracy_of, converted, fastest_within, in_words
from .edges import edges_of, stream_ends, written_as
from .fronts import Fronts, launches_of
from .launches import HOST, Launch, Run, in_turn
from .network import Array, Arrays, Host, Network
from .operators.execute import Work, output_limits
from .problem import Calls, called, moved_us, origins_of, problem_of
from .solver.problem import TICK_US, Problem, Solution
from .solver.solve import WORK_LIMIT, solve

WAITING = "reconfiguration"
RUNTIMES = ("calls", "packets", "sequence", "launches")
"""Host programs: Allo's calls operators one by one, and configures the array for each call by another xclbin. Others do
that by control packets. A runtime sequence of mlir-aie has several programs in one call, one after another; as do those
of mlir-air and IRON, with operators side by side in launches. Allo's and the sequence are exported."""
SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
"""Shares of an FPGA for which compositions are searched."""


@dataclass(frozen=True)
class Composition:
    """A network composed into launches.

    Attributes:
        bound_us: proved lower bound of the latency with these fronts, or of the time from input to input of a
            stream.
        runtime: the host program that it is for, of `RUNTIMES`.
        stream: it was made for a stream of inputs.
        accuracy: the required accuracy, if operators may have several types or there is a limit.
        among: the compositions among which it is the fastest, in words; empty for all.
    """

    fronts: Fronts
    launches: tuple[Launch, ...]
    latency_us: float
    bound_us: float
    runtime: str = "launches"
    stream: bool = False
    accuracy: Accuracy | None = None
    among: str = ""

    @property
    def runs(self) -> list[Run]:
        """The operators of all launches."""
        return [run for launch in self.launches for run in launch.runs]

    @cached_property
    def network(self) -> Network:
        """The network of the operators that run, with the steps between them."""
        return converted(self.fronts.network, {run.step.output: run.step for run in self.runs})

    @property
    def types(self) -> dict[str, str]:
        """The element type that each operator writes, and of rounded weights, by its step's name."""
        return {run.step.name: run.step.type for run in self.runs}

    @property
    def widened(self) -> list[str]:
        """The operators whose weights have more bits than in the model."""
        reads = {name for run in self.runs for name in run.step.inputs}
        chosen = (one for one in self.fronts.network.steps if one.others and not reads.issuperset(one.inputs))
        return self.fronts.network.widened + [one.title for one in chosen if not one.others[0].rounded]

    @property
    def in_words(self) -> str:
        """The outputs' deviation from float32, the allowed deviation and the operators' element types, in words."""
        limit = self.accuracy.limit if self.accuracy else None
        allowed = f" ({limit:g} allowed)" if limit is not None else ""
        return f"outputs {self.deviation:.2g} off{allowed} as the designs compute them: {in_words(self.types)}"

    @cached_property
    def deviation(self) -> float:
        """The largest deviation of the outputs from float32, as the designs compute them.

        It is relative to an output's largest value, and 0 without an accuracy requirement.
        """
        return self.accuracy.deviation(self.run(self.accuracy.inputs)) if self.accuracy else 0.0

    @property
    def takes_us(self) -> float:
        """The time that was minimised: the latency, or the time from input to input of a stream."""
        return self.launches[0].period_us(self.fronts.device) if self.stream and self.launches else self.latency_us

    @property
    def columns(self) -> int:
        """The largest number of columns that a launch uses."""
        return max((launch.columns for launch in self.launches), default=0)

    @property
    def resources(self) -> dict[str, int]:
        """An FPGA's resources in use, by name; empty for an NPU."""
        return self.launches[0].resources if self.launches else {}

    @cached_property
    def host_us(self) -> dict[str, float]:
        """The time of each step that the host does, by name."""
        return {step.name: self.moves_us[step.name] for step in self.network.steps if isinstance(step.work, Host)}

    @property
    def why_host(self) -> dict[str, list[str]]:
        """The names of the host's steps, by the reason why no program does them."""
        found: dict[str, list[str]] = {}
        for step in self.network.steps:
            if isinstance(step.work, Host):
                found.setdefault(step.work.why, []).append(step.name)
        return found

    @property
    def device_share(self) -> float:
        """The share of the latency in which the host computes no operator of the network."""
        return 1 - min(1.0, sum(self.host_us.values()) / max(self.latency_us, TICK_US))

    @property
    def where(self) -> str:
        """The resources of the device in use, in words."""
        used, limited = self.resources, self.fronts.launches
        if not self.launches:
            return "the host alone"
        if not limited.resources:
            return f"{self.columns} columns"
        limits = zip(limited.resources, limited.limits[1:], strict=True)
        shares = ", ".join(f"{name} {used[name] / limit:.0%}" for name, limit in limits if used[name])
        pieces = f"{len(self.launches[0].designs)} pieces of hardware: {shares}"
        return f"{pieces}, {sum(len(run.constants) for run in self.runs)} constants in the bitstream"

    @property
    def streamed(self) -> str:
        """The pairs of operators that stream to each other, in words; empty if there are none."""
        ends = [pair for launch in self.launches for pair in launch.streams.values()]
        return ", ".join(f"{source.step.title} to {target.step.title}" for source, target in ends)

    @property
    def configuring_us(self) -> float:
        """Time that the host program spends on configuring the array before each call; Allo's for launches."""
        way = self.runtime if self.runtime == "packets" else "calls"
        return self.called_us(way) - self.called_us("launches")

    def called_us(self, runtime: str) -> float:
        """Return the latency of these designs called one by one, with the array configured as a runtime does."""
        calls = [run.point.latency_us for run in self.runs]
        return sum(calls) + len(calls) * self.fronts.launches.configuring_us(self.fronts.target, runtime)

    @property
    def calls(self) -> Calls:
        """The times of the host program, for which the array stays configured if all its calls are of one program."""
        calls = _calls(self.fronts, self.runtime)
        is_one = len({run.design for run in self.runs}) == 1
        return replace(calls, between_us=0.0) if calls.alone and is_one else calls

    @property
    def overdue(self) -> str:
        """A warning about the longest call, where the device's driver does not let it end."""
        one_by_one = self.runtime in ("calls", "packets")
        calls = [run.point.latency_us for run in self.runs] if one_by_one else [self.latency_us]
        return self.fronts.launches.overdue(max(calls, default=0.0))

    @property
    def exported(self) -> bool:
        """True if a driver is exported that runs the network as it is composed."""
        launches = self.fronts.launches
        runs = self.runtime in ("calls", "sequence")
        return launches.linked or (runs and launches.configuring_us(self.fronts.target) > 0)

    @cached_property
    def moves_us(self) -> dict[str, float]:
        """The time of each rearrangement, conversion and step of the host, by name."""
        network, device = self.network, self.fronts.device
        steps = (step for step in network.steps if not isinstance(step.work, Work))
        return {step.name: moved_us(network, step, device, float32) for step in steps}

    @property
    def gap(self) -> float:
        """An upper bound on the time that another composition saves, as a share of this one's time."""
        return max(0.0, 1 - self.bound_us / self.takes_us)

    @cached_property
    def simulated_us(self) -> float:
        """The latency with concurrent designs simulated together, tile by tile over one DRAM."""
        device = self.fronts.device
        longer = [
            launch.simulated_us(device) - (launch.end_us - launch.start_us)
            for launch in self.launches
            if launch.at_once
        ]
        return self.latency_us + sum(longer)

    def inputs_per_s(self, batch: int = 1) -> float:
        """Return the throughput of a stream of inputs.

        A batch of inputs goes through a launch before the next launch begins.

        For a batch of one it follows from the latency. More inputs overlap as far as columns and DRAM allow, at best.
        """
        if self.runtime != "launches":
            return 1e6 / self.latency_us
        between = self.fronts.launches.between_us if len(self.launches) > 1 else 0.0
        more = sum(launch.period_us(self.fronts.device) for launch in self.launches)
        return 1e6 * batch / (self.latency_us + between + (batch - 1) * more)

    @property
    def certificate(self) -> str:
        """The proved bounds, in words."""
        better = "takes more inputs" if self.stream else "is faster"
        others = f"others{self.among} are at most" if self.among else "at most"
        whole = f"{others} {self.gap:.1%} faster"
        if self.gap <= 0:
            whole = f"no composition of these designs{self.among} {better}"
        points = [point for points in self.fronts.points.values() for point in points]
        proved = sum(point.proved for point in points)
        best = "the fastest on their columns" if self.fronts.launches.columns else "to be on their fronts"
        return f"{whole}; {proved} of {len(points)} designs are proved {best}"

    def run(self, inputs: Mapping[str, Array]) -> Arrays:
        """Compute all tensors, by name, with the chosen designs as they are folded; see `Network.run`."""
        return self.network.run(inputs, designs=self._designs)

    @property
    def _designs(self) -> dict[str, Design]:
        """The design of each operator that runs, by the tensor that it writes."""
        return {run.step.output: run.point.design.design for run in self.runs}

    def limits(self, inputs: Mapping[str, Array]) -> dict[str, NDArray[np.float32]]:
        """Return the largest allowed error of each element of the outputs; empty if that takes too much work.

        Args:
            inputs: an array for each input of the network.
        """
        programs = {name: design.program for name, design in self._designs.items()}
        work = sum(program.elements_computed or MOST_ELEMENTS for program in programs.values())
        if work >= MOST_ELEMENTS:
            return {}
        found = self.network.analysed(inputs, programs)
        return {name: output_limits(found[name]) for name in self.network.outputs}

    def session(self, on: str = "simulator", folder: str | Path | None = None, python: str = sys.executable) -> Session:
        """Return what runs the network on inputs of your own.

        Args:
            on: "simulator" for the designs as they are folded, "host" for the operators' references in float32,
                "board" for the driver in `folder`, as `export` writes it.
            python: for a board, the interpreter that has its tools.

        Raises:
            StudyError: for another place, or a board without a folder.
        """
        if on not in PLACES or (on == "board") != (folder is not None):
            raise StudyError(
                f"a session on {on!r} in the folder {folder}",
                hint=f"on= is one of {', '.join(PLACES)}; folder= is where a network for a board is exported",
            )
        predicted = {run.step.name: run.point.latency_us for run in self.runs} | self.moves_us
        if folder is not None:
            return Session(self.network, partial(_on_board, Path(folder), python), predicted)
        if on == "host":
            whole = self.fronts.network
            return Session(whole, lambda _, inputs: whole.run(inputs, simulated=False), predicted)
        return Session(self.network, lambda _, inputs: self.run(inputs), predicted)

    @cached_property
    def time_us(self) -> dict[str, float]:
        """The latency by cause, in microseconds; causes below a tick are left out.

        The causes are reconfigurations, the host's part of calls, operators on the host, and rearrangements. Other time
        counts for the busiest resource of a running operator: of several, the one that ends last.
        """
        runs = [(run, launch.number) for launch in self.launches for run in launch.runs]
        calls, parts = self.calls, {HOST: 0.0, WAITING: 0.0}
        done, call, launch = 0.0, -1, -1
        for run, number in sorted(runs, key=lambda one: one[0].start_us):
            idle, is_new = max(0.0, run.start_us - done), run.call != call
            called_us = min(idle, calls.call_us) if is_new else 0.0
            parts[HOST] += called_us
            if calls.alone if is_new else number != launch:
                parts[WAITING] += min(idle - called_us, calls.between_us)
            alone = max(0.0, run.end_us - max(done, run.start_us))
            for name, share in run.spent.items():
                parts[name] = parts.get(name, 0.0) + alone * share
            done, call, launch = max(done, run.end_us), run.call, number
        if calls.more_us > 0:
            parts[WAITING] = self.configuring_us
        rest = max(0.0, self.latency_us - sum(parts.values()))
        parts["operators on the host"] = min(rest, sum(self.host_us.values()))
        parts["layouts"] = rest - parts["operators on the host"]
        return {name: us for name, us in parts.items() if us >= TICK_US}


def compose(
    fronts: Fronts,
    *,
    columns: int | None = None,
    share: float = 1.0,
    runtime: str = "",
    stream: bool = False,
    tolerance: float | None = None,
    inputs: Mapping[str, Array] | None = None,
) -> Composition:
    """Return the fastest composition of a network's operators.

    Args:
        runtime: of `RUNTIMES`; by default the one that is exported for the designs' target.
        columns: that launches may use; all of the device by default.
        share: of an FPGA's resources to use.
        stream: on an FPGA, maximise the inputs of a stream per second instead.
        tolerance: largest allowed deviation of outputs from float32, relative to their largest value.
        inputs: an array for each input of the network, to measure the deviation on; random ones by default.

    Raises:
        StudyError: if there is no composition within the limit or the tolerance, an operator needs more columns,
            the device has fewer than `columns`, or a stream is asked of an NPU.
    """
    there = fronts.launches.columns
    if (columns or 0) > there or not 0 < share <= 1:
        wrong = f"share={share:g} of {fronts.device.name} is none from 0 to 1"
        if columns is not None:
            wrong = f"columns={columns}: {fronts.device.name} has {there or 'none'}"
        raise StudyError(wrong, hint="leave it out for the whole device")
    if stream:
        require_streams(fronts.device)
    made = _prepared(fronts, tolerance, inputs)
    runtime = runtime_of(fronts.device, fronts.target, runtime)
    return _composed(fronts, *made, runtime, columns, share, stream=stream)


def runtime_of(device: Device, target: str | None, wanted: str = "") -> str:
    """Return the runtime to compose designs of a target for: the wanted one, or that which is exported for them.

    Raises:
        StudyError: for a name that is none.
    """
    if wanted and wanted not in RUNTIMES:
        raise StudyError(f"runtime={wanted!r} is none of {', '.join(RUNTIMES)}", hint=did_you_mean(wanted, RUNTIMES))
    name = target_of(target, device).name
    built = launches_of(device).configuring_us(name) > 0
    if wanted == "sequence" and not built:
        raise StudyError(
            f"{device.name} with target {name!r} has no runtime sequence",
            hint="it takes designs that Allo builds for an NPU; leave --runtime (runtime=) out",
        )
    return wanted or ("calls" if built else "launches")


def _calls(fronts: Fronts, runtime: str) -> Calls:
    """Return the times of a host program."""
    launches = fronts.launches
    if runtime in ("calls", "packets"):
        return Calls(launches.configuring_us(fronts.target, runtime), alone=True)
    return Calls(-launches.call_us, launches.call_us, launches.between_us, runtime == "sequence")


def require_streams(device: Device) -> None:
    """Refuse to compose for a stream of inputs where operators do not stay on the device.

    Raises:
        StudyError: for a device on which launches follow each other.
    """
    if launches_of(device).most is None:
        raise StudyError(
            "networks are composed for a stream of inputs on FPGAs only: launches of an NPU follow each other",
            hint="leave --stream (stream=True) out; the summary says how many inputs a second launches take",
        )


def _prepared(
    fronts: Fronts, tolerance: float | None, inputs: Mapping[str, Array] | None
) -> tuple[Problem, Accuracy | None]:
    return replace(problem_of(fronts), edges=edges_of(fronts)), accuracy_of(fronts, tolerance, inputs)


def _composed(
    fronts: Fronts,
    problem: Problem,
    accuracy: Accuracy | None,
    runtime: str,
    columns: int | None = None,
    share: float = 1.0,
    *,
    stream: bool = False,
) -> Composition:
    """Return the fastest composition; the settings are those of `compose`."""
    limits = tuple(int(limit * share) for limit in problem.limits) if columns is None else (columns,)
    calls = _calls(fronts, runtime)
    problem = called(replace(problem, limits=limits), calls)
    made: list[Solution] = []
    if not fronts.candidates:
        origins = origins_of(fronts.network, fronts.device, float32)
        length = max(
            (ticks for name in fronts.network.outputs for ticks, _ in origins.get(name, {}).values()), default=0
        )
        return Composition(fronts, (), length * TICK_US, length * TICK_US, runtime, stream, accuracy)

    def composed(effects: Sequence[int] = (), part: float = 1.0, among: str = "") -> Composition:
        own = replace(problem, effects=tuple(effects))
        made.append(solve(own, work_limit=WORK_LIMIT * part, stream=stream))
        length, bound = made[-1].length * TICK_US, max(made[0].bound, made[-1].bound) * TICK_US
        launches = _launches(fronts, problem, made[-1], calls.more_us)
        found = Composition(fronts, launches, length, bound, runtime, stream, accuracy, among)
        launches, in_turn_us = in_turn(found.network, launches, found.calls, found.moves_us)
        if problem.alone:
            moved = (step for step in fronts.network.steps if not isinstance(step.work, Work))
            bound += sum(moved_us(fronts.network, step, fronts.device, float32) for step in moved)
        if calls.alone:
            length, bound = in_turn_us, min(bound, in_turn_us)
        return replace(found, launches=launches, latency_us=length, bound_us=bound)

    return composed() if accuracy is None else fastest_within(accuracy, composed(), composed)


def compositions(
    fronts: Fronts,
    *,
    runtime: str = "",
    tolerance: float | None = None,
    inputs: Mapping[str, Array] | None = None,
) -> list[Composition]:
    """Return the front of compositions over latency and columns, or shares of an FPGA's resources.

    The one with the fewest comes first.
    """
    runtime = runtime_of(fronts.device, fronts.target, runtime)
    problem, accuracy = _prepared(fronts, tolerance, inputs)
    limits: list[dict[str, Any]] = [{"share": share} for share in SHARES]
    if whole := fronts.launches.columns:
        widths = {p.columns for points in fronts.points.values() for p in points} | {whole}
        limits = [{"columns": width} for width in sorted(widths)]
    found: list[Composition] = []
    for limit in limits:
        try:
            one = _composed(fronts, problem, accuracy, runtime, **limit)
        except StudyError:
            if limit == limits[-1]:
                raise
            continue  # the designs need more
        if not found or one.latency_us < found[-1].latency_us:
            found.append(one)
    return found


def _launches(fronts: Fronts, problem: Problem, solution: Solution, more_us: float) -> tuple[Launch, ...]:
    """Return the launches of a solution.

    Args:
        more_us: as of `Calls`.
    """
    operators, resources = fronts.candidates, fronts.launches.resources
    found: list[Launch] = []
    written = written_as(fronts.network)
    for number in sorted(set(solution.launch) - {-1}):
        members = [o for o in range(len(operators)) if solution.launch[o] == number]
        members.sort(key=lambda o: (solution.start[o], o))
        first, used, runs = dict[int, int](), 0, list[Run]()
        for o in members:
            kind, point = problem.kinds[o], fronts.points[operators[o].key][solution.choice[o]]
            if kind not in first:  # kinds are placed side by side
                first[kind] = used
                used += problem.choices[kind][solution.choice[o]].needs[0]
            start = solution.start[o] * TICK_US
            times = start + max(0.0, more_us), start + more_us + point.latency_us
            runs.append(Run(operators[o].step, point, first[kind], *times, operators[o].copy))
        streamed = [problem.edges[edge] for edge in solution.streams]
        for edge in streamed:
            ends = members.index(edge.source), members.index(edge.target)
            tensors = stream_ends(written, runs[ends[0]].step, runs[ends[1]].step)
            for at, name in zip(ends, tensors, strict=True):
                streams = {**runs[at].streams, name: runs[ends[0]].step.output}
                runs[at] = replace(runs[at], streams=streams)
        saved = {name: sum(edge.saves[1 + at] for edge in streamed) for at, name in enumerate(resources)}
        found.append(Launch(len(found), tuple(runs), saved if streamed else {}))
    return tuple(found)


# Sessions: a composed network as a function of its inputs, on the simulator, the host, or a board.

PLACES = ("simulator", "host", "board")


@dataclass
class Session:
    """A network that can be run again and again.

    Attributes:
        compute: from an array for each input to all tensors that are outputs.
        predicted_us: time of each operator, by its step's name.
        measured_us: the same as the last run took; empty where nothing is measured.
    """

    network: Network
    compute: Callable[[Session, Mapping[str, Array]], Mapping[str, Array]]
    predicted_us: Mapping[str, float]
    measured_us: dict[str, float] = field(default_factory=dict)

    def run(self, inputs: Mapping[str, Array]) -> Arrays:
        """Return the outputs, by name.

        Args:
            inputs: an array for each input of the network.

        Raises:
            StudyError: if one is missing, or of another shape; if the driver of a board fails.
        """
        given = self.network.given({name: np.asarray(array) for name, array in inputs.items()})
        found = self.compute(self, given)
        return {name: found[name] for name in self.network.outputs}


def _on_board(folder: Path, python: str, session: Session, inputs: Mapping[str, Array]) -> Arrays:
    """Run an exported network: its `run.py`, in an interpreter that has the board's tools."""
    with tempfile.TemporaryDirectory() as place:
        given, made = Path(place, "inputs.npz"), Path(place, "outputs.npz")
        np.savez(given, **dict(inputs))  # type: ignore[arg-type]
        command = [python, "run.py", "--json", "--inputs", str(given), "--outputs", str(made)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
            raise StudyError(f"{folder / 'run.py'}: exit code {done.returncode}: {said}", hint="run it by itself")
        facts = json.loads(done.stdout.splitlines()[-1])
        runs = [run for launch in facts["launches"] for run in launch["runs"]]
        session.measured_us = {run["step"]: run["latency_us"] for run in runs if run["latency_us"] is not None}
        session.measured_us |= facts["host_us"]
        with np.load(made) as data:
            return dict(data)
