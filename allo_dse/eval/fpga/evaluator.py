"""The evaluator of FPGA designs: the cost model's intervals and depths, timed by the simulator.

FpgaSimulator().evaluate(design)                    # the smallest stream depths that cost no time
FpgaSimulator(depths="declared").evaluate(design)   # those that the program declares
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from allo_dse.common.aliases import JsonObject
from allo_dse.common.errors import SimulationError
from allo_dse.device.fpga_model import RESOURCES
from allo_dse.mapper.limits.fpga import FpgaCosts
from allo_dse.simulator.engine.engine import table_engine
from allo_dse.simulator.engine.run_result import RunResult
from allo_dse.space.design import Design

from ..evaluator import Metrics
from .bounds import SMALLEST_DEPTH, FpgaBounds
from .network import FpgaNetwork, fpga_network

_DEEP = 1 << 16  # deeper streams are not built
_MOST_SLOTS = 1 << 22  # of all streams together, which bounds the memory of a simulation
TIMED_ON = "timed_on"
"""Metric: the sets of inputs that a design was timed on, where data decides, and the cycles of each."""
_GROWTH = 8
_WORTHWHILE = 0.999  # deeper streams are worth their memory when they save a thousandth of the time


class FpgaSimulator:
    """Times a design on an FPGA and counts its resources.

    Args:
        depths: "solve" for the smallest stream depths that cost no time, where the design does not say; "declared" for
            those of the program. Metrics name them as `stream_depths`.
    """

    name = "fpga-simulator"
    version = "2"
    quick = True

    def __init__(self, depths: Literal["solve", "declared"] = "solve") -> None:
        self.depths = depths

    def bounding(self) -> FpgaBounds:
        """What can be said of designs before they are evaluated."""
        return FpgaBounds(solves=self.depths == "solve")

    def evaluate(self, design: Design) -> Metrics:
        """Metrics of one design.

        Raises:
            SimulationError: if the design deadlocks, or its control flow depends on data.
        """
        depths = dict(design.depths)
        depths, timed = timed_runs(design.mapping.fpga, None if self.depths == "solve" and not depths else depths)
        slowest = max(timed, key=lambda one: one.result.cycles)
        return _metrics(slowest, depths, [int(one.result.cycles) for one in timed])


@dataclass(frozen=True)
class Timed:
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


def timed_runs(mapping: FpgaCosts, depths: Mapping[str, int] | None) -> tuple[dict[str, int], tuple[Timed, ...]]:
    """The program's runs on given inputs, or its only one, at these depths, solved ones without; and the depths.

    Raises:
        SimulationError: if one deadlocks.
    """
    if depths is None:
        return solve_depths(mapping)
    return dict(depths), tuple(Timed(one, *run(one, depths)) for one in mapping.runs)


def solve_depths(mapping: FpgaCosts) -> tuple[dict[str, int], tuple[Timed, ...]]:
    """Stream depths at which the design is within a thousandth as fast as with any deeper ones; and the runs with them.

    Depths grow together until time no longer falls; then each is bisected down, array by array. Where the program has
    several runs on given inputs, each stream is as deep as the one that needs most.

    Raises:
        SimulationError: for a program that deadlocks at any depth.
    """
    most = most_tokens(mapping)
    solvers, deepest = [], dict.fromkeys(most, 0)
    for one in mapping.runs:
        solver = DepthSolver(fpga_network(one, dict.fromkeys(most, SMALLEST_DEPTH)), list(most))
        depths = solver.grow(most)
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

    def run(self, depths: Mapping[str, int]) -> tuple[FpgaNetwork, RunResult]:
        """The network with these depths, and what its simulation gave."""
        per_array = np.array([depths[name] for name in self.arrays], np.int64)
        depth = self.network.network.depth.copy()
        wiring = self.network.wiring
        # FIFOs inside a folded node are buffers, whose size follows from the order of its tasks.
        depth[: self.network.fifos] = np.maximum(per_array[wiring.array], self.network.inside)
        network = replace(self.network, network=self.network.network.with_depths(depth))
        return network, table_engine().run(network.network, extrapolate=True)

    def grow(self, most: Mapping[str, int]) -> dict[str, int]:
        """The first of a series of depths after which more room saves no time."""
        depths = {name: min(limit, SMALLEST_DEPTH) for name, limit in most.items()}
        _, result = self.run(depths)
        while any(depths[name] < limit for name, limit in most.items()):
            more = {name: min(limit, _GROWTH * depths[name]) for name, limit in most.items()}
            _, other = self.run(more)
            if result.finished and other.cycles > _WORTHWHILE * result.cycles:
                break
            depths, result = more, other
        if not result.finished:
            raise SimulationError("the design deadlocks at any stream depth", hint="its tasks wait in a circle")
        self._limit = int(result.cycles / _WORTHWHILE)
        return depths

    def shrink(self, depths: Mapping[str, int], name: str) -> int:
        """The smallest depth of one array that costs no more than that thousandth."""
        low, high = SMALLEST_DEPTH, depths[name]
        while low < high:
            middle = (low + high) // 2
            _, result = self.run({**depths, name: middle})
            if result.finished and result.cycles <= self._limit:
                high = middle
            else:
                low = middle + 1
        return high


def most_tokens(mapping: FpgaCosts) -> dict[str, int]:
    """Per stream array a depth that holds everything that is ever put into one of its FIFOs."""
    tokens = {stream.name: SMALLEST_DEPTH for stream in mapping.vmg.program.streams}
    for task_class in mapping.vmg.program.task_classes:
        for port in task_class.stream_ports:
            tokens[port.stream.name] = max(tokens[port.stream.name], port.tokens or _DEEP)
    merged = -(-mapping.vmg.task_count // max(1, mapping.vmg.node_count))  # streams that a fold makes one
    deepest = max(SMALLEST_DEPTH, min(_DEEP, _MOST_SLOTS // max(1, mapping.vmg.program.stream_count)))
    return {name: min(deepest, merged * count) for name, count in tokens.items()}


def _metrics(timed: Timed, depths: Mapping[str, int], cycles: list[int]) -> Metrics:
    """Metrics of the slowest run; `cycles` of every one."""
    mapping, network, result = timed.mapping, timed.network, timed.result
    device, vmg = mapping.device, mapping.vmg
    total = replace(mapping, depths=depths).total
    latency_us = result.cycles / (device.clock_ghz * 1e3)
    shares = {r: getattr(total, r) / device.limit(r) for r in RESOURCES if device.limit(r)}
    binding = max(shares, key=lambda r: shares[r])
    bound = _bound(network, result)
    return Metrics(
        latency_cycles=int(result.cycles),
        latency_us=latency_us,
        throughput_gops=operations(mapping) / latency_us * 1e-3,
        pe_count=vmg.node_count,
        utilization=round(max(shares.values()), 4),
        **{r: getattr(total, r) for r in RESOURCES},
        **{f"{r}_utilization": round(share, 4) for r, share in shares.items()},
        binding=binding,
        dram_bytes=sum(u.tensor.bytes * (u.reads + u.writes) for u in mapping.tensors if not u.onchip),
        stream_depths=dict(depths),
        bound=bound,
        bottleneck=max(bound, key=lambda name: bound[name]),
        **({TIMED_ON: {"sets": len(cycles), "latency_cycles": cycles}} if vmg.program.runs else {}),
        evaluator=f"{FpgaSimulator.name} {FpgaSimulator.version}",
    )


def _bound(network: FpgaNetwork, result: RunResult) -> dict[str, float]:
    """Share of the time that the busiest processing element works, and that the busiest tensor is copied."""
    node_of = network.network.task_node
    stalls = result.stall_get + result.stall_put + result.stall_request
    work = np.asarray(result.node_end - stalls, float) / max(1, result.cycles)
    tasks = np.unique(node_of[network.task])
    movers = [int(node_of[mover]) for mover in network.movers]
    shares: JsonObject = {"compute": work[tasks].max() if len(tasks) else 0.0}
    if movers:
        shares["DRAM"] = work[movers].max()
    return {name: round(float(share), 4) for name, share in shares.items()}


def operations(mapping: FpgaCosts) -> int:
    """Arithmetic operations of the whole program; a multiply-add is two."""
    program = mapping.vmg.program
    total = 0
    for position, kernel in enumerate(program.kernels):
        tasks = np.arange(program.first_task[position], program.first_task[position + 1])
        pids = program.pids(position, tasks)
        classes = kernel.class_of(pids)
        for number, task_class in enumerate(kernel.classes):
            own = pids[classes == number]
            if mapping.differs(task_class):
                total += sum(mapping.cost(task_class, tuple(int(p) for p in pid)).operations for pid in own)
            elif len(own):
                total += len(own) * mapping.cost(task_class, tuple(int(p) for p in own[0])).operations
    return total
