"""Indices whose range is not known at compile time, which are checked when a body runs.

`allo_dse.simulator.codegen.lowering.indices` writes the code of the checks.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from allo_dse.program.index_maps import IndexCheck

from ..model.pid_values import Meta
from ..model.values import Const, Scalar, Value
from ..regions.task_state import Task


class Limit(NamedTuple):
    """What must hold of an index of an operation: `value` is at least 0 and less than `limit`.

    Attributes:
        position: among the operation's indices.
        of: what is indexed: "dimension 0 of size 16".
    """

    position: int
    value: Value
    limit: int
    node: ast.AST
    of: str


def bounds_of(task: Task, value: Value) -> tuple[int, int] | None:
    """The smallest and largest value of an index, over all tasks, where they are known."""
    if isinstance(value, Const) and isinstance(value.value, (int, np.integer)):
        return int(value.value), int(value.value)
    if isinstance(value, Meta):
        values = task.per_task(value)
        return int(values.min()), int(values.max())
    return value.bounds if isinstance(value, Scalar) else None


def wrong_index(task: Task, value: Value, extent: int) -> int | None:
    """An index that is out of range for certain, where a loop or a task has one."""
    if isinstance(value, Scalar) and task.guards:
        return None  # a condition may keep it in range
    bounds = bounds_of(task, value)
    if bounds is None or 0 <= bounds[0] <= bounds[1] < extent:
        return None
    return bounds[0] if bounds[0] < 0 else bounds[1]


def is_known(task: Task, value: Value, limit: int) -> bool:
    """Whether an index is known to be at least 0 and less than a limit."""
    bounds = bounds_of(task, value)
    return bounds is not None and 0 <= bounds[0] <= bounds[1] < limit


def check_attribute(task: Task, limits: Sequence[Limit]) -> str:
    """The attribute that lists an operation's checks: number in `TaskClass.index_checks`, position, limit.

    What is known to hold is left out.
    """
    numbers = []
    for position, value, limit, node, of in limits:
        if is_known(task, value, limit):
            continue
        task.index_checks.append(IndexCheck(ast.unparse(node), of, task.location(node)))
        numbers += [len(task.index_checks) - 1, position, limit]
    return f" {{df.check = array<i64: {', '.join(map(str, numbers))}>}}" if numbers else ""
