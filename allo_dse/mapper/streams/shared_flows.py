"""Flows: the tile sequences of all nodes, with those that several nodes share moved once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from msgspec import Struct

from allo_dse.program.compiled import CompiledProgram
from allo_dse.program.tensors import TensorPort

from ..graph.ports import Direction, PortKey
from ..model.buffering import Buffering
from ..model.movement import Flow, StreamFlow
from .tile_sequences import GroupTiles, TilePattern


class FlowFamily(Struct, frozen=True, eq=False):
    """Flows of one tensor that move tiles of one shape in step: a shim channel can carry any of them in turns.

    Attributes:
        flows: ordered by first tile; their nodes are in one phase (see `phases`).
    """

    port: TensorPort
    direction: Direction
    pattern: TilePattern
    flows: tuple[Flow, ...]


@dataclass(eq=False)
class _Draft:
    """A family in the making: first byte of each flow, and its nodes with the port of each."""

    port: TensorPort
    direction: Direction
    pattern: TilePattern
    flows: list[tuple[int, dict[int, PortKey]]]


def phases(streams: Sequence[StreamFlow], node_count: int) -> list[int]:
    """For each node, how many nodes at most stand before it in a line of streams; 0 for all where streams form a cycle.

    A node waits for the ones before it, so nodes of different phases run out of step. Flows that take turns on a
    channel must not wait for each other, or the array hangs: they have to be of one phase.
    """
    result = [0] * node_count
    # Each round settles lines one stream longer. Without a cycle none has as many streams as there are nodes, so a
    # change in the last round shows a cycle.
    for _ in range(node_count):
        changed = False
        for stream in streams:
            if result[stream.target] <= result[stream.source]:
                result[stream.target] = result[stream.source] + 1
                changed = True
        if not changed:
            return result
    return [0] * node_count


def plan_flows(
    program: CompiledProgram, groups: list[GroupTiles], streams: Sequence[StreamFlow], buffering: Buffering
) -> list[FlowFamily]:
    """The flows of a mapping by family, inputs first and in the order of the region's tensors.

    Nodes of one phase whose sequences at input ports of one tensor are equal share a flow (multicast); every output has
    its own.
    """
    position = {tensor.name: number for number, tensor in enumerate(program.tensors)}
    phase = phases(streams, sum(group.group.count for group in groups))
    drafts = sorted(_drafts(groups, phase), key=lambda d: (d.direction != "in", position[d.port.tensor.name]))
    families: list[FlowFamily] = []
    first = 0
    for draft in drafts:
        flows = _flows(first, draft, buffering)
        first += len(flows)
        families.append(FlowFamily(draft.port, draft.direction, draft.pattern, flows))
    return families


def _drafts(groups: list[GroupTiles], phase: list[int]) -> list[_Draft]:
    families: dict[Hashable, _Draft] = {}
    shared: dict[tuple[int, int], dict[int, PortKey]] = {}
    for group in groups:
        for port_key, users in group.users.items():
            tensor, direction, _, tile_shape = port_key
            known: tuple[TilePattern | None, int] = (None, 0)
            for node, (first_byte, pattern) in enumerate(group.ports.sequences(port_key), group.first_node):
                if pattern is not known[0] or phase[node] != known[1]:
                    key = (tensor, direction, tile_shape, pattern.identity, pattern.uses, phase[node])
                    family = families.setdefault(key, _Draft(users[0][1].port, direction, pattern, []))
                    known = pattern, phase[node]
                nodes = shared.get((id(family), first_byte)) if direction == "in" else None
                # A node that takes the same tiles at two ports has a channel for each, and a flow to each.
                if nodes is not None and node not in nodes:
                    nodes[node] = port_key
                    continue
                shared[id(family), first_byte] = nodes = {node: port_key}
                family.flows.append((first_byte, nodes))
    return list(families.values())


def _flows(first: int, draft: _Draft, buffering: Buffering) -> tuple[Flow, ...]:
    port, pattern = draft.port, draft.pattern
    depth = buffering.input_depth if draft.direction == "in" else buffering.output_depth
    tensor, tile_bytes, run_bytes = port.tensor.name, port.tile_bytes, port.run_bytes
    return tuple(
        Flow(
            index=index,
            tensor=tensor,
            direction=draft.direction,
            nodes=tuple(nodes),
            tile_bytes=tile_bytes,
            run_bytes=run_bytes,
            depth=depth,
            moves=pattern.moves,
            first_byte=first_byte,
            ports=tuple(nodes.values()),
        )
        for index, (first_byte, nodes) in enumerate(sorted(draft.flows, key=lambda f: (f[0], *f[1])), first)
    )
