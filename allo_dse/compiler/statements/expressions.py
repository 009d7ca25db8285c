"""Evaluation of Python expressions: compile-time values, and code for run-time ones."""

from __future__ import annotations

import ast
import builtins
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from allo_dse.common.errors import ProgramError
from allo_dse.common.records import replace

from ..expressions import scalars, streams, subscripts, tiles
from ..expressions.arithmetic import apply
from ..expressions.scalars import as_scalar, convert
from ..model import values as meta
from ..model.index_forms import Form
from ..model.mlir_text import element_type
from ..model.source_file import did_you_mean
from ..model.values import Const, Meta, Scalar, StreamRef, Tuple, Value, Variable
from ..regions.task_state import Task
from . import calls

Node = TypeVar("Node", bound=ast.expr)

OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}


def lower(task: Task, node: ast.expr) -> Value:
    """The value of an expression; run-time parts are written to the task's text."""
    return _HANDLERS.get(type(node), _by_python)(task, node)


_INSTEAD: dict[type[ast.expr], str] = {
    **dict.fromkeys((ast.ListComp, ast.GeneratorExp), "declare an array, x: int32[8], and set its elements in a loop"),
    ast.JoinedStr: "kernels know no texts and cannot print; write the value to an argument",
    ast.NamedExpr: "assign in a statement of its own",
}


def _by_python(task: Task, node: ast.expr) -> Value:
    """Anything else is left to Python, over names that are constant."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
            value = task.find(part.id)
            if part.id in task.source.streams if value is None else not isinstance(value, Const):
                task.fail(node, "this expression is not supported on run-time values", _INSTEAD.get(type(node), ""))
    return Const(task.source.file.evaluate(node, task.constants()))


def _name(task: Task, node: ast.Name) -> Value:
    value = task.find(node.id)
    if isinstance(value, Variable):
        return as_scalar(task, value, node)
    if value is not None:
        return value
    if node.id in task.source.streams:
        return StreamRef(task.source.streams[node.id], (), node)
    if node.id in task.source.parts:
        task.fail(
            node,
            f"`{node.id}` is an argument of the region and cannot be used in kernel `{task.kernel.name}` directly",
            "list it in the kernel's args and use the kernel's own parameter",
        )
    if node.id in task.source.names:
        return Const(task.source.names[node.id])
    if node.id == "allo" and node.id in sys.modules:  # as in Allo, which knows its own name without an import
        return Const(sys.modules[node.id])
    if hasattr(builtins, node.id):
        return Const(getattr(builtins, node.id))
    known = [*task.source.streams, *task.source.names, *(n for scope in task.scopes for n in scope.names)]
    hint = did_you_mean(node.id, known)
    names = (part for part in ast.walk(task.kernel.node) if isinstance(part, ast.Name))
    if any(name.id == node.id and isinstance(name.ctx, ast.Store) for name in names):
        hint = "a name is known from where it is set first to the end of that block"
    task.fail(node, f"unknown name `{node.id}`", hint)


def _attribute(task: Task, node: ast.Attribute) -> Value:
    base = lower(task, node.value)
    if isinstance(base, Const):
        try:
            return Const(getattr(base.value, node.attr))
        except AttributeError:
            name = getattr(base.value, "__name__", None)
            label = f"`{name}`" if name else repr(base.value)
            task.fail(node, f"{label} has no attribute `{node.attr}`", did_you_mean(node.attr, dir(base.value)))
    if node.attr == "T" and tiles.is_tile(base):
        return calls.transpose(task, base, None, node)
    if node.attr == "shape" and tiles.is_tile(base):
        return Const(tiles.shape_of(base))
    task.fail(node, f"unknown attribute `{node.attr}`")


def _tuple(task: Task, node: ast.Tuple | ast.List) -> Value:
    if any(isinstance(e, ast.Starred) for e in node.elts):
        return _by_python(task, node)
    return _several([lower(task, e) for e in node.elts], tuple if isinstance(node, ast.Tuple) else list)


def _several(items: list[Value], kind: type[tuple[object, ...]] | type[list[object]]) -> Value:
    """Values as one, a constant if they all are."""
    values = [i.value for i in items if isinstance(i, Const)]
    return Const(kind(values)) if len(values) == len(items) else Tuple(tuple(items))


def _comprehension(task: Task, node: ast.ListComp) -> Value:
    """A list made at compile time, such as `[pipe[i] for i in range(4)]`."""
    first = node.generators[0]
    if len(node.generators) > 1 or first.ifs or not isinstance(first.target, ast.Name):
        return _by_python(task, node)
    values = lower(task, first.iter)
    if not isinstance(values, Const):
        task.fail(first.iter, "a list inside a kernel is made of values that are known at compile time")
    try:
        members = values.value if isinstance(values.value, range) else list(values.value)
    except TypeError as error:
        task.fail(first.iter, f"cannot evaluate this at compile time: {error}")
    if isinstance(members, range):
        members = list(task.unrolled(members, first.iter))
    items = []
    for member in members:
        with task.scope():
            task.declare(first.target.id, Const(member))
            items.append(lower(task, node.elt))
    return _several(items, list)


# -- arithmetic ------------------------------------------------------------------------------------------------------


def _binary(task: Task, node: ast.BinOp) -> Value:
    if isinstance(node.op, ast.MatMult):
        task.notice("@", node)
        return tiles.matmul(task, lower(task, node.left), lower(task, node.right), node)
    return apply(task, OPERATORS[type(node.op)], lower(task, node.left), lower(task, node.right), node)


def _unary(task: Task, node: ast.UnaryOp) -> Value:
    value = lower(task, node.operand)
    if isinstance(value, Const):
        try:
            return Const(_FUNCTIONS[type(node.op)](value.value))
        except TypeError as error:
            task.fail(node, f"cannot evaluate this at compile time: {error}")
    match node.op:
        case ast.UAdd():
            return value
        case ast.Not():
            return negate(task, value, node)
        case ast.USub() if tiles.is_tile(value):
            task.notice("negated tile", node)
            return tiles.elementwise(task, "neg", (value,), node)
        case ast.USub():
            if not isinstance(value, Meta):
                value = as_scalar(task, value, node)
                if value.dtype.is_float:
                    task.scalar_op()  # not 0 - value, which has another zero
                    return task.emit(f"arith.negf {value.ssa} : {element_type(value.dtype)}", value.dtype)
            return apply(task, "-", Const(0), value, node)
    scalar = as_scalar(task, value, node)
    if scalar.dtype.is_float:
        task.fail(node, f"operator ~ is not defined for {scalar.dtype}")
    return scalars.binary_as(task, "^", scalar, task.number(-1, scalar.dtype), scalar.dtype)


_FUNCTIONS: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
    ast.Not: operator.not_,
}


def negate(task: Task, value: Value, node: ast.AST) -> Value:
    """`not value`."""
    if isinstance(value, Const):
        return Const(not value.value)
    if isinstance(value, Meta):
        return meta.table(~value.array.astype(bool))
    condition = scalars.truth(task, value, node)
    one = task.number(True, condition.dtype)
    holds, fails = facts_of(value)
    return replace(scalars.binary_as(task, "^", condition, one, condition.dtype), facts=(fails, holds))


# -- conditions ------------------------------------------------------------------------------------------------------


def _boolean(task: Task, node: ast.BoolOp) -> Value:
    wanted = isinstance(node.op, ast.And)
    result = lower(task, node.values[0])
    for operand in node.values[1:]:
        if isinstance(result, Const) and bool(result.value) != wanted:
            return Const(bool(result.value))
        if isinstance(result, (Const, Meta)):
            try:
                right = lower(task, operand)
            except ProgramError:
                # Python skips the right side of `p > 0 and a[p - 1] > 3` if the left side decides.
                if isinstance(result, Const) or _holds(task, result) == wanted:
                    raise
                return Const(not wanted)
            result = _both(task, wanted, result, right)
        else:
            result = _short_circuit(task, wanted, result, operand)
    return result


def _holds(task: Task, value: Meta) -> bool:
    """Evaluate a condition that must be the same for all tasks of the set."""
    return bool(task.uniform(meta.table(value.array.astype(bool))))


def _both(task: Task, wanted: bool, left: Const | Meta, right: Value) -> Value:
    """`left and right` if true is wanted, else `left or right`."""
    if isinstance(left, Const):
        return right if bool(left.value) == wanted else Const(not wanted)
    if isinstance(right, Const):
        return left if bool(right.value) == wanted else Const(not wanted)
    if isinstance(right, Meta):
        function = np.logical_and if wanted else np.logical_or
        return meta.table(function(left.array, right.array))
    return right if _holds(task, left) == wanted else Const(not wanted)


def _short_circuit(task: Task, wanted: bool, left: Value, operand: ast.expr) -> Value:
    """The right side of a run-time `and` or `or`, evaluated only where it decides."""
    condition = scalars.truth(task, left, operand)
    default = task.number(not wanted, condition.dtype)
    known = facts_of(left)[0 if wanted else 1]
    with task.guarded(known), task.text.captured() as lines:
        value = lower(task, operand)
        right = scalars.truth(task, value, operand)
    inner = [*lines, f"scf.yield {right.ssa} : i1"]
    outer = [f"scf.yield {default.ssa} : i1"]
    then, otherwise = (inner, outer) if wanted else (outer, inner)
    chosen = task.text.choose(condition.ssa, "i1", then, otherwise)
    both = known + facts_of(value)[0 if wanted else 1]
    return Scalar(chosen, condition.dtype, facts=(both, ()) if wanted else ((), both))


def facts_of(condition: Value) -> tuple[tuple[Form, ...], tuple[Form, ...]]:
    """Return the forms that are at least 0 if a condition holds, and if it does not."""
    return condition.facts if isinstance(condition, Scalar) else ((), ())


def _compare(task: Task, node: ast.Compare) -> Value:
    result: Value | None = None
    left = lower(task, node.left)
    for op, right_node in zip(node.ops, node.comparators, strict=True):
        right = lower(task, right_node)
        one = _compare_pair(task, op, left, right, node)
        if isinstance(one, Scalar) and len(node.ops) > 1:
            task.notice("chained comparison", node)
        if result is None:
            result = one
        elif isinstance(result, (Const, Meta)):
            result = _both(task, True, result, one)
        else:
            both = scalars.binary(task, "&", scalars.truth(task, result, node), scalars.truth(task, one, node), node)
            result = replace(both, facts=(facts_of(result)[0] + facts_of(one)[0], ()))
        left = right
    assert result is not None
    return result


def _compare_pair(task: Task, op: ast.cmpop, left: Value, right: Value, node: ast.AST) -> Value:
    if isinstance(op, (ast.In, ast.NotIn)):
        inside = _contains(task, left, right, node)
        return inside if isinstance(op, ast.In) else negate(task, inside, node)
    if isinstance(op, (ast.Is, ast.IsNot)):
        if not (isinstance(left, Const) and isinstance(right, Const)):
            task.fail(node, "`is` only compares constants", "use == for values")
        return Const((left.value is right.value) == isinstance(op, ast.Is))
    return apply(task, COMPARISONS[type(op)], left, right, node)


def _contains(task: Task, item: Value, container: Value, node: ast.AST) -> Value:
    if isinstance(container, Const) and isinstance(item, Const):
        try:
            return Const(item.value in container.value)
        except TypeError as error:
            task.fail(node, f"cannot evaluate this at compile time: {error}")
    if isinstance(container, Const):
        try:
            members: Sequence[Value] = [Const(v) for v in container.value]
        except TypeError:
            task.fail(node, f"`in` needs a set, list, tuple or range, not {container.value!r}")
    elif isinstance(container, Tuple):
        members = container.items
    else:
        task.fail(node, "`in` needs a set, list, tuple or range of constants")
    result: Value = Const(False)
    for member in members:
        same = apply(task, "==", item, member, node)
        if isinstance(result, (Const, Meta)) and not isinstance(same, Scalar):
            result = same if isinstance(result, Const) and not result.value else _both(task, False, result, same)
        else:
            a, b = scalars.truth(task, result, node), scalars.truth(task, same, node)
            result = scalars.binary_as(task, "|", a, b, a.dtype)
    return result


def _conditional(task: Task, node: ast.IfExp) -> Value:
    """`a if c else b`; only the chosen side is evaluated."""
    condition = lower(task, node.test)
    if isinstance(condition, (Const, Meta)):
        chosen = condition.value if isinstance(condition, Const) else task.uniform(condition)
        return lower(task, node.body if chosen else node.orelse)
    task.notice("choice", node)
    test = scalars.truth(task, condition, node.test)
    sides, values = [], []
    for side, facts in zip((node.body, node.orelse), facts_of(condition), strict=True):
        with task.guarded(facts), task.text.captured() as lines:
            value = lower(task, side)
            values.append(value if isinstance(value, Const) else as_scalar(task, value, side))
        sides.append(lines)
    a, b = scalars.operands(task, values[0], values[1], node)
    dtype = scalars.common(a.dtype, b.dtype)
    for lines, scalar in zip(sides, (a, b), strict=True):
        with task.text.captured() as tail:
            result = convert(task, scalar, dtype)
        lines.extend([*tail, f"scf.yield {result.ssa} : {element_type(dtype)}"])
    return Scalar(task.text.choose(test.ssa, element_type(dtype), *sides), dtype)


def _call(task: Task, node: ast.Call) -> Value:
    if isinstance(node.func, ast.Attribute):
        owner = node.func.value
        if not isinstance(owner, ast.Name) or task.find(owner.id) is not None or owner.id in task.source.streams:
            base = lower(task, owner)
            if isinstance(base, StreamRef):
                return streams.method(task, base, node.func.attr, node)
            if not isinstance(base, Const):
                return calls.method(task, base, node.func.attr, node)
    return calls.call(task, lower(task, node.func), node)


_HANDLERS: dict[type[ast.expr], Callable[[Task, Any], Value]] = {
    ast.Constant: lambda task, node: Const(node.value),
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Tuple: _tuple,
    ast.List: _tuple,
    ast.Set: lambda task, node: Tuple(tuple(lower(task, e) for e in node.elts)),
    ast.ListComp: _comprehension,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.BoolOp: _boolean,
    ast.Compare: _compare,
    ast.IfExp: _conditional,
    ast.Call: _call,
    ast.Subscript: subscripts.subscript,
}
