"""Bits of integers: `x[3]`, `x[8:16]`, as values and as targets."""

from __future__ import annotations

import ast

from allo_dse.lang.types import DType, UInt, index

from ..model.mlir_text import element_type
from ..model.pid_values import Meta
from ..model.values import Const, Scalar, Value
from ..regions.task_state import Task
from .index_checks import bounds_of, form_of
from .linear_forms import constant_difference
from .scalar_types import integer
from .scalars import as_scalar, binary_as, convert, shift


def _range(task: Task, node: ast.Subscript, dtype: DType) -> tuple[Value, int | Scalar]:
    """Which bits a subscript names: the lowest one, and how many (a run-time `index` where that depends on data)."""
    part = node.slice
    if not isinstance(part, ast.Slice):
        low, width = task.lower(task, part), 1
        is_integer = low.dtype.is_integer if isinstance(low, Scalar) else form_of(low) is not None
        if not is_integer:
            task.fail(part, f"the position of a bit of {dtype} must be an integer")
    else:
        if part.step is not None:
            task.fail(part.step, "bits cannot be taken in steps")
        low = Const(0) if part.lower is None else task.lower(task, part.lower)
        high = ast.copy_location(ast.Constant(dtype.bits), node) if part.upper is None else part.upper
        found = constant_difference(task, part.lower, high)
        if found is None:
            return low, _distance(task, low, task.lower(task, high), node)
        width = found
    first = task.uniform(low) if isinstance(low, Meta) else low.value if isinstance(low, Const) else None
    if width < 1 or (first is not None and not 0 <= first <= dtype.bits - width):
        task.fail(node, f"bits {first}:{(first or 0) + width} are out of range for {dtype}")
    return Const(first) if first is not None else low, width


def _distance(task: Task, low: Value, high: Value, node: ast.AST) -> Scalar:
    first, end = (convert(task, as_scalar(task, v, node, like=index), index) for v in (low, high))
    return binary_as(task, "-", end, first, index)


def _mask(task: Task, width: int | Scalar, raw: DType) -> Scalar:
    """As many ones as bits are taken, at least one, at the lower end."""
    if isinstance(width, int):
        return Scalar(task.text.constant((1 << width) - 1, raw), raw)
    ones, bits = Scalar(task.text.constant(-1, raw), raw), Scalar(task.text.constant(raw.bits, index), index)
    return shift(task, ">>", ones, binary_as(task, "-", bits, width, index))


def _check(task: Task, dtype: DType, node: ast.AST) -> None:
    if dtype.kind not in ("int", "uint"):
        task.fail(node, f"a value of type {dtype} cannot be indexed", "only tiles and the bits of integers can")


def _move(task: Task, op: str, value: Scalar, low: Value, node: ast.AST) -> Scalar:
    """A value shifted by the position of the lowest bit that is named."""
    return shift(task, op, value, as_scalar(task, low, node, like=index), bounds_of(task, low))


def bits_of(task: Task, value: Scalar, node: ast.Subscript) -> Value:
    """The bits that a subscript takes out of an integer, as an unsigned integer of their number.

    Where their number depends on data, the result is as wide as the integer.
    """
    _check(task, value.dtype, node)
    task.notice("bits", node)
    low, width = _range(task, node, value.dtype)
    raw = integer(value.dtype.bits, False)
    shifted = _move(task, ">>", Scalar(value.ssa, raw), low, node)
    task.scalar_op()
    if isinstance(width, Scalar):
        return binary_as(task, "&", shifted, _mask(task, width, raw), raw)
    return convert(task, shifted, UInt(width))


def with_bits(task: Task, old: Scalar, node: ast.Subscript, value: Value) -> Scalar:
    """The integer `old` with the bits that a subscript names replaced."""
    _check(task, old.dtype, node)
    low, width = _range(task, node, old.dtype)
    raw = integer(old.dtype.bits, False)
    mask = _mask(task, width, raw)
    part = binary_as(task, "&", convert(task, as_scalar(task, value, node), raw), mask, raw)
    part = _move(task, "<<", part, low, node)
    field = _move(task, "<<", mask, low, node)
    keep = binary_as(task, "^", field, Scalar(task.text.constant(-1, raw), raw), raw)
    kept = binary_as(task, "&", Scalar(old.ssa, raw), keep, raw)
    task.scalar_op()
    return Scalar(binary_as(task, "|", kept, part, raw).ssa, old.dtype)


def reversed_bits(task: Task, value: Scalar) -> Scalar:
    """The integer whose lowest bit is the highest one of `value`."""
    type_ = element_type(value.dtype)
    raw = integer(value.dtype.bits, False)
    one = Scalar(task.text.constant(1, raw), raw)
    zero, bits, step = (task.text.constant(n, index) for n in (0, value.dtype.bits, 1))
    result, left, taken = task.text.name(), task.text.name(), task.text.name()
    start = f"({left} = {value.ssa}, {taken} = {task.text.constant(0, raw)}) -> ({type_}, {type_})"
    with task.text.block(f"{result}:2 = scf.for {task.text.name()} = {zero} to {bits} step {step} iter_args{start} {{"):
        moved = shift(task, "<<", Scalar(taken, raw), one, (1, 1))
        last = binary_as(task, "&", Scalar(left, raw), one, raw)
        both = binary_as(task, "|", moved, last, raw)
        rest = shift(task, ">>", Scalar(left, raw), one, (1, 1))
        task.text.line(f"scf.yield {rest.ssa}, {both.ssa} : {type_}, {type_}")
    task.scalar_op()
    return Scalar(f"{result}#1", value.dtype)
