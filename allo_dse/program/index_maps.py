"""Which element a task refers to, as a function of its process id (pid), and indices known at run time only."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from .locations import SourceLocation

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class IndexMap:
    """Which element of a grid a task refers to, as a function of its pid.

    Either affine, `index = matrix @ pid + offset` per grid dimension (`table is None`), or a table over the whole mesh
    that gives the linear index (for expressions that are not affine).

    Attributes:
        grid: the shape of what is indexed (a stream array, a tensor's tile grid).
        matrix: one row per grid dimension, one column per mesh axis.
        offset: one entry per grid dimension.
    """

    grid: tuple[int, ...]
    matrix: tuple[tuple[int, ...], ...] = ()
    offset: tuple[int, ...] = ()
    table: IntArray | None = field(default=None, compare=False)

    @property
    def is_affine(self) -> bool:
        return self.table is None

    def linear(self, pids: IntArray) -> IntArray:
        """Row-major linear index for each pid; `pids` has shape (n, mesh rank), the result shape (n,)."""
        if self.table is not None:
            found: IntArray = self.table[tuple(pids.T)]
            return found
        factors, first = self._row_major
        if factors is None:
            return np.full(len(pids), first, np.int64)
        moved: IntArray = pids.dot(factors)
        return moved + first if first else moved

    @cached_property
    def _row_major(self) -> tuple[IntArray | None, int]:
        """The linear index as an affine function: per mesh axis its factor, None if all are zero, and the constant."""
        factors, first = np.zeros(max(map(len, self.matrix), default=0), np.int64), 0
        for row, offset, extent in zip(self.matrix, self.offset, self.grid, strict=True):
            factors, first = factors * extent + row, first * extent + offset
        return (factors if factors.any() else None), first

    def depends_on(self, axis: int) -> bool:
        """Whether the index changes with the pid along a mesh axis."""
        if self.table is not None:
            return bool((self.table != np.take(self.table, [0], axis=axis)).any())
        return any(row[axis] for row in self.matrix)


class IndexCheck(Struct, frozen=True):
    """An index whose range is not known at compile time: `df.check` attributes of a body carry its position in
    `TaskClass.index_checks`.

    Attributes:
        text: the index in the source.
        of: what is indexed: "dimension 0 of size 16".
    """

    text: str
    of: str
    location: SourceLocation
