"""The array as a kind of device: everything that the rest of allo-dse asks of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from allo_dse.backends import Artifacts, Backend, Metrics, Recorded, Sources, Words
from allo_dse.device.device import Device
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.simulator.engine.engine import table_engine
from allo_dse.space.design import Design

from .device import CgraDevice
from .mapping import CgraMapping
from .timing import build, record


class CgraSimulator:
    """Times designs with the simulator."""

    name = "cgra-simulator"
    version = "1"
    quick = True

    def evaluate(self, design: Design) -> Metrics:
        """Return the metrics of one design.

        Raises:
            SimulationError: if data decides on its timing.
            DeadlockError: if it does not end.
        """
        mapping = CgraMapping.of(design)
        timed, device = build(mapping), mapping.device
        result = table_engine().run(timed.network, extrapolate=True)
        result.require_finished(timed.labels)
        port_cycles = timed.dram_bytes / device.dram_bytes_per_cycle
        bound = {"core": max(timed.busy) / result.cycles, "dram": min(1.0, port_cycles / result.cycles)}
        return Metrics(
            latency_cycles=int(result.cycles),
            latency_us=result.cycles / device.clock_mhz,
            pe_count=design.vmg.node_count,
            dram_bytes=timed.dram_bytes,
            bound=bound,
            bottleneck=max(bound, key=lambda name: bound[name]),
            **mapping.facts,
        )


class CgraBackend(Backend):
    """Coarse-grained reconfigurable arrays. What is not defined here has the defaults of `Backend`."""

    kind = "cgra"
    device_model = CgraDevice

    def map(self, vmg: VMG, device: Device, *_: Any) -> CgraMapping:
        """Return a folded graph on the array, which has neither buffering nor schedules."""
        return CgraMapping(vmg, CgraDevice.of(device))

    def evaluator(self, device: Device) -> CgraSimulator:
        """Return the simulator."""
        return CgraSimulator()

    def words(self, design: Design, metrics: Mapping[str, Any]) -> Words:
        """Return the use of the scratchpads."""
        mapping = CgraMapping.of(design)
        share = mapping.scratchpad_bytes.max() / mapping.device.scratchpad_bytes
        return Words("element", (f"uses {share:.0%} of a scratchpad",))

    def capacity(self, device: Device) -> dict[str, float]:
        """Return the elements, and the scratchpad of one."""
        array = CgraDevice.of(device)
        return {"pe_count": float(array.max_nodes), "local_memory_bytes": float(array.scratchpad_bytes)}

    def record(self, design: Design, metrics: Mapping[str, Any]) -> Recorded:
        """Return the run of a design."""
        return record(design)

    def artifacts(self, design: Design, sources: Sources) -> Artifacts:
        """Return the tasks of every element, for the tool that configures the array."""
        program, groups = design.program, design.vmg.groups
        rows = [row for group in groups for row in group.leaves.tasks().tolist()]
        contexts = [[program.task_name(task) for task in row] for row in rows]
        return Artifacts({"cgra.json": json.dumps({"elements": contexts}, indent=1) + "\n"})
