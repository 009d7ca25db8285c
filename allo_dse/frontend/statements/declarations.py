"""Variables of a kernel: `name: type = value`, and names that take their type from their first value."""

from __future__ import annotations

import ast

import numpy as np

from allo_dse.lang.types import ConstExprType, DType, StatefulType, StreamType, Struct, TensorType
from allo_dse.program.tasks import StateVariable

from ..model.mlir_text import element_type, memref_type
from ..model.pid_values import Meta
from ..model.values import Buffer, Const, PendingGet, Record, Scalar, StreamGroup, StreamRef, TileExpr, Value, Variable
from ..ops import scalar_types, tiles
from ..ops.scalars import as_scalar
from ..regions.task_state import Task


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
    constant = isinstance(value, Const) and scalar_types.is_number(value.value)
    if task.is_mutable(name) and (constant or isinstance(value, (Scalar, Meta))):
        scalar = as_scalar(task, value, node)
        _declare_scalar(task, name, scalar.dtype, scalar)
        return
    task.declare(name, value)
