"""The parts of a network of table processes that do not depend on each other, laid out for a look at their state."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ..network.memory_image import Arena
from ..network.network import IntArray, Network, Processes, stream_ends
from ..run_time.records import WORD, Code, Node, Op, Process, Slot, State, Stream

NOBODY = -1
Scalar = TypeVar("Scalar", bound=np.generic)


class Part(Struct, frozen=True, eq=False):
    """Nodes that are joined by streams and resources.

    Attributes:
        nodes, streams, resources: their numbers in the network.
        local: per node of the network its position in `nodes`.
        producer, consumer: per stream of the part the position of the node at each end, past the last for none.
        place: per entry of the streams' memory of tokens, stream after stream, which of its stream's it is.
        rows: address of the operation tables. counts: per row its count, if it is a repeat.
        repeats: per row (and past the last) and nesting level the repeat that it stands in, or -1.
        longest: the largest count of a repeat.
        only_process: per node its process, if no node has several.
    """

    nodes: IntArray
    streams: IntArray
    resources: IntArray
    local: IntArray
    producer: IntArray
    consumer: IntArray
    depth: IntArray
    latency: IntArray
    place: IntArray
    rows: int
    counts: IntArray
    repeats: IntArray
    longest: int
    only_process: IntArray | None

    def per_entry(self, per_stream: NDArray[Scalar]) -> NDArray[Scalar]:
        """Expand values per stream to the entries of the streams' memory."""
        return np.repeat(per_stream, self.depth)

    def is_over(self, arena: Arena) -> bool:
        """Return whether all nodes have finished."""
        return bool((arena.nodes[self.nodes, Node.WAITS_IN] == State.FINISHED).all())

    def processes(self, arena: Arena) -> IntArray:
        """Per node the position of its process in `arena.processes`."""
        if self.only_process is not None:
            return self.only_process
        slot = np.minimum(arena.slot_number(arena.nodes[self.nodes, Node.SLOT]), len(arena.slots) - 1)
        return arena.process_number(arena.slots[slot, Slot.ARGUMENTS])

    def counters(self, arena: Arena) -> IntArray:
        """Per node and nesting level, how often the repeats that its process stands in have been gone through."""
        return arena.processes[self.processes(arena), Process.COUNTERS : Process.COUNTERS + self.repeats.shape[1]]

    def places(self, nodes: IntArray) -> IntArray:
        """Per node the row at which it stands, -1 if it does not run."""
        row = (nodes[:, Node.HANDLE] - self.rows) // (WORD * Op.SIZE)
        return np.where(nodes[:, Node.ACTIVE] == 1, row, -1)

    def anchor(self, arena: Arena, tried: AbstractSet[tuple[int, int]]) -> tuple[int, int] | None:
        """Addresses of the node and the repeat that has most rounds left, outermost repeats first.

        Args:
            tried: those not to take.
        """
        nodes = arena.nodes[self.nodes]
        row = self.places(nodes)
        inside = self.repeats[row]
        left = np.where(inside >= 0, self.counts[inside] - self.counters(arena), 0)
        for level in range(left.shape[1]):
            for node in np.argsort(-left[:, level], kind="stable")[:TRIED].tolist():
                if left[node, level] < 2:
                    break
                found = (
                    arena.node_address(int(self.nodes[node])),
                    self.rows + WORD * Op.SIZE * int(inside[node, level]),
                )
                if found not in tried:
                    return found
        return None


TRIED = 4
"""Nodes that are tried as anchors at each nesting level."""


def parts_of(network: Network, arena: Arena) -> Iterator[Part]:
    """The connected parts of a network of table processes."""
    ends = stream_ends(network, {})
    node_of = np.append(network.task_node, NOBODY)
    producer, consumer = node_of[ends.producer], node_of[ends.consumer]
    user, resource = _resource_users(network)
    label = _components(network, producer, consumer, user, resource)
    rows = network.rows.reshape(-1, Op.SIZE)
    repeats = _repeats(rows)
    longest = np.zeros(network.node_count, np.int64)
    np.maximum.at(longest, network.task_node, _longest(rows)[network.first_row])
    single = network.node_count == network.task_count
    either = np.where(producer == NOBODY, consumer, producer)
    for which in np.unique(label).tolist():
        nodes = np.flatnonzero(label == which)
        local = np.full(network.node_count + 1, len(nodes))
        local[nodes] = np.arange(len(nodes))
        streams = np.flatnonzero((either != NOBODY) & (label[either] == which))
        depth = network.depth[streams]
        yield Part(
            nodes=nodes,
            streams=streams,
            resources=np.unique(resource[label[user] == which]),
            local=local,
            producer=local[producer[streams]],
            consumer=local[consumer[streams]],
            depth=depth,
            latency=network.latency[streams],
            place=np.arange(depth.sum()) - np.repeat(np.cumsum(depth), depth),
            rows=network.rows.ctypes.data,
            counts=rows[:, Op.VALUE],
            repeats=repeats,
            longest=int(longest[nodes].max(initial=0)),
            only_process=arena.process_number(arena.slots[nodes, Slot.ARGUMENTS]) if single else None,
        )


def _resource_users(network: Network) -> tuple[IntArray, IntArray]:
    """Pairs of a node and a resource that it is bound to."""
    user, resource = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    # A process's bindings end where the next ones begin. Groups that repeat once per frame share theirs.
    begins = np.unique([g.first_resource[0] for g in network.groups if isinstance(g, Processes)])
    for first, group in network.numbered_groups:
        assert isinstance(group, Processes)
        begin = group.first_resource[0]
        last = min([*begins[begins > begin], len(network.resource_ports)])
        size = np.diff(group.first_resource, append=last)
        user.append(np.repeat(network.task_node[first : first + len(group)], size))
        resource.append(network.resource_ports[begin:last])
    return np.concatenate(user), np.concatenate(resource)


def _components(
    network: Network, producer: IntArray, consumer: IntArray, user: IntArray, resource: IntArray
) -> IntArray:
    """Per node the least node that it is joined with."""
    joined = (producer != NOBODY) & (consumer != NOBODY)
    first_user = np.full(network.resources, -1)
    first_user[resource[::-1]] = user[::-1]
    a = np.concatenate([producer[joined], user])
    b = np.concatenate([consumer[joined], first_user[resource]])
    label = np.arange(network.node_count)
    # Both ends of every pair, and the nodes that label them, get the lesser label. Then each label is replaced by its
    # own label. Labels only fall, to the least node of each component. The jumps halve the distance in each round;
    # following single neighbours would take as many rounds as a chain has nodes (Shiloach and Vishkin, An O(log n)
    # parallel connectivity algorithm, 1982).
    while len(a):
        low = np.minimum(label[a], label[b])
        new = label.copy()
        for side in (label[a], label[b], a, b):
            np.minimum.at(new, side, low)
        new = new[new]
        if np.array_equal(new, label):
            break
        label = new
    return label


def _repeats(rows: IntArray) -> IntArray:
    """Per row (and past the last) and nesting level the repeat that the row stands in, or -1."""
    found = np.flatnonzero(rows[:, Op.CODE] == Code.REPEAT)
    levels = int(rows[found, Op.OPERAND].max(initial=0)) + 1
    result = np.full((len(rows) + 1, levels), -1)
    for row in found.tolist():
        _, level, _, length = rows[row].tolist()
        result[row - length : row + 1, level] = row
    return result


def _longest(rows: IntArray) -> IntArray:
    """Per first row of a table the largest count of its repeats."""
    counts = np.where(rows[:, Op.CODE] == Code.REPEAT, rows[:, Op.VALUE], 0)
    starts = np.concatenate(([0], np.flatnonzero(rows[:, Op.CODE] == Code.HALT)[:-1] + 1))
    result = np.zeros(len(rows), np.int64)
    result[starts] = np.maximum.reduceat(counts, starts)
    return result


def token_entries(part: Part, arena: Arena, streams: IntArray) -> tuple[IntArray, NDArray[np.bool_]]:
    """Return the last `depth` entries of each stream: positions in `arena.rings`, and whether they are free slots."""
    number = part.per_entry(streams[:, Stream.TAIL]) + part.place
    is_free = number < part.per_entry(streams[:, Stream.HEAD])
    number &= part.per_entry(streams[:, Stream.MASK])
    number *= part.per_entry(arena.ring_words[part.streams])
    number += part.per_entry(arena.ring_first[part.streams])
    return number, is_free
