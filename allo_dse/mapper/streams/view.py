"""What checks and plans derive from a folded graph, whatever the device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

from allo_dse.program.compiled import CompiledProgram

from ..fold.vmg import VMG
from ..graph.groups import NodeGroup
from .node_links import StreamLinks, link_streams
from .tiles import GroupTiles


@dataclass(frozen=True, eq=False)
class MappingView:
    """Tiles and streams of the nodes of a folded graph; computed when asked for."""

    program: CompiledProgram
    node_groups: tuple[NodeGroup, ...]

    @cached_property
    def groups(self) -> list[GroupTiles]:
        """The tensor ports and tile sequences of each node group."""
        return [GroupTiles(self.program, group) for group in self.node_groups]

    @cached_property
    def links(self) -> StreamLinks:
        """The streams inside and between nodes."""
        return link_streams(self.program, self.groups)


_views: WeakKeyDictionary[VMG, MappingView] = WeakKeyDictionary()


def mapping_view(vmg: VMG) -> MappingView:
    """The view of a graph; one per graph, kept as long as the graph."""
    view = _views.get(vmg)
    if view is None:
        _views[vmg] = view = MappingView(vmg.program, vmg.groups)
    return view
