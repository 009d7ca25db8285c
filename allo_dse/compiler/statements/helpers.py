"""Helper functions: typed Python functions that kernels call; their bodies are compiled in place."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from types import FunctionType
from typing import Any

import numpy as np

from allo_dse.common.records import replace
from allo_dse.lang.allo.backend_aie import ExternalModule
from allo_dse.lang.region import Instance
from allo_dse.lang.types import ConstExprType, DType, TensorType, index
from allo_dse.lang.types import bool as bool_

from ..expressions import streams, subscripts, tiles
from ..expressions.scalars import as_scalar, convert
from ..expressions.tiles import note_elements
from ..model import values as meta
from ..model.index_forms import Form, variable
from ..model.mlir_text import element_type
from ..model.source_file import function_source, statements_in
from ..model.values import (
    Buffer,
    Const,
    LocalFunction,
    Meta,
    RegionCall,
    Scalar,
    StreamRef,
    TileValue,
    Tuple,
    Value,
    Variable,
    Walk,
    pid_of,
)
from ..program.compiled import ExternalCall
from ..program.tensors import StreamArray
from ..regions.read_regions import bind_type_parameters, read_region
from ..regions.region_sources import RegionSource, Sync
from ..regions.task_state import Scope, Task
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
    """Return whether a function is written in the language: a parameter or its result has a type of ours."""
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


# A region called in the middle of a task: the task starts the region's tasks and waits for them, by tokens.
#
#   before:  task { work; inner(A); more }
#   after:   task { work; a token to every task of inner; a token from every task of inner; more }
#            task of inner { wait for the token; ...; give a token }
#
# If the call is in a loop, or depends on data, the region's tasks wait for the next call. Their last token says that
# there will be none.


def start_and_wait(task: Task, call: RegionCall) -> None:
    """Write the tokens that a task exchanges with the tasks of a region it calls."""
    node, first = call.node, np.argwhere(np.broadcast_to(task.mask, task.kernel.mesh))[0]
    parts = [task.parameter(position).part(first) for position in call.arguments]
    count = read_region(call.region, "", parts).task_count
    name = f"{task.kernel.name}_{''.join(task.path) or 'all'}_call{len(task.region_calls)}"
    shape = (*task.kernel.mesh, count)
    start, done = (
        StreamArray(f"{name}_{what}", bool_, (), 1, shape, task.location(node)) for what in ("start", "done")
    )
    once = isinstance(task.count, int) and task.count == 1
    sync = Sync(start, done, repeated=not once, node=node)
    task.handovers.append(sync)
    _tell(task, sync, True)
    with _each(task, count) as which:
        streams.get(task, StreamRef(done, (*_own_pid(task), which), node), node)


def stop_called(task: Task) -> None:
    """End the tasks of regions that are called repeatedly: they wait for no more calls."""
    for sync in task.handovers:
        if sync.repeated:
            _tell(task, sync, False)


def _tell(task: Task, sync: Sync, go: bool) -> None:
    """Write a token to every task of a called region."""
    with _each(task, sync.start.shape[-1]) as which:
        streams.put(task, StreamRef(sync.start, (*_own_pid(task), which), sync.node), Const(go), sync.node)


def _own_pid(task: Task) -> tuple[Meta, ...]:
    return tuple(pid_of(task.kernel.mesh, axis) for axis in range(len(task.kernel.mesh)))


@contextmanager
def _each(task: Task, count: int) -> Iterator[Scalar]:
    """A loop over the tasks of the region."""
    zero, stop, one = (task.text.constant(n, index) for n in (0, count, 1))
    name = task.text.name()
    with task.text.block(f"scf.for {name} = {zero} to {stop} step {one} {{"), task.repeated(count):
        yield Scalar(name, index, variable("", Form(0), Form(count), 1), Walk(name, range(count)))


def with_sync(source: RegionSource, sync: Sync, pid: tuple[int, ...]) -> RegionSource:
    """The kernels of a called region, with the streams of their start and end tokens."""
    first = 0
    for position, kernel in enumerate(source.kernels):
        source.kernels[position] = replace(kernel, sync=replace(sync, pid=pid, first=first))
        first += kernel.task_count
    return source


@contextmanager
def when_started(task: Task) -> Iterator[None]:
    """Wrap the body of a task: in a called region it waits for a start token, and gives a token at its end."""
    sync, node = task.kernel.sync, task.kernel.node
    if sync is None:
        yield
        return
    start, done = (_own(task, stream, sync, node) for stream in (sync.start, sync.done))
    if not sync.repeated:
        streams.get(task, start, node)
        yield
        streams.put(task, done, Const(True), node)
        return
    with task.guarded():
        with task.text.block("scf.while : () -> () {", "} do {"):
            told = as_scalar(task, streams.get(task, start, node), node)
            task.text.line(f"scf.condition({told.ssa})")
        with task.text.continued("}"):
            yield
            streams.put(task, done, Const(True), node)
            task.text.line("scf.yield")


def _own(task: Task, stream: StreamArray, sync: Sync, node: ast.AST) -> StreamRef:
    """The stream of this task: one per task of the region, in the order of kernels and pids."""
    mesh = task.kernel.mesh
    number = meta.constant(0, len(mesh))
    for axis, extent in enumerate(mesh):
        scaled = meta.combine("*", number, meta.constant(extent, len(mesh)))
        number = meta.combine("+", scaled, pid_of(mesh, axis))
    number = meta.combine("+", number, meta.constant(sync.first, len(mesh)))
    return StreamRef(stream, (*(Const(i) for i in sync.pid), number), node)


# A vendor kernel is a C function; the simulator makes it from the study's definition of its results.


def external_of(function: object) -> ExternalModule | None:
    """The vendor kernel that `function` is, be it declared by our class or by that of an installed `allo`."""
    if isinstance(function, ExternalModule):
        return function
    if type(function).__name__ != "ExternalModule" or not hasattr(function, "top"):
        return None
    return ExternalModule(
        function.top,
        str(getattr(function, "impl_path", "")),
        getattr(function, "input_idx", ()),
        getattr(function, "output_idx", ()),
    )


def call_external(task: Task, module: ExternalModule, args: Sequence[Value], node: ast.Call) -> Value:
    """`norm(x, scale, out)`: inputs are read and outputs written as `input_idx` and `output_idx` say."""
    inputs, outputs = tuple(module.input_idx), tuple(module.output_idx)
    if sorted({*inputs, *outputs}) != list(range(len(args))):
        task.fail(
            node,
            f"external kernel `{module.top}` is called with {len(args)} arguments, but reads {list(inputs)} and "
            f"writes {list(outputs)}",
            "input_idx and output_idx must name every argument",
        )
    buffers = [_operand(task, value, p in inputs, node, node.args[p]) for p, value in enumerate(args)]
    for position in outputs:
        target = args[position]
        if not isinstance(target, Buffer) or target.constant:
            task.fail(node.args[position], f"argument {position} of `{module.top}` is written and must be a tile")
    operands = tuple((buffer.dtype, buffer.shape) for buffer in buffers)
    _call(task, buffers)
    task.externals.append(ExternalCall(module.top, operands, inputs, outputs, task.location(node)))
    first = operands[outputs[0]][1] if outputs else ()
    types = [operands[p][0] for p in (*inputs, *outputs)]
    task.price("external", first, types, node, module.top)
    for position in outputs:
        target = args[position]
        assert isinstance(target, Buffer)
        tiles.move(task, buffers[position], target)
        note_elements(task, target)
    return Const(None)


def _operand(task: Task, value: Value, is_read: bool, node: ast.AST, part: ast.AST) -> Buffer:
    """An argument in memory of its own, row-major."""
    if not tiles.is_tile(value):
        scalar = as_scalar(task, value, part)
        buffer = task.new_buffer(scalar.dtype, ())
        tiles.store(task, scalar, buffer, [])
        return buffer
    assert isinstance(value, TileValue)
    if not isinstance(value, Buffer):
        return tiles.materialise(task, value)
    buffer = task.new_buffer(value.dtype, value.shape)
    if is_read:
        tiles.move(task, value, buffer)
    return buffer


def _call(task: Task, buffers: Sequence[Buffer]) -> None:
    """Call the function whose address is an argument of the body."""
    text = task.text
    words = []
    for buffer in buffers:
        address = text.op(f"memref.extract_aligned_pointer_as_index {buffer.ssa} : {buffer.type} -> index")
        words.append(text.op(f"arith.index_cast {address} : index to i64"))
    function = text.op(f"arith.index_cast %external{len(task.externals)} : index to i64")
    pointer = text.op(f"llvm.inttoptr {function} : i64 to !llvm.ptr")
    text.line(f"llvm.call {pointer}({', '.join(words)}) : !llvm.ptr, ({', '.join(['i64'] * len(words))}) -> ()")
