"""Many chains at once: the state of a graph as arrays, and a run of `chain` primitives carried out on it together.

A run is taken to be legal if afterwards the graph of nodes has no cycle and every stream inside a node leads forwards:
a path from the second of two chained nodes back to the first would be one or the other. Others are made one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from allo_dse.program.compiled import CompiledProgram
from allo_dse.program.index_maps import IntArray

from ..graph.groups import ArrayLeaves, NodeGroup
from ..graph.stream_arrays import TaskGraph
from ..graph.tree import Tree, seq
from ..model.order import topological_ranks


class NodeArrays(Struct, frozen=True, eq=False):
    """Nodes of a graph that is being folded.

    Attributes:
        labels: the nodes' names.
        trees: the nodes' schedule trees.
        leaves: task ids of all nodes, one after the other.
        starts: where each node's tasks begin, and the number of tasks as last entry.
        source, target, kind: streams between different nodes, and their element types.
    """

    program: CompiledProgram
    labels: list[str]
    trees: list[Tree]
    leaves: IntArray
    starts: IntArray
    source: IntArray
    target: IntArray
    kind: IntArray

    @staticmethod
    def of(graph: TaskGraph, groups: Sequence[NodeGroup], names: Sequence[str]) -> NodeArrays:
        """The state of a folded graph."""
        tasks = [group.leaves.tasks() for group in groups]
        leaves = np.concatenate([own.reshape(-1) for own in tasks])
        lengths = np.concatenate([np.full(len(own), own.shape[1]) for own in tasks])
        starts = np.concatenate([[0], np.cumsum(lengths)])
        owner = np.empty(graph.program.task_count, np.int64)
        owner[leaves] = np.repeat(np.arange(len(lengths)), lengths)
        trees = [group.tree for group in groups for _ in range(group.count)]
        edges = graph.edges
        source, target, kind = owner[edges.source], owner[edges.target], graph.element_type[edges.array]
        between = source != target
        streams = (source[between], target[between], kind[between])
        return NodeArrays(graph.program, list(names), trees, leaves, starts, *streams)

    def chained(self, pairs: Sequence[Sequence[Any]]) -> NodeArrays | None:
        """The state after chaining pair after pair of nodes; None where that has to be looked at one by one."""
        number = {name: node for node, name in enumerate(self.labels)}
        members: dict[str, list[int]] = {}
        for pair in pairs:
            if len(pair) != 2:
                return None
            first, second = (members.pop(name, None) or _single(number, name) for name in pair)
            if not first or not second:
                return None
            first.extend(second)
            members[f"{pair[0]}-{pair[1]}"] = first
        kept = [[node] for node in number.values()]
        rows = [*kept, *members.values()]
        order = np.concatenate([np.array(row, np.int64) for row in rows])
        lengths = np.array([len(row) for row in rows], np.int64)
        merged = self._merged(order, lengths)
        return None if merged is None else NodeArrays(self.program, [*number, *members], self._trees(rows), *merged)

    def _trees(self, rows: Sequence[list[int]]) -> list[Tree]:
        """The tree of each merged node; equal chains share one."""
        known: dict[tuple[Tree, ...], Tree] = {}
        result = []
        for row in rows:
            parts = tuple(self.trees[node] for node in row)
            if parts not in known:
                known[parts] = seq(parts)
            result.append(known[parts])
        return result

    def _merged(
        self, order: IntArray, lengths: IntArray
    ) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray] | None:
        """Leaves, starts and streams when nodes are merged in this order, so many into each; None as `chained`."""
        place, owner = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        owner[order] = np.repeat(np.arange(len(lengths)), lengths)
        source, target = owner[self.source], owner[self.target]
        inside = source == target
        if (place[self.source[inside]] > place[self.target[inside]]).any():
            return None
        source, target, kind = source[~inside], target[~inside], self.kind[~inside]
        if (topological_ranks(source, target, len(lengths)) < 0).any():
            return None
        sizes = np.diff(self.starts)[order]
        offsets = np.cumsum(sizes) - sizes
        leaves = self.leaves[np.repeat(self.starts[order] - offsets, sizes) + np.arange(len(self.leaves))]
        ends = np.cumsum(sizes)[np.cumsum(lengths) - 1]
        return leaves, np.concatenate([[0], ends]), source, target, kind

    def groups(self) -> tuple[tuple[NodeGroup, ...], tuple[str, ...]]:
        """Immutable groups, ordered by their first task, and the nodes' names in the same order."""
        members: dict[Tree, list[int]] = {}
        # Ordered by tasks, not by names or history: sequences that make the same graph must make equal groups.
        for node in np.argsort(self.leaves[self.starts[:-1]], kind="stable").tolist():
            members.setdefault(self.trees[node], []).append(node)
        result = []
        for tree, nodes in members.items():
            rows = self.starts[nodes][:, None] + np.arange(tree.leaf_count)
            result.append(NodeGroup(tree, len(nodes), ArrayLeaves(self.leaves[rows])))
        return tuple(result), tuple(self.labels[node] for nodes in members.values() for node in nodes)


def _single(number: dict[str, int], name: str) -> list[int] | None:
    node = number.pop(name, None)
    return None if node is None else [node]
