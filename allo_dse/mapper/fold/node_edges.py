"""Streams between folded nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from allo_dse.program.index_maps import IntArray

from ..graph.groups import MeshLeaves, NodeGroup
from ..graph.stream_arrays import StreamEdges, TaskGraph
from .fold import KernelFold, MeshFold


class NodeEdges(Struct, frozen=True):
    """Streams from node to node, one entry per (source node, target node, stream array), sorted in that order.

    Attributes:
        source, target: node numbers.
        array: position of the stream array in `program.streams`.
        count: how many streams of that array lead from the source's tasks to the target's.
    """

    source: IntArray
    target: IntArray
    array: IntArray
    count: IntArray

    def __len__(self) -> int:
        return len(self.source)


def node_edges(
    graph: TaskGraph, groups: Sequence[NodeGroup], fold: MeshFold | None, node_of_task: IntArray | None
) -> NodeEdges:
    """The streams between nodes; those inside a node are left out.

    For a mesh fold of kernels that do not exchange streams, one slice of each mesh is looked at and the result repeated
    along the axes without streams, so that the cost does not depend on their extent.
    """
    if fold is not None and not graph.crosses_kernels:
        return _sliced(graph, groups, fold)
    assert node_of_task is not None
    edges = graph.edges
    source, target = node_of_task[edges.source], node_of_task[edges.target]
    return _aggregate(source, target, edges.array, np.ones(len(edges), np.int64))


def _aggregate(source: IntArray, target: IntArray, array: IntArray, count: IntArray) -> NodeEdges:
    between = source != target
    source, target, array, count = source[between], target[between], array[between], count[between]
    # Sorted, equal (source, target, array) are neighbours, and each run of them is one edge.
    order = np.lexsort((array, target, source))
    source, target, array, count = source[order], target[order], array[order], count[order]
    if not len(source):
        return NodeEdges(source, target, array, count)
    new = np.ones(len(source), bool)
    new[1:] = (np.diff(source) != 0) | (np.diff(target) != 0) | (np.diff(array) != 0)
    starts = np.flatnonzero(new)
    return NodeEdges(source[starts], target[starts], array[starts], np.add.reduceat(count, starts))


def _sliced(graph: TaskGraph, groups: Sequence[NodeGroup], fold: MeshFold) -> NodeEdges:
    parts: list[tuple[IntArray, IntArray, IntArray, IntArray]] = []
    first = 0
    for number, kernel_fold in enumerate(fold.kernels):
        own = [group for group in groups if isinstance(group.leaves, MeshLeaves) and group.leaves.kernel == number]
        spatial = tuple(axis.spatial for axis in kernel_fold.axes)
        slice_edges = graph.slice_edges(number)
        if len(slice_edges):
            numbers = np.empty(math.prod(spatial), np.int64)
            position = first
            for group in own:
                assert isinstance(group.leaves, MeshLeaves)
                numbers[group.leaves.nodes] = np.arange(position, position + group.count)
                position += group.count
            parts.append(_kernel_edges(graph, number, kernel_fold, slice_edges, numbers.reshape(spatial)))
        first += math.prod(spatial)
    if not parts:
        empty = np.zeros(0, np.int64)
        return NodeEdges(empty, empty, empty, empty)
    source, target, array, count = (np.concatenate(column) for column in zip(*parts, strict=True))
    return _aggregate(source, target, array, count)


def _kernel_edges(
    graph: TaskGraph, number: int, fold: KernelFold, edges: StreamEdges, node_numbers: IntArray
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Edges of one kernel: those of the slice, for every node along the axes that the slice cuts."""
    program = graph.program
    mesh = program.kernels[number].mesh
    cut = graph.cut_axes(number)
    ends = []
    for tasks in (edges.source, edges.target):
        pids = program.pids(number, tasks)
        kept = [axis for axis in range(len(mesh)) if axis not in cut]
        # Streams run along the others, which are therefore folded in blocks: cyclic folds are of cut axes only.
        index = [pids[:, axis] // (mesh[axis] // fold.axes[axis].spatial) for axis in kept]
        grid = np.transpose(node_numbers, (*kept, *cut)).reshape(*(fold.axes[a].spatial for a in kept), -1)
        ends.append(grid[tuple(index)])
    # Along the cut axes the slice stands for all tasks: each node has as many streams more as it has tasks there.
    streams = math.prod(mesh[a] // fold.axes[a].spatial for a in cut)
    source, target = ends
    array = np.broadcast_to(edges.array[:, np.newaxis], source.shape).ravel()
    return source.ravel(), target.ravel(), array, np.full(len(array), streams)
