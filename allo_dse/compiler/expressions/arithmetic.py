"""`left op right` for all operands: compile-time values, scalars, indices that follow loops, and tiles."""

from __future__ import annotations

import ast

import numpy as np

from allo_dse.common.records import replace
from allo_dse.lang.types import DType

from ..model import index_forms
from ..model import values as meta
from ..model.index_forms import Form
from ..model.values import Const, Meta, Scalar, StreamGroup, StreamRef, Tuple, Value, Walk, integer_of
from ..regions.task_state import Task
from . import scalars, tiles
from .index_checks import form_of

BIT_OPERATORS = frozenset({"<<", ">>", "&", "|", "^"})
COMPARISONS = frozenset({"<", "<=", ">", ">=", "==", "!="})

MOST_BITS = 1 << 20
TILE_OPERATORS = {"+": "add", "-": "sub", "*": "mul", "/": "div", "**": "power"}


def apply(task: Task, op: str, left: Value, right: Value, node: ast.AST) -> Value:
    """`left op right` for any values."""
    for value in (left, right):
        if isinstance(value, (StreamRef, StreamGroup, Tuple)):
            task.fail(node, f"operator {op} does not apply here", "use .get() to read a stream")
    if op in ("**", "<<") and (first := integer_of(left)) is not None and (second := integer_of(right) or 0) > 0:
        bits = first.bit_length() * second if op == "**" else first.bit_length() + second
        if bits > MOST_BITS:
            task.fail(node, f"a number of about {bits:,} bits at compile time; the limit is {MOST_BITS:,}")
    try:
        if isinstance(left, Const) and isinstance(right, Const):
            return Const(meta.BINARY[op](left.value, right.value))
        one, other = (_as_meta(task, value) for value in (left, right))
        if one is not None and other is not None:
            return meta.combine(op, one, other)
    except Exception as error:
        task.fail(node, f"cannot evaluate this at compile time: {type(error).__name__}: {error}")
    note_operator(task, op, left, right, node)
    if tiles.is_tile(left) or tiles.is_tile(right):
        if op not in TILE_OPERATORS:
            task.fail(node, f"operator {op} is not defined for tiles", "use a loop over the elements")
        return tiles.elementwise(task, TILE_OPERATORS[op], (left, right), node, grows=op)
    result = scalars.binary(task, op, left, right, node)
    if result.dtype.kind == "bool":
        return replace(result, facts=_facts(op, left, right))
    form = combined_form(op, left, right, result.dtype)
    if result.dtype.kind != "index":
        return replace(result, form=form)
    walk = _moved(op, left, right) or _moved(op, right, left, reverse=True)
    return replace(result, form=form, walk=walk)


def combined_form(op: str, left: Value, right: Value, dtype: DType) -> Form | None:
    """The form of `left op right`, where it is one that a result of this type can hold."""
    a, b = form_of(left), form_of(right)
    if a is None or b is None or not dtype.is_integer:
        return None
    form = index_forms.combined(op, a, b)
    return form if form is not None and scalars.holds(dtype, form) else None


def _facts(op: str, left: Value, right: Value) -> tuple[tuple[Form, ...], tuple[Form, ...]]:
    a, b = form_of(left), form_of(right)
    if op not in index_forms.NEGATED or a is None or b is None:
        return (), ()
    return index_forms.facts(op, a, b), index_forms.facts(index_forms.NEGATED[op], a, b)


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
    rank = len(task.kernel.mesh)
    value = meta.as_meta(value, rank)
    if isinstance(value, Const) and scalars.is_number(value.value):
        return meta.table(np.full((1,) * rank, value.value))
    return value if isinstance(value, Meta) else None


def note_operator(task: Task, op: str, left: Value, right: Value, node: ast.AST) -> None:
    """Note an operator with an operand that is known only at run time."""
    operands = (left, right)
    widths = [one.dtype.bits for one in operands if isinstance(one, Scalar) and one.dtype.is_float]
    numbers = [one for one in operands if isinstance(one, Const) and isinstance(one.value, float)]
    if any(map(tiles.is_tile, operands)):
        if numbers:
            task.notice("float beside a tile", node)
    elif op in BIT_OPERATORS:
        task.notice("bits", node)
    elif op == "//" and widths:
        task.notice("floor division", node)
    elif op in COMPARISONS and widths and max(widths) == 16 and not numbers:  # Python's floats have more bits in Allo
        task.notice("half comparison", node)
    if op == "**":
        task.notice("**", node)
