"""Folding by mesh axes: from a `MeshFold` to groups of nodes, without touching a single task."""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

import numpy as np

from ..frontend.program import CompiledProgram, IntArray, Kernel
from .axes import AxisRule, class_varies
from .fold import KernelFold, MeshFold
from .groups import MeshLeaves, NodeGroup
from .tree import Task, Tree, repeat, seq

Rules = tuple[tuple[AxisRule, ...], ...]


def mesh_groups(program: CompiledProgram, fold: MeshFold, rules: Rules) -> tuple[NodeGroup, ...]:
    """Groups of nodes of a normalised and legal fold: kernel by kernel, then by the classes their nodes execute."""
    return tuple(
        itertools.chain.from_iterable(
            kernel_groups(program, number, kernel_fold, rules[number])
            for number, kernel_fold in enumerate(fold.kernels)
        )
    )


def kernel_groups(
    program: CompiledProgram, number: int, fold: KernelFold, rules: tuple[AxisRule, ...]
) -> list[NodeGroup]:
    """Groups of nodes of one kernel."""
    kernel = program.kernels[number]
    strides = _task_strides(kernel.mesh)
    chained = chained_axes(fold, kernel.mesh)
    loop_axes = (*fold.order, *chained)
    trips = tuple(kernel.mesh[a] // fold.axes[a].spatial for a in range(len(kernel.mesh)))
    first, spatial_stride, loop_stride = program.first_task[number], [], [0] * len(kernel.mesh)
    for axis, choice in enumerate(fold.axes):
        between, within = axis_steps(choice.pattern, choice.spatial, trips[axis])
        spatial_stride.append(between * strides[axis])
        loop_stride[axis] = within * strides[axis]
        if axis in chained and rules[axis].direction < 0:
            first += (trips[axis] - 1) * loop_stride[axis]
            loop_stride[axis] *= -1
    trees, group_of = _trees(kernel, number, fold, chained, rules)
    groups = []
    for group, tree in enumerate(trees):
        leaves = MeshLeaves(
            kernel=number,
            first=first,
            spatial=tuple(axis.spatial for axis in fold.axes),
            spatial_stride=tuple(spatial_stride),
            loops=tuple(trips[a] for a in loop_axes),
            loop_axes=loop_axes,
            loop_stride=tuple(loop_stride[a] for a in loop_axes),
            group_of=group_of,
            group=group,
        )
        groups.append(NodeGroup(tree, leaves.count, leaves))
    return groups


def chained_axes(fold: KernelFold, mesh: tuple[int, ...]) -> tuple[int, ...]:
    """The axes a normalised fold chains, as loops from the outermost to the innermost."""
    return tuple(a for a, axis in enumerate(fold.axes) if axis.how == "chain" and axis.spatial < mesh[a])


def axis_steps(pattern: str, spatial: int, trip_count: int) -> tuple[int, int]:
    """How far apart along the axis neighbouring nodes' tasks, and one node's consecutive tasks, are."""
    return (1, spatial) if pattern == "cyclic" else (trip_count, 1)


def _task_strides(mesh: tuple[int, ...]) -> tuple[int, ...]:
    """What one step along each mesh axis adds to the task id."""
    strides = [1] * len(mesh)
    for axis in range(len(mesh) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * mesh[axis + 1]
    return tuple(strides)


def _trees(
    kernel: Kernel, number: int, fold: KernelFold, chained: tuple[int, ...], rules: tuple[AxisRule, ...]
) -> tuple[list[Tree], IntArray]:
    """The different schedule trees of a kernel's nodes, and which one each spatial coordinate has.

    Classes vary only along axes that are chained or spatial, so all iterations of a node's bundled loops are alike.
    """
    bundled = math.prod(kernel.mesh[a] // fold.axes[a].spatial for a in fold.order)
    table = kernel.class_table
    for axis in range(table.ndim):
        if table.shape[axis] > 1 and not class_varies(kernel, axis):
            table = np.take(table, [0], axis=axis)
    sequences, shape = _class_sequences(table, kernel.mesh, fold, chained, rules)
    if len(sequences) == 1:
        return [_tree(number, bundled, tuple(sequences[0].tolist()))], np.zeros(shape, np.int64)
    patterns, group_of = np.unique(sequences, axis=0, return_inverse=True)
    trees = [_tree(number, bundled, tuple(row)) for row in patterns.tolist()]
    return trees, group_of.reshape(shape).astype(np.int64)


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
    digits = digits.transpose(*range(0, 2 * rank, 2), *range(1, 2 * rank, 2))
    return np.broadcast_to(digits, (*spatial, *lengths)).reshape(math.prod(spatial), -1), spatial
