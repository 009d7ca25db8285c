"""Streams after folding: inside a node, or from node to node.

One round of each schedule is enough: the rounds of a bundle are isomorphic and reach the same peers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.compiler.program.tensors import IntArray
from allo_dse.mapper.graph.groups import NodeGroup
from allo_dse.mapper.graph.program_graph import ProgramGraph

from .movement import StreamFlow
from .round_wiring import Wiring, group_wirings

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


def meet(first_nodes: Sequence[int], puts: Sequence[Ends], gets: Sequence[Ends]) -> Met:
    """Return the streams with both ends at nodes of some groups; each end at its first node."""
    put, source = _joined(first_nodes, puts)
    get, target = _joined(first_nodes, gets)
    stream, at_put, at_get = np.intersect1d(put, get, assume_unique=True, return_indices=True)
    return Met(stream, source[at_put], target[at_get])


def _joined(first_nodes: Sequence[int], ends: Sequence[Ends]) -> tuple[IntArray, IntArray]:
    """The streams, each once, and the numbers of their nodes."""
    nodes = [first + own.row for first, own in zip(first_nodes, ends, strict=True)]
    return Ends.of(np.concatenate([own.stream for own in ends]), np.concatenate(nodes))


class StreamLinks(Struct, frozen=True):
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
    puts, gets = zip(*(group.once(_open_ends, graph) for _, group in groups), strict=True)
    met = meet([first for first, _ in groups], puts, gets)
    return StreamLinks(wirings, tuple(_between(graph.program, met)))


def _open_ends(group: NodeGroup, graph: ProgramGraph) -> tuple[Ends, Ends]:
    """Return the ends at which a group's nodes put into streams to other nodes, and get from streams of others."""
    found: dict[str, list[tuple[IntArray, IntArray]]] = {"put": [], "get": []}
    for wiring, nodes in group.once(group_wirings, graph):
        if not wiring.open_ends:
            continue
        first = min(end.leaves[0] for end in wiring.open_ends)
        last = max(end.leaves[-1] for end in wiring.open_ends)
        tasks = group.leaves.tasks(first, last + 1)[nodes]
        for kernel, leaves, families in wiring.open_families:
            pids = graph.program.pids(kernel, tasks[:, [leaf - first for leaf in leaves]].reshape(-1))
            rows = np.repeat(nodes, len(leaves))
            for family in families:
                streams = family.streams(graph.program, pids).reshape(-1)
                found[family.port.direction].append((streams, np.tile(rows, len(family.members))))
    none = np.zeros(0, np.int64)
    puts, gets = (Ends.of(*map(np.concatenate, zip((none, none), *own, strict=True))) for own in found.values())
    return puts, gets


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
