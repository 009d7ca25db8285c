"""What a mapping asks of the array, as plain numbers: nodes, streams between them, flows and transfers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from allo_dse.device.device import NpuDevice

from ..graph.names import short_node_name
from ..layouts.access import WORD_BYTES
from ..model.movement import Direction, Transport
from ..streams.node_memory import NodeMemory
from ..streams.view import MappingView
from ..transport.tile_limits import LOCKS_PER_END
from .array import ArrayLimits

__all__ = ["LOCKS_PER_END", "FlowNeed", "NodeNeed", "Problem", "StreamNeed", "TransferNeed", "problem_of"]


@dataclass(frozen=True)
class NodeNeed:
    """A folded node.

    Attributes:
        name: for readers.
        bytes: data memory that it needs wherever it is: reserved, tensor ports, chain buffers.
    """

    name: str
    bytes: int


@dataclass(frozen=True)
class StreamNeed:
    """A FIFO between two nodes; see `movement.StreamFlow`.

    Between neighbours it is a buffer in the memory of one of them. Otherwise DMA channels carry it, and both ends hold
    a buffer, with a descriptor for each token.
    """

    name: str
    source: int
    target: int
    depth: int
    token_bytes: int

    @property
    def bytes(self) -> int:
        """Of one buffer."""
        return self.depth * self.token_bytes

    @property
    def routable(self) -> bool:
        """Whether a DMA channel can carry it: they move whole 32-bit words."""
        return self.token_bytes % WORD_BYTES == 0


@dataclass(frozen=True)
class FlowNeed:
    """Tiles between a memory tile and cores; see `movement.Flow`."""

    tensor: str
    direction: Direction
    nodes: tuple[int, ...]
    depth: int
    transfer: int


@dataclass(frozen=True)
class TransferNeed:
    """The work of a shim channel and what it occupies in the memory tile; see `movement.Transfer`.

    Attributes:
        column: the plan's, which placement may change.
    """

    tensor: str
    direction: Direction
    flows: tuple[int, ...]
    depth: int
    tile_bytes: int
    column: int

    @property
    def staged_bytes(self) -> int:
        return len(self.flows) * self.depth * self.tile_bytes

    @property
    def locks(self) -> int:
        """Of the memory tile: for its own end there, and for that of each flow."""
        return LOCKS_PER_END * (1 + len(self.flows))

    def ends(self, direction: Literal["in", "out"]) -> tuple[int, ...]:
        """Descriptors of each memory-tile channel that writes into it ("in") or reads from it ("out").

        An end that flows share needs a descriptor per slot and flow.
        """
        if direction == self.direction:
            return (self.depth * len(self.flows),)
        return (self.depth,) * len(self.flows)


@dataclass(frozen=True)
class Problem:
    """Everything that placement decides on.

    Attributes:
        device: its name.
    """

    device: str
    limits: ArrayLimits
    nodes: tuple[NodeNeed, ...]
    streams: tuple[StreamNeed, ...]
    flows: tuple[FlowNeed, ...]
    transfers: tuple[TransferNeed, ...]

    @cached_property
    def flows_of(self) -> tuple[tuple[tuple[FlowNeed, ...], tuple[FlowNeed, ...]], ...]:
        """The input flows and the output flows of each node."""
        result: list[tuple[list[FlowNeed], list[FlowNeed]]] = [([], []) for _ in self.nodes]
        for flow in self.flows:
            for node in flow.nodes:
                result[node][flow.direction == "out"].append(flow)
        return tuple((tuple(ins), tuple(outs)) for ins, outs in result)

    @cached_property
    def streams_of(self) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
        """The numbers of the streams into and out of each node."""
        result: list[tuple[list[int], list[int]]] = [([], []) for _ in self.nodes]
        for number, stream in enumerate(self.streams):
            result[stream.target][0].append(number)
            result[stream.source][1].append(number)
        return tuple((tuple(ins), tuple(outs)) for ins, outs in result)

    @cached_property
    def neighbours(self) -> tuple[tuple[int, int], ...]:
        """Pairs of nodes that can only be neighbours: no DMA channel is left for a stream between them, or none can
        carry it."""
        core = self.limits.core
        full_in = [len(ins) >= core.dma_in for ins, _ in self.flows_of]
        full_out = [len(outs) >= core.dma_out for _, outs in self.flows_of]
        bound = (s for s in self.streams if full_out[s.source] or full_in[s.target] or not s.routable)
        return tuple(dict.fromkeys((s.source, s.target) for s in bound))

    def tensor_names(self, node: int, direction: Direction) -> Sequence[str]:
        """The tensors of a node's ports in one direction."""
        return [flow.tensor for flow in self.flows_of[node][direction == "out"]]


def problem_of(view: MappingView, transport: Transport, memories: Sequence[NodeMemory], device: NpuDevice) -> Problem:
    """What a folded graph asks of a device; `memories`: what a node of each group needs at most."""
    nodes = []
    for group, memory in zip(view.groups, memories, strict=True):
        own = memory.total - memory.streams
        nodes += [
            NodeNeed(short_node_name(view.vmg.program, group.group, position), own)
            for position in range(group.group.count)
        ]
    streams = tuple(StreamNeed(s.stream, s.source, s.target, s.depth, s.token_bytes) for s in transport.streams)
    carriers = transport.transfer_of_flow
    flows = tuple(FlowNeed(f.tensor, f.direction, f.nodes, f.depth, carriers[f.index].index) for f in transport.flows)
    transfers = tuple(
        TransferNeed(t.tensor, t.direction, t.flows, t.depth, t.tile_bytes, t.column) for t in transport.transfers
    )
    return Problem(device.name, ArrayLimits.of(device), tuple(nodes), streams, flows, transfers)
