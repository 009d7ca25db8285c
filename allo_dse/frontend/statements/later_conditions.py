"""Conditions that all tasks of a set come to: where tasks differ in one, they are told apart by the others as well.

Without this, each part of a set would be compiled up to the next such condition, only to be split there.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import lru_cache

from allo_dse.lang.diagnostics import ProgramError
from allo_dse.lang.intrinsics import intrinsic_of

from ..model.pid_values import Meta
from ..model.values import Const
from ..regions.task_state import Mask, Task
from .jumps import may_return_early

_PLAIN = (ast.Name, ast.Constant, ast.Compare, ast.BinOp, ast.UnaryOp,
          ast.operator, ast.unaryop, ast.cmpop, ast.expr_context)  # fmt: skip


def split_further(task: Task, masks: Sequence[Mask], body: Sequence[ast.stmt], first: int) -> Sequence[Mask]:
    """The parts of a set that differ, split by what the kernel asks after them.

    Args:
        body: the block in which they differ.
        first: the statement of it after which they do.
    """
    kernel = task.kernel.node
    if body is not kernel.body or may_return_early(kernel):
        return masks
    set_later: set[str] = set()
    for statement in body[first:]:
        condition = _condition(statement)
        if condition is not None and set_later.isdisjoint(_names(condition, ast.Load)):
            try:
                asked = intrinsic_called(task, _call(statement)) == "meta_if"
                value = task.lower(task, condition) if asked else None
            except ProgramError:  # it is said when compilation comes to it, after what is wrong before
                break
            if isinstance(value, Meta):
                holds = value.array.astype(bool)
                masks = [part for mask in masks for part in (mask & holds, mask & ~holds) if part.any()]
        set_later |= _names(statement, ast.Store)
    return masks


def intrinsic_called(task: Task, call: ast.expr | None) -> str | None:
    """What of the language `with` calls, if anything."""
    if not isinstance(call, ast.Call):
        return None
    callee = task.lower(task, call.func)
    return intrinsic_of(callee.value) if isinstance(callee, Const) else None


def _call(statement: ast.stmt) -> ast.Call | None:
    expression = statement.items[0].context_expr if isinstance(statement, ast.With) else None
    return expression if isinstance(expression, ast.Call) else None


@lru_cache(maxsize=4096)
def _condition(statement: ast.stmt) -> ast.expr | None:
    """The argument of `with f(argument):`, if it is made of names, numbers and operators."""
    call = _call(statement)
    arguments = [] if call is None else call.args
    if len(arguments) != 1 or not all(isinstance(node, _PLAIN) for node in ast.walk(arguments[0])):
        return None
    return arguments[0]


@lru_cache(maxsize=4096)
def _names(node: ast.AST, use: type[ast.expr_context]) -> frozenset[str]:
    """The names that are read, or set, in a part of a program."""
    return frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, use))
