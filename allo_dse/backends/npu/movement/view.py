"""Channels, links, periods and stream depths that checks and plans derive from a folded graph, whatever the device."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from allo_dse.common.records import Frozen, once, replace
from allo_dse.compiler.program.tensors import IntArray
from allo_dse.eval.token_exchange import NeededDepths, exchange_depths, least_depths
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.graph.groups import NodeGroup
from allo_dse.mapper.graph_algorithms import DisjointSets
from allo_dse.simulator.engine.engine import table_engine
from allo_dse.simulator.engine.run_result import RunResult
from allo_dse.simulator.network.network import Network, NetworkBuilder
from allo_dse.simulator.network.tables import Table

from .flows import GroupTiles
from .links import StreamLinks, link_streams
from .movement import Channel
from .periods import GroupSchedule, period_table
from .streams import LeafUses, Links, Steps, leaf_steps, slots, stream_links, write_steps

PERIODS = 3
"""Periods that show all depths: each leaves every FIFO as it found it, or passes its tokens on to the next."""


class _Exchange(Frozen, eq=False, dict=True):
    """Operations of a node on its channels over a number of periods.

    Attributes:
        digest: equal for nodes that do the same.
        kinds: the leaves' distinct steps.
        codes: per leaf, its position in `kinds`.
    """

    digest: bytes
    kinds: list[list[tuple[Steps, int]]]
    codes: IntArray
    periods: int

    @cached_property
    def table(self) -> Table:
        table, codes = Table(), self.codes
        starts = np.flatnonzero(np.concatenate(([True], codes[1:] != codes[:-1])))
        lengths = np.diff(np.append(starts, len(codes)))
        with table.repeat(self.periods):
            table.wait(1)
            for code, length in zip(codes[starts].tolist(), lengths.tolist(), strict=True):
                with table.repeat(length):
                    write_steps(table, 0, self.kinds[code])
        return table


class _Search(Frozen, dict=True):
    """Runs of the graph's token exchange at different depths; its least depths are none less than declared.

    Every FIFO is a pair of streams, as in the timing model: full slots one way and free slots the other way, so that a
    step holds its slots from its gets to its puts.

    Attributes:
        channels: the FIFOs.
        processes: what each node does, and the positions of its channels.
        declared: depth of every stream array; arrays are lowered in this order.
        most_tokens: no FIFO has to hold more.
    """

    channels: Sequence[Channel]
    processes: Sequence[tuple[_Exchange, list[int]]]
    declared: Mapping[str, int]
    most_tokens: int

    @staticmethod
    def of(schedules: Sequence[GroupSchedule], links: Links) -> _Search:
        numbers = {channel: number for number, channel in enumerate(sorted(links.depth))}
        processes: list[tuple[_Exchange, list[int]]] = []
        most_tokens = 0
        for schedule, own in zip(schedules, links.groups, strict=True):
            periods = min(schedule.periods, PERIODS)
            exchange = schedule.group.once(_exchange, own.uses, periods)
            most_tokens = max(most_tokens, own.uses.tokens * periods)
            processes += [(exchange, [numbers[channel] for channel in channels]) for channels in own.channels]
        declared = {name: depth for (_, _, name), depth in links.depth.items()}
        return _Search(list(numbers), processes, declared, most_tokens)

    @property
    def key(self) -> bytes:
        """Key that is equal for graphs whose nodes, in order, exchange the same tokens through equally deep FIFOs."""
        processes = [(one.digest, channels) for one, channels in self.processes]
        names = [name for _, _, name in self.channels]
        text = repr((processes, names, list(self.declared.items()), self.most_tokens))
        return hashlib.blake2b(text.encode(), digest_size=16).digest()

    @cached_property
    def _network(self) -> Network:
        """The network at depths of 1."""
        builder = NetworkBuilder()
        builder.streams(np.ones(2 * len(self.channels), np.int64), latency=0)
        for exchange, channels in self.processes:
            builder.process(exchange.table, [stream for n in channels for stream in (2 * n, 2 * n + 1)])
        return builder.build()

    def run(self, depth: Mapping[str, int]) -> RunResult:
        depths, initial = slots([depth[name] for _, _, name in self.channels])
        # The next run uses the memory of the last one.
        found = vars(self)["last"] = table_engine().rerun(self._network.at(depths, initial), vars(self).get("last"))
        return found

    def full(self, result: RunResult) -> set[str]:
        return {name for _, (_, _, name) in self._waiting(result, room=True)}

    def blocked(self, result: RunResult) -> tuple[str, ...]:
        return tuple(f"core {node} waits for {name}" for node, (_, _, name) in self._waiting(result))

    def _waiting(self, result: RunResult, *, room: bool = False) -> list[tuple[int, Channel]]:
        """The nodes that wait for each other; `room`: those that wait for a free slot."""
        assert result.deadlock is not None
        waiting = result.deadlock.cycle or result.deadlock.blocked
        return [(b.node, self.channels[b.stream // 2]) for b in waiting if not room or b.stream % 2]


def _exchange(_: NodeGroup, uses: LeafUses, periods: int) -> _Exchange:
    """Return the operations of a group's nodes on their channels over a number of periods."""
    every = [leaf_steps(0, own) for own in uses.kinds]
    kinds = [own for at, own in enumerate(every) if own not in every[:at]]
    # Leaves that use channels in another order may do the same.
    codes = np.array([kinds.index(own) for own in every])[uses.codes]
    text = repr((kinds, periods)).encode()
    return _Exchange(hashlib.blake2b(codes.tobytes() + text, digest_size=16).digest(), kinds, codes, periods)


class MappingView(Frozen, eq=False, dict=True):
    """Tiles and streams of the nodes of a folded graph; computed when asked for."""

    vmg: VMG

    @cached_property
    def groups(self) -> list[GroupTiles]:
        """The tensor ports and tile sequences of each node group."""
        return [GroupTiles(self.vmg.graph, group, first) for first, group in self.vmg.numbered_groups]

    @cached_property
    def links(self) -> StreamLinks:
        """The streams inside and between nodes, as deep as the graph needs them."""
        links, deeper = self.declared_links, self.needed_depths.depth
        between = (replace(flow, depth=deeper.get(flow.stream, flow.depth)) for flow in links.between)
        return replace(links, between=tuple(between)) if deeper else links

    @cached_property
    def channels(self) -> Links:
        """The FIFOs between nodes, as deep as the graph needs them, and which leaves use them."""
        links, deeper = self._declared_channels, self.needed_depths.depth
        return replace(links, depth={c: deeper.get(c[2], depth) for c, depth in links.depth.items()})

    @cached_property
    def needed_depths(self) -> NeededDepths:
        """Depths beyond the declared ones without which the nodes wait for each other.

        A core holds the tokens that it works on until it has room for its results, so it may need deeper FIFOs than
        the exchange alone.
        """
        cut, part = self.vmg.slice, self
        if cut is not self.vmg:
            part = MappingView(cut)
            known: dict[object, NeededDepths] = self.vmg.graph.table(
                "needed depths of slices"
            )  # many folds have the same
            # Many folds have the same slice.
            by_place = any(order.by_place for order in cut.graph.token_orders or ())
            needed = None if by_place else once(known, (cut.mesh_fold, cut.merges), lambda: part.needed_depths)
            if needed is not None and not needed.blocked:
                return needed
        exchange = exchange_depths(self.vmg) or NeededDepths({})
        # If at most one path connects any two nodes, no FIFO can block another path.
        joined = DisjointSets[int]()
        if exchange.blocked or all(joined.join(flow.source, flow.target) for flow in part.declared_links.between):
            return exchange
        held = part._held(exchange.depth)
        # Nodes that wait for each other are reported for the whole graph.
        held = self._held(exchange.depth) if held.blocked else held
        return replace(held, depth={**exchange.depth, **held.depth})

    def _held(self, deeper: Mapping[str, int]) -> NeededDepths:
        """Depths that tokens need that a core holds while it works, beyond those of the exchange."""
        channels = self._declared_channels
        channels = replace(channels, depth={c: deeper.get(c[2], depth) for c, depth in channels.depth.items()})
        return least_depths(_Search.of(self.periods, channels), self.vmg.graph.table("needed depths"))

    @cached_property
    def periods(self) -> tuple[GroupSchedule, ...]:
        """Schedules of the tiles that nodes need, for runs of nodes that are alike."""
        return self.vmg.graph.once(period_table).schedules(self.vmg.groups)

    @cached_property
    def declared_links(self) -> StreamLinks:
        """The streams inside and between nodes, as deep as they are declared."""
        return link_streams(self.vmg.graph, list(self.vmg.numbered_groups))

    @cached_property
    def _declared_channels(self) -> Links:
        return stream_links(self.vmg.graph, self.periods, connected=bool(self.declared_links.between))
