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
)
from ..program.tensors import StreamArray, StreamOp
from ..regions.task_state import PortUse, Task
from . import tiles
from .index_checks import Limit, bounds_of, check_attribute, is_known, wrong_index
from .scalars import as_scalar, binary_as, convert
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
        _check_range(task, stream.name, dimension, stream.shape[dimension], value, node)
    return StreamRef(stream, all_indices, node)


def _check_range(task: Task, name: str, dimension: int, extent: int, value: Value, node: ast.AST) -> None:
    if isinstance(value, Const) and not isinstance(value.value, (int, np.integer)):
        task.fail(node, f"a stream index must be an integer, not {value.value!r}")
    kind = value.dtype if isinstance(value, Scalar) else value.array.dtype if isinstance(value, Meta) else None
    if (isinstance(kind, DType) and not kind.is_integer) or (isinstance(kind, np.dtype) and kind.kind not in "iu"):
        task.fail(node, f"a stream index must be an integer, not {kind}")
    wrong = wrong_index(task, value, extent)
    if wrong is not None:
        task.fail(
            node,
            f"index {wrong.value} is out of range for dimension {dimension} of stream array `{name}`, of size {extent}",
            _edge_hint(task, value, extent) or wrong.where,
        )


def _edge_hint(task: Task, value: Value, extent: int) -> str:
    """Return a hint that names a task whose index is out of range."""
    if not isinstance(value, Meta):
        return ""
    shape = np.broadcast_shapes(value.array.shape, task.mask.shape)
    bad = np.broadcast_to(task.mask, shape) & np.broadcast_to((value.array < 0) | (value.array >= extent), shape)
    pid = "_".join(str(int(i)) for i in np.argwhere(bad)[0])
    return f"at task {task.kernel.name}_{pid}; guard the edge of the mesh with allo.meta_if"


def _port(task: Task, ref: StreamRef, direction: Direction, node: ast.AST) -> tuple[PortUse, str]:
    """The port that an operation uses, and the run-time number of its stream."""
    if not ref.is_single:
        task.fail(
            node,
            f"`{ref.stream.name}` is an array of streams of shape {list(ref.stream.shape)}",
            f"say which one: {ref.stream.name}[{', '.join('i' * len(ref.stream.shape))}].{direction}(...)",
        )
    choices = [_choices(task, value, extent) for value, extent in zip(ref.indices, ref.stream.shape, strict=True)]
    if any(isinstance(value, Scalar) for value in ref.indices):
        task.notice("stream index", ref.node)
        return _computed_port(task, ref, direction, choices, node)
    static = tuple(choice[0] for choice in choices)
    key = (ref.stream.name, direction, _key(static))
    port = task.ports.get(key)
    if port is None:
        port = task.ports[key] = PortUse(ref.stream, direction, f"%s{len(task.ports)}", static, node)
    port.add(task.count, node)
    return port, port.ssa


def _key(index_: Sequence[Meta]) -> tuple[object, ...]:
    """Equal for equal functions of the pid."""
    return tuple(m.affine or (m.array.shape, m.array.tobytes()) for m in index_)


def _choices(task: Task, value: Value, extent: int) -> list[Meta]:
    """The values that an index can have, each a function of the pid."""
    if isinstance(value, Meta):
        return [value]
    rank = len(task.kernel.mesh)
    if isinstance(value, Const):
        return [meta.constant(int(value.value), rank)]
    values = range(extent)
    bounds = bounds_of(task, value)
    if bounds is not None:
        values = range(max(0, bounds[0]), min(extent, bounds[1] + 1))
    if isinstance(value, Scalar) and value.walk is not None and not task.guards:
        return _walked(value.walk, rank)
    return [meta.constant(i, rank) for i in values]


def _walked(walk: Walk, rank: int) -> list[Meta]:
    """The values of an index that moves with a loop, iteration by iteration."""
    values = [meta.constant(i, rank) for i in walk.values]
    return values if walk.base is None else [meta.combine("+", walk.base, value) for value in values]


def _computed_port(
    task: Task, ref: StreamRef, direction: Direction, choices: Sequence[Sequence[Meta]], node: ast.AST
) -> tuple[PortUse, str]:
    """The port of an array whose index the body computes, and the run-time number of the stream."""
    key = (ref.stream.name, direction, None)
    port = task.ports.get(key)
    if port is None:
        port = task.ports[key] = PortUse(ref.stream, direction, f"%s{len(task.ports)}", None, node)
    _count_parts(task, port, ref, choices, node)
    linear: Scalar | None = None
    for value, extent in zip(ref.indices, ref.stream.shape, strict=True):
        position = convert(task, as_scalar(task, value, node, like=index), index)
        if linear is not None:
            scaled = binary_as(task, "*", linear, Scalar(task.text.constant(extent, index), index), index)
            position = binary_as(task, "+", scaled, position, index)
        linear = position
    assert linear is not None
    if all(is_known(task, value, extent) for value, extent in zip(ref.indices, ref.stream.shape, strict=True)):
        return port, binary_as(task, "+", Scalar(port.ssa, index), linear, index).ssa
    size = math.prod(ref.stream.shape)
    limit = Limit(0, linear, size, ref.node, f"stream array `{ref.stream.name}` of {size} streams")
    check = check_attribute(task, [limit])
    return port, task.text.op(f"arith.addi {port.ssa}, {linear.ssa}{check} : index")


def _count_parts(task: Task, port: PortUse, ref: StreamRef, choices: Sequence[Sequence[Meta]], node: ast.AST) -> None:
    """Note which streams a computed index reaches.

    Where all run-time indices move with loops, it is known how often each stream is used.
    """
    walks = [value.walk if isinstance(value, Scalar) else None for value in ref.indices]
    exact = not task.guards and not any(
        isinstance(value, Scalar) and walk is None for value, walk in zip(ref.indices, walks, strict=True)
    )
    loops = {walk.loop: len(walk.values) for walk in walks if walk is not None} if exact else {}
    each = None if not exact or task.count is None else task.count // math.prod(loops.values())
    for index_ in _positions(choices, walks, loops) if exact else itertools.product(*choices):
        name = _key(index_)
        if name not in port.parts:
            port.parts[name] = PortUse(ref.stream, port.direction, port.ssa, index_, node, certain=exact)
        port.parts[name].certain &= exact
        port.parts[name].add(each, node)
    port.tokens = None


def _positions(
    choices: Sequence[Sequence[Meta]], walks: Sequence[Walk | None], loops: dict[str, int]
) -> Iterator[tuple[Meta, ...]]:
    """The indices of one run through all loops; those that follow the same loop move together."""
    for iteration in itertools.product(*(range(trips) for trips in loops.values())):
        at = dict(zip(loops, iteration, strict=True))
        yield tuple(values[0 if walk is None else at[walk.loop]] for values, walk in zip(choices, walks, strict=True))


def _operation(task: Task, ref: StreamRef, direction: Direction, node: ast.AST, blocking: bool = True) -> int:
    task.stream_ops.append(StreamOp(ref.stream, direction, task.location(node), blocking, task.copy))
    return len(task.stream_ops) - 1


def get(task: Task, ref: StreamRef, node: ast.AST) -> Value:
    """`stream.get()`: a scalar now, or a block when its place is known."""
    if ref.stream.block:
        return PendingGet(ref, node)
    _, number = _port(task, ref, "get", node)
    position = _operation(task, ref, "get", node)
    type_ = element_type(ref.stream.dtype)
    task.scalar_op()
    return Scalar(task.text.op(f'"df.get"({number}) {{op = {position} : i64}} : (index) -> {type_}'), ref.stream.dtype)


def receive(task: Task, pending: PendingGet, target: Buffer) -> None:
    """Get a block straight into a tile of the same shape and type."""
    _, number = _port(task, pending.ref, "get", pending.node)
    position = _operation(task, pending.ref, "get", pending.node)
    task.touch(target, write=True)
    if target.ssa == target.root:
        task.got.add(target.root)
    task.text.line(f'"df.get_block"({number}, {target.ssa}) {{op = {position} : i64}} : (index, {target.type}) -> ()')


def put(task: Task, ref: StreamRef, value: Value, node: ast.AST) -> None:
    """`stream.put(value)`."""
    token, type_, name = _token(task, ref, value, node)
    _, number = _port(task, ref, "put", node)
    position = _operation(task, ref, "put", node)
    task.text.line(f'"df.put{name}"({number}, {token}) {{op = {position} : i64}} : (index, {type_}) -> ()')


def _token(task: Task, ref: StreamRef, value: Value, node: ast.AST) -> tuple[str, str, str]:
    """Return the token of a put: its run-time value, its type and its suffix.

    The suffix ends the names of operations on such tokens.
    """
    stream = ref.stream
    if shape_of(value) != stream.block:
        token = f"blocks of shape {list(stream.block)}" if stream.block else "scalars"
        given = f"a tile of shape {list(shape_of(value))}" if is_tile(value) else "a scalar"
        task.fail(node, f"stream `{stream.name}` carries {token}, but {given} is put")
    if not stream.block:
        return _scalar_token(task, ref, value, node).ssa, element_type(stream.dtype), ""
    if isinstance(value, Buffer) and value.dtype == stream.dtype:
        block = value
    else:
        block = task.new_buffer(stream.dtype, stream.block)
        if isinstance(value, Buffer):
            _check_type(task, ref, value, node)
        assign(task, block, value if not isinstance(value, PendingGet) else materialise(task, value), node)
    task.touch(block, write=False)
    return block.ssa, block.type, "_block"


def _check_type(task: Task, ref: StreamRef, value: Buffer | Scalar, node: ast.AST) -> None:
    """Tiles and declared variables must have the stream's own type; expressions are converted."""
    if value.dtype != ref.stream.dtype:
        task.fail(
            node,
            f"stream `{ref.stream.name}` carries {ref.stream.dtype}, but {value.dtype} is put",
            f"declare the variable as {ref.stream.dtype}, or the stream as Stream[{value.dtype}, ...]",
        )


def _scalar_token(task: Task, ref: StreamRef, value: Value, node: ast.AST) -> Scalar:
    dtype = ref.stream.dtype
    scalar = as_scalar(task, value, node, like=dtype)
    if scalar.dtype.is_float and dtype.is_integer:
        _check_type(task, ref, scalar, node)
    task.scalar_op()
    return convert(task, scalar, dtype)


# -- operations that do not wait -------------------------------------------------------------------------------------


def try_get(task: Task, ref: StreamRef, node: ast.AST) -> Value:
    """`value, ok = stream.try_get()`: a token if there is one; else `ok` is false and the value undefined."""
    stream = ref.stream
    with task.repeated(None):
        _, number = _port(task, ref, "get", node)
    attribute = f"{{op = {_operation(task, ref, 'get', node, blocking=False)} : i64}}"
    task.poll()
    if stream.block:
        target = task.new_buffer(stream.dtype, stream.block)
        ok = task.text.op(f'"df.try_get_block"({number}, {target.ssa}) {attribute} : (index, {target.type}) -> i1')
        return Tuple((target, Scalar(ok, bool_)))
    value, ok = task.text.name(), task.text.name()
    type_ = element_type(stream.dtype)
    task.text.line(f'{value}, {ok} = "df.try_get"({number}) {attribute} : (index) -> ({type_}, i1)')
    return Tuple((Scalar(value, stream.dtype), Scalar(ok, bool_)))


def try_put(task: Task, ref: StreamRef, value: Value, node: ast.AST) -> Value:
    """`ok = stream.try_put(value)`: put a token if there is room for it."""
    token, type_, name = _token(task, ref, value, node)
    with task.repeated(None):
        _, number = _port(task, ref, "put", node)
    attribute = f"{{op = {_operation(task, ref, 'put', node, blocking=False)} : i64}}"
    task.poll()
    ok = task.text.op(f'"df.try_put{name}"({number}, {token}) {attribute} : (index, {type_}) -> i1')
    return Scalar(ok, bool_)


def is_empty(task: Task, ref: StreamRef, node: ast.AST) -> Value:
    """`stream.empty()`: whether the stream holds no token; asked by its consumer."""
    return _occupancy(task, ref, "get", "empty", node)


def is_full(task: Task, ref: StreamRef, node: ast.AST) -> Value:
    """`stream.full()`: whether the stream has no room; asked by its producer."""
    return _occupancy(task, ref, "put", "full", node)


def _occupancy(task: Task, ref: StreamRef, direction: Direction, name: str, node: ast.AST) -> Scalar:
    with task.repeated(0):
        _, number = _port(task, ref, direction, node)
    position = _operation(task, ref, direction, node, blocking=False)
    task.poll()
    return Scalar(task.text.op(f'"df.{name}"({number}) {{op = {position} : i64}} : (index) -> i1'), bool_)


# `df.gather` takes a token from each of several streams, `df.scatter` gives one to each.
#
#   tiles[:, :, :] = df.gather(pipe)       one block per stream
#   rows[:, :] = df.gather(pipe[:, j])     the blocks of a column of streams
#   df.scatter(a, [left, right])           the first half of `a` to one, the second to the other


def part_of_array(task: Task, base: StreamRef, node: ast.Subscript) -> Value:
    """`pipe[i]`, or the streams that `pipe[:, j]` names."""
    parts = parts_of(node)
    if not any(isinstance(part, ast.Slice) for part in parts):
        return element(task, base, [task.lower(task, part) for part in parts], node)
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
            choices.append([task.lower(task, part)])
    return _group(task, base, choices, grid, node)


def _slice(task: Task, node: ast.Slice, extent: int, stream: StreamArray) -> range:
    low, high, step = (
        default if part is None else constant_int(task, task.lower(task, part), part, "a bound of a slice of streams")
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
    if isinstance(value, StreamGroup):
        group = value
    elif isinstance(value, StreamRef):
        group = _group(task, value, [], [], node) if not value.is_single else StreamGroup((value,), (1,), node)
    elif isinstance(value, Tuple):
        items = [item for item in value.items if isinstance(item, StreamRef) and item.is_single]
        if len(items) < len(value.items):
            task.fail(node, f"{name}() needs single streams in its list", "such as [pipe[0], pipe[1]]")
        group = StreamGroup(tuple(items), (len(items),), node)
    else:
        task.fail(node, f"{name}() needs streams", f"such as df.{name}([pipe[0], pipe[1]]) or df.{name}(pipe[:, j])")
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
