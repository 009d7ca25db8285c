"""The network of processes that times an NPU design: cores, memory-tile and shim DMA channels, and DRAM.

    DRAM ── shim channel ──► memory tile ──► core L1 ──► core ──► L1 ──► memory tile ──► shim channel ── DRAM

Every buffer on the way is an object FIFO: a stream of full slots one way and a stream of free slots the other way.
Reading and writing DRAM are two shared resources, served first come, first served; a shim channel holds one for the
tile's bytes over the board's bandwidth and is itself busy for the tile's bytes over the channel's width. A tile that
several cores need at the same place in their schedules is fetched once and sent to all of them together.

Times are in ticks, `TICKS_PER_CYCLE` to a clock cycle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from msgspec import Struct

from allo_dse.common.errors import SimulationError
from allo_dse.common.records import replace
from allo_dse.compiler.program.tensors import IntArray, Tensor
from allo_dse.device.device import NpuDevice
from allo_dse.device.npu_model import Board
from allo_dse.eval.launches import Part
from allo_dse.mapper.graph.ports import PortKey
from allo_dse.simulator.engine.engine import table_engine
from allo_dse.simulator.network.network import Network, NetworkBuilder, Processes
from allo_dse.simulator.network.tables import Table
from allo_dse.simulator.run_time.records import Op

from .costs import DIRECTIONS, TICKS_PER_CYCLE, TileTicks, channels_of, class_cycles, host_us
from .mapping import NpuMapping
from .movement.movement import WORD_BYTES, Flow, LayoutPlan, Transfer, Transport
from .movement.periods import Cadence, GroupSchedule, PortSchedule
from .movement.streams import Links, NodeLinks, core_period


class Fifo(Struct, frozen=True):
    """An object FIFO: `full` carries filled slots to the consumer, `free` carries them back."""

    full: int
    free: int


class NpuNetwork(Struct, frozen=True):
    """The network for `periods` periods of a design.

    Attributes:
        counts: rows of the operation tables whose count grows with the number of periods, and by how much for each.
        core_ticks: per node the ticks it computes in one period.
        dram_ticks: ticks of DRAM service in the first and in a later period.
        channel_ticks: per process (DMA channels only) ticks of transfer in a later period.
    """

    network: Network
    periods: int
    counts: dict[int, int]
    core_ticks: list[float]
    dram_ticks: tuple[int, int]
    channel_ticks: dict[int, float]

    def with_periods(self, periods: int) -> NpuNetwork:
        """The same network for another number of periods; both numbers are at least `TEMPLATE_PERIODS`."""
        more = periods - self.periods
        rows = self.network.rows.copy()
        rows.reshape(-1, int(Op.SIZE))[list(self.counts), Op.VALUE] += more * np.array(
            list(self.counts.values()), np.int64
        )
        return replace(self, network=replace(self.network, rows=rows), periods=periods)


TEMPLATE_PERIODS = 3
"""From this number of periods on, networks of a design differ only in counts."""


@dataclass
class Parts:
    """A network under construction.

    Attributes:
        periods: of the design that is added.
        gates: for each process of the design, a stream from which it takes a token before it begins, and one into which
            it puts a token at its end; None if processes begin at once.
    """

    device: NpuDevice
    periods: int = 0
    gates: list[tuple[int, int]] | None = None
    builder: NetworkBuilder = field(default_factory=NetworkBuilder)
    channel_ticks: dict[int, float] = field(default_factory=dict)
    depths: list[int] = field(default_factory=list)
    counts: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)

    def __post_init__(self) -> None:
        for _ in DIRECTIONS:
            self.builder.resource()  # DRAM

    @contextmanager
    def repeat(self, table: Table, count: int, per_period: int) -> Iterator[None]:
        """Repeat what is added inside, noting that the count grows by `per_period` with every period."""
        with table.repeat(count):
            yield
        if count > 1 and per_period:
            self.counts.setdefault(id(table), []).append((len(table) - 1, per_period))

    def fifo(self, depth: int) -> Fifo:
        first = 2 * len(self.depths)
        self.depths.append(depth)
        return Fifo(first, first + 1)

    def build(self) -> Network:
        depths = np.repeat(np.array(self.depths, np.int64), 2)
        initial = depths.copy()
        initial[::2] = 0
        self.builder.streams(depths, latency=0, initial=initial)
        return self.builder.build()

    def counted_rows(self, network: Network) -> dict[int, int]:
        """Rows of the built network with the increase of their counts per period."""
        (processes,) = network.groups
        assert isinstance(processes, Processes)
        firsts = zip(self.tables, processes.first_row.tolist(), strict=True)
        return {first + row: slope for table, first in firsts for row, slope in self.counts.get(id(table), ())}

    def process(self, table: Table, streams: Sequence[int], resources: Sequence[int] = ()) -> int:
        if self.gates is not None:
            self.gates.append((self.fifo(1).full, self.fifo(1).full))
            table, streams = _behind_gate(table, len(streams)), [*streams, *self.gates[-1]]
        self.tables.append(table)
        return self.builder.process(table, streams, resources)


def _behind_gate(table: Table, port: int) -> Table:
    """The table, with a token taken from one port before and one put into the next one after."""
    gated = Table()
    gated.get(port)
    gated.words.extend(table.words)
    gated.put(port + 1)
    gated.resource_ports = table.resource_ports
    return gated


def build_npu_network(
    schedules: Sequence[GroupSchedule], links: Links, transport: Transport, device: NpuDevice, periods: int
) -> NpuNetwork:
    """The processes of a design, for its first `periods` periods."""
    parts = Parts(device, periods)
    staged, core_ticks = add_design(parts, schedules, links, transport)
    network = parts.build()
    return NpuNetwork(
        network=network,
        periods=periods,
        counts=parts.counted_rows(network),
        core_ticks=core_ticks,
        dram_ticks=max(_dram_ticks(staged, direction) for direction in ("in", "out")),
        channel_ticks=parts.channel_ticks,
    )


def add_design(
    parts: Parts, schedules: Sequence[GroupSchedule], links: Links, transport: Transport
) -> tuple[list[_Staged], list[float]]:
    """Add a design's processes; returns its flows, and per node the ticks it computes in one period."""
    device = parts.device
    ports = ports_of_nodes(schedules)
    ends: dict[tuple[int, PortKey], Fifo] = {}
    tables: dict[tuple[str, int, Cadence, int], Table] = {}
    staged: list[_Staged] = []
    shared = channels_of((cls for group in schedules for cls in group.class_list), device)
    for flow, transfer in zip(transport.flows, transport.transfer_of_flow, strict=True):
        schedule = ports[flow.nodes[0]][flow.ports[0]]
        paged = is_paged(transfer, schedule.port.tensor, device.board)
        own = shared[flow.direction]
        ticks = TileTicks.of(device, flow.tile_bytes, flow.run_bytes, paged=paged, channels=own)
        staged.append(_Staged(flow, schedule, [parts.fifo(transfer.depth) for _ in range(own)], ticks))
        local = [parts.fifo(flow.depth) for _ in flow.nodes]
        ends.update(zip(zip(flow.nodes, flow.ports, strict=True), local, strict=True))
        _memory_tile_channel(parts, tables, staged[-1], local)
    channels: dict[tuple[str, Cadence, tuple[TileTicks, ...]], tuple[Table, float]] = {}
    for transfer in transport.transfers:
        _shim_channel(parts, channels, [staged[f] for f in transfer.flows])
    return staged, _cores(parts, schedules, links, ends, transport.layouts)


class _Staged(Struct, frozen=True):
    """A flow with its schedule, its buffer in the memory tile for each shim channel, and the times of a tile."""

    flow: Flow
    schedule: PortSchedule
    buffers: list[Fifo]
    ticks: TileTicks


def is_paged(transfer: Transfer, tensor: Tensor, board: Board) -> bool:
    """Return whether a transfer walks down rows of one page each, tile after tile, in a tensor beyond the page reach.

    If the next tile continues the rows of the one before, the loop over rows ends with the tile.
    """
    if (transfer.lies_in_bytes or tensor.bytes) <= board.page_reach_bytes or len(transfer.pattern.dims) < 2:
        return False
    rows, stride_words = transfer.pattern.dims[1]
    rows_of_tile = transfer.tile_bytes // transfer.run_bytes
    return stride_words * WORD_BYTES == board.page_bytes and rows > rows_of_tile


def _dram_ticks(staged: list[_Staged], direction: str) -> tuple[int, int]:
    """Ticks of DRAM service in one direction, in the first and in a later period."""
    amounts = [(s.ticks.dram, s.schedule.cadence) for s in staged if s.flow.direction == direction]
    return sum(ticks * cadence.first for ticks, cadence in amounts), sum(t * cadence.steady for t, cadence in amounts)


def ports_of_nodes(schedules: Sequence[GroupSchedule]) -> list[dict[PortKey, PortSchedule]]:
    """Per node its ports; nodes are numbered group after group."""
    return [schedule.by_key for schedule in schedules for _ in range(schedule.group.count)]


def _memory_tile_channel(
    parts: Parts, tables: dict[tuple[str, int, Cadence, int], Table], staged: _Staged, local: list[Fifo]
) -> None:
    """The memory-tile channel of one flow: to all its cores at once, or from its core."""
    flow, schedule, ticks = staged.flow, staged.schedule, staged.ticks.channel
    key = (flow.direction, ticks, schedule.cadence, len(local))
    fifos = [*staged.buffers, *local]
    if key not in tables:
        ports = list(range(0, 2 * len(fifos), 2))
        buffers, cores = ports[: len(staged.buffers)], ports[len(staged.buffers) :]
        sources, targets = (buffers, cores) if flow.direction == "in" else (cores, buffers)
        tables[key] = _transfer_table(parts, schedule, ticks, sources, targets)
    streams = [stream for fifo in fifos for stream in (fifo.full, fifo.free)]
    process = parts.process(tables[key], streams)
    parts.channel_ticks[process] = float(ticks * schedule.cadence.steady)


def _transfer_table(parts: Parts, schedule: PortSchedule, ticks: int, sources: list[int], targets: list[int]) -> Table:
    """Move tiles from FIFOs to FIFOs; a FIFO at port p has its full slots there and its free ones at p + 1."""
    table = Table()
    with parts.repeat(table, schedule.cadence.over(parts.periods), schedule.cadence.steady):
        for port in sources:
            table.get(port)
        for port in targets:
            table.get(port + 1)
        table.wait(ticks)
        for port in targets:
            table.put(port)
        for port in sources:
            table.put(port + 1)
    return table


def _shim_channel(
    parts: Parts,
    channels: dict[tuple[str, Cadence, tuple[TileTicks, ...]], tuple[Table, float]],
    flows: list[_Staged],
) -> None:
    """The shim channels of a transfer, which share each tile: the tiles of its flows by turns."""
    key = (flows[0].flow.direction, flows[0].schedule.cadence, tuple(f.ticks for f in flows))
    if key not in channels:
        channels[key] = _shim_table(parts, flows)
    table, ticks = channels[key]
    memory = [DIRECTIONS.index(flows[0].flow.direction)]
    for buffers in zip(*(staged.buffers for staged in flows), strict=True):
        process = parts.process(table, [stream for fifo in buffers for stream in (fifo.full, fifo.free)], memory)
        parts.channel_ticks[process] = ticks


def _shim_table(parts: Parts, flows: list[_Staged]) -> tuple[Table, float]:
    """Return the operations of a shim channel, and the ticks of its moves in a steady period."""
    # A channel processes its descriptors in a fixed order, so its flows, which share one sequence of tiles, take turns.
    # In another order a core could wait for a tile that is queued behind one without room yet.
    table, cadence = Table(), flows[0].schedule.cadence
    with parts.repeat(table, cadence.over(parts.periods), cadence.steady):
        for position, staged in enumerate(flows):
            ticks = staged.ticks
            taken, given = (1, 0) if staged.flow.direction == "in" else (0, 1)
            table.get(2 * position + taken)
            dram = ticks.dram // len(staged.buffers)
            table.request(0, dram)
            table.wait(ticks.shim - dram)  # DRAM serves the tile within the time that the channel is busy with it
            table.put(2 * position + given)
    return table, float(cadence.steady * sum(staged.ticks.shim for staged in flows))


def _cores(
    parts: Parts,
    schedules: Sequence[GroupSchedule],
    links: Links,
    ends: dict[tuple[int, PortKey], Fifo],
    layouts: LayoutPlan,
) -> list[float]:
    """One process per node. Returns the ticks each computes in one period."""
    fifos = {channel: parts.fifo(depth) for channel, depth in sorted(links.depth.items())}
    result, node = [], 0
    for schedule, externals in zip(schedules, links.groups, strict=True):
        cycles = schedule.priced(lambda cls: class_cycles(cls, parts.device, layouts.free_sites(cls)))
        ticks = np.rint(cycles * TICKS_PER_CYCLE).astype(np.int64)
        tables = [_core_table(parts, schedule, of_node, externals) for of_node in ticks]
        for row in range(schedule.group.count):
            own = [ends[node, port.key] for port in schedule.ports]
            own += [fifos[channel] for channel in externals.channels[row]]
            streams = [stream for fifo in own for stream in (fifo.full, fifo.free)]
            at = row if len(tables) > 1 else 0
            parts.process(tables[at], streams)
            result.append(float(ticks[at].sum()))
            node += 1
    return result


def _core_table(parts: Parts, schedule: GroupSchedule, ticks: IntArray, external: NodeLinks) -> Table:
    """Return the operations of a core: the first period, then the repeated steady one."""
    table = Table()
    same = all(np.array_equal(port.first, port.steady) for port in schedule.ports)
    first, steady = (parts.periods, 0) if same else (1, parts.periods - 1)
    for is_steady, repeats, per_period in ((False, first, int(same)), (True, steady, int(not same))):
        with parts.repeat(table, repeats, per_period):
            core_period(table, schedule, ticks, external, is_steady)
    return table


# Designs that run concurrently on columns of their own, simulated together: they share DRAM and wait for each other.


def ends_together(parts: Sequence[Part], device: NpuDevice) -> list[float]:
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
        transport = part.transport or mapping.transport
        add_design(built, mapping.view.periods, mapping.view.channels, transport)
        built.gates = None
        wait_us = part.wait_us + host_us(part.design.program, device, transport.host_rewrites)
        before = [links[one, at] for one in part.after]
        following = [stream for (one, _), stream in links.items() if one == at]
        taken, given = [*before, *(end for _, end in gates)], [*(begin for begin, _ in gates), *following]
        table = _caller(len(before), len(gates), len(following), round(wait_us * per_us))
        callers.append(built.process(table, [*taken, *given]))
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
