"""The simulator as an evaluator of NPU designs: periods are simulated until they repeat, the rest is arithmetic."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property
from typing import NamedTuple

from msgspec import Struct

from allo_dse.common.errors import SimulationError
from allo_dse.common.latest import keep
from allo_dse.device.device import NpuDevice
from allo_dse.mapper.graph.node_schedules import GroupSchedule
from allo_dse.mapper.graph.program_graph import ProgramGraph
from allo_dse.mapper.model.movement import Transport
from allo_dse.mapper.streams.channels import Links
from allo_dse.simulator.engine.engine import table_engine
from allo_dse.simulator.engine.run_result import RunResult
from allo_dse.space.design import Design

from ..evaluator import Metrics
from .accuracy import accuracy_of
from .bounds import NpuBounds
from .network import TEMPLATE_PERIODS, NpuNetwork, build_npu_network
from .network_key import network_key
from .work import TICKS_PER_CYCLE, blocks_of, host_us, macs_of, peak_of

MOST_KNOWN = 4096
"""Networks of a program whose times are kept."""


class _Timed(NamedTuple):
    """What is told of the network of a number of periods. Ticks.

    Attributes:
        ticks: from the first operation to the last.
        core: in a period, of the busiest one.
        channel: in a later period, of the busiest DMA channel.
        dram: of service in the first period, and in a later one.
    """

    ticks: float
    core: float
    channel: float
    dram: tuple[int, int]


class _Block(NamedTuple):
    """What runs between two host interventions: its periods, how long they take, and how many such blocks there are."""

    periods: int
    times: int
    timed: _Timed


class NpuSimulator:
    """Times a design on an NPU: cores, DMA channels, memory tiles and DRAM as processes with exact clocks.

    Between two rewrites of shim descriptors by the host the array runs undisturbed; a rewrite waits until everything
    in flight has arrived. The latency is the host's part of the call, plus the simulated time between rewrites.
    """

    name = "npu-simulator"
    version = "6"
    quick = True

    def bounding(self) -> NpuBounds:
        """What can be said of designs before they are evaluated."""
        return NpuBounds()

    def evaluate(self, design: Design) -> Metrics:
        """Metrics of one design that has passed the device checks.

        Raises:
            SimulationError: if the design deadlocks.
        """
        return self.moved(design, design.mapping.transport)

    def moved(self, design: Design, transport: Transport) -> Metrics:
        """Metrics of a design with another transport plan than its own.

        Raises:
            SimulationError: if the design deadlocks.
        """
        schedules = design.mapping.view.periods
        simulation = _Simulation(design, schedules, design.mapping.view.channels, transport)
        board = NpuDevice.of(design.device).board
        known = design.vmg.graph.once(_times)
        blocks = []
        for periods, times in blocks_of(schedules[0].periods, transport, board):
            key = simulation.key, periods
            timed = known[key] if key in known else keep(known, key, simulation.run(periods), MOST_KNOWN)
            blocks.append(_Block(periods, times, timed))
        return _metrics(design, schedules, transport, blocks)


def _times(graph: ProgramGraph) -> dict[Hashable, _Timed]:
    """Start the table of simulated times by network, as `ProgramGraph.once` keeps it."""
    return {}


class _Simulation(Struct, frozen=True, dict=True):
    """The simulations of one design, which differ in the number of periods only."""

    design: Design
    schedules: tuple[GroupSchedule, ...]
    links: Links
    transport: Transport

    @property
    def key(self) -> bytes:
        """Equal only for designs of the program whose arrays take the same time."""
        device = NpuDevice.of(self.design.device)
        return network_key(self.design.program, self.schedules, self.links, self.transport, device)

    def run(self, periods: int) -> _Timed:
        """What so many periods take."""
        network = self._network(periods)
        result = table_engine().run(network.network, extrapolate=True)
        if not result.finished:
            raise SimulationError(
                f"the design deadlocks: {self._waiting(result)}",
                hint="raise the depths of buffers (`Buffering`), or of the streams where they are declared",
            )
        channel = max(network.channel_ticks.values(), default=0.0)
        core = max(network.core_ticks)
        return _Timed(float(result.cycles), core, channel, network.dram_ticks)

    def _waiting(self, result: RunResult) -> str:
        """Which nodes wait for which streams; nodes that wait for tiles of tensors are counted."""
        assert result.deadlock is not None
        names, channels = self.design.vmg.nodes, sorted(self.links.depth)
        first_stream = result.network.stream_count - 2 * len(channels)
        first_core = result.network.node_count - len(names)
        said, others = [], 0
        for blocked in result.deadlock.cycle or result.deadlock.blocked:
            place = (blocked.stream - first_stream) // 2
            if blocked.node < first_core or place < 0:
                others += 1
                continue
            source, target, name = channels[place]
            way = "room in" if (blocked.stream - first_stream) % 2 else "a token of"
            depth = self.links.depth[channels[place]]
            said.append(f"{names[blocked.node - first_core]} waits for {way} {name} (depth {depth}) "
                        f"from {names[source]} to {names[target]}")  # fmt: skip
        return "; ".join([*said[:4], *([f"{others} wait for tiles of tensors"] if others else [])])

    def _network(self, periods: int) -> NpuNetwork:
        return self._built(periods) if periods < TEMPLATE_PERIODS else self._template.with_periods(periods)

    @cached_property
    def _template(self) -> NpuNetwork:
        return self._built(TEMPLATE_PERIODS)

    def _built(self, periods: int) -> NpuNetwork:
        return build_npu_network(self.schedules, self.links, self.transport, NpuDevice.of(self.design.device), periods)


def _metrics(
    design: Design, schedules: tuple[GroupSchedule, ...], transport: Transport, blocks: list[_Block]
) -> Metrics:
    device = NpuDevice.of(design.device)
    board = device.board
    cycles_per_us = board.clock_ghz * 1e3
    run_us = sum(block.timed.ticks * block.times for block in blocks) / TICKS_PER_CYCLE / cycles_per_us
    waited_us = host_us(design.program, device, transport.host_rewrites)
    latency_us = run_us + waited_us
    macs, cores = macs_of(schedules), design.vmg.node_count
    bound = {name: ticks / TICKS_PER_CYCLE / cycles_per_us / latency_us for name, ticks in _busy_ticks(blocks).items()}
    bound["host"] = waited_us / latency_us
    peak = peak_of([cls for group in schedules for cls in group.class_list], device)
    return Metrics(
        latency_us=latency_us,
        latency_cycles=round(latency_us * cycles_per_us),
        throughput_gops=2 * macs / latency_us * 1e-3,
        pe_count=cores,
        utilization=macs / (peak * cores * latency_us * cycles_per_us) if peak else 0.0,
        local_memory_bytes=design.mapping.local_memory_bytes,
        dram_bytes=transport.dram_bytes,
        bound={name: round(share, 4) for name, share in bound.items()},
        bottleneck=max(bound, key=lambda name: bound[name]),
        latency_range=_latency_range(design, latency_us),
        evaluator=f"{NpuSimulator.name} {NpuSimulator.version}",
    )


def _latency_range(design: Design, latency_us: float) -> dict[str, float]:
    """The latency is right to this many per cent in nine of ten cases, by so many measurements; none: not fitted."""
    known = accuracy_of(design, latency_us)
    return {"measurements": 0} if known is None else {"percent": known.percent, "measurements": known.measurements}


def _busy_ticks(blocks: list[_Block]) -> dict[str, float]:
    """Ticks that the busiest core, DRAM and the busiest DMA channel work over the run."""
    busy = {"compute": 0.0, "DRAM": 0.0, "DMA channel": 0.0}
    for block in blocks:
        busy["compute"] += block.times * block.periods * block.timed.core
        first, steady = block.timed.dram
        busy["DRAM"] += block.times * (first + (block.periods - 1) * steady)
        busy["DMA channel"] += block.times * block.periods * block.timed.channel
    return busy
