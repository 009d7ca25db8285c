"""What checks and plans derive from a folded graph, whatever the device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..fold.vmg import VMG
from .node_links import StreamLinks, link_streams
from .tiles import GroupTiles


@dataclass(frozen=True, eq=False)
class MappingView:
    """Tiles and streams of the nodes of a folded graph; computed when asked for."""

    vmg: VMG

    @cached_property
    def groups(self) -> list[GroupTiles]:
        """The tensor ports and tile sequences of each node group."""
        return [GroupTiles(self.vmg.graph, group) for group in self.vmg.groups]

    @cached_property
    def links(self) -> StreamLinks:
        """The streams inside and between nodes."""
        return link_streams(self.vmg.graph, self.groups)
