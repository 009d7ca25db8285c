"""Streams between the nodes of an NPU design, as the leaves of one period use them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from allo_dse.program.index_maps import IntArray

from ..graph.groups import NodeGroup
from ..graph.node_schedules import GroupSchedule, period_table
from ..graph.ports import capped_tokens, port_families
from ..graph.program_graph import ProgramGraph
from ..model.movement import Channel
from .ends import Ends, Met, meet
from .leaf_steps import LeafUses


class NodeLinks(Struct, frozen=True):
    """Channels of the nodes of one group.

    Attributes:
        channels: per node, its channels in the order of their ports.
        uses: what the leaves get and put (equal for all nodes of the group).
    """

    channels: list[list[Channel]]
    uses: LeafUses

    @staticmethod
    def none(schedule: GroupSchedule) -> NodeLinks:
        return NodeLinks([[] for _ in range(schedule.group.count)], LeafUses(len(schedule.classes), {}))


class Links(Struct, frozen=True):
    """Attributes:
    groups: per node group.
    depth: tokens that each channel holds.
    """

    groups: list[NodeLinks]
    depth: dict[Channel, int]


class _Uses(NamedTuple):
    """The tokens that the nodes of a group exchange in one period, in parallel arrays by node, leaf and port."""

    stream: IntArray
    array: IntArray
    row: IntArray
    leaf: IntArray
    is_put: NDArray[np.bool_]


def stream_links(graph: ProgramGraph, schedules: Sequence[GroupSchedule], connected: bool = True) -> Links:
    """Which leaves exchange tokens with which other node, from the streams that the first period's tasks use.

    Args:
        connected: False when it is known that no stream leads from node to node.
    """
    if not connected or not any(task_class.stream_ports for s in schedules for task_class in s.class_list):
        return Links([NodeLinks.none(schedule) for schedule in schedules], {})
    firsts = np.cumsum([0, *(schedule.group.count for schedule in schedules)]).tolist()
    puts, gets = ([s.group.once(_ends, graph, s.periods, way) for s in schedules] for way in (True, False))
    met = meet(firsts[:-1], puts, gets)
    between = met.source != met.target
    met = Met(*(column[between] for column in met))
    depth: dict[Channel, int] = {}
    numbered = zip(schedules, firsts, strict=False)
    return Links([_group_links(graph, s, met, first, firsts[-1], depth) for s, first in numbered], depth)


def _uses(group: NodeGroup, graph: ProgramGraph, periods: int) -> _Uses:
    """The stream ports of one period of every node, each as often as it moves tokens."""
    program, schedule = graph.program, period_table(graph).schedule(group, periods)
    position = {kernel.name: number for number, kernel in enumerate(program.kernels)}
    tasks = group.leaves.tasks(0, len(schedule.classes))
    rows = np.arange(group.count)
    parts: list[tuple[IntArray, ...]] = [(np.zeros(0, np.int64),) * 4]
    for number, task_class in enumerate(schedule.class_list):
        leaves = np.flatnonzero(schedule.classes == number)
        pids = program.pids(position[task_class.kernel], tasks[:, leaves].reshape(-1))
        for family in port_families(task_class.stream_ports):
            members = len(family.members)
            streams = family.streams(program, pids).reshape(-1)
            at_row, at_leaf = np.tile(np.repeat(rows, len(leaves)), members), np.tile(leaves, group.count * members)
            port = family.port
            columns = streams, at_row, at_leaf, np.full(len(streams), port.direction == "put")
            # Where a task does not say how many tokens it moves, it moves those that the task at the other end does.
            tokens = graph.tokens[streams] if port.tokens is None else capped_tokens(port.tokens)
            parts.append(tuple(column.repeat(tokens) for column in columns))
    stream, row, leaf, is_put = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((leaf, row))
    return _Uses(
        stream[order], program.arrays_of(stream[order]), row[order], leaf[order], is_put[order].astype(np.bool_)
    )


def _ends(group: NodeGroup, graph: ProgramGraph, periods: int, is_put: bool) -> Ends:
    uses = group.once(_uses, graph, periods)
    own = uses.is_put == is_put
    return Ends.of(uses.stream[own], uses.row[own])


def _group_links(
    graph: ProgramGraph, schedule: GroupSchedule, met: Met, first: int, nodes: int, depth: dict[Channel, int]
) -> NodeLinks:
    """The channels of one group, whose first node has the number `first`; adds their depths.

    Args:
        met: the streams between nodes.
        nodes: how many there are.
    """
    group, uses = schedule.group, schedule.group.once(_uses, graph, schedule.periods)
    if not len(met.stream) or not len(uses.stream):
        return NodeLinks.none(schedule)
    at = np.searchsorted(met.stream, uses.stream)
    at[at == len(met.stream)] = 0
    found = np.flatnonzero(met.stream[at] == uses.stream)
    at, row, array, is_put = at[found], uses.row[found], uses.array[found], uses.is_put[found]
    peer = np.where(is_put, met.target[at], met.source[at])
    # A node's channels are numbered in the order in which it first uses them.
    code = ((row * len(graph.program.streams) + array) * nodes + peer) * 2 + is_put
    _, firsts, inverse = np.unique(code, return_index=True, return_inverse=True)
    order = np.argsort(firsts)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    channels: list[list[Channel]] = [[] for _ in range(group.count)]
    columns = [column[firsts[order]].tolist() for column in (row, array, peer, is_put)]
    for own, number, other, puts in zip(*columns, strict=True):
        stream = graph.program.streams[number]
        channel = (first + own, other, stream.name) if puts else (other, first + own, stream.name)
        channels[own].append(channel)
        depth[channel] = stream.depth
    here = slice(0, int(np.searchsorted(row, 1)))
    told = np.stack((uses.leaf[found][here], is_put[here], place[inverse[here]])).astype(np.int64)
    return NodeLinks(channels, group.once(_leaf_uses, len(schedule.classes), told.tobytes()))


def _leaf_uses(_: NodeGroup, leaves: int, told: bytes) -> LeafUses:
    """What the leaves of a node do, from (leaf, put or get, channel) of all of its uses."""
    by_leaf: dict[int, list[tuple[bool, int]]] = {}
    for leaf, is_put, channel in np.frombuffer(told, np.int64).reshape(3, -1).T.tolist():
        by_leaf.setdefault(leaf, []).append((bool(is_put), channel))
    return LeafUses(leaves, {leaf: tuple(own) for leaf, own in by_leaf.items()})
