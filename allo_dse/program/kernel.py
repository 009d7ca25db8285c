"""Kernels: a mesh of tasks, and which class each of them is of."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

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
    def varying_classes(self) -> IntArray:
        """`class_table` with length 1 along every axis along which the class does not change."""
        table = self.class_table
        for axis in range(table.ndim):
            first = np.take(table, [0], axis=axis)
            if (table == first).all():
                table = first
        return table

    def class_of(self, pids: IntArray) -> IntArray:
        """Position in `classes` for each pid; `pids` has shape (n, mesh rank)."""
        index = tuple(
            pids[:, a] if n > 1 else np.zeros(len(pids), np.int64) for a, n in enumerate(self.class_table.shape)
        )
        return self.class_table[index]

    def task_name(self, pid: tuple[int, ...]) -> str:
        """The name Allo gives a task: `<kernel>_<i>_<j>...`."""
        return "_".join([self.name, *map(str, pid)])
