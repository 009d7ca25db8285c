"""Data of a transport plan: movement between DRAM and the cores, and between cores (made by `plan_transport`).

DRAM ── shim DMA ── memory tile ── core                 a Transfer is a shim channel's work; it carries one Flow, or
          Transfer      │ Flow ─► cores (multicast)     several that the memory tile distributes or joins
                        └ Flow ─► cores
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Literal

from allo_dse.common.records import Frozen, JsonObject
from allo_dse.compiler.program.compiled import TaskClass
from allo_dse.mapper.graph.ports import Direction, PortKey
from allo_dse.mapper.violation import Violation

WORD_BYTES = 4
"""DMA channels move whole 32-bit words."""
LOCKS_PER_END = 2
"""An object FIFO end has a producer lock and a consumer lock."""

# A search makes dozens of these per design, and structs are made several times faster than dataclasses.


class Flow(Frozen):
    """The sequence of tiles that one or more cores take from, or one core gives to, a tensor.

    Attributes:
        index: position in `Transport.flows`.
        tensor: name of the region's tensor.
        direction: "in" towards the cores, "out" from a core.
        nodes: node numbers; more than one means that every tile is multicast to all of them.
        tile_bytes: bytes of one tile.
        run_bytes: bytes of it that are contiguous in DRAM.
        depth: tiles that the core's end holds.
        moves: how many tiles move over the whole run: consecutive uses of the same tile share one.
        first_byte: where in the tensor the first tile starts.
        ports: of each node the port that takes or gives the tiles.
    """

    index: int
    tensor: str
    direction: Direction
    nodes: tuple[int, ...]
    tile_bytes: int
    run_bytes: int
    depth: int
    moves: int
    first_byte: int
    ports: tuple[PortKey, ...] = ()


class AccessPattern(Frozen):
    """Walk of a shim channel through DRAM, as its descriptors express it.

    Attributes:
        dims: (extent, stride) of the loops inside one descriptor, innermost first, in 32-bit words.
        repeat, repeat_step: the descriptor's repeat count (its iteration register), 1 when unused, and its stride.
        host_loops, host_steps: trip counts and strides of the loops that are left to the host, innermost first; it
            rewrites the descriptor for each iteration. A loop over tiles without a pattern has no stride (None).
    """

    dims: tuple[tuple[int, int], ...]
    repeat: int
    repeat_step: int
    host_loops: tuple[int, ...]
    host_steps: tuple[int | None, ...]

    @property
    def descriptors(self) -> int:
        """Number of descriptors issued over the run."""
        return math.prod(self.host_loops)


class Transfer(Frozen):
    """Data moved by one shim DMA channel: a flow, or several flows that take turns tile by tile.

    Attributes:
        index: position in `Transport.transfers`.
        flows: positions in `Transport.flows`, in the order of their tiles in each turn. The memory tile distributes
            several "in" flows and joins several "out" flows.
        column: column of the shim tile and the memory tile; -1 when there is no assignment within the limits.
        tile_bytes, run_bytes: of one flow's tile.
        moves: tiles of each flow over the run.
        depth: tiles of each flow that the memory tile holds.
        pattern: the walk through DRAM.
    """

    index: int
    tensor: str
    direction: Direction
    flows: tuple[int, ...]
    column: int
    tile_bytes: int
    run_bytes: int
    moves: int
    depth: int
    pattern: AccessPattern

    @property
    def dram_bytes(self) -> int:
        """Bytes moved from or to DRAM over the run."""
        return len(self.flows) * self.moves * self.tile_bytes

    @property
    def staged_bytes(self) -> int:
        """Bytes it occupies in the memory tile."""
        return len(self.flows) * self.depth * self.tile_bytes

    @property
    def locks(self) -> int:
        """Locks of the memory tile: for the transfer's own end there, and for the end of each flow."""
        return LOCKS_PER_END * (1 + len(self.flows))

    def ends(self, direction: Direction) -> tuple[int, ...]:
        """Descriptors of each memory-tile channel that writes into it ("in") or reads from it ("out").

        An end that flows share needs a descriptor per slot and flow.
        """
        if direction == self.direction:
            return (self.depth * len(self.flows),)
        return (self.depth,) * len(self.flows)


Channel = tuple[int, int, str]
"""Source node, target node, stream array: after folding, one FIFO used in turn."""


class StreamFlow(Frozen):
    """Streams of one array that lead from a node to another in one iteration: after folding, one FIFO used in turn.

    Attributes:
        stream: name of the stream array.
        source, target: node numbers.
        depth: tokens the FIFO holds.
        token_bytes: bytes of one token.
        count: how many streams they are.
    """

    stream: str
    source: int
    target: int
    depth: int
    token_bytes: int
    count: int = 1

    @property
    def bytes(self) -> int:
        """Size of one buffer. Neighbours share one in the memory of either; other streams have one at both ends."""
        return self.depth * self.token_bytes

    @property
    def routable(self) -> bool:
        """True if a DMA channel can carry the stream: its tokens are whole words."""
        return self.token_bytes % WORD_BYTES == 0


LayoutPlace = Literal["memory tile", "core DMA", "core", "nowhere"]
_PLACES: dict[LayoutPlace, str] = {
    "memory tile": "by the memory tile's DMA",
    "core DMA": "by the core's DMA",
    "core": "on the cores",
    "nowhere": "without moving anything",
}


class LayoutChoice(Frozen):
    """A change of layout that tasks need of the tiles of a tensor, and where it happens.

    Attributes:
        tile_shape: of the tiles as they lie.
        steps: in words.
        direction: "in" for a tensor that is read.
        place: "memory tile": its DMA channel reads tiles in the new order; "core DMA": the core's does, of tiles to be
            written; "core": the tasks do it; "nowhere": the elements stay where they are.
        reason: why it is left to the cores.
        dims: the descriptor's (extent, step) loops in 32-bit words, innermost first.
        sites: per task class (kernel, class) the positions in its `work` of the operations that it consists of.
    """

    tensor: str
    direction: Direction
    tile_shape: tuple[int, ...]
    steps: str
    place: LayoutPlace
    reason: str
    dims: tuple[tuple[int, int], ...]
    sites: tuple[tuple[tuple[str, str], tuple[int, ...]], ...]

    def __str__(self) -> str:
        return f"{self.tensor} {self.steps} {_PLACES[self.place]}" + (f" ({self.reason})" if self.reason else "")

    def to_dict(self) -> JsonObject:
        """Plain data, JSON-serialisable."""
        return {
            "tensor": self.tensor,
            "direction": self.direction,
            "tile": list(self.tile_shape),
            "layout": self.steps,
            "where": self.place,
            "reason": self.reason,
            "descriptor": [list(dim) for dim in self.dims],
        }


class LayoutPlan(Frozen):
    """Placement of all layout changes of a program."""

    choices: tuple[LayoutChoice, ...] = ()

    def free_sites(self, cls: TaskClass) -> frozenset[int]:
        """Return the positions in a task class's `work` of operations that the cores need not execute."""
        owners = (owner for choice in self.choices if choice.place != "core" for owner in choice.sites)
        return frozenset(site for name, sites in owners if name == (cls.kernel, cls.name) for site in sites)


class Transport(Frozen, dict=True):
    """All data movement of a mapping between DRAM and the cores of a device.

    Attributes:
        flows, transfers: see their types.
        violations: limits of memory and shim tiles that no assignment keeps.
        layouts: which changes of layout happen on the way.
    """

    flows: tuple[Flow, ...]
    transfers: tuple[Transfer, ...]
    violations: tuple[Violation, ...] = ()
    layouts: LayoutPlan = LayoutPlan()

    @property
    def host_rewrites(self) -> int:
        """Descriptors that the host writes during the run, beyond the first of each transfer."""
        return sum(transfer.pattern.descriptors - 1 for transfer in self.transfers)

    @property
    def dram_bytes(self) -> int:
        """Bytes read from and written to DRAM over the run."""
        return sum(transfer.dram_bytes for transfer in self.transfers)

    @cached_property
    def transfer_of_flow(self) -> tuple[Transfer, ...]:
        """The transfer that carries each flow."""
        result: list[Transfer | None] = [None] * len(self.flows)
        for transfer in self.transfers:
            for flow in transfer.flows:
                result[flow] = transfer
        return tuple(t for t in result if t is not None)
