"""The evaluator of FPGA designs: the cost model's intervals and depths, timed by the simulator.

FpgaSimulator().evaluate(design)                    # the smallest stream depths that cost no time
FpgaSimulator(depths="declared").evaluate(design)   # those that the program declares
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from allo_dse.common.errors import SimulationError
from allo_dse.common.records import JsonObject, keep, once, replace
from allo_dse.device.fpga_model import RESOURCES
from allo_dse.eval.evaluator import Metrics, versioned
from allo_dse.simulator.engine.run_result import RunResult
from allo_dse.space.design import Design

from .bounds import FpgaBounds
from .depths.solver import frame_metrics, known_depths, timed_runs
from .mapping import FpgaMapping
from .network import NAME, VERSION, FpgaNetwork

if TYPE_CHECKING:
    from allo_dse.simulator.depths.front import DepthFront

_FRONTS_KEPT = 16

TIMED_ON = "timed_on"
"""Metric: the sets of inputs that a design was timed on, where data decides, and the cycles of each."""


class FpgaSimulator:
    """Times a design on an FPGA and counts its resources.

    Args:
        depths: "solve" for the smallest stream depths that cost no time, or no more than the design allows, where it
            does not say them; "declared" for those of the program. Metrics name them as `stream_depths`.
    """

    name, version = NAME, VERSION
    quick = True
    metrics = FpgaBounds.metrics | {
        "throughput_gops", "binding", "stream_depths", "bound", "bottleneck", TIMED_ON, "evaluator",
    }  # fmt: skip

    def __init__(self, depths: Literal["solve", "declared"] = "solve") -> None:
        self.depths = depths
        self.version = versioned(self.version, declared=depths == "declared")
        self._fronts: dict[str, DepthFront] = {}
        self._bounds = FpgaBounds(solves=depths == "solve")
        self._timings: dict[object, _Timing] = {}

    def bounding(self) -> FpgaBounds:
        """Return the bounds of designs before evaluation."""
        return self._bounds

    def evaluate(self, design: Design) -> Metrics:
        """Metrics of one design.

        Raises:
            SimulationError: if the design deadlocks, or its control flow depends on data.
        """
        mapping = FpgaMapping.of(design)
        depths = known_depths(mapping, self.depths, partial(self._front, design))
        fold = design.vmg.mesh_fold
        if fold is None:
            return _metrics(mapping, self._timed(mapping, depths))
        # Designs may differ in what takes resources and no time.
        key = mapping.shared, fold, mapping.scheduled.timing_key, None if depths is None else tuple(depths.items())
        return _metrics(mapping, once(self._timings, key, lambda: self._timed(mapping, depths)))

    def _front(self, design: Design, mapping: FpgaMapping) -> DepthFront:
        """Return a design's front of cycles against FIFO memory, which all slowdowns share; the latest are kept."""
        from .depths.front import design_depth_front  # with compiled kernels, which few runs need

        key = replace(design, slowdown=None).key
        found = self._fronts.pop(key) if key in self._fronts else design_depth_front(mapping)
        return keep(self._fronts, key, found, _FRONTS_KEPT)

    def _timed(self, mapping: FpgaMapping, depths: Mapping[str, int] | None) -> _Timing:
        at, timed = timed_runs(mapping, depths, self._bounds.least_cycles)
        slowest = max(timed, key=lambda one: one.result.cycles)
        cycles = [int(one.result.cycles) for one in timed]
        frames = frame_metrics(slowest.network.network, slowest.result)
        return _Timing(at, cycles, frames, slowest.mapping.run, _bound(slowest.network, slowest.result))


class _Timing(NamedTuple):
    """Results of a design's runs.

    Attributes:
        depths: of its streams, by array.
        cycles: of each run. frames: see `frame_metrics`.
        slowest: index of the run that takes longest.
        bound: see `_bound`.
    """

    depths: Mapping[str, int]
    cycles: list[int]
    frames: Mapping[str, int | bool]
    slowest: int
    bound: dict[str, float]


def _metrics(mapping: FpgaMapping, timing: _Timing) -> Metrics:
    """Return the metrics of the slowest run; `timed_on` has the cycles of every run."""
    mapping, cycles = mapping.runs[timing.slowest], max(timing.cycles)
    device, vmg = mapping.device, mapping.vmg
    built = mapping.at(timing.depths)
    total = built.total
    latency_us = cycles / (device.clock_ghz * 1e3)
    shares = {r: getattr(total, r) / device.limit(r) for r in RESOURCES if device.limit(r)}
    sets = {"sets": len(timing.cycles), "latency_cycles": list(timing.cycles)}
    return Metrics(
        latency_cycles=cycles,
        latency_us=latency_us,
        **timing.frames,
        clock_mhz=device.clock.mhz,
        **throughput(mapping, latency_us),
        pe_count=vmg.node_count,
        utilization=round(max(shares.values()), 4),
        **{r: getattr(total, r) for r in RESOURCES},
        **{f"{r}_utilization": round(share, 4) for r, share in shares.items()},
        binding=max(shares, key=lambda r: shares[r]),
        dram_bytes=mapping.dram_bytes,
        stream_depths=dict(timing.depths),
        fifo_bits=built.fifo_bits,
        bound=dict(timing.bound),
        bottleneck=max(timing.bound, key=lambda name: timing.bound[name]),
        **({TIMED_ON: sets} if vmg.program.runs else {}),
        evaluator=f"{NAME} {VERSION}",
    )


def throughput(mapping: FpgaMapping, latency_us: float) -> dict[str, float]:
    """Return the throughput; empty if data decides, since executed operations are not counted."""
    try:
        return {} if mapping.vmg.program.runs else {"throughput_gops": mapping.operations / latency_us * 1e-3}
    except SimulationError:
        return {}


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
