"""Helper functions: typed Python functions that kernels call; their bodies are compiled in place."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any

from ..lang.types import ConstExprType, DType, TensorType
from . import tiles
from .meta import Meta
from .regions import RegionSource
from .scalars import as_scalar, convert
from .source import function_source, names_of
from .task import Scope, Task
from .text import element_type
from .values import Buffer, Const, Scalar, Tuple, Value, Variable


def mutable_names(node: ast.FunctionDef) -> frozenset[str]:
    """Names of a function that are assigned after their declaration, or declared without a value.

    Parameters count as declared: a scalar that a function changes is its own copy.
    """
    declared: set[str] = {argument.arg for argument in node.args.args}
    assigned: dict[str, int] = {}
    mutable: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            declared.add(part.target.id)
            if part.value is None:
                mutable.add(part.target.id)
        elif isinstance(part, ast.AugAssign):
            target = part.target.value if isinstance(part.target, ast.Subscript) else part.target
            if isinstance(target, ast.Name):
                mutable.add(target.id)
        elif isinstance(part, ast.Assign):
            for target in part.targets:
                for name in ast.walk(target):
                    if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
                        assigned[name.id] = assigned.get(name.id, 0) + 1
                    elif isinstance(name, ast.Subscript) and isinstance(name.value, ast.Name):
                        mutable.add(name.value.id)
    return frozenset(mutable | {n for n, count in assigned.items() if count > 1 or n in declared})


def is_helper(task: Task, function: FunctionType) -> bool:
    """Whether a function is written in the language: any of its parameters, or its result, has a type of ours."""
    annotations = function.__annotations__
    names: dict[str, Any] | None = None
    for annotation in annotations.values():
        if isinstance(annotation, str):
            names = names_of(function, {}) if names is None else names
            try:
                annotation = eval(annotation, names)
            except Exception:
                return True  # reported when the function is compiled
        if isinstance(annotation, (DType, TensorType, ConstExprType)):
            return True
    return False


def call_helper(
    task: Task, function: FunctionType, args: Sequence[Value], options: dict[str, Value], node: ast.Call
) -> Value:
    """The value that a helper function returns for these arguments.

    Raises:
        ProgramError: also for recursion, which has no hardware.
    """
    file, definition = function_source(function)
    if function.__qualname__ in task.calls:
        chain = " -> ".join([*task.calls, function.__qualname__])
        task.fail(node, f"recursion is not supported: {chain}", "write a loop")
    parameters = [*definition.args.posonlyargs, *definition.args.args]
    values = [*args, *(options[p.arg] for p in parameters[len(args) :] if p.arg in options)]
    if len(values) != len(parameters) or len(args) + len(options) != len(values):
        task.fail(node, f"`{definition.name}` takes {len(parameters)} arguments, {len(args) + len(options)} are given")
    outer = task.source
    inner = RegionSource(outer.name, file, names_of(function, {}), tensors=outer.tensors)
    types = [_annotation(inner, p.annotation) for p in parameters]
    bound = [_bind(task, p.arg, t, v, node) for p, t, v in zip(parameters, types, values, strict=True)]
    with _inside(task, inner, definition, function.__qualname__):
        for parameter, value in zip(parameters, bound, strict=True):
            task.declare(parameter.arg, _local(task, parameter.arg, value, node))
        task.lower_block(task, definition.body)
        result = task.result if task.result is not None else Const(None)
        return _returned(task, result, _annotation(inner, definition.returns), definition)


@contextmanager
def _inside(task: Task, source: RegionSource, definition: ast.FunctionDef, name: str) -> Iterator[Scope]:
    """Compile in the place of a call, but with the helper's names and source."""
    saved = task.source, task.result, task.returned, task.entry
    task.source, task.result, task.returned = source, None, False
    task.entry = (len(task.loops), task.guards)
    task.calls.append(name)
    task.mutable.append(mutable_names(definition))
    with task.scope(helper=True) as scope:
        yield scope
    task.mutable.pop()
    task.calls.pop()
    task.source, task.result, task.returned, task.entry = saved


def _annotation(source: RegionSource, node: ast.expr | None) -> Any:
    return None if node is None else source.file.evaluate_annotation(node, source.names)


def _bind(task: Task, name: str, type_: Any, value: Value, node: ast.AST) -> Value:
    """An argument as its parameter's type asks for it; tiles are passed by reference."""
    if isinstance(type_, TensorType) and type_.shape:
        if not tiles.is_tile(value):
            task.fail(node, f"argument `{name}` must be a tile {type_}")
        if tiles.shape_of(value) != type_.shape or tiles.dtype_of(value) != type_.dtype:
            actual = TensorType(tiles.dtype_of(value) or type_.dtype, tiles.shape_of(value))
            task.fail(node, f"argument `{name}` is {actual}, but {type_} is expected")
        assert isinstance(value, tiles.TileValue)
        return tiles.materialise(task, value)
    if isinstance(type_, DType) and not (type_.kind == "index" and isinstance(value, (Const, Meta))):
        if tiles.is_tile(value):
            task.fail(node, f"argument `{name}` must be a scalar {type_}, not a tile")
        return convert(task, as_scalar(task, value, node, like=type_), type_)
    return value


def _local(task: Task, name: str, value: Value, node: ast.AST) -> Value:
    """A parameter; a scalar that the helper assigns to gets its own place."""
    return local_copy(task, value, node) if isinstance(value, Scalar) and task.is_mutable(name) else value


def local_copy(task: Task, value: Value, node: ast.AST) -> Variable:
    """A variable that starts with the value of a scalar."""
    scalar = as_scalar(task, value, node)
    type_ = f"memref<{element_type(scalar.dtype)}>"
    slot = task.text.slot(type_)
    task.text.line(f"memref.store {scalar.ssa}, {slot}[] : {type_}")
    return Variable(slot, scalar.dtype)


def _returned(task: Task, value: Value, type_: Any, node: ast.FunctionDef) -> Value:
    if type_ is None or isinstance(value, Tuple):
        return value
    if isinstance(type_, DType):
        return convert(task, as_scalar(task, value, node, like=type_), type_)
    if isinstance(type_, TensorType) and tiles.is_tile(value):
        if tiles.shape_of(value) != type_.shape:
            task.fail(node, f"`{node.name}` returns shape {list(tiles.shape_of(value))}, but {type_} is declared")
        if isinstance(value, Buffer) and value.dtype == type_.dtype:
            return value
        target = task.new_buffer(type_.dtype, type_.shape)
        tiles.assign(task, target, value, node)
        return target
    return value
