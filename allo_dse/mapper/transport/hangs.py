"""Whether nodes wait for each other because their tiles come over one channel.

A tile that several nodes take is sent when all of them have room for it, and flows of one shim channel take turns. So a
node that is behind holds up the others; where it waits for one of these itself, nothing goes on:

    x: 4 tiles of A, then 4 of B        A goes to x and y, and so does B: y has no room for the third tile of A before
    y: 4 tiles of B, then 4 of A        it has had all of B, and x none for the third of B before it has had all of A

Nodes of one role do the same at the same time, if none has to wait for another of them. While channels lead to one port
of one role each, that is so, and nothing is held up; else what nodes and channels do is executed, without costs.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from allo_dse.simulator.engine.engine import table_engine
from allo_dse.simulator.network.network import NetworkBuilder
from allo_dse.simulator.network.tables import Table

from ..graph.node_schedules import GroupSchedule
from ..graph.ports import PortKey
from ..model.movement import Channel, Transfer, Transport
from ..streams.channels import Links
from ..streams.core_period import core_period
from ..streams.leaf_steps import Step
from ..streams.view import MappingView

Peers = Sequence[Sequence[tuple[Hashable, int, Hashable]]]
"""Per node its channels: which of its own it is, the node at the other end, and which of that node's."""


def waiting(view: MappingView, transport: Transport) -> tuple[str | int, ...]:
    """What waits, each for the next, and the last for the first: nodes, by number, and channels, in words; empty when
    all tiles arrive. Of a graph whose streams alone do not hold each other up, with all tiles on their way."""
    shared = [t for t in transport.transfers if len(t.flows) > 1 or len(transport.flows[t.flows[0]].nodes) > 1]
    if not shared:
        return ()
    peers = _peers_by_array(view)
    if _in_step(shared, transport, roles(view, _peers_by_use(view) if peers is None else peers)):
        return ()
    return _Exchange().run(view.periods, view.channels, transport)


def roles(view: MappingView, peers: Peers) -> list[int]:
    """Per node a number, equal for nodes that do the same, on channels from and to nodes of equal roles."""
    result, count = _numbered(_work(view)), 0
    while len(set(result)) > count:
        count = len(set(result))
        told = (
            (r, *((at, result[peer], there) for at, peer, there in own)) for r, own in zip(result, peers, strict=True)
        )
        result = _numbered(told)
    return result


def _work(view: MappingView) -> Iterator[Hashable]:
    """Per node what decides when it needs other tiles and exchanges tokens: its group, wiring and tile patterns."""
    for number, (group, wirings) in enumerate(zip(view.groups, view.declared_links.wirings, strict=True)):
        wired = {at: kind for kind, (_, nodes) in enumerate(wirings) for at in nodes.tolist()}
        ports = [[pattern.identity for _, pattern in group.ports.sequences(key)] for key in group.users]
        for at in range(group.group.count):
            yield number, wired.get(at), *(patterns[at] for patterns in ports)


def _peers_by_array(view: MappingView) -> Peers | None:
    """The channels by array; None where a node gets from several nodes through one, or puts to several."""
    found: list[dict[tuple[str, bool], int]] = [{} for _ in range(view.vmg.node_count)]
    streams = view.declared_links.between
    for stream in streams:
        found[stream.source][stream.stream, True] = stream.target
        found[stream.target][stream.stream, False] = stream.source
    if sum(map(len, found)) < 2 * len(streams):
        return None
    return [sorted(((name, puts), peer, (name, not puts)) for (name, puts), peer in own.items()) for own in found]


def _peers_by_use(view: MappingView) -> Peers:
    """The channels in the order in which nodes use them."""
    own = [channels for group in view.channels.groups for channels in group.channels]
    at = {(node, channel): number for node, channels in enumerate(own) for number, channel in enumerate(channels)}

    def peer(node: int, channel: Channel) -> tuple[Hashable, int, Hashable]:
        source, target, name = channel
        other = source + target - node
        return (name, node == source), other, at[other, channel]

    return [[peer(node, channel) for channel in channels] for node, channels in enumerate(own)]


def _numbered(values: Iterable[Hashable]) -> list[int]:
    number: dict[Hashable, int] = {}
    return [number.setdefault(value, len(number)) for value in values]


def _in_step(shared: Sequence[Transfer], transport: Transport, role: Sequence[int]) -> bool:
    """Whether every transfer leads to, or from, one port of nodes of one role."""
    for transfer in shared:
        flows = [transport.flows[number] for number in transfer.flows]
        ends = {(role[node], port) for flow in flows for node, port in zip(flow.nodes, flow.ports, strict=True)}
        if len(ends) > 1:
            return False
    return True


@dataclass
class _Exchange:
    """What nodes, memory-tile channels and shim channels do; every FIFO is two streams, full slots and free ones.

    Attributes:
        depths: of the FIFOs; FIFO n is streams 2n and 2n + 1.
        names: of the processes: the numbers of nodes, or what a channel moves.
    """

    builder: NetworkBuilder = field(default_factory=NetworkBuilder)
    depths: list[int] = field(default_factory=list)
    names: list[str | int] = field(default_factory=list)

    def run(self, schedules: Sequence[GroupSchedule], links: Links, transport: Transport) -> tuple[str | int, ...]:
        """What waits for each other, as `waiting` says it."""
        ends: dict[tuple[int, PortKey], int] = {}
        by_node = [schedule for schedule in schedules for _ in range(schedule.group.count)]
        for transfer in transport.transfers:
            flows = [transport.flows[number] for number in transfer.flows]
            cadence = by_node[flows[0].nodes[0]].by_key[flows[0].ports[0]].cadence
            moves, inwards = cadence.over(schedules[0].periods), transfer.direction == "in"
            staged = [self._fifo(transfer.depth) for _ in flows]
            for flow, buffer in zip(flows, staged, strict=True):
                local = [self._fifo(flow.depth) for _ in flow.nodes]
                ends.update(zip(zip(flow.nodes, flow.ports, strict=True), local, strict=True))
                name = f"{flow.tensor} to {len(flow.nodes)} nodes" if inwards else flow.tensor
                self._channel(name, moves, *(([buffer], local) if inwards else (local, [buffer])))
            self._turns(f"{transfer.tensor} of {len(flows)} flows", moves, staged, given=inwards)
        self._nodes(schedules, links, ends)
        depths = np.repeat(np.array(self.depths, np.int64), 2)
        initial = depths.copy()
        initial[::2] = 0
        self.builder.streams(depths, latency=0, initial=initial)
        result = table_engine().run(self.builder.build(), extrapolate=True)
        if result.finished:
            return ()
        assert result.deadlock is not None
        return tuple(self.names[blocked.node] for blocked in result.deadlock.cycle or result.deadlock.blocked)

    def _fifo(self, depth: int) -> int:
        self.depths.append(depth)
        return len(self.depths) - 1

    def _process(self, name: str | int, table: Table, fifos: Sequence[int]) -> None:
        self.names.append(name)
        self.builder.process(table, [stream for n in fifos for stream in (2 * n, 2 * n + 1)])

    def _channel(self, name: str, moves: int, sources: list[int], targets: list[int]) -> None:
        """Tiles from FIFOs to FIFOs, all at once."""
        table = Table()
        fifos = tuple(range(len(sources) + len(targets)))
        step = Step(((fifos[: len(sources)], fifos[len(sources) :]),), 1)
        with table.repeat(moves):
            step.write(table, 0)
        self._process(name, table, [*sources, *targets])

    def _turns(self, name: str, moves: int, staged: list[int], *, given: bool) -> None:
        """Tiles from DRAM (`given`), or to it, a FIFO at a time."""
        table = Table()
        with table.repeat(moves):
            for fifo in range(len(staged)):
                table.get(2 * fifo + given)
                table.wait(1)
                table.put(2 * fifo + (not given))
        self._process(name, table, staged)

    def _nodes(self, schedules: Sequence[GroupSchedule], links: Links, ends: dict[tuple[int, PortKey], int]) -> None:
        fifos = {channel: self._fifo(depth) for channel, depth in sorted(links.depth.items())}
        node = 0
        for schedule, own in zip(schedules, links.groups, strict=True):
            table, ticks = Table(), np.ones(len(schedule.classes), np.int64)
            for steady, repeats in ((False, 1), (True, schedule.periods - 1)):
                with table.repeat(repeats):
                    core_period(table, schedule, ticks, own, steady)
            for channels in own.channels:
                ports = [ends[node, port.key] for port in schedule.ports]
                self._process(node, table, [*ports, *(fifos[channel] for channel in channels)])
                node += 1
