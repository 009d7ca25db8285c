"""Data memory of a core for a folded node.

    reserved + sum(input ports: depth * tile) + sum(output ports: depth * tile) + stream FIFOs + chain buffers

With one output this is the published fit `2*A + 2*B + c*C + 3328 <= 65536` (facts: [ph] in the device files).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

from allo_dse.common.records import Frozen
from allo_dse.compiler.program.tensors import TensorPort
from allo_dse.device.device import NpuDevice
from allo_dse.mapper.graph.ports import PortKey
from allo_dse.mapper.violation import Buffering

from .flows import GroupTiles
from .links import StreamLinks
from .round_wiring import Block, Wiring


class NodeMemory(Frozen):
    """Bytes of data memory that a node needs, by purpose; `node` is the one of its group that needs most."""

    node: int
    reserved: int
    inputs: int
    outputs: int
    streams: int
    chain: int

    @property
    def total(self) -> int:
        return self.reserved + self.inputs + self.outputs + self.streams + self.chain

    def __str__(self) -> str:
        parts = {
            "inputs": self.inputs,
            "outputs": self.outputs,
            "streams": self.streams,
            "chain buffers": self.chain,
            "reserved": self.reserved,
        }
        return ", ".join(f"{name} {size:,}" for name, size in parts.items() if size)


def group_memory(
    groups: list[GroupTiles], links: StreamLinks, device: NpuDevice, buffering: Buffering
) -> list[NodeMemory]:
    """The most that a node of each group needs."""
    fifos: dict[int, int] = {}
    for stream in links.between:
        fifos[stream.source] = fifos.get(stream.source, 0) + stream.depth * stream.token_bytes
    result = []
    for group, wirings in zip(groups, links.wirings, strict=True):
        inputs, outputs = _tile_bytes(group, buffering)
        # Nodes of one wiring differ in their FIFOs only.
        needs = []
        for wiring, positions in wirings:
            node = group.first_node + max(positions.tolist(), key=lambda at: fifos.get(group.first_node + at, 0))
            needs.append((fifos.get(node, 0), chain_bytes(wiring, buffering.output_depth), node))
        none = 0, 0, group.first_node
        streams, chain, worst = max(needs, key=lambda need: need[0] + need[1], default=none)
        result.append(NodeMemory(worst, device.reserved_core_bytes, inputs, outputs, streams, chain))
    return result


def own_memory(groups: list[GroupTiles], links: StreamLinks, device: NpuDevice, buffering: Buffering) -> list[int]:
    """Bytes that each node needs wherever its FIFOs to other nodes are."""
    result = []
    for group, wirings in zip(groups, links.wirings, strict=True):
        own = [device.reserved_core_bytes + sum(_tile_bytes(group, buffering))] * group.group.count
        for wiring, positions in wirings:
            chain = chain_bytes(wiring, buffering.output_depth)
            for position in positions.tolist():
                own[position] += chain
        result += own
    return result


def _tile_bytes(group: GroupTiles, buffering: Buffering) -> tuple[int, int]:
    """Return the bytes of a node's input buffers, and of its output buffers."""
    inputs = sum(buffering.input_depth * port.tile_bytes for port in _ports(group, "in"))
    return inputs, sum(buffering.output_depth * port.tile_bytes for port in _ports(group, "out"))


def _ports(group: GroupTiles, direction: str) -> Iterable[TensorPort]:
    return (users[0][1].port for key, users in group.users.items() if key[1] == direction)


def chain_bytes(wiring: Wiring, output_depth: int) -> int:
    """Bytes of the buffers between the tasks of a chain: the most that are alive at once during a round.

    A stream inside a node is a buffer that holds all its tokens from the task that puts them to the one that gets them.
    A task that gets one block and hands on one of the same shape and type updates it in place: the accumulator of a
    split-K chain is one buffer, however long the chain. An accumulator that ends in an output port or in a stream to
    another node lives in a slot of that port or FIFO from the start and needs nothing of its own: the measured fit of
    [ph] has no term for it. Only when more accumulators are alive than the port has slots do the others need buffers.

    Args:
        output_depth: slots of an output port.
    """
    slots: dict[PortKey, list[Block]] = {}
    for block in wiring.blocks:
        if block.slot is not None:
            slots.setdefault(block.slot, []).append(block)
    total = _peak((b.start, b.end, b.bytes) for b in wiring.blocks if b.slot is None)
    for blocks in slots.values():
        alive = _peak((b.start, b.end, 1) for b in blocks)
        total += max(0, alive - output_depth) * blocks[0].bytes
    return total


def _peak(lives: Iterable[tuple[int, int, int]]) -> int:
    """The largest sum of weights of lives (start, end included, weight) that overlap."""
    changes: dict[int, int] = {}
    for start, end, weight in lives:
        changes[start] = changes.get(start, 0) + weight
        changes[end + 1] = changes.get(end + 1, 0) - weight
    return max(accumulate(changes[time] for time in sorted(changes)), default=0)
