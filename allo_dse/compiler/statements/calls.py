"""Function calls inside kernels: the language's own functions, casts, Python's, and helper functions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Sequence
from types import FunctionType

import numpy as np

from allo_dse.common.records import Array, replace
from allo_dse.lang.externals import VliwKernel
from allo_dse.lang.intrinsics import BINARY, UNARY, intrinsic_of
from allo_dse.lang.region import Instance, Region, as_region
from allo_dse.lang.types import DType, Float, UInt, float32, int32

from ..expressions import scalars, streams, tiles
from ..expressions.arithmetic import combined_form
from ..expressions.scalars import as_scalar, convert
from ..expressions.subscripts import reversed_bits
from ..expressions.tile_library import LIBRARY
from ..model import values as meta
from ..model.mlir_text import element_type
from ..model.source_file import function_source
from ..model.values import Buffer, Const, LocalFunction, Meta, RegionCall, Scalar, TileExpr, Tuple, Value, pid_of
from ..regions.task_state import Task
from .helpers import call_external, call_helper, call_local, external_of, is_helper, start_and_wait


def call(task: Task, callee: Value, node: ast.Call) -> Value:
    """The value of `callee(...)`."""
    if not isinstance(callee, (Const, LocalFunction)):
        task.fail(node, "this cannot be called")
    if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
        task.fail(node, "argument lists with * are not supported in kernels")
    args = [task.lower(task, a) for a in node.args]
    options = {str(k.arg): task.lower(task, k.value) for k in node.keywords}
    if isinstance(callee, LocalFunction):
        task.notice("call", node)
        return call_local(task, callee, args, options, node)
    function = callee.value
    region = as_region(function)
    if region is not None:
        task.notice("region call", node)
        return _call_region(task, region, args, node)
    if isinstance(function, VliwKernel):
        return _call_vliw(task, function, args, node)
    module = external_of(function)
    if module is not None:
        return call_external(task, module, args, node)
    name = intrinsic_of(function)
    if name is not None:
        return _intrinsic(task, name, args, options, node)
    if isinstance(function, DType):
        if not all(isinstance(a, Const) for a in args):
            task.notice("type call", node)
        return _cast(task, function, args, node)
    if _is_builtin(function) and not all(isinstance(a, Const) for a in args):
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
    call_ = RegionCall(region, tuple(positions), node)
    if task.does_more:
        start_and_wait(task, call_)
    task.region_calls.append(call_)
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


def _is_builtin(function: object) -> bool:
    return isinstance(function, Hashable) and function in _PYTHON


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
        scalar = [a.array if isinstance(a, Meta) else _boxed(a, rank) for a in args]
        values = np.frompyfunc(lambda *v: function(*[_plain(x) for x in v], **named), len(scalar), 1)(*scalar)
        return meta.table(np.array(values.tolist()).reshape(values.shape))
    except Exception as error:
        task.fail(node, f"cannot evaluate this at compile time: {type(error).__name__}: {error}")


def _boxed(value: Value, rank: int) -> Array:
    """A constant as an array that `frompyfunc` passes on as it is."""
    box = np.empty((1,) * rank, object)
    box.flat[0] = value.value if isinstance(value, Const) else None
    return box


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value


# -- the language's functions ----------------------------------------------------------------------------------------


def _intrinsic(task: Task, name: str, args: list[Value], options: dict[str, Value], node: ast.Call) -> Value:
    if name in _NOTED:
        task.notice(name, node)
    if name in BINARY or name == "power":
        _arity(task, name, args, 2, node)
        if not tiles.is_tile(args[0]) and tiles.is_tile(args[1]):
            task.notice("number first", node)
        return tile_or_scalar(task, name, args, node)
    if name in UNARY:
        _arity(task, name, args, 1, node)
        return tile_or_scalar(task, name, args, node)
    if name in LIBRARY:
        if len(args) < _AT_LEAST.get(name, 1):
            task.fail(node, f"{name}() takes at least {_AT_LEAST.get(name, 1)} arguments, {len(args)} are given")
        return LIBRARY[name](task, args, options, node)
    handler = _INTRINSICS.get(name)
    if handler is None:
        task.fail(node, f"{name}() cannot be used here")
    return handler(task, args, options, node)


_NOTED = frozenset({"view", "ones", "zeros", "tril", "max", "min"})
"""Functions that not every target builds."""


def _arity(task: Task, name: str, args: Sequence[Value], expected: int, node: ast.Call) -> None:
    if len(args) != expected:
        task.fail(node, f"{name}() takes {expected} arguments, {len(args)} are given")


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


def _get_pid(task: Task, args: list[Value], options: dict[str, Value], node: ast.Call) -> Value:
    _arity(task, "get_pid", args, 0, node)
    pids = tuple(pid_of(task.kernel.mesh, axis) for axis in range(len(task.kernel.mesh)))
    return pids[0] if len(pids) == 1 else Tuple(pids)


def _matmul(task: Task, args: list[Value], options: dict[str, Value], node: ast.Call) -> Value:
    _arity(task, "matmul", args, 2, node)
    return tiles.matmul(task, args[0], args[1], node)


def _copy(task: Task, args: list[Value], options: dict[str, Value], node: ast.Call) -> Value:
    _arity(task, "copy", args, 1, node)
    return method(task, args[0], "copy", node)


def _transpose(task: Task, args: list[Value], options: dict[str, Value], node: ast.Call) -> Value:
    if not args or not tiles.is_tile(args[0]):
        task.fail(node, "transpose() needs a tile")
    axes = args[1] if len(args) > 1 else None
    if axes is not None and not isinstance(axes, Const):
        task.fail(node, "the axes of transpose() must be known at compile time")
    return transpose(task, args[0], tuple(axes.value) if isinstance(axes, Const) else None, node)


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
        return _bitcast(task, base)
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


def _bitcast(task: Task, value: Scalar) -> Scalar:
    """The bits of a float as an unsigned integer, or those of an integer as a float."""
    to = UInt(value.dtype.bits) if value.dtype.is_float else Float(value.dtype.bits)
    text = f"arith.bitcast {value.ssa} : {element_type(value.dtype)} to {element_type(to)}"
    return Scalar(task.text.op(text), to)


_AT_LEAST = dict.fromkeys(("bmm", "linear", "conv2d", "maxpool", "sumpool", "view", "concat"), 2) | {"layernorm": 3}


def _gather(task: Task, args: list[Value], options: dict[str, Value], node: ast.Call) -> Value:
    return streams.gather(task, args, node)


def _scatter(task: Task, args: list[Value], options: dict[str, Value], node: ast.Call) -> Value:
    return streams.scatter(task, args, node)


_INTRINSICS: dict[str, Callable[[Task, list[Value], dict[str, Value], ast.Call], Value]] = {
    "get_pid": _get_pid,
    "matmul": _matmul,
    "copy": _copy,
    "transpose": _transpose,
    "gather": _gather,
    "scatter": _scatter,
}


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
        result = args[0]
        for value in args[1:]:
            result = _pair(task, op, result, value, node)
        return result

    return lower


def _pair(task: Task, op: str, left: Value, right: Value, node: ast.AST) -> Value:
    rank = len(task.kernel.mesh)
    both = [
        meta.constant(v.value, rank) if isinstance(v, Const) and isinstance(v.value, int) else v for v in (left, right)
    ]
    first, second = both
    if isinstance(first, Meta) and isinstance(second, Meta):
        return meta.combine(op, first, second)
    if tiles.is_tile(left) or tiles.is_tile(right):
        return tiles.elementwise(task, op, (left, right), node)
    result = scalars.binary(task, op, left, right, node)
    return replace(result, form=combined_form(op, left, right, result.dtype))


def _abs(task: Task, args: Sequence[Value], node: ast.Call) -> Value:
    _arity(task, "abs", args, 1, node)
    if isinstance(args[0], Meta):
        return meta.table(abs(args[0].array))
    return tile_or_scalar(task, "abs", args, node)


def _len(task: Task, args: Sequence[Value], node: ast.Call) -> Value:
    if len(args) == 1 and isinstance(args[0], Tuple):
        return Const(len(args[0].items))
    if len(args) == 1 and tiles.is_tile(args[0]):
        return Const(tiles.shape_of(args[0])[0])
    task.fail(node, "len() needs a tile or a tuple")


def _float(task: Task, args: Sequence[Value], node: ast.Call) -> Value:
    value = args[0] if args else Const(0.0)
    if isinstance(value, Scalar) and value.dtype.is_float:
        return value
    return _cast(task, float32, args, node)


def _int(task: Task, args: Sequence[Value], node: ast.Call) -> Value:
    value = args[0] if args else Const(0)
    if isinstance(value, Meta) or (isinstance(value, Scalar) and value.dtype.is_integer):
        return value
    return _cast(task, int32, args, node)


_COMPUTING = (min, max, abs)  # operations, not only changes of type
_PYTHON: dict[object, Callable[[Task, Sequence[Value], ast.Call], Value]] = {
    min: _extreme("min"),
    max: _extreme("max"),
    abs: _abs,
    len: _len,
    int: _int,
    float: _float,
}
