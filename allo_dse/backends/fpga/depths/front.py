"""Stream depths as an FPGA builds them: cycles against registers, shift registers, LUTRAM and block RAM."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from allo_dse.common.errors import SimulationError, StudyError
from allo_dse.common.records import replace
from allo_dse.compiler.program.tensors import IntArray, StreamArray
from allo_dse.device.device import Device, FpgaDevice
from allo_dse.device.fpga_model import Resources
from allo_dse.simulator.depths.front import MAX_RUNS, DepthFront, DepthRun, find_depth_front, search_depths
from allo_dse.simulator.engine.run_result import RunResult
from allo_dse.simulator.network.network import read_latency
from allo_dse.simulator.replay.replay import stream_index
from allo_dse.simulator.replay.trace import Trace
from allo_dse.simulator.replay.trace_data import TraceError
from allo_dse.space.design import Design

from ..cost.memory import BRAM18_BITS, fifo_resources, fifo_steps, word_of
from ..mapping import FpgaMapping
from ..network import SMALLEST_DEPTH, FpgaNetwork
from .solver import DepthSolver, hopeless, known_depths, most_tokens, solve_depths, solvers_of

DEFAULT_BITS = 32
Bits = int | Mapping[str, int]
"""Width of a stream's tokens: of all, or of some by name (the others have 32)."""


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
        return design_depth_front(FpgaMapping.of(traces), max_runs)
    given = (traces,) if isinstance(traces, Trace) else tuple(traces)
    fpga = fpga_of(device)
    widths = stream_bits(fpga, given[0], bits) if given else []
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


def stream_bits(device: FpgaDevice, trace: Trace, bits: Bits) -> list[int]:
    """Per stream the width of its tokens.

    Raises:
        TraceError: for streams that the trace does not have, and widths that are none or that no FIFO has.
    """
    most = device.limit("ff") + device.limit("bram18") * BRAM18_BITS
    given = bits if isinstance(bits, Mapping) else dict.fromkeys(trace.streams, bits)
    found = [DEFAULT_BITS] * len(trace.streams)
    for name, width in given.items():
        if isinstance(width, bool) or not isinstance(width, int | np.integer) or width < 1:
            raise TraceError(f"bits of stream {name}: {width!r} is no width in bits")
        if width > most:
            raise TraceError(f"bits of stream {name}: {width} are more than {device.name} has room for")
        found[stream_index(trace.data, name)] = int(width)
    return found


def fifo_total(device: FpgaDevice, trace: Trace, bits: Bits, depths: Mapping[str, int]) -> Resources:
    """Return the resources of a trace's FIFOs at these depths; channels that are arrays are left out."""
    arrays = {trace.streams[stream] for array in trace.data.arrays for stream in array}
    widths = zip(trace.streams, stream_bits(device, trace, bits), strict=True)
    return Resources.total(
        [fifo_resources(device, width, depths[name]) for name, width in widths if name not in arrays]
    )


def fifos_at(design: Design, depths: Mapping[str, int]) -> Resources:
    """Return the resources of a design's FIFOs at these depths."""
    return FpgaMapping.of(design).fifos_at(depths)


def design_depth_front(mapping: FpgaMapping, max_runs: int = MAX_RUNS) -> DepthFront:
    """The front of a design: its streams are the arrays of streams that lead between its nodes.

    Where the program has several runs on given inputs, the slowest counts.

    Raises:
        SimulationError: if the design has no FIFOs, or deadlocks at any depths.
    """
    runs = DesignRuns(mapping)
    if not runs.streams:
        raise SimulationError("the design has no FIFOs: no stream leads from one of its nodes to another")
    return search_depths(runs, runs.steps, max_runs)


class DesignRuns:
    """A design at any depths of its stream arrays (see `simulator.depths.front.Timed`)."""

    def __init__(self, mapping: FpgaMapping) -> None:
        self._device = mapping.device
        self._most = most_tokens(mapping)
        self._counts = [count for _, count in mapping.fifos]
        self._arrays: list[StreamArray] = [mapping.shared.streams[name] for name, _ in mapping.fifos]
        self.streams = tuple(stream.name for stream in self._arrays)
        depths = mapping.depths or {}
        self.built = np.array([depths.get(s.name, s.depth) for s in self._arrays], np.int64)
        self.fixed: frozenset[int] = frozenset()
        self.tokens = np.array([self._most[name] for name in self.streams], np.int64)
        self._solvers = solvers_of(mapping)

    def steps(self, stream: int, tokens: int) -> Sequence[tuple[int, int]]:
        """The memories of all FIFOs of an array: (depth in tokens, bits)."""
        width, words = word_of(self._arrays[stream])
        steps = fifo_steps(self._device, width, max(tokens, SMALLEST_DEPTH) * words)
        found = {depth // words: bits * self._counts[stream] for depth, bits in reversed(steps)}
        return sorted((depth, bits) for depth, bits in found.items() if depth >= SMALLEST_DEPTH)

    def run(self, depths: IntArray) -> DepthRun:
        """Simulate the design at these depths, and mark the full FIFOs, whose writers may have waited."""
        results = self._results(depths)
        cycles = max(int(result.cycles) for _, result in results)
        ended = all(result.finished for _, result in results)
        full, held = np.zeros_like(self.built), np.zeros_like(self.built)
        position = {name: k for k, name in enumerate(self.streams)}
        of_array = np.array([*(position.get(name, -1) for name in self._most), -1], np.int64)
        for network, result in results:
            fifos, number = network.fifos, of_array[network.between]  # -1 inside nodes
            kept = number >= 0
            occupancy = result.occupancy[:fifos]
            np.add.at(full, number[kept], (occupancy >= network.network.depth[:fifos])[kept])
            np.maximum.at(held, number[kept], occupancy[kept])
        return DepthRun(cycles if ended else math.inf, full, held)

    def without_deadlock(self, depths: IntArray) -> IntArray:
        while waiting := [one for one in self._results(depths) if not one[1].finished]:
            if (depths >= self.tokens).all():
                raise hopeless(*waiting[0], list(self._most))
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


def _quickest(solver: DepthSolver) -> DepthSolver:
    """With the least latencies that FIFOs have at any depth."""
    network = solver.network.network
    latency = read_latency(network.fixed_latency, 1)
    return DepthSolver(replace(solver.network, network=replace(network, fixed_latency=latency)), solver.arrays)


def decided_depths(mapping: FpgaMapping, how: Literal["solve", "declared"]) -> dict[str, int]:
    """Stream depths of an FPGA design by array, where they differ from the declared ones.

    Args:
        how: where the design does not say, "solve" for the smallest depths that cost no time in the simulator, or no
            more than the design allows (if its control does not depend on data), "declared" for those of the program.
    """
    try:
        known = known_depths(mapping, how, design_depth_front)
        return solve_depths(mapping)[0] if known is None else dict(known)
    except SimulationError:
        return {}
