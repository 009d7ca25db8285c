"""`break`, `continue` and `return`, in code that stays structured.

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
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from msgspec import Struct

from allo_dse.common.errors import ProgramError
from allo_dse.lang.intrinsics import intrinsic_of
from allo_dse.lang.types import DType, TensorType
from allo_dse.lang.types import bool as bool_

from ..expressions import tiles
from ..expressions.scalars import as_scalar, binary_as, const_type
from ..model.mlir_text import element_type
from ..model.source_file import statements_in
from ..model.values import Buffer, Const, Meta, PendingGet, Scalar, TileExpr, Tuple, Value, Variable
from ..regions.task_state import Frame, Mask, Task

_FLAG = "memref<i1>"


class JumpsOf(Struct, frozen=True):
    """The kinds of jumps in the source of a loop."""

    leaves: bool
    skips: bool


@lru_cache(maxsize=4096)
def jumps_of(loop: ast.For | ast.While) -> JumpsOf:
    """The jumps out of a loop's body: of its own, and returns wherever they stand."""
    return _jumps_in(loop.body)


def _jumps_in(body: Sequence[ast.stmt]) -> JumpsOf:
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
    return any(_jumps_in([statement]).leaves for statement in node.body if not isinstance(statement, ast.Return))


# -- flags -----------------------------------------------------------------------------------------------------------


def new_frame(task: Task, *, leaves: bool, skips: bool, loop: bool) -> Frame:
    """The target of jumps, with its flags lowered."""
    frame = Frame(loop, len(task.loops), task.guards)
    frame.skip = task.text.slot(_FLAG) if skips else None
    frame.stop = task.text.slot(_FLAG) if leaves and loop else None
    if frame.stop is not None:
        set_flag(task, frame.stop, False)
    if frame.skip is not None and not loop:
        set_flag(task, frame.skip, False)
    return frame


def set_flag(task: Task, flag: str, value: bool) -> None:
    task.text.line(f"memref.store {task.text.constant(value, bool_)}, {flag}[] : {_FLAG}")


def is_lowered(task: Task, flag: str) -> str:
    """The run-time condition that a flag is not raised."""
    raised = Scalar(task.text.op(f"memref.load {flag}[] : {_FLAG}"), bool_)
    one = Scalar(task.text.constant(True, bool_), bool_)
    return binary_as(task, "^", raised, one, bool_).ssa


def _raise(task: Task, frame: Frame, *, stop: bool) -> None:
    assert frame.skip is not None
    set_flag(task, frame.skip, True)
    if stop and frame.stop is not None:
        set_flag(task, frame.stop, True)
    frame.jumps += 1


@contextmanager
def unless_raised(task: Task, flag: str) -> Iterator[None]:
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
        _store_result(task, frame, value, node)
    for inner in reversed(task.frames):
        _raise(task, inner, stop=True)
        if inner is frame:
            break
    task.dead = True


def _store_result(task: Task, frame: Frame, value: Value, node: ast.Return) -> None:
    """Store a result until the end of the function, because other paths may return another one."""
    if frame.slots is None:
        frame.slots = _slots(task, frame.returns, value, node)
    slots, values = _flat(frame.slots), _flat(value)
    if len(slots) != len(values):
        task.fail(node, f"{len(values)} values are returned here, {len(slots)} elsewhere")
    for slot, item in zip(slots, values, strict=True):
        if isinstance(slot, Buffer):
            tiles.assign(task, slot, item, node)
        else:
            scalar = tiles.element(task, item, slot.dtype, node)
            task.text.line(f"memref.store {scalar.ssa}, {slot.ssa}[] : memref<{element_type(slot.dtype)}>")


def _flat(value: Value) -> list[Any]:
    if isinstance(value, Const) and isinstance(value.value, tuple):
        return [Const(v) for v in value.value]
    return list(value.items) if isinstance(value, Tuple) else [value]


def _slots(task: Task, types: Any, value: Value, node: ast.AST) -> Value:
    if types is None:
        found = tuple(_slot(task, _type_of(task, item, node)) for item in _flat(value))
        return found[0] if len(found) == 1 else Tuple(found)
    if isinstance(types, tuple):
        return Tuple(tuple(_slot(task, type_) for type_ in types))
    return _slot(task, types)


def _type_of(task: Task, value: Value, node: ast.AST) -> DType | TensorType:
    if isinstance(value, (Buffer, TileExpr, PendingGet)) and value.shape:
        return TensorType(value.dtype, value.shape)
    if isinstance(value, Const):
        return const_type(value.value)
    return as_scalar(task, value, node).dtype


def _slot(task: Task, type_: DType | TensorType) -> Value:
    if isinstance(type_, TensorType) and type_.shape:
        return task.new_buffer(type_.dtype, type_.shape)
    dtype = type_.dtype if isinstance(type_, TensorType) else type_
    return Variable(task.text.slot(f"memref<{element_type(dtype)}>"), dtype)


def result_of(task: Task, frame: Frame, node: ast.FunctionDef, call: ast.AST) -> Value:
    """Return the result of a helper function, after its body."""
    if frame.slots is None:
        return frame.result if frame.result is not None else Const(None)
    if not task.dead and not task.returned:
        task.fail(
            call, f"`{node.name}` does not return a value on every path", "end it with a `return` outside of conditions"
        )
    items = [as_scalar(task, slot, call) if isinstance(slot, Variable) else slot for slot in _flat(frame.slots)]
    return items[0] if len(items) == 1 else Tuple(tuple(items))


@lru_cache(maxsize=4096)
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
        condition = _condition(statement)
        if condition is not None and set_later.isdisjoint(_names(condition, ast.Load)):
            try:
                asked = intrinsic_called(task, _call(statement)) == "meta_if"
                value = task.lower(task, condition) if asked else None
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
