"""Compilation of statements."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from allo_dse.common.records import replace
from allo_dse.lang.types import ConstExprType, DType, StatefulType, StreamType, Struct, TensorType

from ..expressions import scalars, subscripts, tiles
from ..expressions.arithmetic import apply
from ..expressions.scalars import as_scalar
from ..expressions.subscripts import Position, bits_of, with_bits
from ..expressions.tiles import note_elements
from ..model.mlir_text import element_type, memref_type
from ..model.values import (
    Buffer,
    Const,
    LocalFunction,
    Meta,
    PendingGet,
    Record,
    Scalar,
    StreamGroup,
    StreamRef,
    TileExpr,
    Tuple,
    Value,
    Variable,
)
from ..program.compiled import StateVariable
from ..regions.task_state import Split, Task
from .expressions import OPERATORS, facts_of
from .jumps import break_or_continue, decides, intrinsic_called, return_, split_further, unless_raised
from .loops import for_loop, while_loop

# Variables are declared as `name: type = value`, or take the type of their first value.


def declaration(task: Task, node: ast.AnnAssign) -> None:
    """`name: type = value`."""
    if not isinstance(node.target, ast.Name):
        task.fail(node, "only names can be declared")
    type_ = task.source.file.evaluate_annotation(node.annotation, task.constants())
    name = node.target.id
    task.check_not_fixed(name, node.target)
    if isinstance(type_, ConstExprType):
        _declare_constant(task, name, node)
        return
    if isinstance(type_, StatefulType):
        _declare_state(task, name, type_.type, node)
        return
    if isinstance(type_, Struct):
        task.declare(name, _record(task, name, type_, node))
        return
    if isinstance(type_, StreamType):
        task.fail(node, "streams are declared in the region, outside of its kernels")
    if isinstance(type_, DType):
        type_ = TensorType(type_, ())
    if not isinstance(type_, TensorType):
        task.fail(node.annotation, f"`{name}` must have an element or tensor type, not {type_!r}")
    if type_.shape:
        _declare_tile(task, name, type_, node)
        return
    value = None if node.value is None else task.lower(task, node.value)
    if isinstance(value, Meta) and type_.dtype.kind == "index":
        task.declare(name, value)
        return
    scalar = None if value is None else tiles.element(task, value, type_.dtype, node)
    _declare_scalar(task, name, type_.dtype, scalar)


def _record(task: Task, name: str, type_: Struct, node: ast.AnnAssign) -> Record:
    """A variable of several parts: `p: point = {"x": 1, "y": 2.0}`."""
    given: dict[str, ast.expr] = {}
    if node.value is not None:
        if not isinstance(node.value, ast.Dict):
            task.fail(node.value, f"`{name}` is set by a dict of its parts")
        written = zip(node.value.keys, node.value.values, strict=True)
        given = {str(key.value): value for key, value in written if isinstance(key, ast.Constant)}
        if given.keys() != type_.fields.keys():
            task.fail(node.value, f"`{name}` has the parts {', '.join(map(repr, type_.fields))}")
    fields = {}
    for part, dtype in type_.fields.items():
        memref = f"memref<{element_type(dtype)}>"
        fields[part] = Variable(task.text.slot(memref), dtype)
        if part in given:
            scalar = tiles.element(task, task.lower(task, given[part]), dtype, node)
            task.text.line(f"memref.store {scalar.ssa}, {fields[part].ssa}[] : {memref}")
    return Record(fields)


def _declare_state(task: Task, name: str, type_: TensorType, node: ast.AnnAssign) -> None:
    """A variable that lives from call to call: memory of the task's own, outside of its body."""
    value = Const(0) if node.value is None else task.lower(task, node.value)
    value = Const(task.uniform(value)) if isinstance(value, Meta) else value
    if not isinstance(value, Const) or not isinstance(
        value.value, (bool, int, float, list, tuple, np.ndarray, np.generic)
    ):
        task.fail(node.value or node, f"the initial value of `{name}` must be known at compile time")
    initial = np.asarray(value.value)
    if initial.dtype.kind not in "biuf" or initial.shape not in ((), type_.shape):
        task.fail(node, f"`{name}` is {type_}, but its initial value is {value.value!r}")
    contents = np.broadcast_to(initial, type_.shape)
    if node in task.shares:
        task.declare(name, task.shared_buffer(name, type_.dtype, contents, node))
        return
    ssa = f"%state{len(task.state)}"
    task.state.append(StateVariable(name, type_.dtype, type_.shape, contents))
    task.declared_at[ssa] = node
    task.declare(name, Buffer(ssa, type_.dtype, type_.shape, memref_type(type_.dtype, type_.shape, strided=True), ssa))


def _declare_constant(task: Task, name: str, node: ast.AnnAssign) -> None:
    if node.value is None:
        task.fail(node, f"`{name}` is a ConstExpr and needs a value")
    value = task.lower(task, node.value)
    if not isinstance(value, (Const, Meta)):
        task.fail(node.value, f"`{name}` is a ConstExpr, but its value is not known at compile time")
    task.declare(name, value)


def _declare_tile(task: Task, name: str, type_: TensorType, node: ast.AnnAssign) -> None:
    value = None if node.value is None else task.lower(task, node.value)
    if node in task.shares:
        buffer = task.shared_buffer(name, type_.dtype, np.zeros(type_.shape), node)
    else:
        buffer = task.new_buffer(type_.dtype, type_.shape, name)
        task.declared_at[buffer.ssa] = node
        if type_.memory is not None:
            task.memories[buffer.ssa] = type_.memory
    if value is not None:
        initialise(task, buffer, value, node)
    task.declare(name, buffer)


def initialise(task: Task, buffer: Buffer, value: Value, node: ast.stmt) -> None:
    """Set a whole tile: from a scalar, a list, a NumPy array or another tile."""
    if isinstance(value, Const) and isinstance(value.value, (list, tuple, np.ndarray)):
        array = np.asarray(value.value)
        if array.shape != buffer.shape:
            task.fail(node, f"shapes do not match: {list(buffer.shape)} = {list(array.shape)}")
        value = task.constant_buffer(array, buffer.dtype)
    tiles.assign(task, buffer, value, node)


def _declare_scalar(task: Task, name: str, dtype: DType, value: Scalar | None) -> None:
    if not task.is_mutable(name) and value is not None:
        task.declare(name, value)
        return
    type_ = f"memref<{element_type(dtype)}>"
    variable = Variable(task.text.slot(type_, name), dtype)
    if value is not None:
        task.text.line(f"memref.store {value.ssa}, {variable.ssa}[] : {type_}")
    task.declare(name, variable)


def declare_untyped(task: Task, name: str, value: Value, node: ast.stmt) -> None:
    """The first assignment to a name without a type: it takes the type of the value."""
    if isinstance(value, (TileExpr, PendingGet)):
        value = tiles.materialise(task, value)
    if isinstance(value, (StreamRef, StreamGroup)):
        task.declare(name, value)
        return
    constant = isinstance(value, Const) and scalars.is_number(value.value)
    if task.is_mutable(name) and (constant or isinstance(value, (Scalar, Meta))):
        scalar = as_scalar(task, value, node)
        _declare_scalar(task, name, scalar.dtype, scalar)
        return
    task.declare(name, value)


def lower_block(task: Task, body: Sequence[ast.stmt], chain: _Chain | None = None) -> None:
    """Compile the statements of one block, in the scope that is open."""
    chain = chain or _Chain()
    for position, statement in enumerate(body):
        if task.dead or task.returned:
            return
        frame = task.frames[-1]
        before = frame.jumps
        if isinstance(statement, ast.With):
            try:
                _with(task, statement, chain)
            except Split as split:
                raise Split(split_further(task, split.masks, body, position + 1)) from None
        else:
            chain.open = False
            _handler(task, statement)(task, statement)
        rest = body[position + 1 :]
        if frame.jumps != before and rest and not task.dead:
            assert frame.skip is not None
            with unless_raised(task, frame.skip):
                lower_block(task, rest, chain)
            return


def _handler(task: Task, statement: ast.stmt) -> Callable[[Task, Any], None]:
    handler = _HANDLERS.get(type(statement))
    if handler is None:
        kind = type(statement).__name__.lower()
        task.fail(statement, f"`{kind}` is not supported in kernels", _HINTS.get(type(statement), ""))
    return handler


class _Chain:
    """A chain of meta_if, meta_elif and meta_else: whether one is open, and whether a branch of it was taken."""

    def __init__(self) -> None:
        self.open = False
        self.taken = False


def _with(task: Task, node: ast.With, chain: _Chain) -> None:
    if len(node.items) > 1:  # `with a, b:` is `with a:` around `with b:`
        inner = ast.copy_location(ast.With(node.items[1:], node.body), node)
        node = ast.copy_location(ast.With(node.items[:1], [inner]), node)
    call = node.items[0].context_expr
    name = intrinsic_called(task, call)
    if name == "meta_for":
        chain.open = False
        _meta_for(task, node)
        return
    if name not in ("meta_if", "meta_elif", "meta_else") or not isinstance(call, ast.Call):
        task.fail(node, "`with` is only used with allo.meta_if, meta_elif, meta_else and meta_for")
    if name != "meta_if" and not chain.open:
        task.fail(node, f"{name} without a meta_if before it")
    if name == "meta_if":
        chain.open, chain.taken = True, False
    expected = 0 if name == "meta_else" else 1
    if len(call.args) != expected or call.keywords:
        task.fail(call, f"{name} takes {expected} conditions, {len(call.args)} are given")
    if not chain.taken and (name == "meta_else" or task.decide(task.lower(task, call.args[0]), call.args[0])):
        chain.taken = True
        with task.branch():
            lower_block(task, node.body)
    if name == "meta_else":
        chain.open = False


def _meta_for(task: Task, node: ast.With) -> None:
    """A loop that is unrolled at compile time."""
    call, target = node.items[0].context_expr, node.items[0].optional_vars
    assert isinstance(call, ast.Call)
    if not isinstance(target, ast.Name):
        task.fail(node, "meta_for needs a variable", "write `with allo.meta_for(4) as i:`")
    bounds = [subscripts.constant_int(task, task.lower(task, a), a, "a bound of meta_for") for a in call.args]
    if not 1 <= len(bounds) <= 3 or (len(bounds) == 3 and bounds[2] == 0):
        task.fail(call, "meta_for takes the arguments of range()")
    frame = task.frames[-1]
    before = frame.jumps
    with ExitStack() as stack:
        for value in task.unrolled(range(*bounds), call, decides(node, target.id)):
            if task.dead or task.returned:
                break
            if frame.jumps != before and frame.skip is not None:
                stack.enter_context(unless_raised(task, frame.skip))
            with task.scope():
                task.declare_loop(target.id, Const(value), target)
                lower_block(task, node.body)


# -- assignments -----------------------------------------------------------------------------------------------------


def _expression(task: Task, node: ast.Expr) -> None:
    if isinstance(node.value, ast.Constant):
        return
    value = task.lower(task, node.value)
    if isinstance(value, (TileExpr, PendingGet)):
        tiles.materialise(task, value)


def _assignment(task: Task, node: ast.Assign) -> None:
    value = task.lower(task, node.value)
    for target in node.targets:
        _assign(task, target, value, node)


def _assign(task: Task, target: ast.expr, value: Value, node: ast.stmt) -> None:
    if isinstance(target, (ast.Tuple, ast.List)):
        items = _items(task, value, node)
        if len(items) != len(target.elts):
            task.fail(node, f"{len(items)} values for {len(target.elts)} names")
        for element, item in zip(target.elts, items, strict=True):
            _assign(task, element, item, node)
    elif isinstance(target, ast.Name):
        _assign_name(task, target, value, node)
    elif isinstance(target, ast.Subscript):
        _assign_subscript(task, target, value, node)
    else:
        task.fail(target, "cannot assign to this")


def _items(task: Task, value: Value, node: ast.AST) -> Sequence[Value]:
    if isinstance(value, Tuple):
        return value.items
    if isinstance(value, Const) and isinstance(value.value, (tuple, list)):
        return [Const(v) for v in value.value]
    if isinstance(value, Meta):
        task.fail(node, "one value for several names", f"the mesh of {task.kernel.name} has one axis")
    task.fail(node, "this is not a tuple")


def _assign_name(task: Task, target: ast.Name, value: Value, node: ast.stmt) -> None:
    task.check_not_fixed(target.id, target)
    known = task.find(target.id)
    if isinstance(known, Variable):
        _set_variable(task, known, value, node)
    elif isinstance(known, Buffer):
        if known.shape == ():
            _store_element(task, known, Position(), value, node)
        else:
            _writable(task, known, target)
            initialise(task, known, value, node)
    else:
        declare_untyped(task, target.id, value, node)


def _writable(task: Task, buffer: Buffer, node: ast.AST) -> None:
    if buffer.constant:
        task.fail(node, "a constant array cannot be written")


def _set_variable(task: Task, variable: Variable, value: Value, node: ast.stmt) -> None:
    scalar = tiles.element(task, value, variable.dtype, node)
    task.text.line(f"memref.store {scalar.ssa}, {variable.ssa}[] : memref<{element_type(variable.dtype)}>")
    task.scalar_op()


def _assign_subscript(task: Task, target: ast.Subscript, value: Value, node: ast.stmt) -> None:
    base = task.lower(task, target.value)
    if isinstance(base, Buffer) and base.shape == ():
        base = scalars.as_scalar(task, base, target.value)
    if isinstance(base, Scalar):
        _assign(task, target.value, with_bits(task, base, target, value), node)
        return
    if isinstance(base, Record):
        _set_variable(task, subscripts.field_of(task, base, target), value, node)
        return
    if isinstance(base, StreamRef):
        task.fail(target, "a stream is written with put(value)")
    if not isinstance(base, Buffer):
        hint = "declare it with its type to have an array: x: int32[3] = [1, 2, 3]" if isinstance(base, Const) else ""
        task.fail(target, "a constant cannot be written" if isinstance(base, Const) else "cannot assign to this", hint)
    part, where = subscripts.view(task, base, target)
    _writable(task, part, target)
    if where is None:
        initialise(task, part, value, node)
    else:
        _store_element(task, part, where, value, node)


def _store_element(task: Task, buffer: Buffer, where: Position, value: Value, node: ast.stmt) -> None:
    scalar = tiles.element(task, value, buffer.dtype, node)
    if buffer.arg is None and buffer.ssa == buffer.root and not task.layouts.writes[buffer.root]:
        task.loop_arrays[task.declared_at.get(buffer.root), task.copy] = tiles.size_bytes(buffer)
    task.touch(buffer, write=True)
    note_elements(task, buffer)
    task.scalar_op()
    task.text.line(f"memref.store {scalar.ssa}, {where.of(buffer)}")


def _augmented(task: Task, node: ast.AugAssign) -> None:
    """`target op= value`."""
    op = OPERATORS.get(type(node.op))
    if op is None:
        task.fail(node, "this operator is not supported in an assignment")
    if isinstance(node.target, ast.Subscript):
        base = task.lower(task, node.target.value)
        if isinstance(base, Scalar):
            old_bits = bits_of(task, base, node.target)
            new_bits = apply(task, op, old_bits, task.lower(task, node.value), node)
            _assign(task, node.target.value, with_bits(task, base, node.target, new_bits), node)
            return
        if isinstance(base, Record):
            part_of = subscripts.field_of(task, base, node.target)
            old_part = scalars.as_scalar(task, part_of, node)
            _set_variable(task, part_of, apply(task, op, old_part, task.lower(task, node.value), node), node)
            return
        if not isinstance(base, Buffer):
            task.fail(node.target, "cannot assign to this")
        part, where = subscripts.view(task, base, node.target)
        _writable(task, part, node.target)
        value = task.lower(task, node.value)
        if where is None:
            tiles.assign(task, part, apply(task, op, replace(part, is_updated=True), value, node), node)
            return
        task.touch(part, write=False)
        old = Scalar(task.text.op(f"memref.load {where.of(part)}"), part.dtype)
        _store_element(task, part, where, apply(task, op, old, value, node), node)
    elif isinstance(node.target, ast.Name):
        old_value = task.lower(task, ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target))
        _assign_name(task, node.target, apply(task, op, old_value, task.lower(task, node.value), node), node)
    else:
        task.fail(node.target, "cannot assign to this")


# -- control ---------------------------------------------------------------------------------------------------------


def _if(task: Task, node: ast.If) -> None:
    condition = task.lower(task, node.test)
    if isinstance(condition, (Const, Meta)):
        with task.scope():
            lower_block(task, node.body if task.decide(condition, node.test) else node.orelse)
        return
    test = scalars.truth(task, condition, node.test)
    task.scalar_op()
    closing = "} else {" if node.orelse else "}"
    holds, fails = facts_of(condition)
    with task.text.block(f"scf.if {test.ssa} {{", closing), task.guarded(holds), task.scope():
        lower_block(task, node.body)
    dead, task.dead = task.dead, False
    if node.orelse:
        with task.text.continued(), task.guarded(fails), task.scope():
            lower_block(task, node.orelse)
    task.dead = dead and task.dead


def _return(task: Task, node: ast.Return) -> None:
    value: Value | None = None
    if not task.calls:
        _return_results(task, node)
    elif node.value is not None:
        value = task.lower(task, node.value)
        if isinstance(value, (TileExpr, PendingGet)):
            value = tiles.materialise(task, value)
    return_(task, value, node)


def _return_results(task: Task, node: ast.Return) -> None:
    """Store the results of a plain function in their parameters."""
    results = task.kernel.parameters[len(task.kernel.parameters) - len(task.kernel.results) :]
    empty = node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None)
    if empty and not results:
        return
    if not results:
        task.fail(
            node, "nothing can be returned here", "write results into an argument, or declare the result: -> int32"
        )
    value = Const(None) if node.value is None else task.lower(task, node.value)
    items = _items(task, value, node) if len(results) > 1 else [value]
    if len(items) != len(results):
        task.fail(node, f"{len(items)} values are returned, {len(results)} are declared")
    for parameter, item in zip(results, items, strict=True):
        target = task.find(parameter.name)
        assert isinstance(target, Buffer)
        if target.shape:
            initialise(task, target, item, node)
        else:
            _store_element(task, target, Position(), item, node)


def _pass(task: Task, node: ast.Pass) -> None:
    return


def _local_function(task: Task, node: ast.FunctionDef) -> None:
    """A helper function that is defined inside a kernel."""
    if node.decorator_list:
        task.fail(node.decorator_list[0], "a function inside a kernel has no decorators")
    task.declare(node.name, LocalFunction(node, tuple(task.scopes)))


def _nonlocal(task: Task, node: ast.Nonlocal) -> None:
    """Names that a function inside a kernel shares with it; see `helpers.own_names`."""
    for name in node.names:
        if task.find(name) is None:
            task.fail(node, f"unknown name `{name}`")


_HINTS: dict[type[ast.stmt], str] = {
    ast.Import: "import at the top of the file",
    ast.Assert: "check results outside, after the call",
    ast.Delete: "names end with their block",
    ast.Global: "pass values as arguments, or keep them in a Stateful variable",
    ast.Try: "there are no exceptions in hardware",
}

_HANDLERS: dict[type[ast.stmt], Callable[[Task, Any], None]] = {
    ast.Expr: _expression,
    ast.AnnAssign: declaration,
    ast.Assign: _assignment,
    ast.AugAssign: _augmented,
    ast.For: for_loop,
    ast.While: while_loop,
    ast.If: _if,
    ast.Return: _return,
    ast.Pass: _pass,
    ast.FunctionDef: _local_function,
    ast.Nonlocal: _nonlocal,
    ast.Break: break_or_continue,
    ast.Continue: break_or_continue,
}
