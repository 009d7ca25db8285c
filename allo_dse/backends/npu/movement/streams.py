"""Streams between the nodes of an NPU design, as the leaves of one period use them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from math import gcd

import numpy as np

from allo_dse.common.records import Frozen
from allo_dse.compiler.program.tensors import IntArray
from allo_dse.mapper.graph.groups import NodeGroup
from allo_dse.mapper.graph.program_graph import ProgramGraph
from allo_dse.simulator.network.tables import Table

from .links import Met, meet
from .movement import Channel
from .periods import Flags, GroupSchedule
from .round_wiring import uses_of

# Steps of a task on its channels.
#
# A task that exchanges n tokens over one channel acts as a loop would: its work is divided into n steps, each of which
# gets, computes and puts its share.


Use = tuple[bool, int]
"""A direction of a channel: whether it is put to, and the channel's position."""
Uses = tuple[tuple[Use, int], ...]
"""Numbers of tokens that a task moves, in the order of its ports."""


class LeafUses(Frozen, eq=False, dict=True):
    """Tokens that the leaves of a period get from and put to a node's channels; folds with equal uses share one.

    Attributes:
        leaves: number of leaves.
        by_leaf: per leaf that uses channels, the number of tokens of each use, in the order of the task's ports.
    """

    leaves: int
    by_leaf: Mapping[int, Uses]

    def of(self, leaf: int) -> Uses:
        return self.by_leaf.get(leaf, ())

    @property
    def tokens(self) -> int:
        """Number of tokens that a node moves in a period."""
        return sum(tokens for own in self.by_leaf.values() for _, tokens in own)

    @cached_property
    def codes(self) -> IntArray:
        """Code of the channels that each leaf uses; 0 if it uses none."""
        number = {own: code for code, own in enumerate(self.kinds)}
        result = np.zeros(self.leaves, np.int64)
        result[list(self.by_leaf)] = [number[own] for own in self.by_leaf.values()]
        return result

    @property
    def kinds(self) -> list[Uses]:
        """Channel uses by code."""
        return list(dict.fromkeys([(), *self.by_leaf.values()]))


class Step(Frozen):
    """A share of a task's work.

    Attributes:
        parts: the channels it gets from, and those that it puts to then; again where another get follows a put.
        ticks: of the work, which ends before its first put.
    """

    parts: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    ticks: int

    def write(self, table: Table, first: int) -> None:
        """Add the step to a table; channel c is the FIFO at ports 2 * (first + c), full slots, and the next, free ones.

        Room for what it puts is taken before it works, as a core acquires its object FIFOs.
        """
        for part, (gets, puts) in enumerate(self.parts):
            for channel in gets:
                table.get(2 * (first + channel))
            for channel in puts:
                table.get(2 * (first + channel) + 1)
            if not part:
                table.wait(self.ticks)
            for channel in gets:
                table.put(2 * (first + channel) + 1)
            for channel in puts:
                table.put(2 * (first + channel))


Steps = tuple[tuple[Step, int], ...]
"""Steps one after the other, each with the number of its repetitions."""


def leaf_steps(ticks: int, uses: Uses) -> list[tuple[Steps, int]]:
    """Return one step per token of the busiest channel, as sequences with the numbers of their repetitions.

    The tokens of other channels are spread evenly; a single one comes in the first step when its port stands before the
    busiest one's, and else in the last. In each step they follow each other as the ports do.
    """
    tokens: Counter[Use] = Counter()
    for use, own in uses:
        tokens[use] += own
    count = max(tokens.values(), default=1)
    times = gcd(count, *(own for own in tokens.values() if own > 1))
    length, (share, rest) = count // times, divmod(ticks, count)
    order = list(tokens)
    busiest = next((number for number, own in enumerate(tokens.values()) if own == count), 0)
    got = next((number for number, (is_put, _) in enumerate(order) if not is_put), 0)

    def part(is_first: bool, is_last: bool) -> Steps:
        """Steps of one of `times` equal shares but for single tokens and the rest of the work."""
        steps: list[list[Use]] = [[] for _ in range(length)]
        for number, (use, own) in enumerate(tokens.items()):
            worked_out = use[0] and number >= got  # a token put before any get is there already
            if own == 1:
                at = [length - 1] * is_last if number > busiest else [0] * is_first
            elif worked_out:
                at = [-(-(token + 1) * length // (own // times)) - 1 for token in range(own // times)]
            else:
                at = [token * length // (own // times) for token in range(own // times)]
            for step in at:
                steps[step].append(use)
        made = [Step(_parts(own), share) for own in steps]
        if is_last:
            made[-1] = Step(made[-1].parts, share + rest)
        return tuple((step, sum(1 for _ in alike)) for step, alike in groupby(made))

    if times == 1:
        return [(part(True, True), 1)]
    found: list[tuple[Steps, int]] = []
    for steps, repetitions in ((part(True, False), 1), (part(False, False), times - 2), (part(False, True), 1)):
        if found and found[-1][0] == steps:
            repetitions += found.pop()[1]
        if repetitions:
            found.append((steps, repetitions))
    return found


def _parts(uses: Sequence[Use]) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    parts: list[tuple[list[int], list[int]]] = [([], [])]
    for is_put, channel in uses:
        if not is_put and parts[-1][True]:
            parts.append(([], []))
        parts[-1][is_put].append(channel)
    return tuple((tuple(gets), tuple(puts)) for gets, puts in parts)


def slots(depths: Sequence[int]) -> tuple[IntArray, IntArray]:
    """Return the depths and first tokens of FIFOs' streams: of each the filled slots, then the free ones."""
    free = np.repeat(np.array(depths, np.int64), 2)
    return free, free * (np.arange(len(free)) % 2)


class NodeLinks(Frozen):
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


class Links(Frozen):
    """Attributes:
    groups: per node group.
    depth: tokens that each channel holds.
    """

    groups: list[NodeLinks]
    depth: dict[Channel, int]


def stream_links(graph: ProgramGraph, schedules: Sequence[GroupSchedule], connected: bool = True) -> Links:
    """Find the leaves that exchange tokens with other nodes, from the streams that the first period's tasks use.

    Args:
        connected: False when it is known that no stream leads from node to node.
    """
    if not connected or not any(task_class.stream_ports for s in schedules for task_class in s.class_list):
        return Links([NodeLinks.none(schedule) for schedule in schedules], {})
    firsts = np.cumsum([0, *(schedule.group.count for schedule in schedules)]).tolist()
    met = meet(graph, [(first, s.group, len(s.classes)) for first, s in zip(firsts, schedules, strict=False)])
    depth: dict[Channel, int] = {}
    numbered = zip(schedules, firsts, strict=False)
    return Links([_group_links(graph, s, met, first, firsts[-1], depth) for s, first in numbered], depth)


def _group_links(
    graph: ProgramGraph, schedule: GroupSchedule, met: Met, first: int, nodes: int, depth: dict[Channel, int]
) -> NodeLinks:
    """The channels of one group, whose first node has the number `first`; adds their depths.

    Args:
        met: the streams between nodes.
        nodes: how many there are.
    """
    group, uses = schedule.group, schedule.group.once(uses_of, graph, len(schedule.classes))
    if not len(met.stream) or not len(uses.stream):
        return NodeLinks.none(schedule)
    at = np.searchsorted(met.stream, uses.stream)
    at[at == len(met.stream)] = 0
    found = np.flatnonzero(met.stream[at] == uses.stream)
    at, uses = at[found], uses.only(found)
    row, array, is_put = uses.node, graph.program.arrays_of(uses.stream), uses.is_put
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
    # A task with an unknown number of tokens moves as many as the task at the other end.
    declared = np.array([port.tokens is not None and max(port.tokens, 1) for _, _, port in uses.kinds])[uses.kind]
    tokens = declared if declared.all() else np.where(declared, declared, graph.tokens[uses.stream])
    own_uses = uses.leaf, is_put, place[inverse], tokens
    told = np.stack([column[here] for column in own_uses]).astype(np.int64)
    return NodeLinks(channels, group.once(_leaf_uses, len(schedule.classes), told.tobytes()))


def _leaf_uses(_: NodeGroup, leaves: int, told: bytes) -> LeafUses:
    """Return the channel uses of a node's leaves, from the (leaf, put or get, channel, tokens) of all of its uses."""
    by_leaf: dict[int, list[tuple[Use, int]]] = {}
    for leaf, is_put, channel, tokens in np.frombuffer(told, np.int64).reshape(4, -1).T.tolist():
        by_leaf.setdefault(leaf, []).append(((bool(is_put), channel), tokens))
    return LeafUses(leaves, {leaf: tuple(own) for leaf, own in by_leaf.items()})


# A core's operations in one period of its schedule, as rows of an operation table.
#
# A task acquires its input tiles and room for its output, computes, and releases both. In between it exchanges tokens
# with other cores, step by step.


def core_period(table: Table, schedule: GroupSchedule, ticks: IntArray, external: NodeLinks, steady: bool) -> None:
    """One period of a core, leaf after leaf; equal leaves in a row become a repeat."""
    count = len(schedule.ports)
    moves = [port.steady if steady else port.first for port in schedule.ports]
    acquires = [_acquires(m) if port.key[1] == "out" else m for port, m in zip(schedule.ports, moves, strict=True)]
    columns = [ticks, *acquires, *moves, *(port.last_use for port in schedule.ports)]
    columns.append(external.uses.codes)
    signature = np.stack(columns, axis=1).astype(np.int64)
    starts = np.flatnonzero(np.concatenate(([True], (signature[1:] != signature[:-1]).any(axis=1))))
    lengths = np.diff(np.append(starts, len(ticks)))
    for leaf, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        with table.repeat(length):
            for p in range(count):
                if acquires[p][leaf]:
                    table.get(2 * p if schedule.ports[p].key[1] == "in" else 2 * p + 1)
            write_steps(table, count, leaf_steps(int(ticks[leaf]), external.uses.of(leaf)))
            for p, port in enumerate(schedule.ports):
                if port.key[1] == "in" and port.last_use[leaf]:
                    table.put(2 * p + 1)
                if port.key[1] == "out" and moves[p][leaf]:
                    table.put(2 * p)


def write_steps(table: Table, first: int, every: Iterable[tuple[Steps, int]]) -> None:
    """Add the steps of one leaf to a table; channels are FIFOs from number `first` on."""
    for steps, times in every:
        with table.repeat(times):
            for step, alike in steps:
                with table.repeat(alike):
                    step.write(table, first)


def _acquires(stores: Flags) -> Flags:
    """Leaves at which an output slot is taken: where accumulation begins, after the previous tile was given away.

    After the last tile of a period that is the next period's first leaf, whatever leaves come in between.
    """
    to_come: Flags = np.logical_or.accumulate(stores[::-1])[::-1]
    return np.concatenate(([True], stores[:-1])) & to_come
