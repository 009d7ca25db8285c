"""A placed design: tiles, switch settings, and the use of every tile; or the limits that leave no placement."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np
from msgspec import convert, structs, to_builtins

from allo_dse.common.notebooks import Pictured
from allo_dse.common.records import Array, Frozen, JsonObject
from allo_dse.mapper.violation import Violation

from ..movement.movement import LOCKS_PER_END
from .array import Tile
from .problem import Problem

RouteKind: TypeAlias = Literal["transfer", "flow", "stream"]


class Port(NamedTuple):
    """A port of a stream switch: a side, or "dma"; and its number there."""

    side: str
    number: int


class Hop(NamedTuple):
    """A switch setting on `tile` from port `source` to port `target`."""

    tile: Tile
    source: Port
    target: Port


class Route(Frozen):
    """Route of one transfer, flow or stream; `index` is its position among the problem's transfers, flows or streams.

    Attributes:
        hops: from the source on; several with the same tile and source port where tiles are multicast.
    """

    kind: RouteKind
    index: int
    name: str
    hops: tuple[Hop, ...]

    @property
    def source(self) -> Tile:
        return self.hops[0].tile

    @property
    def sinks(self) -> tuple[Tile, ...]:
        return tuple(hop.tile for hop in self.hops if hop.target.side == "dma")


class TileUse(Frozen):
    """Resources of a tile that a design uses.

    Attributes:
        ports: used out-ports of the switch by side.
    """

    dma_in: int
    dma_out: int
    descriptors: int
    locks: int
    bytes: int
    ports: Mapping[str, int]


@dataclass(frozen=True)
class PlacedDesign(Pictured):
    """A mapping on the array.

    Attributes:
        tiles: of each node.
        columns: of each transfer: its shim tile's and its memory tile's.
        owners: per stream the tile whose memory holds its buffer; None when DMA channels carry it.
        routes: of transfers, flows and routed streams.
    """

    picture: ClassVar = "allo_dse.backends.npu.drawing:placement_svg"

    problem: Problem
    tiles: tuple[Tile, ...]
    columns: tuple[int, ...]
    owners: tuple[Tile | None, ...]
    routes: tuple[Route, ...]

    proven: ClassVar = True

    @property
    def placed(self) -> bool:
        return True

    def drawn(self) -> str:
        """The picture, with routes and the use of every tile's ports."""
        return self._repr_html_()

    def table(self) -> list[list[str]]:
        """The use of every tile in rows, headings first."""
        head = ["tile", "DMA in", "DMA out", "descriptors", "locks", "memory (bytes)", "switch ports"]
        rows = [
            [str(tile), *map(str, (use.dma_in, use.dma_out, use.descriptors, use.locks)), f"{use.bytes:,}",
             ", ".join(f"{side} {count}" for side, count in use.ports.items())]
            for tile, use in self.usage.items()
        ]  # fmt: skip
        return [head, *rows]

    def memory_of(self, nodes: Sequence[int]) -> str:
        """The data memory of the fullest tile of some nodes."""
        limit = self.problem.limits.core.bytes
        return f"{max(self.usage[self.tiles[node]].bytes for node in nodes):,} of {limit:,} bytes"

    def __repr__(self) -> str:
        return f"PlacedDesign({self})"

    def __str__(self) -> str:
        routed = sum(owner is None for owner in self.owners)
        parts = [f"{_several(len(self.tiles), 'node')} on {self.problem.device}"]
        if self.owners:
            parts.append(f"{_several(len(self.owners) - routed, 'stream')} in shared memory, {routed} routed")
        return ", ".join([*parts, f"{self.link_count} wires between switches"])

    @property
    def link_count(self) -> int:
        """Links between switches that are used, counted once per route."""
        return sum(hop.target.side != "dma" for route in self.routes for hop in route.hops)

    @cached_property
    def usage(self) -> Mapping[Tile, TileUse]:
        """Resources in use, by tile; unused tiles are left out."""
        problem = self.problem
        held = defaultdict[Tile, Array](lambda: np.zeros(3, np.int64))  # descriptors, locks, bytes
        for node, (tile, need) in enumerate(zip(self.tiles, problem.nodes, strict=True)):
            flows = [flow for own in problem.flows_of[node] for flow in own]
            held[tile] += sum(f.depth for f in flows), LOCKS_PER_END * len(flows), need.bytes
        for stream, owner in zip(problem.streams, self.owners, strict=True):
            ends = (self.tiles[stream.source], self.tiles[stream.target])
            for tile in ends if owner is None else (owner,):
                held[tile] += stream.depth if owner is None else 0, LOCKS_PER_END, stream.bytes
        for transfer, column in zip(problem.transfers, self.columns, strict=True):
            writes, reads = transfer.ends("in"), transfer.ends("out")
            held[Tile(column, 1)] += sum(writes) + sum(reads), transfer.locks, transfer.staged_bytes
            held[Tile(column, 0)] += 1, 0, 0
        hops = defaultdict[Tile, list[Hop]](list)
        for route in self.routes:
            for hop in route.hops:
                hops[hop.tile].append(hop)
        passed = sorted(hops.keys() - held)
        return {tile: _use(hops[tile], *held[tile].tolist()) for tile in (*sorted(held), *passed)}

    def to_dict(self) -> JsonObject:
        """Plain data, JSON-serialisable; `usage` is for readers, `from_dict` does not need it."""
        named = zip(self.problem.nodes, self.tiles, strict=True)
        return {
            "nodes": [{"name": need.name, "tile": list(tile)} for need, tile in named],
            "columns": list(self.columns),
            "owners": to_builtins(self.owners),
            "routes": to_builtins(self.routes),
            "usage": [{"tile": list(tile), **structs.asdict(use)} for tile, use in self.usage.items()],
            "problem": to_builtins(self.problem),
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> PlacedDesign:
        """The inverse of `to_dict`, also after JSON."""
        return PlacedDesign(
            convert(data["problem"], Problem),
            tuple(Tile(*node["tile"]) for node in data["nodes"]),
            tuple(data["columns"]),
            convert(data["owners"], tuple[Tile | None, ...]),
            convert(data["routes"], tuple[Route, ...]),
        )


@dataclass(frozen=True)
class Infeasible:
    """No placement.

    Attributes:
        violations: the limits that the best placement exceeds; empty when there was no time to decide.
        proven: whether there is none, as opposed to none found in time.
    """

    violations: tuple[Violation, ...]
    proven: bool = True

    @property
    def placed(self) -> bool:
        return False

    def drawn(self) -> str:
        """Nothing."""
        return ""

    def table(self) -> list[list[str]]:
        """Nothing."""
        return []

    def memory_of(self, nodes: Sequence[int]) -> str:
        """Nothing."""
        return ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, JSON-serialisable."""
        return {"violations": [asdict(violation) for violation in self.violations], "proven": self.proven}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Infeasible:
        """The inverse of `to_dict`."""
        return convert(data, Infeasible)

    def __str__(self) -> str:
        if not self.proven:
            return "no placement found in time"
        return "; ".join(map(str, self.violations)) or "no placement within the limits"


def placement_from_dict(data: Mapping[str, Any]) -> PlacedDesign | Infeasible:
    """The inverse of `to_dict` of both."""
    return PlacedDesign.from_dict(data) if "nodes" in data else Infeasible.from_dict(data)


def _several(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _use(hops: Sequence[Hop], descriptors: int, locks: int, size: int) -> TileUse:
    sources = {hop.source for hop in hops if hop.source.side == "dma"}
    targets = {hop.target for hop in hops}
    sides = sorted(port.side for port in targets if port.side != "dma")
    entering = sum(port.side == "dma" for port in targets)
    return TileUse(entering, len(sources), descriptors, locks, size, Counter(sides))
