"""Groups of folded nodes with one schedule tree, and the tasks they execute.

Mesh folds know their tasks by arithmetic: task ids are linear in mesh digits, so what a node executes is
`base[node] + offset[leaf]`, and neither is computed before someone asks. Graphs folded node by node hold an array.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from ..frontend.program import IntArray
from .tree import Tree


class Leaves(Protocol):
    """The tasks that each node of a group executes."""

    @property
    def count(self) -> int:
        """How many nodes."""

    @property
    def leaf_count(self) -> int:
        """How many tasks each of them executes."""

    @property
    def loops(self) -> tuple[int, ...] | None:
        """Trip counts of the temporal loops, outermost first (product: `leaf_count`); None if not a loop nest."""

    def tasks(self, start: int = 0, stop: int | None = None) -> IntArray:
        """Task ids of leaves `start` to `stop` (excluded) of every node, in execution order: (count, stop - start)."""


@dataclass(frozen=True, eq=False)
class ArrayLeaves:
    """Leaves given as an array of task ids, of shape (count, leaf_count)."""

    array: IntArray

    @property
    def count(self) -> int:
        return int(self.array.shape[0])

    @property
    def leaf_count(self) -> int:
        return int(self.array.shape[1])

    @property
    def loops(self) -> tuple[int, ...] | None:
        return None

    def tasks(self, start: int = 0, stop: int | None = None) -> IntArray:
        return self.array[:, start:stop]


@dataclass(frozen=True, eq=False)
class MeshLeaves:
    """Leaves of a mesh fold: `tasks()[node, leaf] == base[node] + offsets()[leaf]`.

    Attributes:
        kernel: position of the kernel.
        first: task id of the first task of the node at spatial coordinate 0.
        spatial: nodes along each mesh axis.
        spatial_stride: what one step along each spatial axis adds to the task id.
        loops, loop_axes, loop_stride: trip counts of the temporal loops, outermost first, the mesh axis each runs
            along, and what one iteration adds to the task id.
        group_of: which group each spatial coordinate belongs to, broadcastable to `spatial`.
        group: this group's number in it.
    """

    kernel: int
    first: int
    spatial: tuple[int, ...]
    spatial_stride: tuple[int, ...]
    loops: tuple[int, ...]
    loop_axes: tuple[int, ...]
    loop_stride: tuple[int, ...]
    group_of: IntArray
    group: int

    @cached_property
    def count(self) -> int:
        return int(np.count_nonzero(self.group_of == self.group)) * (math.prod(self.spatial) // self.group_of.size)

    @property
    def leaf_count(self) -> int:
        return math.prod(self.loops)

    @cached_property
    def nodes(self) -> IntArray:
        """Row-major position of each node of the group in the grid of spatial coordinates: (count,)."""
        if self.count == math.prod(self.spatial):
            return np.arange(self.count)
        return np.flatnonzero(np.broadcast_to(self.group_of == self.group, self.spatial))

    @cached_property
    def base(self) -> IntArray:
        """First task id of each node: (count,)."""
        base = np.full((1,) * len(self.spatial), self.first, np.int64)
        for axis, (extent, stride) in enumerate(zip(self.spatial, self.spatial_stride, strict=True)):
            if extent > 1:
                shape = [1] * len(self.spatial)
                shape[axis] = extent
                base = base + (np.arange(extent) * stride).reshape(shape)
        flat = base.reshape(-1)
        return flat if len(flat) == self.count else flat[self.nodes]

    def offsets(self, start: int = 0, stop: int | None = None) -> IntArray:
        """What leaves `start` to `stop` add to a node's first task id: (stop - start,)."""
        leaf = np.arange(*slice(start, stop).indices(self.leaf_count))
        result = np.zeros(len(leaf), np.int64)
        for trip_count, stride in zip(reversed(self.loops), reversed(self.loop_stride), strict=True):
            leaf, digit = np.divmod(leaf, trip_count)
            result += digit * stride
        return result

    def tasks(self, start: int = 0, stop: int | None = None) -> IntArray:
        return self.base[:, None] + self.offsets(start, stop)[None, :]


@dataclass(frozen=True, eq=False)
class NodeGroup:
    """`count` nodes that execute the same schedule tree, each for its own tasks."""

    tree: Tree
    count: int
    leaves: Leaves
