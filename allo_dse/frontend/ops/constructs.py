"""What operators do that not every target builds, noted where it stands (`CompiledProgram.constructs`)."""

from __future__ import annotations

import ast

from ..model.values import Const, Scalar, Value
from ..regions.task_state import Task
from . import tiles

BIT_OPERATORS = frozenset({"<<", ">>", "&", "|", "^"})
COMPARISONS = frozenset({"<", "<=", ">", ">=", "==", "!="})


def note_operator(task: Task, op: str, left: Value, right: Value, node: ast.AST) -> None:
    """Note `left op right`, at least one of which is known only when the task runs."""
    operands = (left, right)
    if any(map(tiles.is_tile, operands)):
        if any(isinstance(one, Const) and isinstance(one.value, float) for one in operands):
            task.notice("float beside a tile", node)
    elif op in BIT_OPERATORS:
        task.notice("bits", node)
    elif op == "//" and any(_is_float(one) for one in operands):
        task.notice("floor division", node)
    elif op in COMPARISONS and any(_is_half(one) for one in operands) and not any(_is_wider(one) for one in operands):
        task.notice("half comparison", node)
    if op == "**":
        task.notice("**", node)


def _is_float(value: Value) -> bool:
    return isinstance(value, Scalar) and value.dtype.is_float


def _is_half(value: Value) -> bool:
    return _is_float(value) and isinstance(value, Scalar) and value.dtype.bits == 16


def _is_wider(value: Value) -> bool:
    """Whether the comparison is one of 32 bits or more: Python's floats are such in Allo."""
    if isinstance(value, Const):
        return isinstance(value.value, float)
    return _is_float(value) and not _is_half(value)
