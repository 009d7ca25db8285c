"""How local tiles relate to the mesh: layouts, inferred through operations, and sums that are not complete yet.

A product over a dimension that is sharded on mesh axis k is only a part of the sum: every task along k holds another
part. Such a *pending* sum may be passed on, scaled, and added to; it is complete once something that came through a
stream, or the argument itself, has been added. Storing it as a result before that is an error, as is applying to it
what does not distribute over sums.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from msgspec import Struct

from ..model.values import Buffer, PendingGet, TileExpr, Value
from ..regions.task_state import Task

Axes = tuple[int | None, ...]

LINEAR = frozenset(
    {"add", "sub", "neg", "mul", "div", "transpose", "view", "copy", "concat", "tril", "sumpool", "fill"}
)
PRODUCTS = frozenset({"matmul", "bmm", "conv2d"})


class Spread(Struct, frozen=True):
    """What the tiles of the tasks are parts of.

    Attributes:
        axes: per dimension the mesh axis that it is sharded on; None where it is not, or where that is not known.
        pending: mesh axes along which the tiles are parts of a sum.
        complete: whether contributions of other tasks have been added.
    """

    axes: Axes
    pending: frozenset[int] = frozenset()
    complete: bool = False


def spread_of(task: Task, value: Value) -> Spread:
    """What is known about a value.

    Raises:
        ProgramError: for an operation on a pending sum that does not distribute over sums.
    """
    if isinstance(value, PendingGet):
        return Spread((None,) * len(value.shape), complete=True)
    if isinstance(value, Buffer):
        return _of_buffer(task, value)
    if isinstance(value, TileExpr):
        return _of_expression(task, value)
    return Spread(())


def _of_buffer(task: Task, buffer: Buffer) -> Spread:
    known = task.spreads.get(buffer.root)
    if known is None and buffer.arg is not None:
        known = Spread(task.parameter(buffer.arg).layout)
    if known is None:
        return Spread((None,) * len(buffer.shape))
    axes = known.axes if len(known.axes) == len(buffer.shape) else (None,) * len(buffer.shape)
    return Spread(axes, known.pending, known.complete)


def _of_expression(task: Task, expr: TileExpr) -> Spread:
    operands = [spread_of(task, operand) for operand in expr.operands]
    pending = frozenset[int]().union(*(o.pending for o in operands))
    if pending and expr.op not in LINEAR | PRODUCTS:
        _nonlinear(task, expr, pending)
    if sum(bool(o.pending) for o in operands) > 1 and expr.op in PRODUCTS | {"mul"}:
        _nonlinear(task, expr, pending)
    if expr.op == "div" and operands[1].pending:
        _nonlinear(task, expr, operands[1].pending)
    if expr.op in PRODUCTS:
        return _of_product(task, expr, operands, pending)
    complete = any(o.complete for o in operands)
    axes: Axes = (None,) * len(expr.shape)
    if expr.op == "transpose":
        axes = tuple(operands[0].axes[a] for a in expr.options)
    elif all(len(o.axes) in (0, len(expr.shape)) for o in operands):
        axes = _joined(task, expr, [o.axes for o in operands if o.axes])
    adds = expr.op in ("add", "sub") and (complete or any(_is_argument(o) for o in expr.operands))
    return Spread(axes, frozenset() if adds else pending, complete)


def _is_argument(operand: Value) -> bool:
    return isinstance(operand, Buffer) and operand.arg is not None and operand.is_updated


def _of_product(task: Task, expr: TileExpr, operands: Sequence[Spread], pending: frozenset[int]) -> Spread:
    axes: Axes = (None,) * len(expr.shape)
    if expr.op in ("matmul", "bmm"):
        left, right = operands[0].axes, operands[1].axes
        inner = left[-1] if left[-1] == right[-2] else None
        if inner is not None and task.kernel.mesh[inner] > 1:
            pending |= {inner}
        axes = (*left[:-1], right[-1])
    return Spread(axes, pending, any(o.complete for o in operands))


def _joined(task: Task, expr: TileExpr, all_axes: Sequence[Axes]) -> Axes:
    """Per dimension the axis that the operands agree on; replicated operands agree with everything."""
    result: list[int | None] = []
    for dimension in range(len(expr.shape)):
        found = sorted({axes[dimension] for axes in all_axes} - {None}, key=lambda axis: axis or 0)
        result.append(found[0] if len(found) == 1 else None)
        if sum(axis is not None and task.kernel.mesh[axis] > 1 for axis in found) > 1:
            along = " and of another along ".join(f"mesh axis {axis}" for axis in found)
            message = f"the operands of {expr.op} are different parts: dimension {dimension} of one runs along {along}"
            task.warn(expr.node, message)
    return tuple(result)


def _nonlinear(task: Task, expr: TileExpr, pending: frozenset[int]) -> None:
    task.fail(
        expr.node,
        f"{expr.op} of a partial sum: {_parts(task, pending)}",
        "add up the parts first, passing them from task to task through a stream",
    )


def _parts(task: Task, pending: frozenset[int]) -> str:
    axis = min(pending)
    return f"the sum runs along mesh axis {axis} of size {task.kernel.mesh[axis]}, and each task has only its part"


def note_assignment(task: Task, target: Buffer, value: Value, node: ast.AST) -> None:
    """Remember what a tile holds after an assignment; check that a result is complete.

    Raises:
        ProgramError: when a pending sum is stored in an argument.
    """
    spread = spread_of(task, value)
    if target.arg is not None:
        layout = task.parameter(target.arg).layout
        missing = spread.pending - {axis for axis in layout if axis is not None}
        if missing:
            name = task.parameter(target.arg).name
            task.fail(
                node,
                f"`{name}` gets a partial sum: {_parts(task, frozenset(missing))}",
                f"pass the parts from task to task through a stream and add them, or accumulate: {name}[...] += ...",
            )
        return
    whole = target.ssa == target.root and not task.guards
    known = task.spreads.get(target.root)
    if whole or known is None:
        task.spreads[target.root] = spread
    else:
        task.spreads[target.root] = Spread(
            known.axes, known.pending | spread.pending, known.complete or spread.complete
        )


def note_elements(task: Task, target: Buffer) -> None:
    """A tile is written element by element: what it holds is not known any more."""
    rank = len(target.shape)
    task.spreads[target.root] = Spread((None,) * rank, complete=True)
