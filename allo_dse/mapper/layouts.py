"""Changes of layout as affine maps from elements of the result to positions in a buffer.

    Arrangement.of((64, 32)).transpose((1, 0)).reshape((4, 8, 64))

A result is described by loops over the buffer it is read from: `sum(index * step)`. Transposes and most reshapes keep
that form, so a composition of them is one walk, and equivalent compositions are equal. A reshape that cuts across a
loop's digits starts a second walk, over the result of the first. Inverse operations cancel: the identity that is left
is no walk at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from allo_dse.common.errors import AlloDseError
from allo_dse.common.records import Array, Frozen, replace
from allo_dse.compiler.program.tensors import IntArray

Shape = tuple[int, ...]


class Loop(NamedTuple):
    """`extent` elements, `step` elements apart."""

    extent: int
    step: int


Digits = tuple[Loop, ...]


class Walk(Frozen):
    """Elements of a buffer in the order of the result, in canonical form: no loop of one, none that continues another.

    Attributes:
        size: elements of the buffer.
        loops: outermost first.
    """

    size: int
    loops: Digits

    @property
    def is_identity(self) -> bool:
        """True if the walk reads the whole buffer in order."""
        return self.loops == _merged((Loop(self.size, 1),))

    def addresses(self) -> IntArray:
        """Return the address of each element of the result: (count,)."""
        result = np.zeros(1, np.int64)
        for loop in self.loops:
            result = (result[:, None] + np.arange(loop.extent) * loop.step).ravel()
        return result


class Arrangement(Frozen):
    """A rearranged array: the composition of layout operations on a contiguous one.

    Attributes:
        source: shape of the array that it began with.
        done: walks that later operations could not be joined with.
        size, dims: the walk in progress: elements of the buffer it reads, and the digits of each dimension.
    """

    source: Shape
    done: tuple[Walk, ...]
    size: int
    dims: tuple[Digits, ...]

    @staticmethod
    def of(shape: Sequence[int]) -> Arrangement:
        """An array as it lies: row by row."""
        shape = tuple(shape)
        return Arrangement(shape, (), math.prod(shape), _row_major(shape))

    @property
    def shape(self) -> Shape:
        return tuple(math.prod(loop.extent for loop in digits) for digits in self.dims)

    @property
    def walks(self) -> tuple[Walk, ...]:
        """The canonical form; empty when elements stay where they are."""
        last = Walk(self.size, _merged(sum(self.dims, ())))
        return self.done if last.is_identity else (*self.done, last)

    def apply(self, array: Array) -> Array:
        """The rearranged array, computed from the walks."""
        flat = np.ascontiguousarray(array).reshape(-1)
        for walk in self.walks:
            flat = flat[walk.addresses()]
        return flat.reshape(self.shape)

    # -- operations ---------------------------------------------------------------------------------------------------

    def transpose(self, axes: Sequence[int]) -> Arrangement:
        """Dimension i of the result is dimension axes[i]."""
        if sorted(axes) != list(range(len(self.dims))):
            raise AlloDseError(f"axes {list(axes)} do not permute {len(self.dims)} dimensions")
        return self._settled(replace(self, dims=tuple(self.dims[a] for a in axes)))

    def reshape(self, shape: Sequence[int]) -> Arrangement:
        """The same elements in the same order, in another shape (`view`)."""
        shape = tuple(shape)
        if math.prod(shape) != math.prod(self.shape) or min(shape, default=1) < 1:
            raise AlloDseError(f"cannot view {list(self.shape)} as {list(shape)}: the numbers of elements differ")
        dims = _regrouped(_merged(sum(self.dims, ())), shape)
        if dims is None:
            return Arrangement(self.source, self.walks, math.prod(shape), _row_major(shape))  # another walk begins
        return self._settled(replace(self, dims=dims))

    def _settled(self, result: Arrangement) -> Arrangement:
        """Drop the walk in progress if it has become the identity, and resume the one before."""
        walk = Walk(result.size, _merged(sum(result.dims, ())))
        if result.done and walk.is_identity:
            *before, last = result.done
            dims = _regrouped(last.loops, result.shape)
            if dims is not None:
                return Arrangement(result.source, tuple(before), last.size, dims)
        return result


def _row_major(shape: Shape) -> tuple[Digits, ...]:
    dims: list[Digits] = []
    step = 1
    for extent in reversed(shape):
        dims.append((Loop(extent, step),))
        step *= extent
    return tuple(reversed(dims))


def _merged(loops: Digits) -> Digits:
    """Without loops of one, and with each loop that continues the one inside it merged into it."""
    result: list[Loop] = []
    for loop in reversed(loops):
        if loop.extent == 1:
            continue
        if result and loop.step == result[-1].step * result[-1].extent:
            inner = result.pop()
            loop = Loop(inner.extent * loop.extent, inner.step)
        result.append(loop)
    return tuple(reversed(result))


def _regrouped(loops: Digits, shape: Shape) -> tuple[Digits, ...] | None:
    """Loops shared out among dimensions, split where a dimension ends inside one; None where that does not divide."""
    left = list(loops)
    dims: list[Digits] = []
    for extent in reversed(shape):
        digits: list[Loop] = []
        while extent > 1:
            count, step = left.pop()
            # Like digits of a number: a dimension takes loops, innermost first, up to its extent.
            if extent % count == 0:
                digits.append(Loop(count, step))
                extent //= count
            elif count % extent == 0:
                digits.append(Loop(extent, step))
                left.append(Loop(count // extent, step * extent))
                extent = 1
            else:
                return None
        dims.append(tuple(reversed(digits)))
    return tuple(reversed(dims))
