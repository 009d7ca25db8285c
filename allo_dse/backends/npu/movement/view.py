"""Data that checks and plans derive from a folded graph, whatever the device."""

from __future__ import annotations

from functools import cached_property

from allo_dse.common.records import Frozen, replace
from allo_dse.eval.token_exchange import NeededDepths, exchange_depths
from allo_dse.mapper.fold.vmg import VMG

from .flows import GroupTiles
from .links import StreamLinks, link_streams
from .periods import GroupSchedule, period_table
from .stream_depths import is_forest, known_depths, needed_depths
from .streams import Links, stream_links


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
        exchange = exchange_depths(self.vmg) or NeededDepths({})
        if exchange.blocked or is_forest(
            (flow.source, flow.target, flow.stream) for flow in self.declared_links.between
        ):
            return exchange
        channels, deeper = self._declared_channels, exchange.depth
        channels = replace(channels, depth={c: deeper.get(c[2], depth) for c, depth in channels.depth.items()})
        held = needed_depths(self.periods, channels, self.vmg.graph.once(known_depths))
        return replace(held, depth={**deeper, **held.depth})

    @cached_property
    def periods(self) -> tuple[GroupSchedule, ...]:
        """Schedules of the tiles that nodes need, for runs of nodes that are alike."""
        return period_table(self.vmg.graph).schedules(self.vmg.groups)

    @cached_property
    def declared_links(self) -> StreamLinks:
        """The streams inside and between nodes, as deep as they are declared."""
        return link_streams(self.vmg.graph, list(self.vmg.numbered_groups))

    @cached_property
    def _declared_channels(self) -> Links:
        return stream_links(self.vmg.graph, self.periods, connected=bool(self.declared_links.between))
