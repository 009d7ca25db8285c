"""How far apart two index expressions are, when both move with the same variables: `(i + 1) * 4` and `i * 4`."""

from __future__ import annotations

import ast

import numpy as np

from ..model import pid_values as meta
from ..model.pid_values import Meta
from ..model.values import Const
from ..regions.task_state import Task

# A factor per variable; the entry "" is the constant part.
Form = dict[str, int]


def constant_difference(task: Task, low: ast.expr | None, high: ast.expr) -> int | None:
    """`high - low` if it is the same for all tasks and all values of run-time variables, else None."""
    first, last = {} if low is None else _form(task, low), _form(task, high)
    if first is not None and last is not None:
        difference = _add(last, first, -1)
        constant = difference.pop("", 0)
        if not any(difference.values()):
            return constant
    return _compile_time(task, low, high)


def _compile_time(task: Task, low: ast.expr | None, high: ast.expr) -> int | None:
    rank = len(task.kernel.mesh)
    values = [Const(0) if low is None else task.lower(task, low), task.lower(task, high)]
    numbers = [int(v.value) for v in values if isinstance(v, Const) and isinstance(v.value, (int, np.integer))]
    if len(numbers) == 2:
        return numbers[1] - numbers[0]
    first, last = (
        meta.constant(int(v.value), rank) if isinstance(v, Const) and isinstance(v.value, (int, np.integer)) else v
        for v in values
    )
    if isinstance(first, Meta) and isinstance(last, Meta):
        return int(task.uniform(meta.combine("-", last, first)))
    return None


def _add(a: Form, b: Form, factor: int) -> Form:
    return {name: a.get(name, 0) + factor * b.get(name, 0) for name in a.keys() | b.keys()}


def _form(task: Task, node: ast.expr) -> Form | None:
    """An expression as a sum of variables and a constant."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return {"": node.value}
    if isinstance(node, ast.Name):
        value = task.lower(task, node)
        if isinstance(value, Const):
            return {"": int(value.value)} if isinstance(value.value, (int, np.integer)) else None
        return {node.id: 1}
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)):
        return None
    left, right = _form(task, node.left), _form(task, node.right)
    if left is None or right is None:
        return None
    if not isinstance(node.op, ast.Mult):
        return _add(left, right, 1 if isinstance(node.op, ast.Add) else -1)
    for one, other in ((left, right), (right, left)):
        if set(one) <= {""}:
            return {name: factor * one.get("", 0) for name, factor in other.items()}
    return None
