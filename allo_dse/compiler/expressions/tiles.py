"""Operations on whole tiles: shapes and types are known when they are written, code comes when the target is known.

Integer sums and products are computed modulo the width of their target, so that what a program stores equals what
NumPy computes in the target's type, however wide intermediate results would be.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import reduce

from allo_dse.common.records import Frozen, Ints
from allo_dse.lang.types import DType, float32, index, int64

from ..model.values import Buffer, Const, Meta, PendingGather, PendingGet, Scalar, TileExpr, TileValue, Value, Variable
from ..program.compiled import TileUse
from ..regions.task_state import Task
from .scalars import (
    Number,
    as_scalar,
    binary_as,
    common,
    computed_in_float,
    const_type,
    convert,
    is_number,
    math_unary,
    require_power,
    result_type,
)

# A product over a dimension that is sharded on mesh axis k is only a part of the sum: each task along k holds another
# part. Such a *pending* sum may be passed on, scaled, and added to. It is complete once a value from a stream, or the
# argument itself, has been added. Before that it is an error to store it as a result, or to apply an operation that
# does not distribute over sums.


Axes = tuple[int | None, ...]

LINEAR = frozenset(
    {"add", "sub", "neg", "mul", "div", "transpose", "view", "copy", "concat", "tril", "sumpool", "fill"}
)
PRODUCTS = frozenset({"matmul", "bmm", "conv2d"})


class Spread(Frozen):
    """The distribution of a tile over the mesh.

    Attributes:
        axes: the mesh axis that each dimension is sharded on; None if it is not sharded, or if that is unknown.
        pending: mesh axes along which the tiles are parts of a sum.
        complete: whether contributions of other tasks have been added.
    """

    axes: Axes
    pending: frozenset[int] = frozenset()
    complete: bool = False


def spread_of(task: Task, value: Value) -> Spread:
    """Return the known distribution of a value.

    Raises:
        ProgramError: for an operation on a pending sum that does not distribute over sums.
    """
    if isinstance(value, PendingGet):
        return Spread((None,) * len(value.shape), complete=True)
    if isinstance(value, Buffer):
        unknown: Axes = (None,) * len(value.shape)
        given = unknown if value.arg is None else task.parameter(value.arg).layout
        known = task.spreads.get(value.root, Spread(given))
        return Spread(known.axes if len(known.axes) == len(unknown) else unknown, known.pending, known.complete)
    if isinstance(value, TileExpr):
        return _of_expression(task, value)
    return Spread(())


def _of_expression(task: Task, expr: TileExpr) -> Spread:
    operands = [spread_of(task, operand) for operand in expr.operands]
    pending = frozenset[int]().union(*(o.pending for o in operands))
    if pending and expr.op not in LINEAR | PRODUCTS:
        _nonlinear(task, expr, pending)
    if sum(bool(o.pending) for o in operands) > 1 and expr.op in PRODUCTS | {"mul"}:
        _nonlinear(task, expr, pending)
    if expr.op == "div" and operands[1].pending:
        _nonlinear(task, expr, operands[1].pending)
    complete = any(o.complete for o in operands)
    axes: Axes = (None,) * len(expr.shape)
    if expr.op in PRODUCTS:
        if expr.op in ("matmul", "bmm"):
            left, right = operands[0].axes, operands[1].axes
            inner = left[-1] if left[-1] == right[-2] else None
            if inner is not None and task.kernel.mesh[inner] > 1:
                pending |= {inner}
            axes = (*left[:-1], right[-1])
        return Spread(axes, pending, complete)
    if expr.op == "transpose":
        axes = tuple(operands[0].axes[a] for a in expr.options)
    elif all(len(o.axes) in (0, len(expr.shape)) for o in operands):
        axes = _joined(task, expr, [o.axes for o in operands if o.axes])
    is_updated = any(isinstance(o, Buffer) and o.arg is not None and o.is_updated for o in expr.operands)
    adds = expr.op in ("add", "sub") and (complete or is_updated)
    return Spread(axes, frozenset() if adds else pending, complete)


def _joined(task: Task, expr: TileExpr, all_axes: Sequence[Axes]) -> Axes:
    """Per dimension the axis that the operands agree on; replicated operands agree with everything."""
    result: list[int | None] = []
    for dimension in range(len(expr.shape)):
        found = sorted({axes[dimension] for axes in all_axes} - {None}, key=lambda axis: axis or 0)
        result.append(found[0] if len(found) == 1 else None)
        if sum(axis is not None and task.kernel.mesh[axis] > 1 for axis in found) > 1:
            along = " and of another along ".join(f"mesh axis {axis}" for axis in found)
            message = f"the operands of {expr.op} are different parts: dimension {dimension} of one runs along {along}"
            task.warn(expr.node, message)
    return tuple(result)


def _nonlinear(task: Task, expr: TileExpr, pending: frozenset[int]) -> None:
    task.fail(
        expr.node,
        f"{expr.op} of a partial sum: {_parts(task, pending)}",
        "add up the parts first, passing them from task to task through a stream",
    )


def _parts(task: Task, pending: frozenset[int]) -> str:
    axis = min(pending)
    return f"the sum runs along mesh axis {axis} of size {task.kernel.mesh[axis]}, and each task has only its part"


def note_assignment(task: Task, target: Buffer, value: Value, node: ast.AST) -> None:
    """Record the distribution of a tile after an assignment; check that a result is complete.

    Raises:
        ProgramError: when a pending sum is stored in an argument.
    """
    spread = spread_of(task, value)
    if target.arg is not None:
        parameter = task.parameter(target.arg)
        if missing := spread.pending.difference(parameter.layout):
            name = parameter.name
            task.fail(
                node,
                f"`{name}` gets a partial sum: {_parts(task, missing)}",
                f"pass the parts from task to task through a stream and add them, or accumulate: {name}[...] += ...",
            )
        return
    whole = target.ssa == target.root and not task.guards
    known = task.spreads.get(target.root)
    if not whole and known is not None:
        spread = Spread(known.axes, known.pending | spread.pending, known.complete or spread.complete)
    task.spreads[target.root] = spread


def note_elements(task: Task, target: Buffer) -> None:
    """Note that a tile is written element by element: its distribution is unknown from then on."""
    task.spreads[target.root] = Spread((None,) * len(target.shape), complete=True)


RING = frozenset({"add", "sub", "mul", "matmul", "bmm", "conv2d", "sumpool", "neg", "fill"})
ELEMENTWISE = {"add": "+", "sub": "-", "mul": "*", "div": "/", "max": "max", "min": "min", "power": "**", "mod": "%"}
_WIDE = frozenset({"matmul", "bmm", "conv2d", "sumpool", "softmax", "layernorm", "gelu"})  # computed in float32
UNARY = ("exp", "log", "log2", "log10", "sqrt", "sin", "cos", "tan", "tanh", "abs", "relu", "gelu", "neg")


def is_tile(value: Value) -> bool:
    return isinstance(value, (TileExpr, PendingGet)) or (isinstance(value, Buffer) and value.shape != ())


def shape_of(value: Value) -> Ints:
    return value.shape if isinstance(value, (Buffer, TileExpr, PendingGet)) else ()


def dtype_of(value: Value) -> DType | None:
    """The element type of an operand; None for a Python number, which adapts."""
    if isinstance(value, (Buffer, TileExpr, PendingGet, Scalar, Variable)):
        return value.dtype
    return None


def broadcast(task: Task, shapes: Sequence[Ints], node: ast.AST) -> Ints:
    """The shape that all of `shapes` broadcast to, as in NumPy."""
    result: list[int] = []
    for position in range(max(map(len, shapes))):
        extents = {shape[-1 - position] for shape in shapes if position < len(shape)} - {1}
        if len(extents) > 1:
            task.fail(node, f"shapes do not match: {' and '.join(text_of(s) for s in shapes)}")
        result.append(extents.pop() if extents else 1)
    return tuple(reversed(result))


def text_of(shape: Ints) -> str:
    return f"[{', '.join(map(str, shape))}]"


def common_type(operands: Iterable[Value]) -> DType:
    """The type that holds the values of all operands; Python numbers adapt to the others."""
    operands = list(operands)
    types = [dtype for operand in operands if (dtype := dtype_of(operand)) is not None]
    numbers = [operand.value for operand in operands if isinstance(operand, Const)]
    if not types:
        return const_type(numbers[0]) if numbers else float32
    result = reduce(common, types)
    floats = any(isinstance(number, float) for number in numbers)
    return common(result, float32) if floats and not result.is_float else result


def _grown(op: str, operands: Sequence[Value]) -> DType:
    """The type of `left op right`, whose integers and fixed-point numbers grow as those of scalars do."""
    natural = common_type(operands)
    if natural.is_float:
        return natural
    left, right = (dtype_of(o) or const_type(o.value if isinstance(o, Const) else 0) for o in operands)
    return result_type(op, left, right) if "index" not in (left.kind, right.kind) else natural


def elementwise(task: Task, op: str, operands: Sequence[Value], node: ast.AST, grows: str | None = None) -> TileExpr:
    """An elementwise operation on tiles and scalars, with broadcasting.

    Args:
        grows: the operator, where it is one: its result is then as wide as that of scalars, and not as its operands.
    """
    for operand in operands:
        if isinstance(operand, Const) and not is_number(operand.value):
            task.fail(node, f"{op} needs tiles or numbers, not {operand.value!r}")
    shapes = [shape_of(operand) for operand in operands]
    shape = broadcast(task, shapes, node)
    if any(extent == 1 < whole for one in shapes for extent, whole in zip(one[::-1], shape[::-1], strict=False)):
        task.notice("broadcast of one", node)
    natural = common_type(operands)
    tiles = {dtype_of(operand) for operand in operands if is_tile(operand)}
    if tiles - {natural} if grows is not None and natural.is_float else grows is None and len(tiles) > 1:
        task.notice("tiles of two types", node)
    dtype = natural if grows is None else _grown(grows, operands)
    if op == "power":
        require_power(task, dtype, node)
    if op in UNARY and op not in ("relu", "neg") and not dtype.is_float:
        task.notice("function of integers", node)
        dtype = dtype if op == "abs" else float32
    return TileExpr(op, tuple(operands), dtype, shape, node)


def matmul(task: Task, a: Value, b: Value, node: ast.AST) -> TileExpr:
    """The product of two matrices, of batches of them, or of a batch with one matrix."""
    left, right = (shape_of(operand) if is_tile(operand) else () for operand in (a, b))
    if min(len(left), len(right)) < 2 or right[:-2] not in ((), left[:-2]):
        task.fail(node, f"matmul needs two matrices, not shapes {text_of(left)} and {text_of(right)}")
    if left[-1] != right[-2]:
        task.fail(node, f"matmul of {text_of(left)} and {text_of(right)}: {left[-1]} columns against {right[-2]} rows")
    op = "matmul" if len(left) == 2 else "bmm"
    return TileExpr(op, (a, b), common_type((a, b)), (*left[:-1], right[-1]), node)


# -- code ------------------------------------------------------------------------------------------------------------


@contextmanager
def loops(task: Task, shape: Sequence[int]) -> Iterator[list[str]]:
    """A nest of loops over a tile; yields the loop variables."""
    names = []
    for extent in shape:
        name = task.text.name()
        task.text.open(f"affine.for {name} = 0 to {extent} {{")
        names.append(name)
    yield names
    for _ in names:
        task.text.close()


def load(task: Task, buffer: Buffer, where: Sequence[str]) -> Scalar:
    return task.emit(f"memref.load {buffer.ssa}[{', '.join(where)}] : {buffer.type}", buffer.dtype)


def store(task: Task, value: Scalar, buffer: Buffer, where: Sequence[str]) -> None:
    task.text.line(f"memref.store {value.ssa}, {buffer.ssa}[{', '.join(where)}] : {buffer.type}")


def fill(task: Task, value: Value, target: Buffer, node: ast.AST) -> None:
    """Set every element of a tile to a scalar."""
    scalar, use = element(task, value, target.dtype, node), _use(task, (), target)
    task.touch(target, write=True)
    with loops(task, target.shape) as where:
        store(task, scalar, target, where)
    task.price("fill", target.shape, (target.dtype,), node, use=use)


def element(task: Task, value: Value, dtype: DType, node: ast.AST) -> Scalar:
    """A scalar as an element of a tile or variable of type `dtype`."""
    number = value.value if isinstance(value, Const) and is_number(value.value) else None
    if number is not None and not dtype.is_fixed and (dtype.is_float or isinstance(number, int)):
        return task.number(number, dtype)
    return convert(task, as_scalar(task, value, node, like=dtype), dtype)


def assign(task: Task, target: Buffer, value: Value, node: ast.AST) -> None:
    """`target[...] = value`: a scalar fills it, a tile of the same (or a broadcasting) shape is copied into it."""
    if not is_tile(value):
        fill(task, value, target, node)
        note_assignment(task, target, value, node)
        return
    note_assignment(task, target, value, node)
    shape = shape_of(value)
    if isinstance(value, PendingGather) and target.shape == value.joined_shape:
        shape = target.shape
    if broadcast(task, (shape, target.shape), node) != target.shape:
        task.fail(node, f"shapes do not match: {text_of(target.shape)} = {text_of(shape)}")
    if isinstance(value, PendingGet):
        if shape == target.shape and value.dtype == target.dtype:
            task.receive(value, target)
            return
        value = materialise(task, value)
    if isinstance(value, TileExpr):
        gives_floats = value.dtype.is_float and (value.op in ELEMENTWISE or value.op in UNARY)
        if value.dtype != target.dtype and (target.dtype.is_float or gives_floats):
            task.notice("tile of another type", node)
        if shape == target.shape:
            _compute(task, value, target)
            return
        value = materialise(task, value, dtype=target.dtype)
    assert isinstance(value, Buffer)
    if value.dtype != target.dtype:
        task.notice("tile of another type", node)
    copy(task, value, target, node)


def copy(task: Task, source: Buffer, target: Buffer, node: ast.AST) -> None:
    """Copy a tile, converting its elements and broadcasting it."""
    use = _use(task, (source,), target)
    if source.root == target.root and source.ssa != target.ssa:
        temporary = task.new_buffer(source.dtype, source.shape)
        move(task, source, temporary)
        task.price("copy", source.shape, (source.dtype, source.dtype), node)
        source = temporary
    move(task, source, target)
    task.price("copy", target.shape, (source.dtype, target.dtype), node, use=use)


def move(task: Task, source: Buffer, target: Buffer) -> None:
    """Copy elements, without a price."""
    task.touch(source, write=False)
    task.touch(target, write=True)
    with loops(task, target.shape) as where:
        element = load(task, source, _broadcast_index(task, source.shape, where))
        store(task, convert(task, element, target.dtype), target, where)


def _broadcast_index(task: Task, shape: Sequence[int], where: Sequence[str]) -> list[str]:
    """Indices into an operand of `shape` for the element `where` of the result."""
    own = where[len(where) - len(shape) :]
    return [task.text.constant(0, index) if extent == 1 else name for extent, name in zip(shape, own, strict=True)]


def materialise(task: Task, value: TileValue, dtype: DType | None = None) -> Buffer:
    """The tile in memory; computed into a new local array unless it is one already."""
    if isinstance(value, Buffer):
        return value
    target = task.new_buffer(dtype if dtype is not None and isinstance(value, TileExpr) else value.dtype, value.shape)
    task.spreads[target.root] = spread_of(task, value)
    if isinstance(value, PendingGet):
        task.receive(value, target)
    else:
        _compute(task, value, target)
    return target


def settled(task: Task, value: Value) -> Value:
    """A tile that is still to be computed or received in memory; any other value as it is."""
    return materialise(task, value) if isinstance(value, (TileExpr, PendingGet)) else value


def _compute(task: Task, expr: TileExpr, target: Buffer) -> None:
    """Compute an operation on tiles into `target`, which has its shape."""
    work = _work_type(expr, target.dtype)
    operands = [_operand(task, o, work, expr) for o in expr.operands]
    sources = [o for o in operands if isinstance(o, Buffer)]
    code = CODE.get(expr.op, _elementwise)
    in_place = [o for o in sources if code is _elementwise and (o.ssa, o.shape) == (target.ssa, target.shape)]
    is_product = expr.op == "matmul"
    # A product is summed up in its target, if that has the type of the sum and is contiguous.
    accumulates = target.dtype == work and target.arg is None and target.ssa == target.root
    destination = target
    if any(o.root == target.root and o not in in_place for o in sources) or (is_product and not accumulates):
        destination = task.new_buffer(work if is_product else target.dtype, expr.shape)
    use = _use(task, expr.operands, target, expr.op)
    for operand in sources:
        task.touch(operand, write=False)
    task.touch(target, write=True)
    code(TileCode(task, expr, operands, work, destination))
    if destination is not target:
        move(task, destination, target)
    dtypes = [d for d in map(dtype_of, operands) if d is not None]
    shape = (expr.shape[0], shape_of(expr.operands[0])[1], expr.shape[1]) if is_product else expr.shape
    task.price(expr.op, shape, (*dtypes, target.dtype), expr.node, use=use)
    if destination is target:
        task.layouts.rearranged(expr, operands[0], target, len(task.work) - 1)


def _use(task: Task, operands: Sequence[Value], target: Buffer, op: str = "") -> TileUse:
    """Describe the operands and the target of an operation that is about to be written."""
    parts = [o for o in operands if isinstance(o, Buffer) and o.shape and o.ssa != o.root]
    results = [o for o in operands if isinstance(o, TileExpr)]
    held = [o for o in operands if isinstance(o, Buffer) and o.arg is None and o.ssa == o.root not in task.got]
    return TileUse(
        scalars=sum(not is_tile(operand) for operand in operands),
        part_bytes=sum(map(size_bytes, parts)),
        result_bytes=sum(map(size_bytes, results)) + sum(map(size_bytes, held)),
        sums=op == "add" and any(result.op == "matmul" for result in results),
        is_new=target.ssa != target.root
        or (target.arg is None and (op not in ("", "add") or not task.layouts.writes[target.root])),
        is_part=target.ssa != target.root,
        copy=task.copy,
    )


def size_bytes(tile: Buffer | TileExpr) -> int:
    return math.prod(tile.shape) * tile.dtype.bits // 8


def _work_type(expr: TileExpr, target: DType) -> DType:
    """The type that an operation is computed in."""
    natural = expr.dtype
    if natural.is_integer and target.is_integer and expr.op in RING:
        return target
    if natural.is_integer and target.is_float and expr.op in RING:
        return natural if natural.bits >= 64 + natural.is_signed else int64
    if natural.is_fixed and expr.op in RING:
        return common(natural, int64 if target.is_float else target)
    if natural.is_float and target.is_float:
        natural = common(natural, target)
    if natural.is_float and natural.bits == 16 and expr.op in _WIDE:
        return float32
    return natural


def _operand(task: Task, value: Value, work: DType, expr: TileExpr) -> Value:
    """An operand in memory, or a scalar."""
    if isinstance(value, TileExpr):
        inherits = expr.op in RING and value.op in RING and value.dtype.is_integer and work.is_integer
        return materialise(task, value, dtype=work if inherits else value.dtype)
    if isinstance(value, (Buffer, PendingGet)) and is_tile(value):
        return materialise(task, value)
    if isinstance(value, (Const, Meta, Scalar, Variable, Buffer)):
        return element(task, value, work, expr.node)
    task.fail(expr.node, f"{expr.op} needs tiles or numbers")


def unary(task: Task, op: str, x: Scalar) -> Scalar:
    """A function of one scalar."""
    zero = Number(task, task.number(0, x.dtype), x.dtype)
    if op == "neg":
        return (zero - x).scalar
    if op == "relu":
        return binary_as(task, "max", x, zero.scalar, x.dtype)
    if op == "abs":
        signed = x.dtype.is_signed or x.dtype.is_float
        return binary_as(task, "max", x, (zero - x).scalar, x.dtype) if signed else x
    return computed_in_float(task, x, _gelu) if op == "gelu" else math_unary(task, op, x)


def _gelu(task: Task, x: Scalar) -> Scalar:
    """x/2 * (1 + erf(x / sqrt 2))."""
    number, dtype = Number(task, x, x.dtype), x.dtype
    inner = Number(task, math_unary(task, "erf", (number * task.number(2.0**-0.5, dtype)).scalar), dtype)
    inner = inner + task.number(1.0, dtype)
    return (number * task.number(0.5, dtype) * inner).scalar


class TileCode(Frozen, eq=False):
    """Writes the loops of an operation on tiles.

    Attributes:
        operands: tiles in memory, and scalars.
        work: the type that it is computed in.
        target: the tile that gets the result.
    """

    task: Task
    expr: TileExpr
    operands: Sequence[Value]
    work: DType
    target: Buffer

    @property
    def tiles(self) -> list[Buffer]:
        return [operand for operand in self.operands if isinstance(operand, Buffer)]

    def loops(self, *shape: int) -> AbstractContextManager[list[str]]:
        return loops(self.task, shape)

    def number(self, value: Scalar) -> Number:
        return Number(self.task, value, self.work)

    def read(self, tile: Buffer, *where: str) -> Number:
        """An element in the type of the work."""
        return self.number(convert(self.task, load(self.task, tile, where), self.work))

    def factor(self, tile: Buffer, *where: str) -> Number:
        """An element to multiply; fixed-point numbers as they are, whose products need no wider operands."""
        return self.number(load(self.task, tile, where)) if self.work.is_fixed else self.read(tile, *where)

    def write(self, value: Scalar, where: Sequence[str]) -> None:
        """Store an element of the result, in the type of the target."""
        store(self.task, convert(self.task, value, self.target.dtype), self.target, where)


def _elementwise(code: TileCode) -> None:
    task, op = code.task, code.expr.op
    read = code.factor if op == "mul" else code.read
    with code.loops(*code.expr.shape) as where:
        scalars = [
            read(o, *_broadcast_index(task, o.shape, where)).scalar if isinstance(o, Buffer) else o
            for o in code.operands
            if isinstance(o, (Buffer, Scalar))
        ]
        if op in ELEMENTWISE:
            result = binary_as(task, ELEMENTWISE[op], scalars[0], scalars[1], code.work)
        else:
            result = unary(task, op, scalars[0])
        code.write(result, where)


def _matmul(code: TileCode) -> None:
    """Sum products of a column of A and a row of B: the innermost loop is contiguous and vectorises, and an element of
    the result is not updated again before all others are."""
    task, target = code.task, code.target
    a, b = code.tiles
    (m, k), n = a.shape, b.shape[1]
    zero = task.number(0, code.work)
    with code.loops(m, n) as where:
        store(task, zero, target, where)
    with code.loops(k, m) as (p, i):
        left = code.factor(a, i, p)
        with code.loops(n) as (j,):
            total = code.number(load(task, target, (i, j))) + left * code.factor(b, p, j)
            store(task, total.scalar, target, (i, j))


def _transpose(code: TileCode) -> None:
    (source,), order = code.tiles, code.expr.options
    with code.loops(*code.target.shape) as where:
        code.write(load(code.task, source, [where[order.index(axis)] for axis in range(len(where))]), where)


CODE: dict[str, Callable[[TileCode], None]] = {"matmul": _matmul, "transpose": _transpose}
"""Writes the code of operations that are not elementwise."""
