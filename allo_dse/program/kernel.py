"""Kernels: a mesh of tasks, and which class each of them is of."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from allo_dse.common.records import replace

from .index_maps import IntArray
from .locations import SourceLocation
from .tasks import TaskClass
from .tensors import Tensor


@dataclass(frozen=True)
class Kernel:
    """A kernel: `prod(mesh)` tasks.

    Attributes:
        class_table: position in `classes` for every pid, of shape `mesh` except that axes no condition depends on have
            length 1 (broadcast it against the mesh).
    """

    name: str
    mesh: tuple[int, ...]
    args: tuple[Tensor, ...]
    classes: tuple[TaskClass, ...]
    class_table: IntArray = field(compare=False)
    location: SourceLocation | None = None

    @property
    def task_count(self) -> int:
        return math.prod(self.mesh)

    @cached_property
    def class_sizes(self) -> list[int]:
        """How many tasks each class has."""
        table = np.broadcast_to(self.class_table, self.mesh)
        return [int(count) for count in np.bincount(table.ravel(), minlength=len(self.classes))]

    @cached_property
    def varying_classes(self) -> IntArray:
        """`class_table` with length 1 along every axis along which the class does not change."""
        table = self.class_table
        for axis in range(table.ndim):
            first = np.take(table, [0], axis=axis)
            if (table == first).all():
                table = first
        return table

    @cached_property
    def by_work(self) -> tuple[tuple[TaskClass, ...], IntArray]:
        """The classes, apart where their tasks do some of their work more or less often than others, and the position
        of every task's among them, as `varying_classes` has it."""
        table = self.varying_classes
        varied = [[op.counts for op in cls.work if op.counts is not None] for cls in self.classes]
        if not any(varied):
            return self.classes, table
        shape = np.broadcast_shapes(table.shape, *(counts.shape for own in varied for counts in own))
        table, result = np.broadcast_to(table, shape), np.zeros(shape, np.int64)
        found: list[TaskClass] = []
        for position, (cls, own) in enumerate(zip(self.classes, varied, strict=True)):
            here = table == position
            each = np.stack([np.broadcast_to(counts, shape)[here] for counts in own], 1) if own else None
            alike, codes = (np.zeros((1, 0), int), 0) if each is None else np.unique(each, axis=0, return_inverse=True)
            result[here] = len(found) + codes
            found += [_doing(cls, counts.tolist()) for counts in alike]
        return tuple(found), result

    def class_of(self, pids: IntArray) -> IntArray:
        """Position in `classes` for each pid; `pids` has shape (n, mesh rank)."""
        return _at(self.class_table, pids)

    def work_of(self, pids: IntArray) -> IntArray:
        """Position among the classes of `by_work` for each pid."""
        return _at(self.by_work[1], pids)

    def task_name(self, pid: tuple[int, ...]) -> str:
        """The name Allo gives a task: `<kernel>_<i>_<j>...`."""
        return "_".join([self.name, *map(str, pid)])


def _at(table: IntArray, pids: IntArray) -> IntArray:
    """The entry of each pid in a table that broadcasts against the mesh; `pids` has shape (n, mesh rank)."""
    index = tuple(pids[:, a] if n > 1 else np.zeros(len(pids), np.int64) for a, n in enumerate(table.shape))
    return table[index]


def _doing(cls: TaskClass, counts: list[int]) -> TaskClass:
    """A class with the counts of what not all of its tasks do equally often."""
    left = iter(counts)
    return replace(
        cls, work=tuple(op if op.counts is None else replace(op, count=next(left), counts=None) for op in cls.work)
    )
