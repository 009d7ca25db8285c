"""Loops that run in the task, and jumps out of them: `break`, `continue` and `return`, in code that stays structured.

before:  for i in range(n):                after:  while i < n and not stop:
             if a[i] < 0:                              skip = False
                 break                                 if a[i] < 0:
             total += a[i]                                 skip = stop = True
                                                       if not skip:
                                                           total += a[i]

A jump that data decides raises flags; what follows it in the block is written under a test of them. A jump that is
decided at compile time just ends its block.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from allo_dse.common.errors import ProgramError
from allo_dse.common.records import Frozen, replace
from allo_dse.lang.intrinsics import intrinsic_of
from allo_dse.lang.types import DType, TensorType, index
from allo_dse.lang.types import bool as bool_

from ..expressions import scalars, tiles
from ..expressions.index_checks import form_of
from ..expressions.scalars import as_index, as_scalar, binary_as, const_type
from ..expressions.subscripts import constant_int
from ..model import values as meta
from ..model.index_forms import variable
from ..model.source_file import statements_in
from ..model.values import Buffer, Const, Meta, PendingGet, Scalar, TileExpr, Tuple, Value, Variable, Walk, integer_of
from ..program.tensors import SourceLoop
from ..regions.task_state import Count, Frame, LoopWork, Mask, Task


class JumpsOf(Frozen):
    """The kinds of jumps in the source of a loop."""

    leaves: bool
    skips: bool


def _jumps_in(body: tuple[ast.stmt, ...]) -> JumpsOf:
    own, returns = set(), False
    todo = [(statement, True) for statement in body]
    while todo:
        node, direct = todo.pop()
        if isinstance(node, ast.FunctionDef):
            continue
        returns |= isinstance(node, ast.Return)
        if direct and isinstance(node, (ast.Break, ast.Continue)):
            own.add(type(node))
        inner = direct and not isinstance(node, (ast.For, ast.While))
        todo.extend((statement, inner) for statement in statements_in(node))
    return JumpsOf(ast.Break in own or returns, bool(own) or returns)


@lru_cache(maxsize=1024)
def may_return_early(node: ast.FunctionDef) -> bool:
    """Return whether a function has a `return` that is not simply its last statement."""
    return any(_jumps_in((statement,)).leaves for statement in node.body if not isinstance(statement, ast.Return))


# -- flags -----------------------------------------------------------------------------------------------------------


def new_frame(task: Task, *, leaves: bool, skips: bool, loop: bool) -> Frame:
    """The target of jumps, with its flags lowered."""
    frame = Frame(loop, len(task.loops), task.guards)
    frame.skip = task.variable(bool_) if skips else None
    frame.stop = task.variable(bool_) if leaves and loop else None
    for flag in (frame.stop, None if loop else frame.skip):
        if flag is not None:
            set_flag(task, flag, False)
    return frame


def set_flag(task: Task, flag: Variable, value: bool) -> None:
    task.set(flag, task.number(value, bool_))


def is_lowered(task: Task, flag: Variable) -> str:
    """The run-time condition that a flag is not raised."""
    return binary_as(task, "^", task.get(flag), task.number(True, bool_), bool_).ssa


def _raise(task: Task, frame: Frame, *, stop: bool) -> None:
    assert frame.skip is not None
    set_flag(task, frame.skip, True)
    if stop and frame.stop is not None:
        set_flag(task, frame.stop, True)
    frame.jumps += 1


@contextmanager
def unless_raised(task: Task, flag: Variable) -> Iterator[None]:
    """Whatever is written inside happens only if the flag is not raised."""
    with task.guarded(), task.text.block(f"scf.if {is_lowered(task, flag)} {{"):
        yield


# -- statements ------------------------------------------------------------------------------------------------------


def break_or_continue(task: Task, node: ast.Break | ast.Continue) -> None:
    """`break` or `continue`."""
    frame, stop = task.frames[-1], isinstance(node, ast.Break)
    if not frame.loop:
        task.fail(node, f"`{'break' if stop else 'continue'}` outside of a loop")
    task.dead = True
    if frame.unrolled and task.guards == frame.guards:
        frame.ended = stop
        return
    task.notice("break" if stop else "continue", node)
    _raise(task, frame, stop=stop)


def return_(task: Task, value: Value | None, node: ast.Return) -> None:
    """`return` from a helper function or a kernel; results of a kernel have been stored already."""
    frame = next(frame for frame in reversed(task.frames) if not frame.loop)
    if (len(task.loops), task.guards) == (frame.loops, frame.guards):
        frame.result = value
        task.returned = True
        return
    if value is not None:
        # Store the result until the end of the function, because other paths may return another one.
        values = _flat(value)
        if frame.slots is None:
            types = frame.returns if isinstance(frame.returns, tuple) else (frame.returns,)
            if frame.returns is None:
                frame.slots = tuple(_slot(task, _type_of(task, item, node)) for item in values)
            else:
                frame.slots = tuple(_slot(task, type_) for type_ in types)
        if len(frame.slots) != len(values):
            task.fail(node, f"{len(values)} values are returned here, {len(frame.slots)} elsewhere")
        for slot, item in zip(frame.slots, values, strict=True):
            if isinstance(slot, Buffer):
                tiles.assign(task, slot, item, node)
            else:
                task.set(slot, tiles.element(task, item, slot.dtype, node))
    for inner in reversed(task.frames):
        _raise(task, inner, stop=True)
        if inner is frame:
            break
    task.dead = True


def _flat(value: Value) -> list[Any]:
    if isinstance(value, Const) and isinstance(value.value, tuple):
        return [Const(v) for v in value.value]
    return list(value.items) if isinstance(value, Tuple) else [value]


def _type_of(task: Task, value: Value, node: ast.AST) -> DType | TensorType:
    if isinstance(value, (Buffer, TileExpr, PendingGet)) and value.shape:
        return TensorType(value.dtype, value.shape)
    if isinstance(value, Const):
        return const_type(value.value)
    return as_scalar(task, value, node).dtype


def _slot(task: Task, type_: DType | TensorType) -> Variable | Buffer:
    if isinstance(type_, DType):
        return task.variable(type_)
    return task.new_buffer(type_.dtype, type_.shape) if type_.shape else task.variable(type_.dtype)


def result_of(task: Task, frame: Frame, node: ast.FunctionDef, call: ast.AST) -> Value:
    """Return the result of a helper function, after its body."""
    if frame.slots is None:
        return frame.result if frame.result is not None else Const(None)
    if not task.dead and not task.returned:
        task.fail(
            call, f"`{node.name}` does not return a value on every path", "end it with a `return` outside of conditions"
        )
    items = tuple(task.get(slot) if isinstance(slot, Variable) else slot for slot in frame.slots)
    return items[0] if len(items) == 1 else Tuple(items)


def decides(loop: ast.For | ast.With, name: str) -> bool:
    """Return whether a compile-time condition in a loop depends on the variable `name`."""
    calls = (item.context_expr for part in ast.walk(loop) if isinstance(part, ast.With) for item in part.items)
    tests = (call for call in calls if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("if"))
    return any(isinstance(part, ast.Name) and part.id == name for test in tests for part in ast.walk(test))


# Tasks that differ in one condition are split by the later conditions of the set as well. Otherwise each part would be
# compiled up to the next such condition, only to be split there.


_PLAIN = (ast.Name, ast.Constant, ast.Compare, ast.BinOp, ast.UnaryOp,
          ast.operator, ast.unaryop, ast.cmpop, ast.expr_context)  # fmt: skip


def split_further(task: Task, masks: Sequence[Mask], body: Sequence[ast.stmt], first: int) -> Sequence[Mask]:
    """The parts of a set that differ, split further by the kernel's later conditions.

    Args:
        body: the block in which they differ.
        first: the statement of it after which they do.
    """
    kernel = task.kernel.node
    if body is not kernel.body or may_return_early(kernel):
        return masks
    set_later: set[str] = set()
    for statement in body[first:]:
        condition = _tested(statement)
        if condition is not None and set_later.isdisjoint(_names(condition, ast.Load)):
            try:
                asked = intrinsic_called(task, _call_of(statement)) == "meta_if"
                value = task.lower(condition) if asked else None
            except ProgramError:  # compilation reports it later, after earlier errors
                break
            if isinstance(value, Meta):
                holds = value.array.astype(bool)
                masks = [part for mask in masks for part in (mask & holds, mask & ~holds) if part.any()]
        set_later |= _names(statement, ast.Store)
    return masks


def intrinsic_called(task: Task, call: ast.expr | None) -> str | None:
    """Return the function of the language that `with` calls, if any."""
    if not isinstance(call, ast.Call):
        return None
    callee = task.lower(call.func)
    return intrinsic_of(callee.value) if isinstance(callee, Const) else None


def _call_of(statement: ast.stmt) -> ast.Call | None:
    expression = statement.items[0].context_expr if isinstance(statement, ast.With) else None
    return expression if isinstance(expression, ast.Call) else None


def _tested(statement: ast.stmt) -> ast.expr | None:
    """The argument of `with f(argument):`, if it is made of names, numbers and operators."""
    call = _call_of(statement)
    arguments = [] if call is None else call.args
    if len(arguments) != 1 or not all(isinstance(node, _PLAIN) for node in ast.walk(arguments[0])):
        return None
    return arguments[0]


@lru_cache(maxsize=4096)
def _names(node: ast.AST, use: type[ast.expr_context]) -> frozenset[str]:
    """The names that are read, or set, in a part of a program."""
    return frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, use))


def for_loop(task: Task, node: ast.For) -> None:
    """`for i in range(...)` or `for i, j in allo.grid(...)`."""
    if node.orelse:
        task.fail(node.orelse[0], "`else` of a loop is not supported")
    call = node.iter
    callee = task.lower(call.func) if isinstance(call, ast.Call) else None
    if isinstance(call, ast.Call) and isinstance(callee, Const):
        kind = "range" if callee.value is range else intrinsic_of(callee.value)
        if kind == "range":
            return _nest(task, _targets(task, node, 1), [_range(task, call)], node, grid=_grid_name(call))
        if kind in ("grid", "reduction"):
            extents = [task.lower(a) for a in call.args]
            extents = [e for e in extents if not (isinstance(e, Const) and isinstance(e.value, str))]
            for extent in extents:
                _check_bound(task, extent, call, "an extent of a grid")
            bounds = [(Const(0), extent, 1) for extent in extents]
            return _nest(task, _targets(task, node, len(bounds)), bounds, node, grid=_grid_name(call))
        if kind == "meta_for":
            return _unrolled(task, node, call)
    task.fail(node.iter, "loops run over range(...), allo.grid(...) or allo.reduction(...)")


Bounds = tuple[Value, Value, int | Scalar]
_FOR_SCHEDULES = ("name", "pipeline", "unroll")
"""Options of loops that do not change what is computed."""


def _grid_name(call: ast.Call) -> str:
    """Return the `name=` of a grid; schedules refer to its loops with it."""
    names = (k.value for k in call.keywords if k.arg == "name")
    return next((str(value.value) for value in names if isinstance(value, ast.Constant)), "")


def unrolled_range(task: Task, call: ast.Call) -> range:
    """The values of a loop at compile time."""
    bounds = [constant_int(task, task.lower(a), a, "a bound of meta_for") for a in call.args]
    if not 1 <= len(bounds) <= 3 or (len(bounds) == 3 and bounds[2] == 0):
        task.fail(call, "meta_for takes the arguments of range()")
    return range(*bounds)


def _unrolled(task: Task, node: ast.For, call: ast.Call) -> None:
    values = unrolled_range(task, call)
    (name,) = _targets(task, node, 1)
    frame = _frame(task, node)
    frame.unrolled = True
    task.frames.append(frame)
    with ExitStack() as stack:
        for value in task.unrolled(values, call, decides(node, name)):
            if frame.jumps and frame.stop is not None:
                stack.enter_context(unless_raised(task, frame.stop))
                frame.guards = task.guards
            if frame.skip is not None:
                set_flag(task, frame.skip, False)
            with task.scope():
                task.declare_loop(name, Const(value), node.target)
                task.lower_block(node.body)
            task.dead = False
            if frame.ended or task.returned:
                break
    task.frames.pop()


def _frame(task: Task, node: ast.For | ast.While) -> Frame:
    found = _jumps_in(tuple(node.body))  # of its own, and returns wherever they stand
    return new_frame(task, leaves=found.leaves, skips=found.skips, loop=True)


def _targets(task: Task, node: ast.For, count: int) -> list[str]:
    targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
    names = [t.id for t in targets if isinstance(t, ast.Name)]
    if len(names) != len(targets) or len(names) != count:
        task.fail(node.target, f"this loop needs {count} names, {len(targets)} are given")
    return names


def _range(task: Task, call: ast.Call) -> Bounds:
    if not 1 <= len(call.args) <= 3:
        task.fail(call, f"range() takes one to three arguments, {len(call.args)} are given")
    unknown = [k for k in call.keywords if k.arg not in _FOR_SCHEDULES]
    if unknown:
        task.fail(unknown[0], f"range() has no argument `{unknown[0].arg}`", f"it has {', '.join(_FOR_SCHEDULES)}")
    values = [task.lower(a) for a in call.args]
    for value, part in zip(values, call.args, strict=True):
        _check_bound(task, value, part, "a bound of range()")
    step: int | Scalar = 1
    if len(values) == 3 and not isinstance(values[2], (Const, meta.Meta)):  # data must give a positive one
        step = as_index(task, values[2], call.args[2])
    elif len(values) == 3:
        step = constant_int(task, values[2], call.args[2], "the step of range()")
    if step == 0:
        task.fail(call.args[2], "the step of range() must not be zero")
    if isinstance(step, int) and step < 0:
        task.notice("range", call)
    start, stop = (Const(0), values[0]) if len(values) == 1 else (values[0], values[1])
    return start, stop, step


def _check_bound(task: Task, value: Value, node: ast.AST, what: str) -> None:
    known = integer_of(value)
    if isinstance(value, Const) and known is None:
        task.fail(node, f"{what} must be an integer, not {value.value!r}")
    if known is not None and not -(2**62) < known < 2**62:
        task.fail(node, f"a bound of a loop must fit 63 bits; this one has {known.bit_length()}")


def _trips(task: Task, bounds: Bounds) -> Count:
    """Return the number of iterations of a loop in each task; None if it depends on data."""
    parts = (*bounds[:2], Const(bounds[2]) if isinstance(bounds[2], int) else bounds[2])
    start, stop, step = (meta.as_meta(part, len(task.kernel.mesh)) for part in parts)
    if not isinstance(start, Meta) or not isinstance(stop, Meta) or not isinstance(step, Meta):
        return None
    length = np.maximum(0, -((start.array - stop.array) // step.array))
    values = np.unique(task.per_task(meta.table(length)))
    return int(values[0]) if len(values) == 1 else length


def _nest(
    task: Task,
    names: Sequence[str],
    bounds: Sequence[Bounds],
    node: ast.For,
    frame: Frame | None = None,
    grid: str = "",
) -> None:
    """Nested loops, outermost first, around the body."""
    if not names:
        assert frame is not None
        _body(task, node, frame)
        return
    trips = _trips(task, bounds[0])
    if isinstance(trips, int) and trips == 0:
        return
    frame = frame or _frame(task, node)
    text, (start, stop, step) = task.text, bounds[0]
    name = text.name()
    walk = None if frame.stop is not None else _walk(task, bounds[0], trips, name)
    form = variable(names[0], form_of(start), form_of(stop), step if isinstance(step, int) else None)
    inner = Scalar(name, index, form, walk)
    low, high = (as_index(task, v, node).ssa for v in (start, stop))
    down = step if isinstance(step, int) and step < 0 else None
    if down is not None:  # scf.for only counts up: count the iterations
        zero, distance = text.constant(0, index), text.op(f"arith.subi {low}, {high} : index")
        rounds = text.op(f"arith.ceildivsi {distance}, {text.constant(-down, index)} : index")
        low, high = zero, text.op(f"arith.maxsi {rounds}, {zero} : index")
    stride = step.ssa if isinstance(step, Scalar) else text.constant(max(step, 1), index)
    marked = _marked(task, node, names[0], grid)
    with _counting(task, frame, name, (low, high, stride), trips, marked), task.scope(), task.loop() as loop:
        if down is not None:
            first = as_index(task, start, node).ssa
            product = text.op(f"arith.muli {name}, {text.constant(down, index)} : index")
            inner = replace(inner, ssa=text.op(f"arith.addi {first}, {product} : index"))
        task.declare_loop(names[0], inner, node.target)
        loop.variable = form
        _nest(task, names[1:], bounds[1:], node, frame, grid)
        _price(task, loop, node)


@contextmanager
def _counting(
    task: Task, frame: Frame, name: str, bounds: tuple[str, str, str], trips: Count, marked: str
) -> Iterator[None]:
    """A loop that counts up; one that can be left is a `while`, and it is not known how often it runs."""
    low, high, stride = bounds
    if frame.stop is None:
        opening = f"scf.for {name} = {low} to {high} step {stride} {{"
        with task.text.block(opening, f"}} {marked}"), task.repeated(trips):
            yield
        return
    at = task.text.name()
    with task.guarded():
        with task.text.block(f"scf.while ({at} = {low}) : (index) -> index {{", "} do {"):
            inside = task.text.op(f"arith.cmpi slt, {at}, {high} : index")
            more = task.text.op(f"arith.andi {inside}, {is_lowered(task, frame.stop)} : i1")
            task.text.line(f"scf.condition({more}) {at} : index")
        with task.text.continued(f"}} attributes {marked}"):
            task.text.line(f"^bb0({name}: index):")
            yield
            task.text.line(f"scf.yield {task.text.op(f'arith.addi {name}, {stride} : index')} : index")


def _marked(task: Task, node: ast.AST, name: str = "", grid: str = "") -> str:
    """The attribute that numbers a loop, after its place in the source is recorded."""
    source = SourceLoop(name, grid, task.location(node), task.function, task.numbers[-1], hints=_hints(node, name))
    task.source_loops.append(source)
    return f"{{df.loop = {len(task.source_loops) - 1} : i64}}"


def _hints(node: ast.AST, name: str) -> tuple[tuple[str, int], ...]:
    """Return the options `pipeline=` and `unroll=` of a loop for its variable `name`.

    A list has an entry per variable, a single value is for the innermost one. `True` is an interval of 1, or all
    copies.
    """
    if not isinstance(node, ast.For) or not isinstance(node.iter, ast.Call):
        return ()
    names = [part.id for part in ast.walk(node.target) if isinstance(part, ast.Name)]
    found = []
    for option in node.iter.keywords:
        if option.arg not in ("pipeline", "unroll"):
            continue
        values = option.value.elts if isinstance(option.value, (ast.List, ast.Tuple)) else [option.value]
        own = dict(zip(reversed(names), reversed(values), strict=False)).get(name)
        value = own.value if isinstance(own, ast.Constant) else None
        if isinstance(value, int) and value:
            found.append((option.arg, int(option.arg == "pipeline") if value is True else value))
    return tuple(found)


def _body(task: Task, node: ast.For | ast.While, frame: Frame) -> None:
    """One iteration."""
    if frame.skip is not None:
        set_flag(task, frame.skip, False)
    task.frames.append(frame)
    with task.scope():
        task.lower_block(node.body)
    task.frames.pop()
    task.dead = False


def _price(task: Task, loop: LoopWork, node: ast.AST) -> None:
    """One iteration of an innermost loop of scalar work, or of one that looks at streams, which must take time."""
    if loop.polls or (loop.has_scalar_work and not loop.has_loops):
        task.price("loop", (), (), node)


def _walk(task: Task, bounds: Bounds, trips: Count, loop: str) -> Walk | None:
    """The values of a loop variable, where their number is the same for all tasks."""
    start, _, step = bounds
    if not isinstance(trips, int) or not isinstance(step, int):
        return None
    if isinstance(start, Const):
        return Walk(loop, range(int(start.value), int(start.value) + trips * step, step))
    return Walk(loop, range(0, trips * step, step), start) if isinstance(start, Meta) else None


def while_loop(task: Task, node: ast.While) -> None:
    """`while condition:`, the condition depending on data."""
    if node.orelse:
        task.fail(node.orelse[0], "`else` of a loop is not supported")
    frame = _frame(task, node)
    marked = _marked(task, node)
    with task.guarded(), task.loop() as loop:
        with task.text.block("scf.while : () -> () {", "} do {"):
            task.text.line(f"scf.condition({_condition(task, node, frame)})")
        with task.text.continued(f"}} attributes {marked}"):
            _body(task, node, frame)
            _price(task, loop, node)
            task.text.line("scf.yield")


def _condition(task: Task, node: ast.While, frame: Frame) -> str:
    """Return the condition of a `while` loop: it has not been left, and its test holds."""
    if frame.stop is None:
        condition = task.lower(node.test)
        if isinstance(condition, Const):
            task.fail(node.test, "this loop never ends or never runs", "use a condition that depends on data")
        return scalars.truth(task, condition, node.test).ssa
    goes_on = is_lowered(task, frame.stop)
    with task.text.captured() as lines:
        test = scalars.truth(task, task.lower(node.test), node.test)
        task.text.line(f"scf.yield {test.ssa} : i1")
    return task.text.choose(goes_on, "i1", lines, [f"scf.yield {task.text.constant(False, bool_)} : i1"])
