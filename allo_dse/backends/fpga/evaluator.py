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
from allo_dse.device.device import FpgaDevice
from allo_dse.device.fpga_model import RESOURCES
from allo_dse.eval.evaluator import Bounds, Interval, Metrics, versioned
from allo_dse.simulator.engine.run_result import RunResult
from allo_dse.space.design import Design

from .bound_times import ProgramTimes
from .cost.memory import fifo_resources, word_of
from .depths.solver import frame_metrics, known_depths, timed_runs
from .mapping import FpgaMapping
from .network import NAME, SMALLEST_DEPTH, VERSION, FpgaNetwork
from .shared_costs import SharedCosts

if TYPE_CHECKING:
    from allo_dse.simulator.depths.front import DepthFront

# Lower bounds of `FpgaSimulator`'s results: copies, processing elements and paths between them, and resources.
#
# A node takes as long as its tasks take without waiting. Its first task begins when its tiles have been copied and its
# streams have their first token, and the results of its last task are copied afterwards. Resources are known except
# for the stream depths that the evaluator solves; these count with the least resources of any depth.


_ANYTHING = float("inf")
_TIMES = ("latency_cycles", "latency_us", "throughput_gops")
_SHARES = tuple(f"{resource}_utilization" for resource in RESOURCES)


class FpgaBounds:
    """Bounds on results of `FpgaSimulator`: from the copies alone, which depend on no fold, then from everything.

    Args:
        solves: whether depths of streams are found by the evaluator where a design does not say them.
    """

    levels = 2
    metrics = frozenset({*_TIMES, "pe_count", "dram_bytes", "fifo_bits", "utilization", *RESOURCES, *_SHARES})

    def __init__(self, *, solves: bool) -> None:
        self._solves = solves

    def __call__(self, design: Design, level: int) -> Bounds:
        """Return the bounds of the metrics that a level bounds.

        Raises:
            SimulationError: where control depends on data.
        """
        device, nodes = FpgaDevice.of(design.device), design.fold.node_count
        graph, mapping = design.program.vmg.graph, FpgaMapping.of(design) if level else None
        times, shared = graph.once(ProgramTimes, device), graph.once(SharedCosts, device)
        scheduled = mapping.scheduled if mapping else shared.scheduled(design.schedule)
        copies = times.copies(scheduled)
        known: dict[str, Interval] = {"pe_count": (nodes, nodes)}
        if not scheduled.streamed:  # how often tiles of what stays in DRAM come takes long to count
            known["dram_bytes"] = (scheduled.copied_bytes, scheduled.copied_bytes)
        if mapping is None:
            return known | _times(device, copies.cycles)
        paths = times.paths(scheduled)
        known |= _times(device, max(copies.cycles, paths.cycles(mapping.vmg)), paths.own.operations)
        if design.program.runs:  # the evaluator does not report it
            del known["throughput_gops"]
        solved = self._solves and not design.depths
        known |= _resources(mapping, _least_saved(mapping) if solved else {})
        shallow = dict.fromkeys(shared.streams, SMALLEST_DEPTH)
        bits = mapping.bits_at(shallow) if solved else mapping.fifo_bits
        return known | {"fifo_bits": (bits, _ANYTHING if solved and mapping.fifos else bits)}

    def least_cycles(self, mapping: FpgaMapping) -> int:
        """Return a lower bound of a mapping's time at any depths of its streams; 0 if none is known.

        None is known for mappings timed on inputs, with reported times, or with given copy rates.
        """
        if mapping.vmg.program.runs or mapping.measured or mapping.rates:
            return 0
        times = mapping.vmg.graph.once(ProgramTimes, mapping.device)
        return max(times.copies(mapping.scheduled).cycles, times.paths(mapping.scheduled).cycles(mapping.vmg))


def _times(device: FpgaDevice, cycles: int, operations: int | None = None) -> dict[str, Interval]:
    latency_us = cycles / (device.clock_ghz * 1e3)
    most = operations / latency_us * 1e-3 if operations is not None and latency_us else _ANYTHING
    return dict(zip(_TIMES, ((cycles, _ANYTHING), (latency_us, _ANYTHING), (0.0, most)), strict=True))


def _least_saved(mapping: FpgaMapping) -> dict[str, float]:
    """Return the least difference of FIFOs with solved depths from their declared depths, per resource.

    Empty if no depths are solved.
    """
    found = dict.fromkeys(RESOURCES, 0.0) if mapping.fifos else {}
    for name, count in mapping.fifos:
        stream = mapping.shared.streams[name]
        bits, words = word_of(stream)
        built = fifo_resources(mapping.device, bits, stream.depth * words)
        fewest = _least_fifo(mapping.device, bits, SMALLEST_DEPTH * words)
        for resource in RESOURCES:
            found[resource] += count * (fewest[resource] - getattr(built, resource))
    return found


def _resources(mapping: FpgaMapping, saved: Mapping[str, float]) -> dict[str, Interval]:
    """Return total resources and their shares of the device; exact if the depths of streams are known."""
    total, most = mapping.total, _ANYTHING if saved else None
    low = {resource: getattr(total, resource) + saved.get(resource, 0.0) for resource in RESOURCES}
    limits = {resource: mapping.device.limit(resource) for resource in RESOURCES}
    shares = {f"{r}_utilization": round(low[r] / limit, 4) for r, limit in limits.items() if limit}
    shares["utilization"] = max(shares.values())
    return {name: (value, value if most is None else most) for name, value in (low | shares).items()}


def _least_fifo(device: FpgaDevice, bits: int, least: int) -> dict[str, float]:
    """Return the least of each resource that a FIFO of at least `least` elements takes at any depth."""
    rules = device.fifo
    # The resources of one kind of FIFO grow with its depth, so each is least at the smallest depth of some kind.
    first_of_kind = (least, rules.register_depth + 1, rules.shift_bits // bits + 1, rules.lutram_bits // bits + 1)
    kinds = [fifo_resources(device, bits, depth) for depth in first_of_kind if depth >= least]
    return {resource: min(getattr(kind, resource) for kind in kinds) for resource in RESOURCES}


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
        "binding", "stream_depths", "bound", "bottleneck", TIMED_ON, "evaluator",
        "interval_cycles", "sustained", "clock_mhz",
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
        frames = frame_metrics(slowest, at)
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
        **({} if all(run.any_inputs for run in vmg.program.runs) else {TIMED_ON: sets}),
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
