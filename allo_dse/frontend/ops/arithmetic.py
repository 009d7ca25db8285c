"""`left op right`, whatever the operands are: compile-time values, scalars, indices that follow loops, tiles."""

from __future__ import annotations

import ast

import numpy as np

from ..model import pid_values as meta
from ..model.pid_values import Meta
from ..model.values import Const, Scalar, StreamGroup, StreamRef, Tuple, Value, Walk
from ..regions.task_state import Task
from . import scalars, tiles
from .constructs import note_operator
from .index_checks import bounds_of

TILE_OPERATORS = {"+": "add", "-": "sub", "*": "mul", "/": "div", "**": "power"}


def apply(task: Task, op: str, left: Value, right: Value, node: ast.AST) -> Value:
    """`left op right` for any values."""
    if isinstance(left, Const) and isinstance(right, Const):
        try:
            return Const(meta.BINARY[op](left.value, right.value))
        except Exception as error:
            task.fail(node, f"cannot evaluate this at compile time: {type(error).__name__}: {error}")
    for value in (left, right):
        if isinstance(value, (StreamRef, StreamGroup, Tuple)):
            task.fail(node, f"operator {op} does not apply here", "use .get() to read a stream")
    pair = [_as_meta(task, value) for value in (left, right)]
    if pair[0] is not None and pair[1] is not None:
        try:
            return meta.combine(op, pair[0], pair[1])
        except Exception as error:
            task.fail(node, f"cannot evaluate this at compile time: {type(error).__name__}: {error}")
    note_operator(task, op, left, right, node)
    if tiles.is_tile(left) or tiles.is_tile(right):
        if op not in TILE_OPERATORS:
            task.fail(node, f"operator {op} is not defined for tiles", "use a loop over the elements")
        return tiles.elementwise(task, TILE_OPERATORS[op], (left, right), node)
    result = scalars.binary(task, op, left, right, node)
    if result.dtype.kind != "index":
        return result
    walk = _moved(op, left, right) or _moved(op, right, left, reverse=True)
    return Scalar(result.ssa, result.dtype, _combine_bounds(task, op, left, right), walk)


def _moved(op: str, value: Value, by: Value, reverse: bool = False) -> Walk | None:
    """The values of `value op by` (`by op value` when reversed), where `value` moves with a loop."""
    walk = value.walk if isinstance(value, Scalar) else None
    if walk is None:
        return None
    values = walk.values
    if isinstance(by, Meta) and op == "+" and walk.base is None:
        return Walk(walk.loop, values, by)
    if not isinstance(by, Const) or not isinstance(by.value, int):
        return None
    c = by.value
    if op == "+" or (op == "-" and not reverse):
        c = c if op == "+" else -c
        return Walk(walk.loop, range(values.start + c, values.stop + c, values.step), walk.base)
    if walk.base is not None or (op == "*" and c == 0):
        return None
    if op == "-":
        return Walk(walk.loop, range(c - values.start, c - values.stop, -values.step))
    return Walk(walk.loop, range(values.start * c, values.stop * c, values.step * c)) if op == "*" else None


def _as_meta(task: Task, value: Value) -> Meta | None:
    if isinstance(value, Meta):
        return value
    if isinstance(value, Const) and isinstance(value.value, (bool, int, float, np.integer, np.floating, np.bool_)):
        rank = len(task.kernel.mesh)
        if isinstance(value.value, (bool, int, np.integer)):
            return meta.constant(int(value.value), rank)
        return meta.table(np.full((1,) * rank, value.value))
    return None


def _combine_bounds(task: Task, op: str, left: Value, right: Value) -> tuple[int, int] | None:
    """Bounds of index arithmetic, from those of its operands."""
    a, b = (bounds_of(task, v) for v in (left, right))
    if a is None or b is None:
        return None
    if op == "+":
        return a[0] + b[0], a[1] + b[1]
    if op == "-":
        return a[0] - b[1], a[1] - b[0]
    if op == "*":
        products = [x * y for x in a for y in b]
        return min(products), max(products)
    if op == "//" and b[0] == b[1] > 0:
        return a[0] // b[0], a[1] // b[0]
    if op == "%" and b[0] == b[1] > 0:
        return a if a[0] >= 0 and a[1] < b[0] else (0, b[0] - 1)
    return None
