"""Streams after folding: inside a node, or from node to node.

One round of each schedule is enough: the rounds of a bundle are isomorphic and reach the same peers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from allo_dse.common.records import Frozen
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.compiler.program.tensors import IntArray
from allo_dse.mapper.graph.groups import NodeGroup
from allo_dse.mapper.graph.ports import schedule_round
from allo_dse.mapper.graph.program_graph import ProgramGraph

from .movement import StreamFlow
from .round_wiring import Wiring, group_wirings, uses_of

# Ends of streams at the nodes of groups, and where they meet.


class Ends(NamedTuple):
    """Ends of one direction in a group of nodes: streams, ascending and each once, and the rows of their nodes."""

    stream: IntArray
    row: IntArray

    @staticmethod
    def of(streams: IntArray, rows: IntArray) -> Ends:
        """The first end of each stream."""
        stream, first = np.unique(streams, return_index=True)
        return Ends(stream, rows[first])


class Met(NamedTuple):
    """Streams that have both ends at nodes, ascending, with the numbers of these nodes."""

    stream: IntArray
    source: IntArray
    target: IntArray


def meet(graph: ProgramGraph, groups: Sequence[tuple[int, NodeGroup, int]]) -> Met:
    """Return the streams between nodes of some groups; each end at its first node.

    Args:
        groups: each with the number of its first node, and with how many of its first leaves count.
    """
    firsts = [first for first, _, _ in groups]
    puts, gets = zip(*(group.once(stream_ends, graph, leaves) for _, group, leaves in groups), strict=True)
    put, source = _joined(firsts, puts)
    get, target = _joined(firsts, gets)
    stream, at_put, at_get = np.intersect1d(put, get, assume_unique=True, return_indices=True)
    between = source[at_put] != target[at_get]
    return Met(stream[between], source[at_put][between], target[at_get][between])


def _joined(first_nodes: Sequence[int], ends: Sequence[Ends]) -> tuple[IntArray, IntArray]:
    """The streams, each once, and the numbers of their nodes."""
    nodes = [first + own.row for first, own in zip(first_nodes, ends, strict=True)]
    return Ends.of(np.concatenate([own.stream for own in ends]), np.concatenate(nodes))


class StreamLinks(Frozen):
    """The streams of a mapping.

    Attributes:
        wirings: per node group, the different wirings of its nodes, each with the positions of its nodes in the group.
        between: streams between nodes.
    """

    wirings: tuple[tuple[tuple[Wiring, IntArray], ...], ...]
    between: tuple[StreamFlow, ...]


def link_streams(graph: ProgramGraph, groups: Sequence[tuple[int, NodeGroup]]) -> StreamLinks:
    """Match the two ends of every stream in one round of every node.

    Args:
        groups: each with the number of its first node.
    """
    wirings = tuple(tuple(group.once(group_wirings, graph)) for _, group in groups)
    if not any(wiring.open_ends for own in wirings for wiring, _ in own):
        return StreamLinks(wirings, ())
    met = meet(graph, [(first, group, schedule_round(group.tree).length) for first, group in groups])
    return StreamLinks(wirings, tuple(_between(graph.program, met)))


def stream_ends(group: NodeGroup, graph: ProgramGraph, leaves: int) -> tuple[Ends, Ends]:
    """Return the ends at which the first tasks of a group's nodes put into streams, and get from streams."""
    uses = group.once(uses_of, graph, leaves)
    puts, gets = (uses.only(uses.is_put == way) for way in (True, False))
    return Ends.of(puts.stream, puts.node), Ends.of(gets.stream, gets.node)


def _between(program: CompiledProgram, met: Met) -> Iterator[StreamFlow]:
    """One entry per pair of nodes and stream array: streams between corresponding tasks are used in turn."""
    if not len(met.stream):
        return
    array = program.arrays_of(met.stream)
    nodes = 1 + max(int(met.source.max()), int(met.target.max()))
    code = (array * nodes + met.source) * nodes + met.target
    _, first, counts = np.unique(code, return_index=True, return_counts=True)
    order = np.argsort(first)
    columns = (*(column[first[order]].tolist() for column in (array, met.source, met.target)), counts[order].tolist())
    for number, source, target, count in zip(*columns, strict=True):
        stream = program.streams[number]
        yield StreamFlow(stream.name, source, target, stream.depth, stream.token_bytes, count)
