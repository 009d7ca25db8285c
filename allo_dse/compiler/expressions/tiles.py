"""Operations on whole tiles: shapes and types are known when they are written, code comes when the target is known.

Integer sums and products are computed modulo the width of their target, so that what a program stores equals what
NumPy computes in the target's type, however wide intermediate results would be.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct

from allo_dse.lang.types import DType, float32, index, int64

from ..model.values import Buffer, Const, Meta, PendingGather, PendingGet, Scalar, TileExpr, TileValue, Value, Variable
from ..program.compiled import TileUse
from ..regions.task_state import Task
from .scalars import (
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


class Spread(Struct, frozen=True):
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
        return _of_buffer(task, value)
    if isinstance(value, TileExpr):
        return _of_expression(task, value)
    return Spread(())


def _of_buffer(task: Task, buffer: Buffer) -> Spread:
    known = task.spreads.get(buffer.root)
    if known is None and buffer.arg is not None:
        known = Spread(task.parameter(buffer.arg).layout)
    if known is None:
        return Spread((None,) * len(buffer.shape))
    axes = known.axes if len(known.axes) == len(buffer.shape) else (None,) * len(buffer.shape)
    return Spread(axes, known.pending, known.complete)


def _of_expression(task: Task, expr: TileExpr) -> Spread:
    operands = [spread_of(task, operand) for operand in expr.operands]
    pending = frozenset[int]().union(*(o.pending for o in operands))
    if pending and expr.op not in LINEAR | PRODUCTS:
        _nonlinear(task, expr, pending)
    if sum(bool(o.pending) for o in operands) > 1 and expr.op in PRODUCTS | {"mul"}:
        _nonlinear(task, expr, pending)
    if expr.op == "div" and operands[1].pending:
        _nonlinear(task, expr, operands[1].pending)
    if expr.op in PRODUCTS:
        return _of_product(task, expr, operands, pending)
    complete = any(o.complete for o in operands)
    axes: Axes = (None,) * len(expr.shape)
    if expr.op == "transpose":
        axes = tuple(operands[0].axes[a] for a in expr.options)
    elif all(len(o.axes) in (0, len(expr.shape)) for o in operands):
        axes = _joined(task, expr, [o.axes for o in operands if o.axes])
    adds = expr.op in ("add", "sub") and (complete or any(_is_argument(o) for o in expr.operands))
    return Spread(axes, frozenset() if adds else pending, complete)


def _is_argument(operand: Value) -> bool:
    return isinstance(operand, Buffer) and operand.arg is not None and operand.is_updated


def _of_product(task: Task, expr: TileExpr, operands: Sequence[Spread], pending: frozenset[int]) -> Spread:
    axes: Axes = (None,) * len(expr.shape)
    if expr.op in ("matmul", "bmm"):
        left, right = operands[0].axes, operands[1].axes
        inner = left[-1] if left[-1] == right[-2] else None
        if inner is not None and task.kernel.mesh[inner] > 1:
            pending |= {inner}
        axes = (*left[:-1], right[-1])
    return Spread(axes, pending, any(o.complete for o in operands))


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
        layout = task.parameter(target.arg).layout
        missing = spread.pending - {axis for axis in layout if axis is not None}
        if missing:
            name = task.parameter(target.arg).name
            task.fail(
                node,
                f"`{name}` gets a partial sum: {_parts(task, frozenset(missing))}",
                f"pass the parts from task to task through a stream and add them, or accumulate: {name}[...] += ...",
            )
        return
    whole = target.ssa == target.root and not task.guards
    known = task.spreads.get(target.root)
    if whole or known is None:
        task.spreads[target.root] = spread
    else:
        task.spreads[target.root] = Spread(
            known.axes, known.pending | spread.pending, known.complete or spread.complete
        )


def note_elements(task: Task, target: Buffer) -> None:
    """Note that a tile is written element by element: its distribution is unknown from then on."""
    rank = len(target.shape)
    task.spreads[target.root] = Spread((None,) * rank, complete=True)


RING = frozenset({"add", "sub", "mul", "matmul", "bmm", "conv2d", "sumpool", "neg", "fill"})
ELEMENTWISE = {"add": "+", "sub": "-", "mul": "*", "div": "/", "max": "max", "min": "min", "power": "**", "mod": "%"}
_WIDE = frozenset({"matmul", "bmm", "conv2d", "sumpool", "softmax", "layernorm", "gelu"})  # computed in float32
UNARY = ("exp", "log", "log2", "log10", "sqrt", "sin", "cos", "tan", "tanh", "abs", "relu", "gelu", "neg")


def is_tile(value: Value) -> bool:
    return isinstance(value, (TileExpr, PendingGet)) or (isinstance(value, Buffer) and value.shape != ())


def shape_of(value: Value) -> tuple[int, ...]:
    return value.shape if isinstance(value, (Buffer, TileExpr, PendingGet)) else ()


def dtype_of(value: Value) -> DType | None:
    """The element type of an operand; None for a Python number, which adapts."""
    if isinstance(value, (Buffer, TileExpr, PendingGet, Scalar, Variable)):
        return value.dtype
    return None


def broadcast(task: Task, shapes: Sequence[tuple[int, ...]], node: ast.AST) -> tuple[int, ...]:
    """The shape that all of `shapes` broadcast to, as in NumPy."""
    result: list[int] = []
    for position in range(max(map(len, shapes))):
        extents = {shape[-1 - position] for shape in shapes if position < len(shape)} - {1}
        if len(extents) > 1:
            task.fail(node, f"shapes do not match: {' and '.join(_text(s) for s in shapes)}")
        result.append(extents.pop() if extents else 1)
    return tuple(reversed(result))


def _text(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _natural(operands: Sequence[Value]) -> DType:
    """The common type of some operands."""
    result: DType | None = None
    for operand in operands:
        dtype = dtype_of(operand)
        if dtype is not None:
            result = dtype if result is None else common(result, dtype)
    if result is None:
        consts = [const_type(o.value) for o in operands if isinstance(o, Const)]
        return consts[0] if consts else float32
    floats = [o for o in operands if isinstance(o, Const) and isinstance(o.value, float)]
    return common(result, float32) if floats and not result.is_float else result


def _grown(op: str, operands: Sequence[Value]) -> DType:
    """The type of `left op right`, whose integers and fixed-point numbers grow as those of scalars do."""
    natural = _natural(operands)
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
    natural = _natural(operands)
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
        task.fail(node, f"matmul needs two matrices, not shapes {_text(left)} and {_text(right)}")
    if left[-1] != right[-2]:
        task.fail(node, f"matmul of {_text(left)} and {_text(right)}: {left[-1]} columns against {right[-2]} rows")
    op = "matmul" if len(left) == 2 else "bmm"
    return TileExpr(op, (a, b), _natural((a, b)), (*left[:-1], right[-1]), node)


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
    return Scalar(task.text.op(f"memref.load {buffer.ssa}[{', '.join(where)}] : {buffer.type}"), buffer.dtype)


def factor(task: Task, buffer: Buffer, where: Sequence[str], work: DType) -> Scalar:
    """An element to multiply in type `work`; fixed-point numbers as they are, whose products need no wider operands."""
    value = load(task, buffer, where)
    return value if work.is_fixed else convert(task, value, work)


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
        return Scalar(task.text.constant(number, dtype), dtype)
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
        task.fail(node, f"shapes do not match: {_text(target.shape)} = {_text(shape)}")
    if isinstance(value, PendingGet):
        if shape == target.shape and value.dtype == target.dtype:
            task.receive(task, value, target)
            return
        value = materialise(task, value)
    if isinstance(value, TileExpr):
        if value.dtype != target.dtype and _is_cast(value, target.dtype):
            task.notice("tile of another type", node)
        if shape == target.shape:
            _compute(task, value, target)
            return
        value = materialise(task, value, dtype=target.dtype)
    assert isinstance(value, Buffer)
    if value.dtype != target.dtype:
        task.notice("tile of another type", node)
    copy(task, value, target, node)


def _is_cast(value: TileExpr, dtype: DType) -> bool:
    """Return whether the target has floats, or the value is an elementwise operation that gives floats."""
    return dtype.is_float or (value.dtype.is_float and (value.op in ELEMENTWISE or value.op in UNARY))


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
        task.receive(task, value, target)
    else:
        _compute(task, value, target)
    return target


def _compute(task: Task, expr: TileExpr, target: Buffer) -> None:
    """Compute an operation on tiles into `target`, which has its shape."""
    work = _work_type(expr, target.dtype)
    operands = [_operand(task, o, work, expr) for o in expr.operands]
    in_place = expr.op not in CODE
    roots = [o.root for o in operands if isinstance(o, Buffer) and not (in_place and _same_tile(o, target))]
    destination = target
    if target.root in roots or (expr.op == "matmul" and not _accumulates_in(target, work)):
        destination = task.new_buffer(work if expr.op == "matmul" else target.dtype, expr.shape)
    use = _use(task, expr.operands, target, expr.op)
    for operand in operands:
        if isinstance(operand, Buffer):
            task.touch(operand, write=False)
    task.touch(target, write=True)
    code = CODE.get(expr.op, _elementwise_code)
    code(task, expr, operands, work, destination)
    if destination is not target:
        move(task, destination, target)
    dtypes = [d for d in map(dtype_of, operands) if d is not None]
    shape = expr.shape
    if expr.op == "matmul":
        shape = (expr.shape[0], shape_of(expr.operands[0])[1], expr.shape[1])
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


def _accumulates_in(target: Buffer, work: DType) -> bool:
    """Return whether the target can accumulate a product itself: its type fits and it is contiguous."""
    return target.dtype == work and target.arg is None and target.ssa == target.root


def _same_tile(operand: Buffer, target: Buffer) -> bool:
    return operand.ssa == target.ssa and operand.shape == target.shape


def _operand(task: Task, value: Value, work: DType, expr: TileExpr) -> Value:
    """An operand in memory, or a scalar."""
    if isinstance(value, TileExpr):
        inherits = expr.op in RING and value.op in RING and value.dtype.is_integer and work.is_integer
        return materialise(task, value, dtype=work if inherits else value.dtype)
    if isinstance(value, PendingGet):
        return materialise(task, value)
    if isinstance(value, Buffer) and value.shape != ():
        return value
    if isinstance(value, (Const, Meta, Scalar, Variable, Buffer)):
        return element(task, value, work, expr.node)
    task.fail(expr.node, f"{expr.op} needs tiles or numbers")


def _elementwise_code(task: Task, expr: TileExpr, operands: Sequence[Value], work: DType, target: Buffer) -> None:
    with loops(task, expr.shape) as where:
        scalars = [_operand_element(task, o, work, where, factors=expr.op == "mul") for o in operands]
        if expr.op in ELEMENTWISE:
            result = binary_as(task, ELEMENTWISE[expr.op], scalars[0], scalars[1], work)
        else:
            result = unary(task, expr.op, scalars[0])
        store(task, convert(task, result, target.dtype), target, where)


def _operand_element(task: Task, operand: Value, work: DType, where: Sequence[str], *, factors: bool) -> Scalar:
    if isinstance(operand, Buffer):
        value = factor(task, operand, _broadcast_index(task, operand.shape, where), work)
        return value if factors else convert(task, value, work)
    assert isinstance(operand, Scalar)
    return operand


def unary(task: Task, op: str, x: Scalar) -> Scalar:
    """A function of one scalar."""
    dtype = x.dtype
    zero = Scalar(task.text.constant(0, dtype), dtype)
    if op == "neg":
        return binary_as(task, "-", zero, x, dtype)
    if op == "relu":
        return binary_as(task, "max", x, zero, dtype)
    if op == "abs" and (dtype.is_signed or dtype.is_float):
        return binary_as(task, "max", x, binary_as(task, "-", zero, x, dtype), dtype)
    if op == "abs":
        return x
    if op == "gelu":
        return computed_in_float(task, x, _gelu)
    return math_unary(task, op, x)


def _gelu(task: Task, x: Scalar) -> Scalar:
    """x/2 * (1 + erf(x / sqrt 2))."""
    dtype = x.dtype

    def const(value: float) -> Scalar:
        return Scalar(task.text.constant(value, dtype), dtype)

    scaled = binary_as(task, "*", x, const(2.0**-0.5), dtype)
    inner = binary_as(task, "+", math_unary(task, "erf", scaled), const(1.0), dtype)
    return binary_as(task, "*", binary_as(task, "*", x, const(0.5), dtype), inner, dtype)


def _matmul_code(task: Task, expr: TileExpr, operands: Sequence[Value], work: DType, target: Buffer) -> None:
    """Row by row: each element of A scales a row of B, so that the innermost loop is contiguous and vectorises."""
    a, b = operands
    assert isinstance(a, Buffer)
    assert isinstance(b, Buffer)
    (m, k), n = a.shape, b.shape[1]
    zero = Scalar(task.text.constant(0, work), work)
    with loops(task, (m,)) as (i,):
        with loops(task, (n,)) as (j,):
            store(task, zero, target, (i, j))
        with loops(task, (k,)) as (p,):
            left = factor(task, a, (i, p), work)
            with loops(task, (n,)) as (j,):
                right = factor(task, b, (p, j), work)
                product = binary_as(task, "*", left, right, work)
                total = binary_as(task, "+", load(task, target, (i, j)), product, work)
                store(task, total, target, (i, j))


def _transpose_code(task: Task, expr: TileExpr, operands: Sequence[Value], work: DType, target: Buffer) -> None:
    (source,) = operands
    assert isinstance(source, Buffer)
    with loops(task, target.shape) as where:
        position = [where[expr.options.index(dimension)] for dimension in range(len(where))]
        store(task, convert(task, load(task, source, position), target.dtype), target, where)


CODE: dict[str, Callable[[Task, TileExpr, Sequence[Value], DType, Buffer], None]] = {
    "matmul": _matmul_code,
    "transpose": _transpose_code,
}
