"""Folding by mesh axes: from a `MeshFold` to groups of nodes, without touching a single task."""

from __future__ import annotations

import math
from functools import lru_cache, partial

import numpy as np

from allo_dse.common.records import replace
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.compiler.program.tensors import IntArray

from ..axes import AxisRule
from ..graph.groups import ChainLeaves, ChainPart, MeshLeaves, NodeGroup, Task, Tree, repeat, seq
from ..graph.program_graph import ProgramGraph
from .fold import JointFold, KernelFold, MeshFold


def mesh_groups(graph: ProgramGraph, fold: MeshFold) -> tuple[NodeGroup, ...]:
    """Groups of nodes of a normalised and legal fold: kernel by kernel, then by the classes their nodes execute.

    Nodes that kernels share come in the place of the first of them.
    """
    joint = JointFold.of(graph, fold)
    heads = {members[0]: members for members in joint.chains}
    tails = {kernel for members in joint.chains for kernel in members[1:]}
    groups: list[NodeGroup] = []
    for number, kernel_fold in enumerate(fold.kernels):
        if number in heads:
            members = heads[number]
            own = tuple(fold.kernels[member] for member in members)
            groups += graph.groups((members, own), partial(_shared_groups, joint, members))
        elif number not in tails:
            rules = graph.rules[number]
            groups += graph.groups(kernel_fold, partial(kernel_groups, graph.program, number, kernel_fold, rules))
    return tuple(groups)


def kernel_groups(
    program: CompiledProgram, number: int, fold: KernelFold, rules: tuple[AxisRule, ...], shared: int = 0
) -> list[NodeGroup]:
    """Groups of nodes of one kernel.

    Args:
        shared: how many outer loops are left to the caller: the tree and the leaves are those of one iteration, with
            the loops left out as the first entries of `loop_axes` and `loop_stride`.
    """
    kernel = program.kernels[number]
    strides = [math.prod(kernel.mesh[axis + 1 :]) for axis in range(len(kernel.mesh))]
    chained = chained_axes(fold, kernel.mesh)
    loop_axes = (*fold.order, *chained)
    trips = tuple(kernel.mesh[a] // fold.axes[a].spatial for a in range(len(kernel.mesh)))
    first, spatial_stride, loop_stride = program.first_task[number], [], [0] * len(kernel.mesh)
    for axis, choice in enumerate(fold.axes):
        between, within = axis_steps(choice.pattern, choice.spatial, trips[axis])
        spatial_stride.append(between * strides[axis])
        loop_stride[axis] = within * strides[axis]
        # Tasks run in the order of streams: if streams lead towards smaller pids, a node begins with its last task.
        if axis in chained and rules[axis].direction < 0:
            first += (trips[axis] - 1) * loop_stride[axis]
            loop_stride[axis] *= -1
    bundled = math.prod(trips[a] for a in fold.order[shared:])
    sequences, shape = _class_sequences(kernel.varying_classes, kernel.mesh, fold, chained, rules)
    patterns, group_of = _distinct(sequences)
    groups = []
    for group, classes in enumerate(patterns):
        leaves = MeshLeaves(
            kernel=number,
            first=first,
            spatial=tuple(axis.spatial for axis in fold.axes),
            spatial_stride=tuple(spatial_stride),
            loops=tuple(trips[a] for a in loop_axes[shared:]),
            loop_axes=loop_axes,
            loop_stride=tuple(loop_stride[a] for a in loop_axes),
            group_of=group_of.reshape(shape),
            group=group,
        )
        groups.append(NodeGroup(_tree(number, bundled, classes), leaves.count, leaves))
    return groups


def _shared_groups(joint: JointFold, members: tuple[int, ...]) -> list[NodeGroup]:
    """Groups of the nodes that chained kernels share."""
    program, shared = joint.graph.program, joint.shared_loops(members)
    trips: tuple[int, ...] = ()
    parts, trees, kinds = [], [], []
    for kernel in members:
        fold = joint.fold.kernels[kernel]
        own = kernel_groups(program, kernel, fold, joint.graph.rules[kernel], shared)
        leaves = own[0].leaves
        assert isinstance(leaves, MeshLeaves)
        trips = tuple(program.kernels[kernel].mesh[a] // fold.axes[a].spatial for a in fold.order[:shared])
        links = [-1 if rule.link is None else rule.link for rule in joint.graph.rules[kernel]]
        # Order axes by `link`, the number that connected axes share: node n of all chained kernels is then one node.
        order = sorted(range(len(links)), key=links.__getitem__)
        base = leaves.every_base.transpose(order).reshape(-1)
        parts.append(ChainPart(base, leaves.loop_stride[:shared], leaves.loops, leaves.loop_stride[shared:]))
        kinds.append(np.broadcast_to(leaves.group_of, leaves.spatial).transpose(order).reshape(-1))
        trees.append([group.tree for group in own])
    # Nodes with equal trees for each kernel form one group, which is costed and scheduled once.
    patterns, group_of = _distinct(np.stack(kinds, axis=1))
    groups = []
    for number, pattern in enumerate(patterns):
        nodes = np.flatnonzero(group_of == number)
        tree = repeat(math.prod(trips), seq(own[kind] for own, kind in zip(trees, pattern, strict=True)))
        own_parts = tuple(replace(part, base=part.base[nodes]) for part in parts)
        groups.append(NodeGroup(tree, len(nodes), ChainLeaves(own_parts, trips)))
    return groups


def chained_axes(fold: KernelFold, mesh: tuple[int, ...]) -> tuple[int, ...]:
    """The axes a normalised fold chains, as loops from the outermost to the innermost."""
    return tuple(a for a, axis in enumerate(fold.axes) if axis.how == "chain" and axis.spatial < mesh[a])


def axis_steps(pattern: str, spatial: int, trip_count: int) -> tuple[int, int]:
    """Return the distances along the axis between neighbouring nodes' tasks, and between one node's consecutive
    tasks."""
    return (1, spatial) if pattern == "cyclic" else (trip_count, 1)


def _distinct(rows: IntArray) -> tuple[list[tuple[int, ...]], IntArray]:
    """The different rows in lexicographic order, and which of them each row is: for a handful, where sorting an array
    takes longer."""
    listed = list(map(tuple, rows.tolist()))
    patterns = sorted(set(listed))
    number = {row: n for n, row in enumerate(patterns)}
    return patterns, np.array([number[row] for row in listed], np.int64)


@lru_cache(maxsize=4096)
def _tree(kernel: int, bundled: int, classes: tuple[int, ...]) -> Tree:
    """A chain of tasks of these classes, repeated; shared, because trees of thousands of tasks recur in a search."""
    return repeat(bundled, seq([Task(kernel, cls) for cls in classes]))


def _class_sequences(
    table: IntArray, mesh: tuple[int, ...], fold: KernelFold, chained: tuple[int, ...], rules: tuple[AxisRule, ...]
) -> tuple[IntArray, tuple[int, ...]]:
    """Per spatial coordinate the classes in execution order: (coordinates, chain length), and the coordinates' shape.

    Axes along which the class does not vary (of length 1 in `table`) have one coordinate.
    """
    rank = table.ndim
    split: list[int] = []
    for axis, (extent, choice) in enumerate(zip(mesh, fold.axes, strict=True)):
        trips = extent // choice.spatial if axis in chained else 1
        if table.shape[axis] == 1:
            split += [1, 1]
            continue
        if rules[axis].direction < 0 and trips > 1:
            table = np.flip(table.reshape(*table.shape[:axis], choice.spatial, trips, -1), axis + 1).reshape(
                table.shape
            )
        split += [choice.spatial, trips] if axis in chained else [table.shape[axis], 1]
    digits = table.reshape(split)
    lengths = [mesh[a] // fold.axes[a].spatial if a in chained else 1 for a in range(rank)]
    spatial = tuple(split[0::2])
    # Every axis is now two digits: its node and its place in the chain. With the nodes' digits in front, each row of
    # the reshaped array is a node, and its columns are the chain from the outermost loop to the innermost.
    digits = digits.transpose(*range(0, 2 * rank, 2), *range(1, 2 * rank, 2))
    return np.broadcast_to(digits, (*spatial, *lengths)).reshape(math.prod(spatial), -1), spatial
