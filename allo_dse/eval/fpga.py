"""The evaluator of FPGA designs: the cost model's intervals and depths, timed by the simulator.

FpgaSimulator().evaluate(design)                    # the smallest stream depths that cost no time
FpgaSimulator(depths="declared").evaluate(design)   # those that the program declares
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from ..backends.device import FpgaDevice
from ..backends.fpga_model import RESOURCES
from ..errors import SimulationError
from ..mapper.fpga import FpgaMapping
from ..space.design import Design
from .evaluator import Metrics
from .simulator.engine import table_engine
from .simulator.fpga_network import FpgaNetwork, fpga_network
from .simulator.network import SHIFT_REGISTER_DEPTH
from .simulator.result import RunResult

_DEEP = 1 << 16  # room where the number of tokens is not known
_LEAST = 2  # a depth of 1 saves nothing: registers hold two


class FpgaSimulator:
    """Times a design on an FPGA and counts its resources.

    Args:
        depths: "solve" for the smallest stream depths that cost no time, where the design does not say; "declared" for
            those of the program. Metrics name them as `stream_depths`.
    """

    name = "fpga-simulator"
    version = "1"

    def __init__(self, depths: Literal["solve", "declared"] = "solve") -> None:
        self.depths = depths

    def evaluate(self, design: Design) -> Metrics:
        """Metrics of one design.

        Raises:
            SimulationError: if the design deadlocks, or its control flow depends on data.
        """
        device = FpgaDevice.of(design.device)
        mapping = FpgaMapping(design.vmg, device, design.schedule, dict(design.depths))
        depths = dict(design.depths)
        if self.depths == "solve" and not depths:
            depths, network, result = solve_depths(mapping)
        else:
            network, result = run(mapping, depths)
        return _metrics(mapping, depths, network, result)


def run(mapping: FpgaMapping, depths: Mapping[str, int]) -> tuple[FpgaNetwork, RunResult]:
    """Simulate a mapping at these depths.

    Raises:
        DeadlockError: naming the tasks and streams that wait for each other.
    """
    network = fpga_network(mapping, depths)
    result = table_engine().run(network.network)
    if not result.finished:
        raise SimulationError(
            "the design deadlocks at its stream depths", hint="leave the depths to the evaluator: FpgaSimulator()"
        )
    return network, result


def solve_depths(mapping: FpgaMapping) -> tuple[dict[str, int], FpgaNetwork, RunResult]:
    """Per stream array the smallest depth at which no token ever waits for room, and the run at these depths.

    Streams with room for everything show how many tokens they come to hold; no put waits at that depth.

    Raises:
        SimulationError: for a program that deadlocks at any depth.
    """
    program = mapping.vmg.program
    network, result = run(mapping, _room_for_everything(mapping))
    held = np.zeros(len(program.streams), np.int64)
    np.maximum.at(held, network.wiring.array, result.occupancy[: network.fifos])
    depths = {stream.name: max(_LEAST, int(n)) for stream, n in zip(program.streams, held, strict=True)}
    if all(depth > SHIFT_REGISTER_DEPTH for depth in depths.values()):
        return depths, network, result  # the same read latencies: nothing changes
    return depths, *run(mapping, depths)


def _room_for_everything(mapping: FpgaMapping) -> dict[str, int]:
    tokens: dict[str, int] = {}
    for kernel in mapping.vmg.program.kernels:
        for task_class in kernel.classes:
            for port in task_class.stream_ports:
                tokens[port.stream.name] = max(tokens.get(port.stream.name, 0), port.tokens or _DEEP)
    merged = -(-mapping.vmg.task_count // max(1, mapping.vmg.node_count))  # streams that a fold makes one
    return {s.name: max(SHIFT_REGISTER_DEPTH + 1, merged * tokens.get(s.name, 0)) for s in mapping.vmg.program.streams}


def _metrics(mapping: FpgaMapping, depths: Mapping[str, int], network: FpgaNetwork, result: RunResult) -> Metrics:
    device, vmg = mapping.device, mapping.vmg
    used = FpgaMapping(vmg, device, mapping.schedule, depths)
    total = used.total
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
        evaluator=f"{FpgaSimulator.name} {FpgaSimulator.version}",
    )


def _bound(network: FpgaNetwork, result: RunResult) -> dict[str, float]:
    """Share of the time that the busiest processing element works, and that the busiest tensor is copied."""
    node_of = network.network.task_node
    stalls = result.stall_get + result.stall_put + result.stall_request
    work = np.asarray(result.node_end - stalls, float) / max(1, result.cycles)
    tasks = np.unique(node_of[network.task])
    movers = [int(node_of[mover]) for mover in network.movers]
    shares: dict[str, Any] = {"compute": work[tasks].max() if len(tasks) else 0.0}
    if movers:
        shares["DRAM"] = work[movers].max()
    return {name: round(float(share), 4) for name, share in shares.items()}


def operations(mapping: FpgaMapping) -> int:
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
