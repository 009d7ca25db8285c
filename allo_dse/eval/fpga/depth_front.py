"""Stream depths as an FPGA builds them: cycles against registers, shift registers, LUTRAM and block RAM."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct

from allo_dse.backends.fpga.fifo import fifo_resources, fifo_steps
from allo_dse.common.errors import SimulationError, StudyError
from allo_dse.common.latest import keep
from allo_dse.common.records import replace
from allo_dse.device.device import Device, FpgaDevice
from allo_dse.device.fpga_model import Resources
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.limits.fpga import FpgaCosts
from allo_dse.mapper.program import Program
from allo_dse.program.index_maps import IntArray
from allo_dse.program.streams import StreamArray
from allo_dse.simulator.engine.engine import table_engine
from allo_dse.simulator.engine.run_result import RunResult
from allo_dse.simulator.network.network import default_latency
from allo_dse.simulator.replay.depth_front import MAX_RUNS, DepthFront, DepthRun, find_depth_front, search_depths
from allo_dse.simulator.replay.replay import stream_index
from allo_dse.simulator.replay.trace import Trace
from allo_dse.space.design import Design

from .bounds import SMALLEST_DEPTH
from .network import FpgaNetwork, fpga_network

DEFAULT_BITS = 32
Bits = int | Mapping[str, int]
"""Width of a stream's tokens: of all, or of some by name (the others have 32)."""
_DEEP = 1 << 16  # deeper streams are not built
_MOST_SLOTS = 1 << 22  # of all streams together, which bounds the memory of a simulation
_GROWTH = 8
_WORTHWHILE = 0.999  # deeper streams are worth their memory when they save a thousandth of the time
_FRONTS_KEPT = 16


def depth_front(
    traces: Trace | Sequence[Trace] | Design,
    *,
    bits: Bits = DEFAULT_BITS,
    device: str | Device = "u280",
    max_runs: int = MAX_RUNS,
) -> DepthFront:
    """The front of cycles against memory over the depths of all streams.

    Args:
        traces: one run of the design, or several with different inputs, which count together; or a design on an FPGA,
            whose arrays of streams have one depth each, and of whose runs on given inputs the slowest counts.
        bits: width of the tokens of a trace's streams.
        device: an FPGA; says up to which size a trace's FIFO is registers, shift registers or LUTRAM.
        max_runs: replays at most. What they go to first is the least memory without loss.

    Raises:
        TraceError: for traces of different designs, unknown streams, and when no depths prevent a deadlock.
        StudyError: if the device is no FPGA.
        SimulationError: for a design that has no FIFOs, or deadlocks at any depths.
    """
    if isinstance(traces, Design):
        fpga_of(traces.device)
        return design_depth_front(traces.mapping.fpga, max_runs)
    given = (traces,) if isinstance(traces, Trace) else tuple(traces)
    fpga = fpga_of(device)
    widths = stream_bits(given[0], bits) if given else []
    return find_depth_front(given, lambda stream, tokens: fifo_steps(fpga, widths[stream], tokens), max_runs)


def fpga_of(device: str | Device) -> FpgaDevice:
    """The device, by name or itself.

    Raises:
        StudyError: if it is no FPGA.
    """
    found = Device.of(device)
    if not isinstance(found, FpgaDevice):
        raise StudyError(f"{found.name} is no FPGA: its streams have no FIFOs to size", hint="for example u280")
    return found


def stream_bits(trace: Trace, bits: Bits) -> list[int]:
    """Per stream the width of its tokens.

    Raises:
        TraceError: for streams that the trace does not have.
    """
    if isinstance(bits, int):
        return [bits] * len(trace.streams)
    found = [DEFAULT_BITS] * len(trace.streams)
    for name, width in bits.items():
        found[stream_index(trace.data, name)] = width
    return found


def fifo_total(device: FpgaDevice, trace: Trace, bits: Bits, depths: Mapping[str, int]) -> Resources:
    """What the FIFOs of a trace take with these depths; channels that are arrays are left out."""
    arrays = {trace.streams[stream] for array in trace.data.arrays for stream in array}
    widths = zip(trace.streams, stream_bits(trace, bits), strict=True)
    return Resources.total(
        [fifo_resources(device, width, depths[name]) for name, width in widths if name not in arrays]
    )


def design_depth_front(mapping: FpgaCosts, max_runs: int = MAX_RUNS) -> DepthFront:
    """The front of a design: its streams are the arrays of streams that lead between its nodes.

    Where the program has several runs on given inputs, the slowest counts.

    Raises:
        SimulationError: if the design has no FIFOs, or deadlocks at any depths.
    """
    runs = DesignRuns(mapping)
    if not runs.streams:
        raise SimulationError("the design has no FIFOs: no stream leads from one of its nodes to another")
    return search_depths(runs, runs.steps, max_runs)


def known_depths(
    design: Design, how: Literal["solve", "declared"], fronts: dict[str, DepthFront]
) -> Mapping[str, int] | None:
    """Depths by array that a design says, or that have the least memory with the slowdown that it allows; None for the
    smallest that cost no time.

    Args:
        how: where it says neither, "declared" for those of the program.
        fronts: of designs that were asked for last, by key without slowdown; kept for those that differ in it alone.

    Raises:
        SimulationError: if it deadlocks at any depths.
    """
    mapping = design.mapping.fpga
    if design.depths or how == "declared":
        return dict(design.depths)
    if design.slowdown is None or not mapping.fifos:
        return None
    key = replace(design, slowdown=None).key
    found = fronts.pop(key) if key in fronts else design_depth_front(mapping)
    front = keep(fronts, key, found, _FRONTS_KEPT)
    least = dict.fromkeys((stream.name for stream in mapping.vmg.program.streams), SMALLEST_DEPTH)
    return least | dict(front.within(design.slowdown).depths)


def decided_depths(design: Design, how: Literal["solve", "declared"]) -> dict[str, int]:
    """Stream depths of an FPGA design by array, where they differ from the declared ones.

    Args:
        how: where the design does not say, "solve" for the smallest depths that cost no time in the simulator, or no
            more than the design allows (if its control does not depend on data), "declared" for those of the program.
    """
    try:
        known = known_depths(design, how, {})
        return solve_depths(design.mapping.fpga)[0] if known is None else dict(known)
    except SimulationError:
        return {}


def as_built(design: Design) -> Design:
    """An FPGA design with the stream depths that it is evaluated and built with; other designs as they are."""
    if design.depths or not isinstance(design.device, FpgaDevice):
        return design
    return replace(design, depths=tuple(sorted(decided_depths(design, "solve").items())))


def built_depths(program: Program | VMG | Design, changes: Mapping[str, int] | None) -> dict[str, int]:
    """The stream depths that a design is built with, and those that a call gives."""
    own = dict(as_built(program).depths) if isinstance(program, Design) else {}
    return {**own, **(changes or {})}


class DesignRuns:
    """A design at any depths of its stream arrays (see `simulator.replay.depth_front.Timed`)."""

    def __init__(self, mapping: FpgaCosts) -> None:
        self._device = mapping.device
        self._most = most_tokens(mapping)
        self._counts = [count for _, count in mapping.fifos]
        arrays = {stream.name: stream for stream in mapping.vmg.program.streams}
        self._arrays: list[StreamArray] = [arrays[name] for name, _ in mapping.fifos]
        self.streams = tuple(stream.name for stream in self._arrays)
        depths = mapping.depths or {}
        self.built = np.array([depths.get(s.name, s.depth) for s in self._arrays], np.int64)
        self.fixed: frozenset[int] = frozenset()
        self.tokens = np.array([self._most[name] for name in self.streams], np.int64)
        start = dict.fromkeys(self._most, SMALLEST_DEPTH)
        self._solvers = [DepthSolver(fpga_network(one, start), list(self._most)) for one in mapping.runs]

    def steps(self, stream: int, tokens: int) -> Sequence[tuple[int, int]]:
        """The memories of all FIFOs of an array: (depth in tokens, bits)."""
        array, count = self._arrays[stream], self._counts[stream]
        block = math.prod(array.block)
        steps = fifo_steps(self._device, array.dtype.bits, max(tokens, SMALLEST_DEPTH) * block)
        found = {elements // block: bits * count for elements, bits in reversed(steps)}
        return sorted((depth, bits) for depth, bits in found.items() if depth >= SMALLEST_DEPTH)

    def run(self, depths: IntArray) -> DepthRun:
        """Where writers may have waited for room: FIFOs that were full."""
        results = self._results(depths)
        cycles = max(int(result.cycles) for _, result in results)
        ended = all(result.finished for _, result in results)
        full, held = np.zeros_like(self.built), np.zeros_like(self.built)
        for network, result in results:
            fifos, number = network.fifos, self._number(network)
            kept = number >= 0
            occupancy = result.occupancy[:fifos]
            np.add.at(full, number[kept], (occupancy >= network.network.depth[:fifos])[kept])
            np.maximum.at(held, number[kept], occupancy[kept])
        return DepthRun(cycles if ended else math.inf, full, held)

    def without_deadlock(self, depths: IntArray) -> IntArray:
        while waiting := [one for one in self._results(depths) if not one[1].finished]:
            if (depths >= self.tokens).all():
                raise _hopeless(*waiting[0], list(self._most))
            depths = np.minimum(2 * depths, self.tokens)
        return depths

    def at_least(self, depths: IntArray) -> IntArray:
        """0 for networks with shared ports: who is served first changes with depths, and less may be faster."""
        found, solvers = [], [_quickest(solver) for solver in self._solvers]
        for row in depths:
            results = self._results(row, solvers)
            shared = any(network.network.resources for network, _ in results)
            ended = all(result.finished for _, result in results)
            found.append((0 if shared else max(int(result.cycles) for _, result in results)) if ended else -1)
        return np.array(found, np.int64)

    def _results(
        self, depths: IntArray, solvers: Sequence[DepthSolver] | None = None
    ) -> list[tuple[FpgaNetwork, RunResult]]:
        named = dict.fromkeys(self._most, SMALLEST_DEPTH) | dict(zip(self.streams, depths.tolist(), strict=True))
        return [solver.run(named) for solver in solvers or self._solvers]

    def _number(self, network: FpgaNetwork) -> IntArray:
        """Per FIFO the position of its array in `streams`; -1 inside nodes."""
        position = {name: k for k, name in enumerate(self.streams)}
        of_array = np.array([*(position.get(name, -1) for name in self._most), -1], np.int64)
        return of_array[network.between]


def _hopeless(network: FpgaNetwork, result: RunResult, arrays: Sequence[str]) -> SimulationError:
    """What to say of a design that no depths help."""
    waiting = result.deadlock.cycle if result.deadlock else ()
    numbers = dict.fromkeys(network.wiring.array[one.stream] for one in waiting if one.stream < network.fifos)
    circle = f": its tasks wait for each other at {' and '.join(arrays[n] for n in numbers)}" if numbers else ""
    return SimulationError(
        f"the design deadlocks at any stream depth{circle}",
        hint="a pipelined loop that waits holds up what its earlier rounds have still to put: it needs an interval as "
        'long as that takes, pipeline("kernel:loop", [8])',
    )


def _quickest(solver: DepthSolver) -> DepthSolver:
    """With the least latencies that FIFOs have at any depth."""
    network = solver.network.network
    latency = np.where(network.fixed_latency < 0, default_latency(1), network.fixed_latency)
    return DepthSolver(replace(solver.network, network=replace(network, fixed_latency=latency)), solver.arrays)


class Timed(Struct, frozen=True):
    """A mapping with the network that it was simulated as."""

    mapping: FpgaCosts
    network: FpgaNetwork
    result: RunResult


def run(mapping: FpgaCosts, depths: Mapping[str, int]) -> tuple[FpgaNetwork, RunResult]:
    """Simulate a mapping at these depths.

    Raises:
        SimulationError: if it deadlocks.
    """
    network = fpga_network(mapping, depths)
    result = table_engine().run(network.network, extrapolate=True)
    if not result.finished:
        raise SimulationError(
            "the design deadlocks at its stream depths", hint="leave the depths to the evaluator: FpgaSimulator()"
        )
    return network, result


def timed_runs(
    mapping: FpgaCosts, depths: Mapping[str, int] | None, least: Callable[[FpgaCosts], int] = lambda _: 0
) -> tuple[dict[str, int], tuple[Timed, ...]]:
    """The program's runs on given inputs, or its only one, at these depths, solved ones without; and the depths.

    Args:
        least: cycles that a mapping takes at any depths.

    Raises:
        SimulationError: if one deadlocks.
    """
    if depths is None:
        return solve_depths(mapping, least)
    return dict(depths), tuple(Timed(one, *run(one, depths)) for one in mapping.runs)


def solve_depths(
    mapping: FpgaCosts, least: Callable[[FpgaCosts], int] = lambda _: 0
) -> tuple[dict[str, int], tuple[Timed, ...]]:
    """Stream depths at which the design is within a thousandth as fast as with any deeper ones; and the runs with them.

    Depths grow together until time no longer falls; then each is searched below, array by array. Where the program has
    several runs on given inputs, each stream is as deep as the one that needs most.

    Raises:
        SimulationError: for a program that deadlocks at any depth.
    """
    most = most_tokens(mapping)
    solvers, deepest = [], dict.fromkeys(most, 0)
    for one in mapping.runs:
        solver = DepthSolver(fpga_network(one, dict.fromkeys(most, SMALLEST_DEPTH)), list(most))
        depths = solver.grow(most, least(one))
        for name in most:
            depths[name] = solver.shrink(depths, name)
            deepest[name] = max(deepest[name], depths[name])
        solvers.append((one, solver))
    return deepest, tuple(Timed(one, *solver.run(deepest)) for one, solver in solvers)


class DepthSolver:
    """Times one network at many depths."""

    def __init__(self, network: FpgaNetwork, arrays: list[str]) -> None:
        self.network = network
        self.arrays = arrays
        self._limit = 0
        self._done: dict[tuple[int, ...], tuple[FpgaNetwork, RunResult]] = {}

    def run(self, depths: Mapping[str, int]) -> tuple[FpgaNetwork, RunResult]:
        """The network with these depths, and what its simulation gave."""
        key = tuple(depths[name] for name in self.arrays)
        if key not in self._done:
            self._done[key] = self._run(np.array(key, np.int64))
        return self._done[key]

    def _run(self, per_array: IntArray) -> tuple[FpgaNetwork, RunResult]:
        depth = self.network.network.depth.copy()
        wiring = self.network.wiring
        # FIFOs inside a folded node are buffers, whose size follows from the order of its tasks.
        depth[: self.network.fifos] = np.maximum(per_array[wiring.array], self.network.inside)
        network = replace(self.network, network=self.network.network.with_depths(depth))
        return network, table_engine().run(network.network, extrapolate=True)

    def grow(self, most: Mapping[str, int], least: int = 0) -> dict[str, int]:
        """The first of a series of depths after which more room saves no time; none does where a run takes about as
        few cycles as it can."""
        depths = {name: min(limit, SMALLEST_DEPTH) for name, limit in most.items()}
        _, result = self.run(depths)
        while any(depths[name] < limit for name, limit in most.items()):
            if result.finished and least > _WORTHWHILE * result.cycles:
                break
            more = {name: min(limit, _GROWTH * depths[name]) for name, limit in most.items()}
            _, other = self.run(more)
            if result.finished and other.cycles > _WORTHWHILE * result.cycles:
                break
            depths, result = more, other
        if not result.finished:
            raise _hopeless(self.network, result, self.arrays)
        self._limit = int(result.cycles / _WORTHWHILE)
        return depths

    def shrink(self, depths: Mapping[str, int], name: str) -> int:
        """The smallest depth of one array that costs no more than that thousandth: about what it held at most."""
        low, high = SMALLEST_DEPTH, depths[name]
        depth, step = min(high - 1, max(low, self._held(depths, name))), 1
        while low < high:
            _, result = self.run({**depths, name: depth})
            if result.finished and result.cycles <= self._limit:
                high, depth, step = depth, depth - step, 2 * step
            else:
                low, depth = depth + 1, high - step
            depth = max((low + high) // 2, depth)
        return high

    def _held(self, depths: Mapping[str, int], name: str) -> int:
        """The most tokens that any FIFO of an array held between nodes."""
        network, result = self.run(depths)
        own = network.between == self.arrays.index(name)
        return int(result.occupancy[: network.fifos][own].max(initial=0))


def most_tokens(mapping: FpgaCosts) -> dict[str, int]:
    """Per stream array a depth that holds everything that is ever put into one of its FIFOs."""
    tokens = {stream.name: SMALLEST_DEPTH for stream in mapping.vmg.program.streams}
    for task_class in mapping.vmg.program.task_classes:
        for port in task_class.stream_ports:
            tokens[port.stream.name] = max(tokens[port.stream.name], port.tokens or _DEEP)
    merged = -(-mapping.vmg.task_count // max(1, mapping.vmg.node_count))  # streams that a fold makes one
    deepest = max(SMALLEST_DEPTH, min(_DEEP, _MOST_SLOTS // max(1, mapping.vmg.program.stream_count)))
    return {name: min(deepest, merged * count) for name, count in tokens.items()}
