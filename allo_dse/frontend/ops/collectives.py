"""Operations on several streams at once: `df.gather` takes a token from each, `df.scatter` gives one to each.

tiles[:, :, :] = df.gather(pipe)                 one block per stream
rows[:, :] = df.gather(pipe[:, j])               the blocks of a column of streams
df.scatter(a, [left, right])                     the first half of `a` to one, the second to the other
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Sequence

import numpy as np

from allo_dse.lang.types import index
from allo_dse.program.streams import StreamArray

from ..model.values import Buffer, Const, PendingGather, PendingGet, StreamGroup, StreamRef, TileValue, Tuple, Value
from ..regions.task_state import Task
from . import streams, tiles
from .subscripts import Range, constant_int, parts_of, subview


def part_of_array(task: Task, base: StreamRef, node: ast.Subscript) -> Value:
    """`pipe[i]`, or the streams that `pipe[:, j]` names."""
    parts = parts_of(node)
    if not any(isinstance(part, ast.Slice) for part in parts):
        return streams.element(task, base, [task.lower(task, part) for part in parts], node)
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
    found = [streams.element(task, base, index, node) for index in itertools.product(*choices)]
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
            streams.put(task, ref, _token(task, source, as_received, position, node), node)
        else:
            task.touch(source, write=False)
            streams.put(task, ref, tiles.load(task, source, _place(task, as_received, position)), node)
    return Const(None)


def _token(task: Task, buffer: Buffer, gathered: PendingGather, position: int, node: ast.AST) -> Buffer:
    """The part of a tile that belongs to one stream."""
    block = gathered.ref.stream.block
    if buffer.shape == gathered.joined_shape:
        whole = [Range(Const(0), extent) for extent in block[1:]]
        return subview(task, buffer, [Range(Const(position * block[0]), block[0]), *whole], node)
    where = np.unravel_index(position, gathered.group.grid)
    return subview(task, buffer, [*(Const(int(i)) for i in where), *(Range(Const(0), n) for n in block)], node)


def receive(task: Task, pending: PendingGet, target: Buffer) -> None:
    """Get blocks straight into a tile of their type."""
    if not isinstance(pending, PendingGather):
        streams.receive(task, pending, target)
        return
    for position, ref in enumerate(pending.group.streams):
        if ref.stream.block:
            streams.receive(task, PendingGet(ref, pending.node), _token(task, target, pending, position, pending.node))
            continue
        value = tiles.element(task, streams.get(task, ref, pending.node), target.dtype, pending.node)
        tiles.store(task, value, target, _place(task, pending, position))
        task.touch(target, write=True)


def _place(task: Task, gathered: PendingGather, position: int) -> list[str]:
    """Where the scalar of one stream stands in the tile."""
    return [task.text.constant(int(i), index) for i in np.unravel_index(position, gathered.group.grid)]
