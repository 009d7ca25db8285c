"""Lower bounds of `FpgaSimulator`'s results: copies, processing elements and paths between them, and resources.

A node takes as long as its tasks take without waiting. Its first task begins when its tiles have been copied and its
streams have their first token, and the results of its last task are copied afterwards. Resources are known except for
the stream depths that the evaluator solves; these count with the least resources of any depth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from allo_dse.common.records import once
from allo_dse.device.device import FpgaDevice
from allo_dse.device.fpga_model import RESOURCES
from allo_dse.eval.evaluator import Bounds, Interval
from allo_dse.space.design import Design

from .bound_times import ProgramTimes
from .cost.memory import fifo_resources
from .mapping import FpgaMapping
from .network import SMALLEST_DEPTH
from .shared_costs import SharedCosts

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
        self._times: dict[SharedCosts, ProgramTimes] = {}
        self._saved: dict[object, dict[str, float]] = {}

    def __call__(self, design: Design, level: int) -> Bounds:
        """Return the bounds of the metrics that a level bounds.

        Raises:
            SimulationError: where control depends on data.
        """
        device, nodes = FpgaDevice.of(design.device), design.fold.node_count
        shared = SharedCosts.of(design.program.vmg.graph, device)
        times, mapping = self._of(shared), FpgaMapping.of(design) if level else None
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
        known |= _resources(mapping, self._least_saved(mapping) if solved else {})
        shallow = dict.fromkeys(shared.streams, SMALLEST_DEPTH)
        bits = mapping.bits_at(shallow) if solved else mapping.fifo_bits
        return known | {"fifo_bits": (bits, _ANYTHING if solved and mapping.fifos else bits)}

    def least_cycles(self, mapping: FpgaMapping) -> int:
        """Return a lower bound of a mapping's time at any depths of its streams; 0 if none is known.

        None is known for mappings timed on inputs, with reported times, or with given copy rates.
        """
        if mapping.vmg.program.runs or mapping.measured or mapping.rates:
            return 0
        times = self._of(mapping.shared)
        return max(times.copies(mapping.scheduled).cycles, times.paths(mapping.scheduled).cycles(mapping.vmg))

    def _of(self, shared: SharedCosts) -> ProgramTimes:
        return once(self._times, shared, lambda: ProgramTimes(shared))

    def _least_saved(self, mapping: FpgaMapping) -> dict[str, float]:
        """Return the least difference of FIFOs with solved depths from their declared depths, per resource.

        Empty if no depths are solved.
        """
        return once(self._saved, (mapping.shared, mapping.fifos), lambda: _least_saved(mapping))


def _times(device: FpgaDevice, cycles: int, operations: int | None = None) -> dict[str, Interval]:
    latency_us = cycles / (device.clock_ghz * 1e3)
    most = operations / latency_us * 1e-3 if operations is not None and latency_us else _ANYTHING
    return dict(zip(_TIMES, ((cycles, _ANYTHING), (latency_us, _ANYTHING), (0.0, most)), strict=True))


def _least_saved(mapping: FpgaMapping) -> dict[str, float]:
    found = dict.fromkeys(RESOURCES, 0.0) if mapping.fifos else {}
    for name, count in mapping.fifos:
        stream = mapping.shared.streams[name]
        block = math.prod(stream.block)
        built = fifo_resources(mapping.device, stream.dtype.bits, stream.depth * block)
        fewest = _least_fifo(mapping.device, stream.dtype.bits, SMALLEST_DEPTH * block)
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
