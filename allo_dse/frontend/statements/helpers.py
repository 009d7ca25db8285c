"""Helper functions: typed Python functions that kernels call; their bodies are compiled in place."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from types import FunctionType
from typing import Any

from allo_dse.lang.region import Instance
from allo_dse.lang.types import ConstExprType, DType, TensorType

from ..model.mlir_text import element_type
from ..model.pid_values import Meta
from ..model.source_file import function_source, statements_in
from ..model.values import Buffer, Const, LocalFunction, Scalar, TileValue, Tuple, Value, Variable
from ..ops import subscripts, tiles
from ..ops.scalars import as_scalar, convert
from ..regions.blocks import Scope
from ..regions.read_regions import bind_type_parameters
from ..regions.region_sources import RegionSource
from ..regions.task_state import Task
from .jumps import may_return_early, new_frame, result_of


@lru_cache(maxsize=1024)
def mutable_names(node: ast.FunctionDef) -> frozenset[str]:
    """Names of a function that are assigned after their declaration, or declared without a value.

    Parameters count as declared: a scalar that a function changes is its own copy.
    """
    declared: set[str] = {argument.arg for argument in node.args.args}
    assigned: dict[str, int] = {}
    mutable: set[str] = set()
    for part in _own_parts(node, statements_in):
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
        elif isinstance(part, ast.FunctionDef):
            mutable.update(_nonlocal_names(part))
    return frozenset(mutable | {n for n, count in assigned.items() if count > 1 or n in declared})


def _own_parts(
    node: ast.FunctionDef, inside: Callable[[Any], Iterable[ast.AST]] = ast.iter_child_nodes
) -> Iterator[ast.AST]:
    """The nodes of a function, without what stands inside functions that it defines; only statements by
    `statements_in`."""
    todo: list[ast.AST] = list(node.body)
    while todo:
        part = todo.pop()
        yield part
        if not isinstance(part, ast.FunctionDef):
            todo.extend(inside(part))


def _nonlocal_names(node: ast.FunctionDef) -> set[str]:
    return {name for part in ast.walk(node) if isinstance(part, ast.Nonlocal) for name in part.names}


def own_names(node: ast.FunctionDef) -> frozenset[str]:
    """Names that a function inside a kernel assigns, and that are therefore its own, as in Python."""
    names = {part.id for part in _own_parts(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    return frozenset(names - _nonlocal_names(node))


def is_helper(task: Task, function: FunctionType) -> bool:
    """Whether a function is written in the language: any of its parameters, or its result, has a type of ours."""
    if getattr(function, "__type_params__", ()):
        return True
    annotations = function.__annotations__
    names: dict[str, object] | None = None
    for annotation in annotations.values():
        if isinstance(annotation, str):
            names = task.source.names_of(function) if names is None else names
            try:
                annotation = eval(annotation, names)
            except Exception:
                return True  # reported when the function is compiled
        if isinstance(annotation, (DType, TensorType, ConstExprType)):
            return True
    return False


def call_helper(
    task: Task, instance: Instance, args: Sequence[Value], options: dict[str, Value], node: ast.Call
) -> Value:
    """The value that a helper function returns for these arguments.

    Raises:
        ProgramError: also for recursion, which has no hardware.
    """
    function, outer = instance.function, task.source
    file, definition = function_source(function)
    arguments, identity = _identity(definition, instance.arguments)
    name = function.__qualname__ + identity + (f"{list(arguments)}" if arguments else "")
    _check_recursion(task, name, node)
    inner = RegionSource(outer.name, file, outer.names_of(function), parts=outer.parts)
    inner.enclosing, inner.scope, inner.around = outer.enclosing, outer.scope, outer.around
    bind_type_parameters(inner, definition, arguments or _inferred(definition, args), outer.names)
    bound, types = _arguments(task, inner, definition, args, options, node)
    with _inside(task, inner, definition, name), task.scope(helper=True):
        return _inlined(task, inner, definition, bound, types, node)


def _inferred(definition: ast.FunctionDef, args: Sequence[Value]) -> tuple[object, ...]:
    """Values for type parameters that the arguments' types give, where they give all of them."""
    names = [parameter.name for parameter in getattr(definition, "type_params", [])]
    found: dict[str, object] = {}
    for parameter, value in zip(definition.args.args, args, strict=False):
        written = parameter.annotation
        if isinstance(written, ast.Constant) and isinstance(written.value, str):
            written = ast.parse(written.value, mode="eval").body
        if written is None or not (tiles.is_tile(value) or isinstance(value, Scalar)):
            continue
        shape = tiles.shape_of(value)
        base = written.value if isinstance(written, ast.Subscript) else written
        extents = subscripts.parts_of(written) if isinstance(written, ast.Subscript) else []
        for part, actual in ((base, tiles.dtype_of(value)), *zip(extents, shape, strict=False)):
            if isinstance(part, ast.Name) and part.id in names:
                found.setdefault(part.id, actual)
    return tuple(found[name] for name in names) if found.keys() == set(names) else ()


def _identity(node: ast.FunctionDef, arguments: tuple[object, ...]) -> tuple[tuple[object, ...], str]:
    """Values of type parameters without the name of the call that may follow them, `add[5, "first"](...)`, and that."""
    if arguments and isinstance(arguments[-1], str) and len(arguments) == len(getattr(node, "type_params", ())) + 1:
        return arguments[:-1], f"_{arguments[-1]}"
    return arguments, ""


def call_local(
    task: Task, function: LocalFunction, args: Sequence[Value], options: dict[str, Value], node: ast.Call
) -> Value:
    """The value that a function defined inside a kernel returns; it sees the names around its definition."""
    definition: ast.FunctionDef = function.node
    _check_recursion(task, definition.name, node)
    bound, types = _arguments(task, task.source, definition, args, options, node)
    scopes = task.scopes
    task.scopes = [*function.scopes, Scope(hidden=own_names(definition))]
    with _inside(task, task.source, definition, definition.name):
        result = _inlined(task, task.source, definition, bound, types, node)
    task.scopes = scopes
    return result


def _check_recursion(task: Task, name: str, node: ast.AST) -> None:
    if name in task.calls:
        task.fail(node, f"recursion is not supported: {' -> '.join([*task.calls, name])}", "write a loop")


def _arguments(
    task: Task,
    source: RegionSource,
    definition: ast.FunctionDef,
    args: Sequence[Value],
    options: dict[str, Value],
    node: ast.Call,
) -> tuple[dict[str, Value], object]:
    """The values of a helper function's parameters, and the declared type of its result."""
    parameters = [*definition.args.posonlyargs, *definition.args.args]
    values = [*args, *(options[p.arg] for p in parameters[len(args) :] if p.arg in options)]
    if len(values) != len(parameters) or len(args) + len(options) != len(values):
        task.fail(node, f"`{definition.name}` takes {len(parameters)} arguments, {len(args) + len(options)} are given")
    bound = {
        p.arg: _bind(task, p.arg, _annotation(source, p.annotation), value, node)
        for p, value in zip(parameters, values, strict=True)
    }
    return bound, _annotation(source, definition.returns)


def _inlined(
    task: Task,
    source: RegionSource,
    definition: ast.FunctionDef,
    bound: dict[str, Value],
    types: object,
    node: ast.Call,
) -> Value:
    """Compile the body in place, in the scope that is open."""
    early = may_return_early(definition)
    frame = new_frame(task, leaves=early, skips=early, loop=False)
    frame.returns = types
    task.frames.append(frame)
    for name, value in bound.items():
        task.declare(name, _local(task, name, value, node))
    task.lower_block(task, definition.body)
    task.frames.pop()
    return _returned(task, result_of(task, frame, definition, node), types, definition)


@contextmanager
def _inside(task: Task, source: RegionSource, definition: ast.FunctionDef, name: str) -> Iterator[None]:
    """Compile in the place of a call, but with the helper's names and source."""
    saved = task.source, task.returned, task.dead
    task.source, task.returned, task.dead = source, False, False
    task.calls.append(name)
    task.called += 1
    task.numbers.append(task.called)
    task.mutable.append(mutable_names(definition))
    yield
    task.mutable.pop()
    task.numbers.pop()
    task.calls.pop()
    task.source, task.returned, task.dead = saved


def _annotation(source: RegionSource, node: ast.expr | None) -> object:
    return None if node is None else source.file.evaluate_annotation(node, source.names)


def _bind(task: Task, name: str, type_: object, value: Value, node: ast.AST) -> Value:
    """An argument as its parameter's type asks for it; tiles are passed by reference."""
    if isinstance(type_, TensorType) and type_.shape:
        if not tiles.is_tile(value):
            task.fail(node, f"argument `{name}` must be a tile {type_}")
        if tiles.shape_of(value) != type_.shape or tiles.dtype_of(value) != type_.dtype:
            actual = TensorType(tiles.dtype_of(value) or type_.dtype, tiles.shape_of(value))
            task.fail(node, f"argument `{name}` is {actual}, but {type_} is expected")
        assert isinstance(value, TileValue)
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


def _returned(task: Task, value: Value, type_: object, node: ast.FunctionDef) -> Value:
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
