"""Puts and gets, and their streams."""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from allo_dse.lang.types import DType, index
from allo_dse.lang.types import bool as bool_

from ..model import values as meta
from ..model.mlir_text import element_type
from ..model.values import (
    Buffer,
    Const,
    Meta,
    PendingGather,
    PendingGet,
    Scalar,
    StreamGroup,
    StreamRef,
    TileValue,
    Tuple,
    Value,
    Walk,
    integer_of,
)
from ..program.tensors import StreamArray, StreamOp
from ..regions.task_state import Count, PortUse, Task
from . import tiles
from .index_checks import Limit, bounds_of, check_attribute, is_known, wrong_index
from .scalars import Number, as_index, as_scalar, convert
from .subscripts import Range, constant_int, parts_of, subview
from .tiles import assign, is_tile, materialise, shape_of

Direction = Literal["get", "put"]


def element(task: Task, ref: StreamRef, indices: Sequence[Value], node: ast.AST) -> StreamRef:
    """One stream (or a part) of an array of streams."""
    stream = ref.stream
    all_indices = (*ref.indices, *indices)
    if len(all_indices) > len(stream.shape):
        task.fail(
            node, f"stream `{stream.name}` has {len(stream.shape)} dimensions, {len(all_indices)} indices are given"
        )
    for dimension, value in enumerate(indices, len(ref.indices)):
        if isinstance(value, Const) and integer_of(value) is None:
            task.fail(node, f"a stream index must be an integer, not {value.value!r}")
        kind = value.dtype if isinstance(value, Scalar) else value.array.dtype if isinstance(value, Meta) else None
        if (isinstance(kind, DType) and not kind.is_integer) or (isinstance(kind, np.dtype) and kind.kind not in "iu"):
            task.fail(node, f"a stream index must be an integer, not {kind}")
        extent = stream.shape[dimension]
        wrong = wrong_index(task, value, extent)
        if wrong is None:
            continue
        hint = wrong.where
        if isinstance(value, Meta):  # name a task whose index is out of range
            shape = np.broadcast_shapes(value.array.shape, task.mask.shape)
            outside = (value.array < 0) | (value.array >= extent)
            bad = np.broadcast_to(task.mask, shape) & np.broadcast_to(outside, shape)
            pid = "_".join(str(int(i)) for i in np.argwhere(bad)[0])
            hint = f"at task {task.kernel.name}_{pid}; guard the edge of the mesh with allo.meta_if"
        text = f"index {wrong.value} is out of range for dimension {dimension} of stream array `{stream.name}`"
        task.fail(node, f"{text}, of size {extent}", hint)
    return StreamRef(stream, all_indices, node)


def _port(task: Task, ref: StreamRef, direction: Direction, node: ast.AST) -> str:
    """The run-time number of the stream that an operation uses."""
    stream, indices = ref.stream, ref.indices
    if not ref.is_single:
        task.fail(
            node,
            f"`{stream.name}` is an array of streams of shape {list(stream.shape)}",
            f"say which one: {stream.name}[{', '.join('i' * len(stream.shape))}].{direction}(...)",
        )
    choices = [_choices(task, value, extent) for value, extent in zip(indices, stream.shape, strict=True)]
    computed = any(isinstance(value, Scalar) for value in indices)
    static = None if computed else tuple(choice[0] for choice in choices)
    key = stream.name, direction, None if static is None else _key(static)
    if key not in task.ports:
        task.ports[key] = PortUse(stream, direction, f"%s{len(task.ports)}", static, node)
    port = task.ports[key]
    if not computed:
        port.add(task.count, node)
        return port.ssa
    task.notice("stream index", ref.node)
    # Note which streams the index reaches. If all run-time indices move with loops, it is known how often each is used.
    walks = [value.walk if isinstance(value, Scalar) else None for value in indices]
    exact = not task.guards and not any(
        isinstance(value, Scalar) and walk is None for value, walk in zip(indices, walks, strict=True)
    )
    loops = {walk.loop: len(walk.values) for walk in walks if walk is not None} if exact else {}
    each = None if not exact or task.count is None else task.count // math.prod(loops.values())
    for index_ in _positions(choices, walks, loops) if exact else itertools.product(*choices):
        name = _key(index_)
        if name not in port.parts:
            port.parts[name] = PortUse(stream, direction, port.ssa, index_, node, certain=exact)
        port.parts[name].certain &= exact
        port.parts[name].add(each, node)
    port.tokens = None
    positions = (as_index(task, value, node) for value in indices)
    linear = Number(task, next(positions), index)
    for position, extent in zip(positions, stream.shape[1:], strict=True):
        linear = linear * task.number(extent, index) + position
    check = ""
    if not all(is_known(task, value, extent) for value, extent in zip(indices, stream.shape, strict=True)):
        size = math.prod(stream.shape)
        check = check_attribute(
            task, [Limit(0, linear.scalar, size, ref.node, f"stream array `{stream.name}` of {size} streams")]
        )
    return task.text.op(f"arith.addi {port.ssa}, {linear.scalar.ssa}{check} : index")


def _key(index_: Sequence[Meta]) -> tuple[object, ...]:
    """Equal for equal functions of the pid."""
    return tuple(m.affine or (m.array.shape, m.array.tobytes()) for m in index_)


def _choices(task: Task, value: Value, extent: int) -> list[Meta]:
    """The values that an index can have, each a function of the pid; those of a loop's variable round by round."""
    rank = len(task.kernel.mesh)
    value = meta.as_meta(value, rank)
    if isinstance(value, Meta):
        return [value]
    walk = value.walk if isinstance(value, Scalar) and not task.guards else None
    low, high = bounds_of(task, value) or (0, extent - 1)
    values = range(max(0, low), min(extent, high + 1)) if walk is None else walk.values
    found = [meta.constant(i, rank) for i in values]
    return found if walk is None or walk.base is None else [meta.combine("+", walk.base, one) for one in found]


def _positions(
    choices: Sequence[Sequence[Meta]], walks: Sequence[Walk | None], loops: dict[str, int]
) -> Iterator[tuple[Meta, ...]]:
    """The indices of one run through all loops; those that follow the same loop move together."""
    for iteration in itertools.product(*(range(trips) for trips in loops.values())):
        at = dict(zip(loops, iteration, strict=True))
        yield tuple(values[0 if walk is None else at[walk.loop]] for values, walk in zip(choices, walks, strict=True))


def get(task: Task, ref: StreamRef, node: ast.AST) -> Value:
    """`stream.get()`: a scalar now, or a block when its place is known."""
    if ref.stream.block:
        return PendingGet(ref, node)
    number, attribute = _use(task, ref, "get", node)
    task.scalar_op()
    dtype = ref.stream.dtype
    return task.emit(f'"df.get"({number}) {attribute} : (index) -> {element_type(dtype)}', dtype)


def _use(task: Task, ref: StreamRef, direction: Direction, node: ast.AST, tokens: Count = 1) -> tuple[str, str]:
    """Note an operation on a stream.

    Args:
        tokens: that it moves each time; None if the state of the stream decides. Only moving one waits for it.

    Returns:
        The run-time number of the stream, and the attribute with the number of the operation.
    """
    with task.repeated(tokens):
        number = _port(task, ref, direction, node)
    task.stream_ops.append(StreamOp(ref.stream, direction, task.location(node), tokens == 1, task.copy))
    if tokens != 1:
        task.poll()
    return number, f"{{op = {len(task.stream_ops) - 1} : i64}}"


def receive(task: Task, pending: PendingGet, target: Buffer) -> None:
    """Get a block straight into a tile of the same shape and type."""
    number, attribute = _use(task, pending.ref, "get", pending.node)
    task.touch(target, write=True)
    if target.ssa == target.root:
        task.got.add(target.root)
    task.text.line(f'"df.get_block"({number}, {target.ssa}) {attribute} : (index, {target.type}) -> ()')


def put(task: Task, ref: StreamRef, value: Value, node: ast.AST) -> None:
    """`stream.put(value)`."""
    token, type_, name = _token(task, ref, value, node)
    number, attribute = _use(task, ref, "put", node)
    task.text.line(f'"df.put{name}"({number}, {token}) {attribute} : (index, {type_}) -> ()')


def _token(task: Task, ref: StreamRef, value: Value, node: ast.AST) -> tuple[str, str, str]:
    """Return the token of a put: its run-time value, its type and its suffix.

    The suffix ends the names of operations on such tokens.
    """
    stream, dtype = ref.stream, ref.stream.dtype
    if shape_of(value) != stream.block:
        token = f"blocks of shape {list(stream.block)}" if stream.block else "scalars"
        given = f"a tile of shape {list(shape_of(value))}" if is_tile(value) else "a scalar"
        task.fail(node, f"stream `{stream.name}` carries {token}, but {given} is put")
    if not stream.block:
        scalar = as_scalar(task, value, node, like=dtype)
        if scalar.dtype.is_float and dtype.is_integer:
            _check_type(task, stream, scalar.dtype, node)
        task.scalar_op()
        return convert(task, scalar, dtype).ssa, element_type(dtype), ""
    block = value if isinstance(value, Buffer) and value.dtype == dtype else task.new_buffer(dtype, stream.block)
    if block is not value:
        if isinstance(value, Buffer):
            _check_type(task, stream, value.dtype, node)
        assign(task, block, value if not isinstance(value, PendingGet) else materialise(task, value), node)
    task.touch(block, write=False)
    return block.ssa, block.type, "_block"


def _check_type(task: Task, stream: StreamArray, given: DType, node: ast.AST) -> None:
    """Tiles and declared variables must have the stream's own type; expressions are converted."""
    if given != stream.dtype:
        task.fail(
            node,
            f"stream `{stream.name}` carries {stream.dtype}, but {given} is put",
            f"declare the variable as {stream.dtype}, or the stream as Stream[{given}, ...]",
        )


# -- operations that do not wait -------------------------------------------------------------------------------------


_METHODS = {"get": 0, "put": 1, "try_get": 0, "try_put": 1, "empty": 0, "full": 0}
"""Methods of streams, each with the number of its arguments."""


def method(task: Task, ref: StreamRef, name: str, node: ast.Call) -> Value:
    """A method of a stream.

    `try_put` puts a token if there is room for it, and returns whether it did. `empty` and `full` return whether the
    consumer finds no token, and the producer no room.
    """
    if name not in _METHODS:
        task.fail(node, f"a stream has no method `{name}`", f"it has {', '.join(_METHODS)}")
    if len(node.args) != _METHODS[name] or node.keywords:
        task.fail(node, f"{name}() of a stream takes {_METHODS[name]} arguments, {len(node.args)} are given")
    if name == "get":
        return get(task, ref, node)
    if name == "put":
        put(task, ref, task.lower(node.args[0]), node)
        return Const(None)
    if name == "try_get":  # a token if there is one; else `ok` is false and the value undefined
        stream = ref.stream
        number, attribute = _use(task, ref, "get", node, None)
        if stream.block:
            target = task.new_buffer(stream.dtype, stream.block)
            text = f'"df.try_get_block"({number}, {target.ssa}) {attribute} : (index, {target.type}) -> i1'
            return Tuple((target, task.emit(text, bool_)))
        value, ok = task.text.name(), task.text.name()
        text = f'"df.try_get"({number}) {attribute} : (index) -> ({element_type(stream.dtype)}, i1)'
        task.text.line(f"{value}, {ok} = {text}")
        return Tuple((Scalar(value, stream.dtype), Scalar(ok, bool_)))
    if name == "try_put":
        token, type_, suffix = _token(task, ref, task.lower(node.args[0]), node)
        number, attribute = _use(task, ref, "put", node, None)
        return task.emit(f'"df.try_put{suffix}"({number}, {token}) {attribute} : (index, {type_}) -> i1', bool_)
    number, attribute = _use(task, ref, "get" if name == "empty" else "put", node, 0)
    return task.emit(f'"df.{name}"({number}) {attribute} : (index) -> i1', bool_)


# `df.gather` takes a token from each of several streams, `df.scatter` gives one to each.
#
#   tiles[:, :, :] = df.gather(pipe)       one block per stream
#   rows[:, :] = df.gather(pipe[:, j])     the blocks of a column of streams
#   df.scatter(a, [left, right])           the first half of `a` to one, the second to the other


def part_of_array(task: Task, base: StreamRef, node: ast.Subscript) -> Value:
    """`pipe[i]`, or the streams that `pipe[:, j]` names."""
    parts = parts_of(node)
    if not any(isinstance(part, ast.Slice) for part in parts):
        return element(task, base, [task.lower(part) for part in parts], node)
    shape = base.stream.shape[len(base.indices) :]
    if len(parts) > len(shape):
        task.fail(node, f"stream `{base.stream.name}` has {len(shape)} dimensions, {len(parts)} indices are given")
    choices: list[list[Value]] = []
    grid = []
    for part, extent in zip(parts, shape, strict=False):
        if isinstance(part, ast.Slice):
            values = _slice(task, part, extent, base.stream)
            grid.append(len(values))
            choices.append([Const(i) for i in values])
        else:
            choices.append([task.lower(part)])
    return _group(task, base, choices, grid, node)


def _slice(task: Task, node: ast.Slice, extent: int, stream: StreamArray) -> range:
    low, high, step = (
        default if part is None else constant_int(task, task.lower(part), part, "a bound of a slice of streams")
        for part, default in ((node.lower, 0), (node.upper, extent), (node.step, 1))
    )
    if step == 0 or not 0 <= low <= extent or not 0 <= high <= extent:
        task.fail(node, f"slice {low}:{high} is out of range for stream array `{stream.name}`, of size {extent}")
    return range(low, high, step)


def _group(
    task: Task, base: StreamRef, choices: Sequence[Sequence[Value]], grid: list[int], node: ast.AST
) -> StreamGroup:
    """All streams that combinations of indices name; missing dimensions are taken whole."""
    missing = base.stream.shape[len(base.indices) + len(choices) :]
    choices = [*choices, *([Const(i) for i in range(extent)] for extent in missing)]
    found = [element(task, base, index, node) for index in itertools.product(*choices)]
    return StreamGroup(tuple(found), (*grid, *missing), node)


def streams_of(task: Task, value: Value, node: ast.AST, name: str) -> StreamGroup:
    """The streams that a collective operation serves."""
    match value:
        case StreamGroup():
            group = value
        case StreamRef(is_single=True):
            group = StreamGroup((value,), (1,), node)
        case StreamRef():
            group = _group(task, value, [], [], node)
        case Tuple(items):
            streams = tuple(item for item in items if isinstance(item, StreamRef) and item.is_single)
            if len(streams) < len(items):
                task.fail(node, f"{name}() needs single streams in its list", "such as [pipe[0], pipe[1]]")
            group = StreamGroup(streams, (len(streams),), node)
        case _:
            hint = f"such as df.{name}([pipe[0], pipe[1]]) or df.{name}(pipe[:, j])"
            task.fail(node, f"{name}() needs streams", hint)
    if not group.streams:
        task.fail(node, f"{name}() needs at least one stream")
    types = {(ref.stream.dtype, ref.stream.block) for ref in group.streams}
    if len(types) > 1:
        names = ", ".join(sorted({ref.stream.name for ref in group.streams}))
        task.fail(node, f"the streams of a {name} must carry the same type of token; {names} do not")
    return group


def gather(task: Task, args: Sequence[Value], node: ast.Call) -> Value:
    """`df.gather(streams)`: the tokens as one tile, in the order of the streams."""
    if len(args) != 1:
        task.fail(node, f"gather() takes one list of streams, {len(args)} arguments are given")
    group = streams_of(task, args[0], node.args[0], "gather")
    return PendingGather(group.streams[0], node, group)


def scatter(task: Task, args: Sequence[Value], node: ast.Call) -> Value:
    """`df.scatter(tile, streams)`: a part of the tile to each stream, in their order."""
    if len(args) != 2:
        task.fail(node, f"scatter() takes a tile and a list of streams, {len(args)} arguments are given")
    group = streams_of(task, args[1], node.args[1], "scatter")
    if not tiles.is_tile(args[0]):
        task.fail(node.args[0], "scatter() needs a tile")
    assert isinstance(args[0], TileValue)
    source = tiles.materialise(task, args[0])
    as_received = PendingGather(group.streams[0], node, group)
    shapes = dict.fromkeys((as_received.shape, as_received.joined_shape))
    if source.shape not in shapes:
        task.fail(
            node,
            f"a tile of shape {list(source.shape)} does not divide into {len(group.streams)} tokens of shape "
            f"{list(group.streams[0].stream.block)}",
            f"its shape must be {' or '.join(str(list(shape)) for shape in shapes)}",
        )
    for position, ref in enumerate(group.streams):
        if ref.stream.block:
            put(task, ref, _part(task, source, as_received, position, node), node)
        else:
            task.touch(source, write=False)
            put(task, ref, tiles.load(task, source, _place(task, as_received, position)), node)
    return Const(None)


def _part(task: Task, buffer: Buffer, gathered: PendingGather, position: int, node: ast.AST) -> Buffer:
    """The part of a tile that belongs to one stream."""
    block = gathered.ref.stream.block
    if buffer.shape == gathered.joined_shape:
        whole = [Range(Const(0), extent) for extent in block[1:]]
        return subview(task, buffer, [Range(Const(position * block[0]), block[0]), *whole], node)
    where = np.unravel_index(position, gathered.group.grid)
    return subview(task, buffer, [*(Const(int(i)) for i in where), *(Range(Const(0), n) for n in block)], node)


def receive_gathered(task: Task, pending: PendingGet, target: Buffer) -> None:
    """Get blocks straight into a tile of their type."""
    if not isinstance(pending, PendingGather):
        receive(task, pending, target)
        return
    for position, ref in enumerate(pending.group.streams):
        if ref.stream.block:
            receive(task, PendingGet(ref, pending.node), _part(task, target, pending, position, pending.node))
            continue
        value = tiles.element(task, get(task, ref, pending.node), target.dtype, pending.node)
        tiles.store(task, value, target, _place(task, pending, position))
        task.touch(target, write=True)


def _place(task: Task, gathered: PendingGather, position: int) -> list[str]:
    """Return the indices in the tile of the scalar that one stream carries."""
    return [task.text.constant(int(i), index) for i in np.unravel_index(position, gathered.group.grid)]
