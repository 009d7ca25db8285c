"""Placement problem of a mapping, as plain numbers, and its solution.

The problem has nodes, streams between them, flows and transfers; a placement says where they are put.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from allo_dse.common.records import Frozen
from allo_dse.device.device import NpuDevice
from allo_dse.mapper.graph.groups import short_node_name
from allo_dse.mapper.graph.ports import Direction

from ..movement.movement import LOCKS_PER_END, Flow, StreamFlow, Transfer, Transport
from ..movement.view import MappingView
from .array import ArrayLimits, Tile


class NodeNeed(Frozen):
    """A folded node.

    Attributes:
        name: for readers.
        bytes: data memory that it needs wherever it is: reserved, tensor ports, chain buffers.
    """

    name: str
    bytes: int


class Problem(Frozen, dict=True):
    """Everything that placement decides on.

    Attributes:
        device: its name.
        transfers: the plan's, whose columns placement may change.
    """

    device: str
    limits: ArrayLimits
    nodes: tuple[NodeNeed, ...]
    streams: tuple[StreamFlow, ...]
    flows: tuple[Flow, ...]
    transfers: tuple[Transfer, ...]

    @cached_property
    def carriers(self) -> dict[int, int]:
        """The transfer that carries each flow, by their numbers."""
        return {flow: number for number, transfer in enumerate(self.transfers) for flow in transfer.flows}

    @cached_property
    def flows_of(self) -> tuple[tuple[tuple[Flow, ...], tuple[Flow, ...]], ...]:
        """The input flows and the output flows of each node."""
        result: list[tuple[list[Flow], list[Flow]]] = [([], []) for _ in self.nodes]
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
    def needs(self) -> tuple[Mapping[str, int], ...]:
        """Needs of each node from its core, without those of its streams, by constraint."""
        return tuple(
            {
                "core_dma_in": len(inputs),
                "core_dma_out": len(outputs),
                "core_descriptors": sum(flow.depth for flow in (*inputs, *outputs)),
                "core_locks": LOCKS_PER_END * (len(inputs) + len(outputs)),
                "core_memory": node.bytes,
            }
            for node, (inputs, outputs) in zip(self.nodes, self.flows_of, strict=True)
        )

    @property
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


class Assignment(Frozen):
    """An answer without routes.

    Attributes:
        tiles: of each node.
        columns: of each transfer.
        owners: per stream the tile whose memory holds its buffer; None when DMA channels carry it.
    """

    tiles: tuple[Tile, ...]
    columns: tuple[int, ...]
    owners: tuple[Tile | None, ...]


def problem_of(view: MappingView, transport: Transport, memories: Sequence[int], device: NpuDevice) -> Problem:
    """Return the placement problem of a folded graph; `memories`: bytes of each node without FIFOs to other nodes."""
    nodes = [
        NodeNeed(short_node_name(view.vmg.program, group.group, position), memories[group.first_node + position])
        for group in view.groups
        for position in range(group.group.count)
    ]
    limits = ArrayLimits.of(device)
    return Problem(device.name, limits, tuple(nodes), view.links.between, transport.flows, transport.transfers)
