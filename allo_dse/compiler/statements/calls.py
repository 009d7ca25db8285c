"""Function calls inside kernels: the language's own functions, casts, Python's, regions and helper functions.

The bodies of helper functions are compiled in place.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, reduce
from types import FunctionType
from typing import Any

import numpy as np

from allo_dse.common.records import Array, replace
from allo_dse.lang.allo.backend_aie import ExternalModule
from allo_dse.lang.externals import VliwKernel
from allo_dse.lang.intrinsics import BINARY, UNARY, intrinsic_of
from allo_dse.lang.region import Instance, Region, as_region
from allo_dse.lang.types import ConstExprType, DType, Float, TensorType, UInt, float32, index, int32
from allo_dse.lang.types import bool as bool_

from ..expressions import scalars, streams, subscripts, tiles
from ..expressions.arithmetic import combined_form
from ..expressions.scalars import as_scalar, convert
from ..expressions.subscripts import reversed_bits
from ..expressions.tile_library import LIBRARY, Call
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
    TileExpr,
    TileValue,
    Tuple,
    Value,
    Variable,
    Walk,
)
from ..program.compiled import ExternalCall
from ..program.tensors import StreamArray
from ..regions.read_regions import bind_type_parameters, read_region
from ..regions.region_sources import RegionSource, Sync
from ..regions.task_state import Scope, Task
from .loops import may_return_early, new_frame, result_of


@lru_cache(maxsize=1024)
def mutable_names(node: ast.FunctionDef) -> frozenset[str]:
    """Names of a function that are assigned after their declaration, or declared without a value.

    Parameters count as declared: a scalar that a function changes is its own copy.
    """
    declared: set[str] = {argument.arg for argument in node.args.args}
    assigned = Counter[str]()
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
                        assigned[name.id] += 1
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
    for annotation in function.__annotations__.values():
        if isinstance(annotation, str):
            try:
                annotation = eval(annotation, task.source.names_of(function))
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
    bound = _arguments(task, inner, definition, args, options, node)
    return _inlined(task, inner, definition, name, bound, [*task.scopes, Scope(helper=True)], node)


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
) -> dict[str, Value]:
    """The values of a helper function's parameters."""
    parameters = [*definition.args.posonlyargs, *definition.args.args]
    values = [*args, *(options[p.arg] for p in parameters[len(args) :] if p.arg in options)]
    if len(values) != len(parameters) or len(args) + len(options) != len(values):
        task.fail(node, f"`{definition.name}` takes {len(parameters)} arguments, {len(args) + len(options)} are given")
    return {
        p.arg: _bind(task, p.arg, _annotation(source, p.annotation), value, node)
        for p, value in zip(parameters, values, strict=True)
    }


def _inlined(
    task: Task,
    source: RegionSource,
    definition: ast.FunctionDef,
    name: str,
    bound: dict[str, Value],
    scopes: list[Scope],
    node: ast.Call,
) -> Value:
    """Compile the body of a helper in the place of its call, with its own names and source."""
    types, early = _annotation(source, definition.returns), may_return_early(definition)
    saved = task.source, task.returned, task.dead, task.scopes
    lists = task.calls, task.numbers, task.mutable, task.frames
    task.called += 1
    task.source, task.returned, task.dead, task.scopes = source, False, False, scopes
    task.calls, task.numbers = [*task.calls, name], [*task.numbers, task.called]
    task.mutable = [*task.mutable, mutable_names(definition)]
    try:
        frame = new_frame(task, leaves=early, skips=early, loop=False)
        frame.returns, task.frames = types, [*task.frames, frame]
        for parameter, value in bound.items():  # a scalar that the helper assigns to gets its own place
            is_own = isinstance(value, Scalar) and task.is_mutable(parameter)
            task.declare(parameter, local_copy(task, value, node) if is_own else value)
        task.lower_block(definition.body)
        return _returned(task, result_of(task, frame, definition, node), types, definition)
    finally:
        task.source, task.returned, task.dead, task.scopes = saved
        task.calls, task.numbers, task.mutable, task.frames = lists


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


def local_copy(task: Task, value: Value, node: ast.AST) -> Variable:
    """A variable that starts with the value of a scalar."""
    scalar = as_scalar(task, value, node)
    variable = task.variable(scalar.dtype)
    task.set(variable, scalar)
    return variable


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


def stop_called(task: Task) -> None:
    """End the tasks of regions that are called repeatedly: they wait for no more calls."""
    for sync in task.handovers:
        if sync.repeated:
            _tell(task, sync, False)


def _tell(task: Task, sync: Sync, go: bool) -> None:
    """Write a token to every task of a called region."""
    with _each(task, sync.start.shape[-1]) as which:
        streams.put(task, StreamRef(sync.start, (*task.pids, which), sync.node), Const(go), sync.node)


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
    rank = len(task.kernel.mesh)
    number = meta.constant(0, rank)
    for pid, extent in zip(task.pids, task.kernel.mesh, strict=True):
        number = meta.combine("+", meta.combine("*", number, meta.constant(extent, rank)), pid)
    number = meta.combine("+", number, meta.constant(sync.first, rank))
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


def call(task: Task, callee: Value, node: ast.Call) -> Value:
    """The value of `callee(...)`."""
    if not isinstance(callee, (Const, LocalFunction)):
        task.fail(node, "this cannot be called")
    if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
        task.fail(node, "argument lists with * are not supported in kernels")
    args = [task.lower(a) for a in node.args]
    options = {str(k.arg): task.lower(k.value) for k in node.keywords}
    if isinstance(callee, LocalFunction):
        task.notice("call", node)
        definition = callee.node
        _check_recursion(task, definition.name, node)
        bound = _arguments(task, task.source, definition, args, options, node)
        scopes = [*callee.scopes, Scope(hidden=own_names(definition))]  # it sees the names around its definition
        return _inlined(task, task.source, definition, definition.name, bound, scopes, node)
    function, constant = callee.value, all(isinstance(a, Const) for a in args)
    if (region := as_region(function)) is not None:
        task.notice("region call", node)
        return _call_region(task, region, args, node)
    if isinstance(function, VliwKernel):
        return _call_vliw(task, function, args, node)
    if (module := external_of(function)) is not None:
        return call_external(task, module, args, node)
    if (name := intrinsic_of(function)) is not None:
        return _intrinsic(task, name, args, options, node)
    if isinstance(function, DType):
        if not constant:
            task.notice("type call", node)
        return _cast(task, function, args, node)
    if not constant and isinstance(function, Hashable) and function in _PYTHON:
        if function in _COMPUTING:
            task.notice(function.__name__, node)
        return _PYTHON[function](task, args, node)
    if isinstance(function, FunctionType) and is_helper(task, function):
        function = Instance(function, ())
    if isinstance(function, Instance):
        task.notice("call", node)
        return call_helper(task, function, args, options, node)
    return _python(task, function, args, options, node)


def _call_region(task: Task, region: Region, args: Sequence[Value], node: ast.Call) -> Value:
    """A region whose tasks are compiled with the program; they work on arrays of this task."""
    positions = []
    for argument, part in zip(args, node.args, strict=True):
        if not isinstance(argument, Buffer) or argument.ssa != argument.root:
            task.fail(part, "a region takes whole arrays", "copy the part to an array of its own first")
        if argument.arg is not None:
            positions.append(argument.arg)
        elif argument.ssa in task.declared_at:
            task.wanted.add(task.declared_at[argument.ssa])
        else:
            task.fail(part, "a region takes arguments of the kernel and arrays that it declares with their type")
    if len(positions) < len(args):
        return Const(None)  # compiled again, with these arrays shared
    if task.does_more:  # it exchanges tokens with the tasks of the region
        first = np.argwhere(np.broadcast_to(task.mask, task.kernel.mesh))[0]
        count = read_region(region, "", [task.parameter(position).part(first) for position in positions]).task_count
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
            streams.get(task, StreamRef(done, (*task.pids, which), node), node)
    task.region_calls.append(RegionCall(region, tuple(positions), node))
    return Const(None)


def _call_vliw(task: Task, kernel: VliwKernel, args: Sequence[Value], node: ast.Call) -> Value:
    """A function whose results are written to the last arguments."""
    _, definition = function_source(kernel.function)
    inputs = len(definition.args.args)
    result = call_helper(task, Instance(kernel.function, ()), args[:inputs], {}, node)
    results = result.items if isinstance(result, Tuple) else (result,)
    if len(args) != inputs + len(results):
        task.fail(node, f"`{definition.name}` takes {inputs} inputs and {len(results)} results, {len(args)} are given")
    for target, value, part in zip(args[inputs:], results, node.args[inputs:], strict=True):
        if not isinstance(target, Buffer) or target.constant:
            task.fail(part, f"a result of `{definition.name}` is written and must be a tile")
        tiles.assign(task, target, value, node)
    return Const(None)


_ALLO_NAMES = {"maximum": "max", "minimum": "min", "absolute": "abs", "fabs": "abs", "pow": "power", "dot": "matmul"}
"""Allo's names of functions of Python and NumPy that have another name there."""


def _python(task: Task, function: object, args: Sequence[Value], options: dict[str, Value], node: ast.Call) -> Value:
    """An ordinary Python function of compile-time values, called now."""
    if not callable(function):
        task.fail(node, f"{function!r} is not a function")
    if not all(isinstance(a, (Const, Meta)) for a in (*args, *options.values())):
        name = getattr(function, "__name__", repr(function))
        if function is print:
            task.fail(node, "kernels cannot print", "write the value to an argument and print it after the call")
        own = _ALLO_NAMES.get(name, name)
        hint = "give its parameters types (x: int32) to make it a helper function, or use an operation of allo"
        if own in (*UNARY, *BINARY, *LIBRARY, "matmul"):
            hint = f"allo.{own} computes it in kernels"
        task.fail(node, f"`{name}` cannot be called on run-time values", hint)
    if any(isinstance(v, Meta) for v in options.values()):
        task.fail(node, "pass values that differ between tasks by position")
    named = {k: v.value for k, v in options.items() if isinstance(v, Const)}
    try:
        if all(isinstance(a, Const) for a in args):
            return Const(function(*[a.value for a in args if isinstance(a, Const)], **named))
        rank = len(task.kernel.mesh)
        scalar: list[Array] = []
        for a in args:  # constants of any type in arrays that `frompyfunc` passes on as they are
            scalar.append(a.array if isinstance(a, Meta) else np.empty((1,) * rank, object))
            if isinstance(a, Const):
                scalar[-1].flat[0] = a.value

        def of_task(*values: Any) -> object:
            return function(*[v.item() if isinstance(v, np.generic) else v for v in values], **named)

        values = np.frompyfunc(of_task, len(scalar), 1)(*scalar)
        return meta.table(np.array(values.tolist()).reshape(values.shape))
    except Exception as error:
        task.fail(node, f"cannot evaluate this at compile time: {type(error).__name__}: {error}")


# -- the language's functions ----------------------------------------------------------------------------------------


def _intrinsic(task: Task, name: str, args: list[Value], options: dict[str, Value], node: ast.Call) -> Value:
    if name in _NOTED:
        task.notice(name, node)
    if (expected := _EXACTLY.get(name)) is not None and len(args) != expected:
        task.fail(node, f"{name}() takes {expected} arguments, {len(args)} are given")
    if name in (*BINARY, *UNARY):
        if not tiles.is_tile(args[0]) and tiles.is_tile(args[-1]):
            task.notice("number first", node)
        return tile_or_scalar(task, name, args, node)
    if name in LIBRARY:
        if len(args) < _AT_LEAST.get(name, 1):
            task.fail(node, f"{name}() takes at least {_AT_LEAST.get(name, 1)} arguments, {len(args)} are given")
        return LIBRARY[name](Call(task, name, args, options, node))
    match name:
        case "get_pid":
            return task.pids[0] if len(task.pids) == 1 else Tuple(task.pids)
        case "matmul":
            return tiles.matmul(task, args[0], args[1], node)
        case "copy":
            return method(task, args[0], "copy", node)
        case "transpose":
            if not args or not tiles.is_tile(args[0]):
                task.fail(node, "transpose() needs a tile")
            axes = args[1] if len(args) > 1 else Const(None)
            if not isinstance(axes, Const):
                task.fail(node, "the axes of transpose() must be known at compile time")
            return transpose(task, args[0], None if axes.value is None else tuple(axes.value), node)
        case "gather":
            return streams.gather(task, args, node)
        case "scatter":
            return streams.scatter(task, args, node)
    task.fail(node, f"{name}() cannot be used here")


_EXACTLY = {**dict.fromkeys((*UNARY, "copy"), 1), **dict.fromkeys((*BINARY, "power", "matmul"), 2), "get_pid": 0}
"""Functions with a fixed number of arguments."""


_NOTED = frozenset({"view", "ones", "zeros", "tril", "max", "min"})
"""Functions that not every target builds."""


def tile_or_scalar(task: Task, name: str, args: Sequence[Value], node: ast.AST) -> Value:
    """An elementwise function of tiles, or the same of scalars."""
    if any(tiles.is_tile(a) for a in args):
        return tiles.elementwise(task, name, args, node)
    if len(args) == 2:
        return scalars.binary(task, tiles.ELEMENTWISE[name], args[0], args[1], node)
    if name == "relu":
        task.notice("scalar relu", node)
    task.scalar_op()
    value = as_scalar(task, args[0], node)
    if name not in ("abs", "relu") and not value.dtype.is_float:
        task.notice("function of integers", node)
    return tiles.unary(task, name, value)


def transpose(task: Task, tile: Value, axes: tuple[int, ...] | None, node: ast.AST) -> Value:
    """A tile with its dimensions permuted (reversed when `axes` is None)."""
    shape = tiles.shape_of(tile)
    order = tuple(reversed(range(len(shape)))) if axes is None else axes
    if sorted(order) != list(range(len(shape))):
        task.fail(node, f"axes {list(order)} do not permute {len(shape)} dimensions")
    dtype = tiles.dtype_of(tile)
    assert dtype is not None
    return TileExpr("transpose", (tile,), dtype, tuple(shape[a] for a in order), node, order)


def method(task: Task, base: Value, name: str, node: ast.Call) -> Value:
    """A method of a run-time value."""
    if name == "copy" and isinstance(base, Buffer):
        if not node.args:  # not allo.copy(tile)
            task.notice(".copy()", node)
        target = task.new_buffer(base.dtype, base.shape)
        tiles.copy(task, base, target, node)
        return target
    if name == "copy" and tiles.is_tile(base):
        return base
    if name == "bitcast" and isinstance(base, Scalar) and base.dtype.bits in (16, 32, 64) and not base.dtype.is_fixed:
        to = UInt(base.dtype.bits) if base.dtype.is_float else Float(base.dtype.bits)
        return task.emit(f"arith.bitcast {base.ssa} : {element_type(base.dtype)} to {element_type(to)}", to)
    if name == "reverse" and isinstance(base, Scalar) and base.dtype.kind in ("int", "uint"):
        return reversed_bits(task, base)
    if name in _METHODS:
        given = f"a tile {list(tiles.shape_of(base))}" if tiles.is_tile(base) else getattr(base, "dtype", "this")
        task.fail(node, f"{name}() does not apply to {given}", _METHODS[name])
    task.fail(node, f"unknown method `{name}`", f"known: {', '.join(_METHODS)}")


_METHODS = {
    "copy": "it copies tiles",
    "bitcast": "it reads the bits of an integer or float of 16, 32 or 64 bits as the other kind",
    "reverse": "it reverses the bits of an integer",
}


_AT_LEAST = dict.fromkeys(("bmm", "linear", "conv2d", "maxpool", "sumpool", "view", "concat"), 2) | {"layernorm": 3}


# -- casts and Python's functions ------------------------------------------------------------------------------------


def _cast(task: Task, dtype: DType, args: Sequence[Value], node: ast.Call) -> Value:
    if len(args) != 1:
        task.fail(node, f"a cast takes one value, {len(args)} are given")
    value = args[0]
    if tiles.is_tile(value):
        target = task.new_buffer(dtype, tiles.shape_of(value))
        tiles.assign(task, target, value, node)
        return target
    if isinstance(value, Meta) and dtype.is_integer:
        return value
    return convert(task, as_scalar(task, value, node, like=dtype), dtype)


def _extreme(op: str) -> Callable[[Task, Sequence[Value], ast.Call], Value]:
    def lower(task: Task, args: Sequence[Value], node: ast.Call) -> Value:
        if len(args) < 2:
            task.fail(node, f"{op}() takes at least two values")
        return reduce(lambda left, right: _pair(task, op, left, right, node), args)

    return lower


def _abs(task: Task, args: Sequence[Value], node: ast.Call) -> Value:
    if len(args) == 1 and isinstance(args[0], Meta):
        return meta.table(abs(args[0].array))
    return _intrinsic(task, "abs", [*args], {}, node)


def _pair(task: Task, op: str, left: Value, right: Value, node: ast.AST) -> Value:
    first, second = (meta.as_meta(value, len(task.kernel.mesh)) for value in (left, right))
    if isinstance(first, Meta) and isinstance(second, Meta):
        return meta.combine(op, first, second)
    if tiles.is_tile(left) or tiles.is_tile(right):
        return tiles.elementwise(task, op, (left, right), node)
    result = scalars.binary(task, op, left, right, node)
    return replace(result, form=combined_form(op, left, right, result.dtype))


def _len(task: Task, args: Sequence[Value], node: ast.Call) -> Value:
    if len(args) == 1 and isinstance(args[0], Tuple):
        return Const(len(args[0].items))
    if len(args) == 1 and tiles.is_tile(args[0]):
        return Const(tiles.shape_of(args[0])[0])
    task.fail(node, "len() needs a tile or a tuple")


def _number(kind: DType) -> Callable[[Task, Sequence[Value], ast.Call], Value]:
    """The function `float` or `int`; numbers of that kind stay as they are."""

    def lower(task: Task, args: Sequence[Value], node: ast.Call) -> Value:
        value = args[0] if args else Const(0)
        if isinstance(value, Scalar) and (value.dtype.is_float if kind.is_float else value.dtype.is_integer):
            return value
        return _cast(task, kind, args, node)

    return lower


_COMPUTING = (min, max, abs)  # operations, not only changes of type
_PYTHON: dict[object, Callable[[Task, Sequence[Value], ast.Call], Value]] = {
    min: _extreme("min"),
    max: _extreme("max"),
    abs: _abs,
    len: _len,
    int: _number(int32),
    float: _number(float32),
}
