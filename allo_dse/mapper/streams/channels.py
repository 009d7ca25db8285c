"""Streams between the nodes of an NPU design, as the leaves of one period use them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allo_dse.program.compiled import CompiledProgram
from allo_dse.program.index_maps import IntArray

from ..graph.node_schedules import GroupSchedule
from ..graph.ports import PortFamily, port_families
from ..model.movement import Channel

Use = tuple[bool, int]
"""A token through a channel: whether it is put, and the channel's position."""

MOST_TOKENS = 256
"""A task that moves more tokens through one stream is taken to move so many."""


@dataclass(frozen=True)
class NodeLinks:
    """Channels of the nodes of one group.

    Attributes:
        channels: per node, its channels in the order of their ports.
        uses: per leaf that uses channels, the tokens it gets and puts, in the order of the task's ports (equal for all
            nodes of the group).
    """

    channels: list[list[Channel]]
    uses: dict[int, list[Use]]

    @staticmethod
    def none(nodes: int) -> NodeLinks:
        return NodeLinks([[] for _ in range(nodes)], {})

    def add(self, row: int, leaf: int, is_put: bool, channel: Channel) -> None:
        """A use of a channel by a leaf of the group's node `row`; leaves are recorded for the first node."""
        if channel not in self.channels[row]:
            self.channels[row].append(channel)
        if row == 0:
            self.uses.setdefault(leaf, []).append((is_put, self.channels[0].index(channel)))


@dataclass(frozen=True)
class Links:
    """Attributes:
    groups: per node group.
    depth: tokens that each channel holds.
    """

    groups: list[NodeLinks]
    depth: dict[Channel, int]


@dataclass(frozen=True)
class _Uses:
    """The stream uses of one period of all nodes, in parallel arrays: stream number, node, leaf, put or get."""

    number: IntArray
    node: IntArray
    leaf: IntArray
    is_put: NDArray[np.bool_]


def stream_links(program: CompiledProgram, schedules: Sequence[GroupSchedule], connected: bool = True) -> Links:
    """Which leaves exchange tokens with which other node, from the streams that the first period's tasks use.

    Args:
        connected: False when it is known that no stream leads from node to node.
    """
    links = [NodeLinks.none(s.group.count) for s in schedules]
    if not connected or not any(task_class.stream_ports for s in schedules for task_class in s.class_list):
        return Links(links, {})
    uses = _uses(program, schedules)
    place = [(group, row) for group, s in enumerate(schedules) for row in range(s.group.count)]
    depth: dict[Channel, int] = {}
    for number, node, leaf, is_put, peer in _needed(_between(program, uses), schedules):
        array = program.streams[number]
        channel = (node, peer, array.name) if is_put else (peer, node, array.name)
        depth[channel] = array.depth
        group, row = place[node]
        links[group].add(row, leaf, bool(is_put), channel)
    return Links(links, depth)


def _uses(program: CompiledProgram, schedules: Sequence[GroupSchedule]) -> _Uses:
    """The stream ports of one period of every node."""
    kernels = {kernel.name: position for position, kernel in enumerate(program.kernels)}
    ports: list[tuple[PortFamily, IntArray, IntArray, IntArray]] = []
    first = 0
    for schedule in schedules:
        tasks = schedule.group.leaves.tasks(0, len(schedule.classes))
        nodes = np.arange(first, first + schedule.group.count)
        for c, task_class in enumerate(schedule.class_list):
            leaves = np.flatnonzero(schedule.classes == c)
            pids = program.pids(kernels[task_class.kernel], tasks[:, leaves].reshape(-1))
            for family in port_families(task_class.stream_ports):
                members = len(family.members)
                at_node, at_leaf = (
                    np.tile(np.repeat(nodes, len(leaves)), members),
                    np.tile(leaves, len(nodes) * members),
                )
                ports.append((family, family.streams(program, pids).reshape(-1), at_node, at_leaf))
        first += schedule.group.count
    # Where a task does not say how many tokens it moves, it moves those that the task at the stream's other end does.
    said = np.ones(program.stream_count, np.int64)
    for family, number, *_ in ports:
        if family.port.tokens is not None:
            said[number] = min(max(family.port.tokens, 1), MOST_TOKENS)
    parts = []
    for family, number, at_node, at_leaf in ports:
        columns = [column.repeat(said[number]) for column in (number, at_node, at_leaf)]
        parts.append((*columns, np.full(len(columns[0]), family.port.direction == "put")))
    return _Uses(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _between(program: CompiledProgram, uses: _Uses) -> IntArray:
    """(stream array, node, leaf, is_put, peer) of every use whose stream's other end is on another node, by node and
    leaf: (5, uses)."""
    ends = []
    for is_put in (True, False):
        numbers, first = np.unique(uses.number[uses.is_put == is_put], return_index=True)
        ends.append((numbers, uses.node[uses.is_put == is_put][first]))
    (puts, sources), (gets, targets) = ends
    shared, at_put, at_get = np.intersect1d(puts, gets, assume_unique=True, return_indices=True)
    crossing = sources[at_put] != targets[at_get]
    shared, source, target = shared[crossing], sources[at_put][crossing], targets[at_get][crossing]
    position = np.searchsorted(shared, uses.number)
    position[position == len(shared)] = 0
    found = np.flatnonzero(shared[position] == uses.number) if len(shared) else np.zeros(0, np.int64)
    found = found[np.lexsort((uses.leaf[found], uses.node[found]))]
    peer = np.where(uses.is_put[found], target[position[found]], source[position[found]])
    array = np.searchsorted(list(program.first_stream.values()), uses.number[found], side="right") - 1
    return np.stack((array, uses.node[found], uses.leaf[found], uses.is_put[found], peer))


def _needed(uses: IntArray, schedules: Sequence[GroupSchedule]) -> list[list[int]]:
    """What says everything: all uses of each group's first node, and of the other nodes the first of each channel."""
    array, node, _, is_put, peer = uses
    nodes = sum(s.group.count for s in schedules)
    channel = ((array * nodes + node) * nodes + peer) * 2 + is_put
    first = np.zeros(len(node), np.bool_)
    first[np.unique(channel, return_index=True)[1]] = True
    groups = np.cumsum([0, *(s.group.count for s in schedules)])
    found: list[list[int]] = uses[:, first | np.isin(node, groups)].T.tolist()
    return found
