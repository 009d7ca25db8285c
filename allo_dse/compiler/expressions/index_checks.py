"""Indices whose range is not known at compile time, which are checked when a body runs.

`allo_dse.simulator.codegen.bodies` writes the code of the checks.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import field

from allo_dse.common.records import Frozen

from ..model import index_forms
from ..model.index_forms import Form, Number
from ..model.values import Const, Meta, Scalar, Value, integer_of, selected
from ..program.tensors import IndexCheck
from ..regions.task_state import Task


class Limit(NamedTuple):
    """A requirement on an index of an operation: `value` is at least 0 and less than `limit`.

    Attributes:
        position: among the operation's indices.
        of: the dimension that is indexed, in words: "dimension 0 of size 16".
    """

    position: int
    value: Value
    limit: int
    node: ast.AST
    of: str


def form_of(value: Value) -> Form | None:
    """An integer as a sum of the variables of loops, where it is one."""
    if isinstance(value, Scalar):
        return value.form
    if isinstance(value, Meta):
        return index_forms.constant(value.array)
    known = integer_of(value)
    is_truth = isinstance(value, Const) and isinstance(value.value, bool)
    return None if known is None or is_truth else index_forms.constant(known)


def bounds_of(task: Task, value: Value) -> tuple[int, int] | None:
    """The smallest and largest value of an index, over all tasks, where they are known."""
    if (known := integer_of(value)) is not None:
        return known, known
    if isinstance(value, Meta) and value.array.dtype.kind in "iuO":
        values = task.per_task(value)
        return int(values.min()), int(values.max())
    form = form_of(value)
    if form is None or form.low is None or form.high is None:
        return None
    return int(np.min(_in_tasks(task, form.low))), int(np.max(_in_tasks(task, form.high)))


def _in_tasks(task: Task, number: Number) -> Number:
    """The values of a number in the tasks that are being compiled."""
    return number if isinstance(number, int) or np.ndim(number) == 0 else selected(np.asarray(number), task.mask)


class Wrong(Frozen):
    """An index that is out of range for certain, and where: the values of the loops' variables."""

    value: int
    iteration: Mapping[str, int] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """The iteration in words: "where i = 3 and j = 0"."""
        named = [f"{name} = {value}" for name, value in self.iteration.items() if name]
        return f"where {' and '.join(named)}" if named else ""


def wrong_index(task: Task, value: Value, extent: int) -> Wrong | None:
    """An index that is out of range for certain, where a loop or a task has one."""
    if not isinstance(value, Scalar):
        bounds = bounds_of(task, value)
        if bounds is None or 0 <= bounds[0] <= bounds[1] < extent:
            return None
        return Wrong(bounds[0] if bounds[0] < 0 else bounds[1])
    form = value.form
    if form is None or task.guards or is_known(task, value, extent):
        return None  # a condition may keep it in range
    around = [loop.variable for loop in task.loops if loop.variable is not None]
    for bound, largest in ((form.low, False), (form.high, True)):
        if bound is None:
            continue
        shape = np.broadcast_shapes(np.shape(bound) or (1,) * task.mask.ndim, task.mask.shape)
        signed = np.broadcast_to(np.asarray(bound) if largest else -np.asarray(bound), shape)
        where = np.where(np.broadcast_to(task.mask, shape), signed, np.iinfo(np.int64).min)
        pid = [int(i) for i in np.unravel_index(int(where.argmax()), shape)]  # the task where the bound is extreme
        found = index_forms.worst(form, pid, largest=largest, around=around)
        if found is not None and not 0 <= found[0] < extent:
            return Wrong(*found)
    return None


def is_flat(task: Task, value: Value, extent: int) -> bool:
    """Return whether an index that may leave its dimension addresses memory row by row (see `Rules.check`)."""
    return task.source.rules.check == "run" and not is_known(task, value, extent)


def is_known(task: Task, value: Value, limit: int) -> bool:
    """Return whether an index is known to be at least 0 and less than a limit."""
    form = form_of(value)
    if form is not None and not form.terms and isinstance(form.constant, int) and 0 <= form.constant < limit:
        return True
    return form is not None and _holds(task, form) and _holds(task, Form(limit - 1).plus(form, -1))


def _holds(task: Task, form: Form) -> bool:
    """Return whether a form is at least 0, by itself or because of a condition around it."""
    differences = itertools.chain((form,), (form.plus(fact, -1) for fact in task.facts))
    return any(one.low is not None and index_forms.is_natural(_in_tasks(task, one.low)) for one in differences)


def check_attribute(task: Task, limits: Sequence[Limit]) -> str:
    """The attribute that lists an operation's checks: number in `TaskClass.index_checks`, position, limit.

    Checks that are known to hold are left out.
    """
    numbers = []
    for position, value, limit, node, of in limits:
        if is_known(task, value, limit):
            continue
        task.index_checks.append(IndexCheck(ast.unparse(node), of, task.location(node)))
        numbers += [len(task.index_checks) - 1, position, limit]
    return f" {{df.check = array<i64: {', '.join(map(str, numbers))}>}}" if numbers else ""
