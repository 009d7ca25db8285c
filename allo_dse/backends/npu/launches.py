"""NPUs for networks: operators side by side on columns, launched one set after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from allo_dse.common.errors import SimulationError
from allo_dse.device.device import NpuDevice
from allo_dse.eval.launches import LaunchedDesign, Launches
from allo_dse.simulator.engine.engine import table_engine
from allo_dse.simulator.network.tables import Table

from .costs import TICKS_PER_CYCLE, host_us
from .evaluator import overdue
from .mapping import NpuMapping
from .network import Parts, add_design


class NpuLaunches(Launches):
    """Launches on an NPU. Any neighbouring columns will do for a design of as many columns."""

    device: NpuDevice

    def __init__(self, device: NpuDevice) -> None:
        super().__init__(device)
        self.columns = device.array.columns
        self.limits = (device.array.columns,)
        self.call_us, self.between_us = device.launch_us, device.board.relaunch_us
        self.dram_gb_s = device.board.dram_gb_s

    def configuring_us(self, target: str, runtime: str = "calls") -> float:
        """Allo's host program configures the array for every call, by another xclbin or by control packets."""
        board = self.device.board
        ways = {"calls": board.reconfigure_us, "packets": board.control_packets_us}
        return ways.get(runtime, 0.0) if target == "allo" else 0.0

    def overdue(self, call_us: float) -> str:
        """Return a warning about a call that the driver aborts."""
        return overdue(self.device, call_us)

    def parts(self) -> Iterator[tuple[int, NpuDevice]]:
        """Yield the powers of two up to the number of columns, three quarters of eight or more, and all of them."""
        most = self.columns
        powers = {1 << power for power in range(most.bit_length())}
        for width in sorted(powers | {most, 3 * most // 4 if most > 4 else 1}):
            array = self.device.array.model_copy(update={"columns": width})
            yield width, self.device.model_copy(update={"array": array})

    def bandwidth(self, latency_us: float, dram_bytes: int, bound: Mapping[str, float]) -> float:
        """Return the share of time in which the DRAM is busy, in its busier direction."""
        return bound.get("DRAM", 0.0)

    def ends_us(self, parts: Sequence[LaunchedDesign]) -> list[float]:
        """Simulate parts of a launch together, tile by tile over one DRAM."""
        return ends_together(parts, self.device)


# Designs that run concurrently on columns of their own, simulated together: they share DRAM and wait for each other.


def ends_together(parts: Sequence[LaunchedDesign], device: NpuDevice) -> list[float]:
    """Return the end of each part, in microseconds after the first could begin.

    Each design's call takes the host as long as it does alone. That includes the host's rewrites of descriptors: what
    they interrupt alone, they do not interrupt here.

    Raises:
        SimulationError: if the designs wait for each other for ever.
    """
    built, per_us = Parts(device), TICKS_PER_CYCLE * device.board.clock_ghz * 1e3
    links = {(before, at): built.fifo(1).full for at, part in enumerate(parts) for before in part.after}
    callers = []
    for at, part in enumerate(parts):
        gates: list[tuple[int, int]] = []
        mapping = NpuMapping.of(part.design)
        built.gates, built.periods = gates, mapping.view.periods[0].periods
        add_design(built, mapping.view.periods, mapping.view.channels, mapping.transport)
        built.gates = None
        wait_us = part.wait_us + host_us(part.design.program, device, mapping.transport.host_rewrites)
        before = [links[one, at] for one in part.after]
        following = [stream for (one, _), stream in links.items() if one == at]
        taken, given = [*before, *(end for _, end in gates)], [*(begin for begin, _ in gates), *following]
        table = _caller(len(before), len(gates), len(following), round(wait_us * per_us))
        callers.append(built.bind(table, [*taken, *given]))
    result = table_engine().run(built.build(), extrapolate=True)
    if not result.finished:
        raise SimulationError("designs of one launch wait for each other for ever")
    return [float(result.node_end[caller]) / per_us for caller in callers]


def _caller(before: int, processes: int, following: int, ticks: int) -> Table:
    """Return the host's operations: wait for predecessors, start all processes, signal successors when these end.

    Ports are those that tokens are taken from, then those into which they are put, each in that order.
    """
    table, given = Table(), before + processes
    for port in range(before):
        table.get(port)
    table.wait(ticks)
    for port in range(given, given + processes):
        table.put(port)
    for port in range(before, given):
        table.get(port)
    for port in range(given + processes, given + processes + following):
        table.put(port)
    return table
