"""Streams after folding: which stay inside a node, and which lead from node to node.

One round of each schedule says it all: the rounds of a bundle are isomorphic and reach the same peers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from allo_dse.program.compiled import CompiledProgram
from allo_dse.program.index_maps import IntArray
from allo_dse.program.streams import StreamPort

from ..graph.program_graph import ProgramGraph
from ..model.movement import StreamFlow
from .round_wiring import Wiring, group_wirings
from .tile_sequences import GroupTiles


@dataclass(frozen=True)
class StreamLinks:
    """The streams of a mapping.

    Attributes:
        wirings: per node group, the different wirings of its nodes.
        between: streams between nodes.
    """

    wirings: tuple[tuple[Wiring, ...], ...]
    between: tuple[StreamFlow, ...]


@dataclass
class _OpenEnds:
    """Open ends of one direction: parallel lists of arrays, and the port that each `kind` stands for."""

    stream: list[IntArray]
    node: list[IntArray]
    kind: list[IntArray]
    ports: list[StreamPort]

    def add(self, stream: IntArray, node: IntArray, port: StreamPort) -> None:
        self.stream.append(stream)
        self.node.append(node)
        self.kind.append(np.full(len(node), len(self.ports)))
        self.ports.append(port)


def link_streams(graph: ProgramGraph, groups: list[GroupTiles]) -> StreamLinks:
    """Match the two ends of every stream in one round of every node."""
    ends = {"put": _OpenEnds([], [], [], []), "get": _OpenEnds([], [], [], [])}
    wirings = []
    for group in groups:
        found = group_wirings(graph, group)
        wirings.append(tuple(wiring for wiring, _ in found))
        for wiring, nodes in found:
            _collect(graph.program, group, wiring, nodes, ends)
    return StreamLinks(tuple(wirings), _between(ends["put"], ends["get"]))


def _collect(
    program: CompiledProgram,
    group: GroupTiles,
    wiring: Wiring,
    nodes: IntArray,
    ends: dict[str, _OpenEnds],
) -> None:
    """Add the open ends of some nodes of a group that are wired alike."""
    if not wiring.open_ends:
        return
    first = min(end.leaves[0] for end in wiring.open_ends)
    last = max(end.leaves[-1] for end in wiring.open_ends)
    tasks = group.group.leaves.tasks(first, last + 1)[nodes]
    for kernel, leaves, families in wiring.open_families:
        pids = program.pids(kernel, tasks[:, [leaf - first for leaf in leaves]].reshape(-1))
        at_node = np.repeat(group.first_node + nodes, len(leaves))
        for family in families:
            streams = family.streams(program, pids).reshape(-1)
            ends[family.port.direction].add(streams, np.tile(at_node, len(family.members)), family.port)


def _between(puts: _OpenEnds, gets: _OpenEnds) -> tuple[StreamFlow, ...]:
    """One entry per pair of nodes and stream array: streams between corresponding tasks are used in turn."""
    if not puts.stream or not gets.stream:
        return ()
    put_node, put_kind = np.concatenate(puts.node), np.concatenate(puts.kind)
    _, put, get = np.intersect1d(np.concatenate(puts.stream), np.concatenate(gets.stream), return_indices=True)
    source, target, kind = put_node[put].tolist(), np.concatenate(gets.node)[get].tolist(), put_kind[put].tolist()
    arrays = {port.stream.name: port.stream for port in puts.ports}
    counts = Counter((puts.ports[k].stream.name, a, b) for a, b, k in zip(source, target, kind, strict=True))
    return tuple(
        StreamFlow(name, a, b, arrays[name].depth, arrays[name].token_bytes, count)
        for (name, a, b), count in counts.items()
    )
