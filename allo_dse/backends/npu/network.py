"""The network of processes that times an NPU design: cores, memory-tile and shim DMA channels, and DRAM.

    DRAM ── shim channel ──► memory tile ──► core L1 ──► core ──► L1 ──► memory tile ──► shim channel ── DRAM

Every buffer on the way is an object FIFO: a stream of full slots one way and a stream of free slots the other way.
Reading and writing DRAM are two shared resources, served first come, first served; a shim channel holds one for the
tile's bytes over the board's bandwidth and is itself busy for the tile's bytes over the channel's width. A tile that
several cores need at the same place in their schedules is fetched once and sent to all of them together.

Times are in ticks, `TICKS_PER_CYCLE` to a clock cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from allo_dse.common.records import Frozen
from allo_dse.compiler.program.tensors import IntArray, Tensor
from allo_dse.device.device import NpuDevice
from allo_dse.device.npu_model import Board
from allo_dse.mapper.graph.ports import PortKey
from allo_dse.simulator.network.network import Network, NetworkBuilder
from allo_dse.simulator.network.tables import Table

from .costs import DIRECTIONS, TICKS_PER_CYCLE, TileTicks, channels_of, class_cycles
from .movement.movement import WORD_BYTES, Flow, LayoutPlan, Transfer, Transport
from .movement.periods import Cadence, GroupSchedule, PortSchedule
from .movement.streams import Links, NodeLinks, Step, core_period, slots


class Fifo(NamedTuple):
    """An object FIFO: `full` carries filled slots to the consumer, `free` carries them back."""

    full: int
    free: int


class NpuNetwork(Frozen):
    """The network for some periods of a design.

    Attributes:
        core_ticks: per node the ticks it computes in one period.
        dram_ticks: ticks of DRAM service in the first and in a later period.
        channel_ticks: of the busiest DMA channel in a later period.
    """

    network: Network
    core_ticks: list[float]
    dram_ticks: tuple[int, int]
    channel_ticks: float


@dataclass
class Parts:
    """A network under construction.

    Attributes:
        device: decides the times; None for an exchange of tiles and tokens in which every step takes one tick.
        periods: of the design that is added.
        gates: for each process of the design, a stream from which it takes a token before it begins, and one into which
            it puts a token at its end; None if processes begin at once.
    """

    device: NpuDevice | None
    periods: int = 0
    gates: list[tuple[int, int]] | None = None
    builder: NetworkBuilder = field(default_factory=NetworkBuilder)
    channel_ticks: float = 0.0
    depths: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        for _ in DIRECTIONS:
            self.builder.resource()  # DRAM

    def fifo(self, depth: int) -> Fifo:
        first = 2 * len(self.depths)
        self.depths.append(depth)
        return Fifo(first, first + 1)

    def build(self) -> Network:
        depths, initial = slots(self.depths)
        self.builder.streams(depths, latency=0, initial=initial)
        return self.builder.build()

    def process(self, table: Table, fifos: Iterable[Fifo], resources: Sequence[int] = ()) -> int:
        return self.bind(table, [stream for fifo in fifos for stream in fifo], resources)

    def bind(self, table: Table, streams: Sequence[int], resources: Sequence[int] = ()) -> int:
        if self.gates is not None:
            self.gates.append((self.fifo(1).full, self.fifo(1).full))
            gated = Table()
            gated.get(len(streams))
            gated.words.extend(table.words)
            gated.put(len(streams) + 1)
            gated.resource_ports = table.resource_ports
            table, streams = gated, [*streams, *self.gates[-1]]
        return self.builder.process(table, streams, resources)


def build_npu_network(
    schedules: Sequence[GroupSchedule], links: Links, transport: Transport, device: NpuDevice | None, periods: int
) -> NpuNetwork:
    """The processes of a design, for its first `periods` periods: memory-tile channels, shim channels, cores."""
    parts = Parts(device, periods)
    staged, core_ticks = add_design(parts, schedules, links, transport)
    dram_ticks = max(_dram_ticks(staged, direction) for direction in DIRECTIONS)
    return NpuNetwork(parts.build(), core_ticks, dram_ticks, parts.channel_ticks)


def add_design(
    parts: Parts, schedules: Sequence[GroupSchedule], links: Links, transport: Transport
) -> tuple[list[_Staged], list[float]]:
    """Add a design's processes; returns its flows, and per node the ticks it computes in one period."""
    ends: dict[tuple[int, PortKey], Fifo] = {}
    tables: dict[object, Table] = {}
    staged: list[_Staged] = []
    for moved in timed_flows(schedules, transport, parts.device):
        flow = moved.flow
        staged.append(_Staged(moved, [parts.fifo(moved.transfer.depth) for _ in range(moved.channels)]))
        local = [parts.fifo(flow.depth) for _ in flow.nodes]
        ends.update(zip(zip(flow.nodes, flow.ports, strict=True), local, strict=True))
        _memory_tile_channel(parts, tables, staged[-1], local)
    for transfer in transport.transfers:
        _shim_channel(parts, tables, [staged[f] for f in transfer.flows])
    return staged, _cores(parts, schedules, links, ends, transport.layouts)


class TimedFlow(NamedTuple):
    """A flow with its transfer, how often it moves a tile, how long that takes, and how many channels share it."""

    flow: Flow
    transfer: Transfer
    cadence: Cadence
    ticks: TileTicks
    channels: int


class _Staged(NamedTuple):
    """A flow with its buffer in the memory tile for each shim channel."""

    moved: TimedFlow
    buffers: list[Fifo]


def timed_flows(
    schedules: Sequence[GroupSchedule], transport: Transport, device: NpuDevice | None
) -> Iterator[TimedFlow]:
    """Yield the flows of a plan; without a device, every time is one tick."""
    ports = ports_of_nodes(schedules)
    classes = [cls for group in schedules for cls in group.class_list]
    shared = channels_of(classes, device) if device else dict.fromkeys(DIRECTIONS, 1)
    for flow, transfer in zip(transport.flows, transport.transfer_of_flow, strict=True):
        schedule, own, ticks = ports[flow.nodes[0]][flow.ports[0]], shared[flow.direction], TileTicks(1, 1, 1)
        if device:
            paged = is_paged(transfer, schedule.port.tensor, device.board)
            ticks = TileTicks.of(device, flow.tile_bytes, flow.run_bytes, paged=paged, channels=own)
        yield TimedFlow(flow, transfer, schedule.cadence, ticks, own)


def is_paged(transfer: Transfer, tensor: Tensor, board: Board) -> bool:
    """Return whether a transfer walks down rows of one page each, tile after tile, in a tensor beyond the page reach.

    If the next tile continues the rows of the one before, the loop over rows ends with the tile.
    """
    if tensor.bytes <= board.page_reach_bytes or len(transfer.pattern.dims) < 2:
        return False
    rows, stride_words = transfer.pattern.dims[1]
    rows_of_tile = transfer.tile_bytes // transfer.run_bytes
    return stride_words * WORD_BYTES == board.page_bytes and rows > rows_of_tile


def _dram_ticks(staged: list[_Staged], direction: str) -> tuple[int, int]:
    """Ticks of DRAM service in one direction, in the first and in a later period."""
    amounts = [(m.ticks.dram, m.cadence) for m, _ in staged if m.flow.direction == direction]
    return sum(ticks * cadence.first for ticks, cadence in amounts), sum(t * cadence.steady for t, cadence in amounts)


def ports_of_nodes(schedules: Sequence[GroupSchedule]) -> list[dict[PortKey, PortSchedule]]:
    """Per node its ports; nodes are numbered group after group."""
    return [schedule.by_key for schedule in schedules for _ in range(schedule.group.count)]


def _memory_tile_channel(parts: Parts, tables: dict[object, Table], staged: _Staged, local: list[Fifo]) -> None:
    """The memory-tile channel of one flow: to all its cores at once, or from its core."""
    flow, cadence, ticks = staged.moved.flow, staged.moved.cadence, staged.moved.ticks.channel
    key = (flow.direction, ticks, cadence, len(local))
    fifos = [*staged.buffers, *local]
    if key not in tables:
        table = tables[key] = Table()
        count = len(staged.buffers)
        buffers, cores = tuple(range(count)), tuple(range(count, len(fifos)))
        step = Step(((buffers, cores) if flow.direction == "in" else (cores, buffers),), ticks)
        with table.repeat(cadence.over(parts.periods)):
            step.write(table, 0)
    parts.process(tables[key], fifos)
    parts.channel_ticks = max(parts.channel_ticks, float(ticks * cadence.steady))


def _shim_channel(parts: Parts, tables: dict[object, Table], flows: list[_Staged]) -> None:
    """The shim channels of a transfer, which share each tile: the tiles of its flows by turns."""
    (flow, _, cadence, _, _), _ = flows[0]
    key = (flow.direction, cadence, tuple(moved.ticks for moved, _ in flows))
    if key not in tables:
        # A channel processes its descriptors in a fixed order, so its flows, which share one sequence of tiles, take
        # turns. In another order a core could wait for a tile that is queued behind one without room yet.
        table = tables[key] = Table()
        inwards = flow.direction == "in"
        with table.repeat(cadence.over(parts.periods)):
            for position, (moved, buffers) in enumerate(flows):
                table.get(2 * position + inwards)
                dram = moved.ticks.dram // len(buffers)
                table.request(0, dram)
                table.wait(moved.ticks.shim - dram)  # DRAM serves the tile while the channel is busy with it
                table.put(2 * position + (not inwards))
    for fifos in zip(*(staged.buffers for staged in flows), strict=True):
        parts.process(tables[key], fifos, [DIRECTIONS.index(flow.direction)])
    parts.channel_ticks = max(parts.channel_ticks, float(cadence.steady * sum(m.ticks.shim for m, _ in flows)))


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
        ticks = _core_ticks(schedule, layouts, parts.device)
        tables = [_core_table(parts.periods, schedule, of_node, externals) for of_node in ticks]
        for row in range(schedule.group.count):
            own = [ends[node, port.key] for port in schedule.ports]
            own += [fifos[channel] for channel in externals.channels[row]]
            at = row if len(tables) > 1 else 0
            parts.process(tables[at], own)
            result.append(float(ticks[at].sum()))
            node += 1
    return result


def _core_ticks(schedule: GroupSchedule, layouts: LayoutPlan, device: NpuDevice | None) -> IntArray:
    """Return the ticks of each leaf of a period, for each node of the group or, in one row, for all of them."""
    if device is None:
        return np.ones((1, len(schedule.classes)), np.int64)
    cycles = schedule.priced(lambda cls: class_cycles(cls, device, layouts.free_sites(cls)))
    return np.rint(cycles * TICKS_PER_CYCLE).astype(np.int64)


def _core_table(periods: int, schedule: GroupSchedule, ticks: IntArray, external: NodeLinks) -> Table:
    """Return the operations of a core: the first period, then the repeated steady one."""
    table = Table()
    same = all(np.array_equal(port.first, port.steady) for port in schedule.ports)
    for is_steady, repeats in ((False, periods if same else 1), (True, 0 if same else periods - 1)):
        with table.repeat(repeats):
            core_period(table, schedule, ticks, external, is_steady)
    return table
