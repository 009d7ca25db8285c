"""Loops that run in the task: `range`, `allo.grid`, `allo.reduction`, `while`."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import numpy as np

from ..lang.intrinsics import intrinsic_of
from ..lang.types import index
from . import meta, scalars
from .meta import Meta
from .scalars import as_scalar, convert
from .subscripts import constant_int
from .task import Count, Loop, Task
from .values import Const, Scalar, Value


def for_loop(task: Task, node: ast.For) -> None:
    """`for i in range(...)` or `for i, j in allo.grid(...)`."""
    if node.orelse:
        task.fail(node.orelse[0], "`else` of a loop is not supported")
    call = node.iter
    callee = task.lower(task, call.func) if isinstance(call, ast.Call) else None
    if not isinstance(call, ast.Call) or not isinstance(callee, Const):
        task.fail(node.iter, "loops run over range(...), allo.grid(...) or allo.reduction(...)")
    if callee.value is range:
        _nest(task, _targets(task, node, 1), [_range(task, call)], node)
    elif intrinsic_of(callee.value) in ("grid", "reduction"):
        extents = [task.lower(task, a) for a in call.args]
        extents = [e for e in extents if not (isinstance(e, Const) and isinstance(e.value, str))]
        bounds = [(Const(0), extent, 1) for extent in extents]
        _nest(task, _targets(task, node, len(bounds)), bounds, node)
    elif intrinsic_of(callee.value) == "meta_for":
        _unrolled(task, node, [constant_int(task, task.lower(task, a), a, "a bound of meta_for") for a in call.args])
    else:
        task.fail(node.iter, "loops run over range(...), allo.grid(...) or allo.reduction(...)")


Bounds = tuple[Value, Value, int]


def _unrolled(task: Task, node: ast.For, bounds: Sequence[int]) -> None:
    (name,) = _targets(task, node, 1)
    for value in range(*bounds):
        with task.scope():
            task.declare(name, Const(value))
            task.lower_block(task, node.body)


def _targets(task: Task, node: ast.For, count: int) -> list[str]:
    targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
    names = [t.id for t in targets if isinstance(t, ast.Name)]
    if len(names) != len(targets) or len(names) != count:
        task.fail(node.target, f"this loop needs {count} names, {len(targets)} are given")
    return names


def _range(task: Task, call: ast.Call) -> Bounds:
    if not 1 <= len(call.args) <= 3 or call.keywords:
        task.fail(call, f"range() takes one to three arguments, {len(call.args)} are given")
    values = [task.lower(task, a) for a in call.args]
    for value, part in zip(values, call.args, strict=True):
        if isinstance(value, Const) and not isinstance(value.value, (int, np.integer)):
            task.fail(part, f"a bound of range() must be an integer, not {value.value!r}")
    step = 1 if len(values) < 3 else constant_int(task, values[2], call.args[2], "the step of range()")
    if step == 0:
        task.fail(call.args[2], "the step of range() must not be zero")
    start, stop = (Const(0), values[0]) if len(values) == 1 else (values[0], values[1])
    return start, stop, step


def _trips(task: Task, bounds: Bounds) -> Count:
    """How often a loop runs in each task."""
    rank = len(task.kernel.mesh)
    start, stop, step = (
        meta.constant(int(b.value), rank) if isinstance(b, Const) else b for b in (*bounds[:2], Const(bounds[2]))
    )
    if not isinstance(start, Meta) or not isinstance(stop, Meta) or not isinstance(step, Meta):
        return None
    length = np.maximum(0, -((start.array - stop.array) // step.array))
    values = np.unique(task.per_task(meta.table(length)))
    return int(values[0]) if len(values) == 1 else length


def _nest(task: Task, names: Sequence[str], bounds: Sequence[Bounds], node: ast.For) -> None:
    if not names:
        _body(task, node)
        return
    trips = _trips(task, bounds[0])
    if isinstance(trips, int) and trips == 0:
        return
    start, stop, step = bounds[0]
    inner = Scalar(task.text.name(), index, _extremes(task, bounds[0]), _values(bounds[0]))
    low, high = (_index(task, v, node) for v in (start, stop))
    down = step < 0
    if down:  # scf.for only counts up: count the iterations
        low, high = task.text.constant(0, index), _down_trips(task, low, high, step)
    stride = task.text.constant(1 if down else step, index)
    opening = f"scf.for {inner.ssa} = {low} to {high} step {stride} {{"
    with task.text.block(opening), task.repeated(trips), task.scope(), task.loop() as loop:
        variable = inner
        if down:
            variable = Scalar(_descending(task, _index(task, start, node), inner.ssa, step), index, inner.bounds)
        task.declare(names[0], variable)
        _nest(task, names[1:], bounds[1:], node)
        _price(task, loop, node)


def _body(task: Task, node: ast.For) -> None:
    with task.scope():
        task.lower_block(task, node.body)


def _price(task: Task, loop: Loop, node: ast.AST) -> None:
    """One iteration of an innermost loop of scalar work."""
    if loop.has_scalar_work and not loop.has_loops:
        task.price("loop", (), (), node, task.count)


def _index(task: Task, value: Value, node: ast.AST) -> str:
    return convert(task, as_scalar(task, value, node, like=index), index).ssa


def _down_trips(task: Task, start: str, stop: str, step: int) -> str:
    distance = task.text.op(f"arith.subi {start}, {stop} : index")
    trips = task.text.op(f"arith.ceildivsi {distance}, {task.text.constant(-step, index)} : index")
    return task.text.op(f"arith.maxsi {trips}, {task.text.constant(0, index)} : index")


def _descending(task: Task, start: str, iteration: str, step: int) -> str:
    product = task.text.op(f"arith.muli {iteration}, {task.text.constant(step, index)} : index")
    return task.text.op(f"arith.addi {start}, {product} : index")


def _values(bounds: Bounds) -> range | None:
    """The values of a loop variable with constant bounds."""
    start, stop, step = bounds
    if isinstance(start, Const) and isinstance(stop, Const):
        return range(int(start.value), int(stop.value), step)
    return None


def _extremes(task: Task, bounds: Bounds) -> tuple[int, int] | None:
    """The smallest and largest value of a loop variable, over all tasks."""
    start, stop, step = bounds
    values = []
    for bound in (start, stop):
        if isinstance(bound, Const):
            values.append((int(bound.value), int(bound.value)))
        elif isinstance(bound, Meta):
            array = task.per_task(bound)
            values.append((int(array.min()), int(array.max())))
        elif isinstance(bound, Scalar) and bound.bounds is not None:
            values.append(bound.bounds)
        else:
            return None
    (first_low, first_high), (last_low, last_high) = values
    if step > 0:
        exact = first_low == first_high and last_low == last_high
        top = first_low + (last_high - 1 - first_low) // step * step if exact else last_high - 1
        return first_low, max(first_low, top)
    return min(last_low + 1, first_high), first_high


def while_loop(task: Task, node: ast.While) -> None:
    """`while condition:`, the condition depending on data."""
    if node.orelse:
        task.fail(node.orelse[0], "`else` of a loop is not supported")
    with task.guarded(), task.loop() as loop:
        with task.text.block("scf.while : () -> () {", "} do {"):
            condition = task.lower(task, node.test)
            if isinstance(condition, Const):
                task.fail(node.test, "this loop never ends or never runs", "use a condition that depends on data")
            test = scalars.truth(task, condition, node.test)
            task.text.line(f"scf.condition({test.ssa})")
        with task.text.continued(), task.scope():
            task.lower_block(task, node.body)
            _price(task, loop, node)
            task.text.line("scf.yield")
