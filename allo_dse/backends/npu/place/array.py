"""The array as placement sees it: tiles, and the links between their stream switches.

row 5..2   cores         north
row 1      memory tile   west + east
row 0      shim tile     south
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from allo_dse.common.records import Frozen
from allo_dse.device.device import NpuDevice

SHIM_ROW, MEMORY_ROW, FIRST_CORE_ROW = 0, 1, 2

STEPS: Mapping[str, tuple[int, int]] = {"north": (0, 1), "south": (0, -1), "east": (1, 0), "west": (-1, 0)}
OPPOSITE: Mapping[str, str] = {"north": "south", "south": "north", "east": "west", "west": "east"}


class Tile(NamedTuple):
    """A tile of the array: `row` 0 are the shim tiles, 1 the memory tiles, the rest cores."""

    column: int
    row: int

    def neighbour(self, side: str) -> Tile:
        """The tile on a side; it may lie outside the array."""
        column, row = STEPS[side]
        return Tile(self.column + column, self.row + row)

    @property
    def kind(self) -> str:
        return {SHIM_ROW: "shim", MEMORY_ROW: "memory"}.get(self.row, "core")

    def __str__(self) -> str:
        return f"{self.kind}({self.column},{self.row})"


class Link(NamedTuple):
    """Streams from a tile's switch to that of its neighbour on `side`."""

    source: Tile
    side: str

    @property
    def target(self) -> Tile:
        return self.source.neighbour(self.side)


Ports = Mapping[str, tuple[int, int]]
"""(out, in) ports of a stream switch by side."""


class TileLimits(Frozen):
    """Resources of one kind of tile; see `device.npu_model.Tile`."""

    dma_in: int
    dma_out: int
    descriptors: int
    banks: int
    locks: int
    bytes: int


class ArrayLimits(Frozen, dict=True):
    """Limits of a device that decide whether a mapping can be placed.

    Attributes:
        neighbours: sides whose core's memory a core can address.
        ports: (out, in) ports of the switches by kind of tile ("core", "memory", "shim") and side.
    """

    columns: int
    core_rows: int
    neighbours: tuple[str, ...]
    core: TileLimits
    memory: TileLimits
    shim: TileLimits
    ports: Mapping[str, Ports]

    @staticmethod
    def of(device: NpuDevice) -> ArrayLimits:
        """The limits of a device."""
        core, memory, shim, wires = device.core, device.memory_tile, device.shim, device.interconnect
        parts = {
            "core": (core, core.memory_bytes, wires.core),
            "memory": (memory, memory.memory_bytes, wires.memory_tile),
            "shim": (shim, 0, wires.shim),
        }
        tiles = {
            kind: TileLimits(t.dma_in, t.dma_out, t.buffer_descriptors, t.descriptor_banks, t.locks, size)
            for kind, (t, size, _) in parts.items()
        }
        ports = {kind: {side: getattr(own, side) for side in STEPS} for kind, (_, _, own) in parts.items()}
        return ArrayLimits(device.array.columns, device.array.core_rows, core.neighbours, **tiles, ports=ports)

    @property
    def core_limits(self) -> Mapping[str, int]:
        """Resources of a core, by constraint."""
        core = self.core
        return {
            "core_dma_in": core.dma_in,
            "core_dma_out": core.dma_out,
            "core_descriptors": core.descriptors,
            "core_locks": core.locks,
            "core_memory": core.bytes,
        }

    @property
    def cores(self) -> tuple[Tile, ...]:
        """All compute tiles, column by column from the south."""
        return tuple(Tile(c, FIRST_CORE_ROW + r) for c in range(self.columns) for r in range(self.core_rows))

    @cached_property
    def adjacent(self) -> Mapping[Tile, tuple[Tile, ...]]:
        """The cores that share memory with each core: either of the two addresses the other's."""
        cores = set(self.cores)
        return {
            tile: tuple(
                t
                for t in map(tile.neighbour, STEPS)
                if t in cores and (self.addresses(tile, t) or self.addresses(t, tile))
            )
            for tile in self.cores
        }

    def addresses(self, tile: Tile, other: Tile) -> bool:
        """Return whether the core on `tile` can address the memory of the core on `other`."""
        return tile == other or any(tile.neighbour(side) == other for side in self.neighbours)

    @cached_property
    def links(self) -> Mapping[Link, int]:
        """Streams that each link carries at most; links without any are left out.

        A circuit-switched stream occupies an out-port on one side and an in-port on the other.
        """
        rows = range(FIRST_CORE_ROW + self.core_rows)
        tiles = dict.fromkeys(Tile(c, r) for c in range(self.columns) for r in rows)
        found = {}
        for link in (Link(tile, side) for tile in tiles for side in STEPS):
            if link.target in tiles:
                outgoing = self.ports[link.source.kind][link.side][0]
                incoming = self.ports[link.target.kind][OPPOSITE[link.side]][1]
                found[link] = min(outgoing, incoming)
        return {link: count for link, count in found.items() if count > 0}
