"""Compilation of statements."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np

from allo_dse.common.records import replace
from allo_dse.lang.types import ConstExprType, DType, StatefulType, StreamType, Struct, TensorType

from ..expressions import scalars, subscripts, tiles
from ..expressions.arithmetic import apply
from ..expressions.scalars import as_scalar
from ..expressions.subscripts import Position, bits_of, with_bits
from ..expressions.tiles import note_elements
from ..model.mlir_text import memref_type
from ..model.values import Buffer, Const, LocalFunction, Meta, Record, Scalar, StreamRef, Tuple, Value, Variable
from ..program.compiled import StateVariable
from ..regions.task_state import Split, Task
from .expressions import OPERATORS, facts_of
from .loops import (
    break_or_continue,
    decides,
    for_loop,
    intrinsic_called,
    return_,
    split_further,
    unless_raised,
    unrolled_range,
    while_loop,
)

# Variables are declared as `name: type = value`, or take the type of their first value.


def declaration(task: Task, node: ast.AnnAssign) -> None:
    """`name: type = value`."""
    if not isinstance(node.target, ast.Name):
        task.fail(node, "only names can be declared")
    type_ = task.source.file.evaluate_annotation(node.annotation, task.constants())
    name = node.target.id
    task.check_not_fixed(name, node.target)
    match TensorType(type_, ()) if isinstance(type_, DType) else type_:
        case ConstExprType():
            if node.value is None:
                task.fail(node, f"`{name}` is a ConstExpr and needs a value")
            value = task.lower(node.value)
            if not isinstance(value, (Const, Meta)):
                task.fail(node.value, f"`{name}` is a ConstExpr, but its value is not known at compile time")
            task.declare(name, value)
        case StatefulType(type=tensor):
            _declare_state(task, name, tensor, node)
        case Struct():
            task.declare(name, _record(task, name, type_, node))
        case StreamType():
            task.fail(node, "streams are declared in the region, outside of its kernels")
        case TensorType(dtype=dtype, shape=()):
            given = None if node.value is None else task.lower(node.value)
            if isinstance(given, Meta) and dtype.kind == "index":
                task.declare(name, given)
            else:
                _declare_scalar(task, name, dtype, None if given is None else tiles.element(task, given, dtype, node))
        case TensorType() as tensor:
            initial = None if node.value is None else task.lower(node.value)
            if node in task.shares:
                buffer = task.shared_buffer(name, tensor.dtype, np.zeros(tensor.shape), node)
            else:
                buffer = task.new_buffer(tensor.dtype, tensor.shape, name)
                task.declared_at[buffer.ssa] = node
                if tensor.memory is not None:
                    task.memories[buffer.ssa] = tensor.memory
            if initial is not None:
                initialise(task, buffer, initial, node)
            task.declare(name, buffer)
        case _:
            task.fail(node.annotation, f"`{name}` must have an element or tensor type, not {type_!r}")


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
        fields[part] = task.variable(dtype)
        if part in given:
            task.set(fields[part], tiles.element(task, task.lower(given[part]), dtype, node))
    return Record(fields)


def _declare_state(task: Task, name: str, type_: TensorType, node: ast.AnnAssign) -> None:
    """A variable that lives from call to call: memory of the task's own, outside of its body."""
    value = Const(0) if node.value is None else task.lower(node.value)
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
    variable = task.variable(dtype, name)
    if value is not None:
        task.set(variable, value)
    task.declare(name, variable)


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
            _lower(task, statement)
        rest = body[position + 1 :]
        if frame.jumps != before and rest and not task.dead:
            assert frame.skip is not None
            with unless_raised(task, frame.skip):
                lower_block(task, rest, chain)
            return


def _lower(task: Task, node: ast.stmt) -> None:
    match node:
        case ast.Assign(targets, right):
            value = task.lower(right)
            for target in targets:
                _assign(task, target, value, node)
        case ast.AugAssign():
            op = OPERATORS.get(type(node.op))
            if op is None:
                task.fail(node, "this operator is not supported in an assignment")
            place = _place(task, node.target, node)
            if place.in_array:
                value = task.lower(node.value)
                old = place.load()
            else:
                old = place.load()
                value = task.lower(node.value)
            place.store(apply(task, op, old, value, node))
        case ast.AnnAssign():
            declaration(task, node)
        case ast.Expr(right):
            if not isinstance(right, ast.Constant):
                tiles.settled(task, task.lower(right))
        case ast.For():
            for_loop(task, node)
        case ast.While():
            while_loop(task, node)
        case ast.If():
            _if(task, node)
        case ast.Return(right) if task.calls:
            return_(task, None if right is None else tiles.settled(task, task.lower(right)), node)
        case ast.Return():
            _return_results(task, node)
            return_(task, None, node)
        case ast.Break() | ast.Continue():
            break_or_continue(task, node)
        case ast.FunctionDef():
            if node.decorator_list:
                task.fail(node.decorator_list[0], "a function inside a kernel has no decorators")
            task.declare(node.name, LocalFunction(node, tuple(task.scopes)))
        case ast.Nonlocal(names):  # names that a function inside a kernel shares with it; see `calls.own_names`
            for name in names:
                if task.find(name) is None:
                    task.fail(node, f"unknown name `{name}`")
        case ast.Pass():
            pass
        case _:
            kind = type(node).__name__.lower()
            task.fail(node, f"`{kind}` is not supported in kernels", _HINTS.get(type(node), ""))


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
    if not chain.taken and (name == "meta_else" or task.decide(task.lower(call.args[0]), call.args[0])):
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
    values = unrolled_range(task, call)
    frame = task.frames[-1]
    before = frame.jumps
    with ExitStack() as stack:
        for value in task.unrolled(values, call, decides(node, target.id)):
            if task.dead or task.returned:
                break
            if frame.jumps != before and frame.skip is not None:
                stack.enter_context(unless_raised(task, frame.skip))
            with task.scope():
                task.declare_loop(target.id, Const(value), target)
                lower_block(task, node.body)


# -- assignments -----------------------------------------------------------------------------------------------------


def _assign(task: Task, target: ast.expr, value: Value, node: ast.stmt) -> None:
    if not isinstance(target, (ast.Tuple, ast.List)):
        _place(task, target, node).store(value)
        return
    items = _items(task, value, node)
    if len(items) != len(target.elts):
        task.fail(node, f"{len(items)} values for {len(target.elts)} names")
    for element, item in zip(target.elts, items, strict=True):
        _assign(task, element, item, node)


class _Place(NamedTuple):
    """A target of assignments: how its value is read, and how it is replaced.

    Attributes:
        in_array: whether it is in an array, where an update reads it after its operand.
    """

    load: Callable[[], Value]
    store: Callable[[Value], None]
    in_array: bool = False


def _place(task: Task, target: ast.expr, node: ast.stmt) -> _Place:
    """The place that a target names."""
    match target:
        case ast.Name() as name:
            return _Place(
                lambda: task.lower(ast.copy_location(ast.Name(name.id, ast.Load()), name)),
                lambda value: _assign_name(task, name, value, node),
            )
        case ast.Subscript() as subscript:
            base = task.lower(subscript.value)
        case _:
            task.fail(target, "cannot assign to this")
    match base:
        case Scalar() | Buffer(shape=()):
            whole = as_scalar(task, base, subscript.value)
            return _Place(
                lambda: bits_of(task, whole, subscript),
                lambda value: _assign(task, subscript.value, with_bits(task, whole, subscript, value), node),
            )
        case Record():
            part = subscripts.field_of(task, base, subscript)
            return _Place(lambda: task.get(part), lambda value: _set_variable(task, part, value, node))
        case StreamRef():
            task.fail(target, "a stream is written with put(value)")
        case Const():
            hint = "declare it with its type to have an array: x: int32[3] = [1, 2, 3]"
            task.fail(target, "a constant cannot be written", hint)
        case Buffer():
            return _place_in_array(task, *subscripts.view(task, base, subscript), target, node)
    task.fail(target, "cannot assign to this")


def _place_in_array(task: Task, array: Buffer, where: Position | None, target: ast.expr, node: ast.stmt) -> _Place:
    """An element of an array, or all of it."""
    if array.constant:
        task.fail(target, "a constant array cannot be written")

    def load() -> Value:
        if where is None:
            return replace(array, is_updated=True)
        task.touch(array, write=False)
        return task.emit(f"memref.load {where.of(array)}", array.dtype)

    def store(value: Value) -> None:
        if where is None:
            initialise(task, array, value, node)
        else:
            _store_element(task, array, where, value, node)

    return _Place(load, store, in_array=True)


def _assign_name(task: Task, target: ast.Name, value: Value, node: ast.stmt) -> None:
    task.check_not_fixed(target.id, target)
    known = task.find(target.id)
    if isinstance(known, Variable):
        _set_variable(task, known, value, node)
    elif isinstance(known, Buffer):
        _place_in_array(task, known, None if known.shape else Position(), target, node).store(value)
    else:
        # The first assignment to a name without a type: it takes the type of the value.
        value = tiles.settled(task, value)
        constant = isinstance(value, Const) and scalars.is_number(value.value)
        if task.is_mutable(target.id) and (constant or isinstance(value, (Scalar, Meta))):
            scalar = as_scalar(task, value, node)
            _declare_scalar(task, target.id, scalar.dtype, scalar)
        else:
            task.declare(target.id, value)


def _set_variable(task: Task, variable: Variable, value: Value, node: ast.stmt) -> None:
    task.set(variable, tiles.element(task, value, variable.dtype, node))
    task.scalar_op()


def _items(task: Task, value: Value, node: ast.AST) -> Sequence[Value]:
    if isinstance(value, Tuple):
        return value.items
    if isinstance(value, Const) and isinstance(value.value, (tuple, list)):
        return [Const(v) for v in value.value]
    if isinstance(value, Meta):
        task.fail(node, "one value for several names", f"the mesh of {task.kernel.name} has one axis")
    task.fail(node, "this is not a tuple")


def _store_element(task: Task, buffer: Buffer, where: Position, value: Value, node: ast.stmt) -> None:
    scalar = tiles.element(task, value, buffer.dtype, node)
    if buffer.arg is None and buffer.ssa == buffer.root and not task.layouts.writes[buffer.root]:
        task.loop_arrays[task.declared_at.get(buffer.root), task.copy] = tiles.size_bytes(buffer)
    task.touch(buffer, write=True)
    note_elements(task, buffer)
    task.scalar_op()
    task.text.line(f"memref.store {scalar.ssa}, {where.of(buffer)}")


# -- control ---------------------------------------------------------------------------------------------------------


def _if(task: Task, node: ast.If) -> None:
    condition = task.lower(node.test)
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
    value = Const(None) if node.value is None else task.lower(node.value)
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


_HINTS: dict[type[ast.stmt], str] = {
    ast.Import: "import at the top of the file",
    ast.Assert: "check results outside, after the call",
    ast.Delete: "names end with their block",
    ast.Global: "pass values as arguments, or keep them in a Stateful variable",
    ast.Try: "there are no exceptions in hardware",
}
