"""The evaluator of FPGA designs: the cost model's intervals and depths, timed by the simulator.

FpgaSimulator().evaluate(design)                    # the smallest stream depths that cost no time
FpgaSimulator(depths="declared").evaluate(design)   # those that the program declares
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from allo_dse.common.aliases import JsonObject
from allo_dse.device.fpga_model import RESOURCES
from allo_dse.mapper.limits.fpga import FpgaCosts
from allo_dse.simulator.engine.run_result import RunResult
from allo_dse.simulator.replay.depth_front import DepthFront
from allo_dse.space.design import Design

from ..evaluator import Metrics
from .bounds import FpgaBounds, alike_tasks
from .depth_front import Timed, known_depths, timed_runs
from .network import FpgaNetwork

TIMED_ON = "timed_on"
"""Metric: the sets of inputs that a design was timed on, where data decides, and the cycles of each."""


class FpgaSimulator:
    """Times a design on an FPGA and counts its resources.

    Args:
        depths: "solve" for the smallest stream depths that cost no time, or no more than the design allows, where it
            does not say them; "declared" for those of the program. Metrics name them as `stream_depths`.
    """

    name = "fpga-simulator"
    version = "3"
    quick = True

    def __init__(self, depths: Literal["solve", "declared"] = "solve") -> None:
        self.depths = depths
        self._fronts: dict[str, DepthFront] = {}

    def bounding(self) -> FpgaBounds:
        """What can be said of designs before they are evaluated."""
        return FpgaBounds(solves=self.depths == "solve")

    def evaluate(self, design: Design) -> Metrics:
        """Metrics of one design.

        Raises:
            SimulationError: if the design deadlocks, or its control flow depends on data.
        """
        depths, timed = timed_runs(design.mapping.fpga, known_depths(design, self.depths, self._fronts))
        slowest = max(timed, key=lambda one: one.result.cycles)
        return _metrics(slowest, depths, [int(one.result.cycles) for one in timed])


def _metrics(timed: Timed, depths: Mapping[str, int], cycles: list[int]) -> Metrics:
    """Metrics of the slowest run; `cycles` of every one."""
    mapping, network, result = timed.mapping, timed.network, timed.result
    device, vmg = mapping.device, mapping.vmg
    built = mapping.at(depths)
    total = built.total
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
        dram_bytes=mapping.dram_bytes,
        stream_depths=dict(depths),
        fifo_bits=built.fifo_bits,
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
    return sum(mapping.cost(cls, pid).operations * len(tasks) for cls, pid, tasks, _ in alike_tasks(mapping))
