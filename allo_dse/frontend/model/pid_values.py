"""Values that are known at compile time but differ from task to task: functions of the process id.

A `Meta` holds its value for every task at once, as an array that broadcasts against the mesh, so that evaluating a
condition costs a few NumPy operations on one vector per mesh axis, however many tasks there are.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from allo_dse.common.aliases import Array

# How a value is computed: ("pid", axis), ("const", value), ("table", array) or (operator, left, right).
Tree = tuple[Any, ...]


class Meta(Struct, frozen=True, eq=False):
    """A compile-time value per task.

    Attributes:
        array: the values; broadcasts against the mesh (one dimension per mesh axis).
        affine: coefficients per mesh axis and a constant, where the value is an affine function of the pid; else None.
        tree: how to compute it from the pid at run time.
    """

    array: Array
    affine: tuple[tuple[int, ...], int] | None
    tree: Tree

    @property
    def is_boolean(self) -> bool:
        return self.array.dtype == np.bool_


def pid_of(mesh: Sequence[int], axis: int) -> Meta:
    """The pid along one mesh axis."""
    shape = [1] * len(mesh)
    shape[axis] = mesh[axis]
    unit = tuple(int(a == axis) for a in range(len(mesh)))
    return Meta(np.arange(mesh[axis], dtype=np.int64).reshape(shape), (unit, 0), ("pid", axis))


def constant(value: int, rank: int) -> Meta:
    """The same value for every task."""
    return Meta(np.full((1,) * rank, value), ((0,) * rank, int(value)), ("const", value))


def table(array: Array) -> Meta:
    """Arbitrary values; `array` broadcasts against the mesh."""
    return Meta(array, None, ("table", array))


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "/": operator.truediv,
    "**": operator.pow,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "min": np.minimum,
    "max": np.maximum,
}


def combine(op: str, left: Meta, right: Meta) -> Meta:
    """`left op right`, task by task.

    Raises:
        ZeroDivisionError: when a task divides by zero.
    """
    if op in ("//", "%", "/") and not right.array.all():
        raise ZeroDivisionError("division by zero")
    return Meta(BINARY[op](left.array, right.array), _affine(op, left, right), (op, left.tree, right.tree))


def _affine(op: str, left: Meta, right: Meta) -> tuple[tuple[int, ...], int] | None:
    if left.affine is None or right.affine is None:
        return None
    (a, b), (c, d) = left.affine, right.affine
    if op == "+":
        return tuple(x + y for x, y in zip(a, c, strict=True)), b + d
    if op == "-":
        return tuple(x - y for x, y in zip(a, c, strict=True)), b - d
    if op == "*" and not any(c):
        return tuple(x * d for x in a), b * d
    if op == "*" and not any(a):
        return tuple(x * b for x in c), b * d
    return None


def selected(array: Array, mask: NDArray[np.bool_]) -> Array:
    """The values of the tasks in `mask` (each at least once; axes on which nothing depends are not expanded)."""
    if array.shape == mask.shape:
        return array[mask]
    if all(1 in extents for extents in zip(array.shape, mask.shape, strict=True)):
        return array.reshape(-1)  # mostly: whatever the tasks have in common, each has all values along other axes
    same = tuple(axis for axis, extent in enumerate(array.shape) if extent == 1)
    if same:
        mask = np.any(mask, axis=same, keepdims=True)
    shape = np.broadcast_shapes(array.shape, mask.shape)
    return np.broadcast_to(array, shape)[np.broadcast_to(mask, shape)]
