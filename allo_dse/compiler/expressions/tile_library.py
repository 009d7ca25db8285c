"""The library's operations on tiles beyond elementwise ones and matmul."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence

from allo_dse.lang.types import DType, float32, index, int32
from allo_dse.lang.types import bool as bool_

from ..model.mlir_text import element_type
from ..model.values import Buffer, Const, Scalar, TileExpr, Value
from ..regions.task_state import Task
from .scalars import binary_as, common, convert, math_unary
from .subscripts import constant_int
from .tiles import CODE, dtype_of, elementwise, factor, is_tile, load, loops, matmul, shape_of, store

Options = dict[str, Value]
EPSILON = 1e-5


def _expect(task: Task, value: Value, rank: int | None, name: str, node: ast.AST) -> tuple[int, ...]:
    """The shape of an operand, which must be a tile (of a given rank)."""
    if not is_tile(value) or (rank is not None and len(shape_of(value)) != rank):
        wanted = "a tile" if rank is None else f"a tile of {rank} dimensions"
        task.fail(node, f"{name}() needs {wanted}, not shape {list(shape_of(value))}")
    return shape_of(value)


def _type(*values: Value) -> DType:
    result = float32
    for position, value in enumerate(values):
        dtype = dtype_of(value) or float32
        result = dtype if position == 0 else common(result, dtype)
    return result


def _floating(dtype: DType) -> DType:
    return dtype if dtype.is_float else float32


# -- what the operations mean ----------------------------------------------------------------------------------------


def softmax(task: Task, args: list[Value], options: Options, node: ast.AST) -> Value:
    """Softmax over the last dimension."""
    shape = _expect(task, args[0], None, "softmax", node)
    return TileExpr("softmax", (args[0],), _floating(_type(args[0])), shape, node)


def layernorm(task: Task, args: list[Value], options: Options, node: ast.AST) -> Value:
    """Normalisation over the last dimension, scaled and shifted: `layernorm(x, gamma, beta, eps=1e-5)`."""
    shape = _expect(task, args[0], None, "layernorm", node)
    if len(args) < 3 or any(shape_of(a) != shape[-1:] for a in args[1:3]):
        task.fail(node, f"layernorm() needs a tile, and a scale and a shift of {shape[-1]} elements")
    epsilon = options.get("eps", Const(EPSILON))
    if not isinstance(epsilon, Const):
        task.fail(node, "eps must be known at compile time")
    dtype = _floating(_type(*args[:3]))
    return TileExpr("layernorm", tuple(args[:3]), dtype, shape, node, (float(epsilon.value),))


def bmm(task: Task, args: list[Value], options: Options, node: ast.AST) -> Value:
    """Products of a batch of matrices."""
    first, second = (_expect(task, a, 3, "bmm", node) for a in args[:2])
    if first[0] != second[0] or first[2] != second[1]:
        task.fail(node, f"bmm of {list(first)} and {list(second)}: the shapes do not match")
    return TileExpr("bmm", tuple(args[:2]), _type(*args[:2]), (first[0], first[1], second[2]), node)


def linear(task: Task, args: list[Value], options: Options, node: ast.AST) -> Value:
    """`x @ weights.T + bias`; the bias may be left out."""
    shape = _expect(task, args[1] if len(args) > 1 else Const(None), 2, "linear", node)
    turned = TileExpr("transpose", (args[1],), _type(args[1]), (shape[1], shape[0]), node, (1, 0))
    product = matmul(task, args[0], turned, node)
    return elementwise(task, "add", (product, args[2]), node) if len(args) > 2 else product


def conv2d(task: Task, args: list[Value], options: Options, node: ast.AST) -> Value:
    """Convolution without padding: image [n, c, h, w], filter [f, c, kh, kw]."""
    image, window = (_expect(task, a, 4, "conv2d", node) for a in args[:2])
    if image[1] != window[1] or image[2] < window[2] or image[3] < window[3]:
        task.fail(node, f"conv2d of {list(image)} with filter {list(window)}: the shapes do not match")
    shape = (image[0], window[0], image[2] - window[2] + 1, image[3] - window[3] + 1)
    return TileExpr("conv2d", tuple(args[:2]), _type(*args[:2]), shape, node)


def pool(kind: str) -> Callable[[Task, list[Value], Options, ast.AST], Value]:
    """Maxima or sums over windows as large as the second operand; image [n, c, h, w]."""

    def lower(task: Task, args: list[Value], options: Options, node: ast.AST) -> Value:
        image = _expect(task, args[0], 4, kind, node)
        window = _expect(task, args[1] if len(args) > 1 else Const(None), 2, kind, node)
        if image[2] < window[0] or image[3] < window[1]:
            task.fail(node, f"{kind} of {list(image)} with window {list(window)}: the window is too large")
        shape = (*image[:2], image[2] - window[0] + 1, image[3] - window[1] + 1)
        return TileExpr(kind, (args[0],), _type(args[0]), shape, node, window)

    return lower


def view(task: Task, args: list[Value], options: Options, node: ast.AST) -> Value:
    """The elements in another shape."""
    shape = _expect(task, args[0], None, "view", node)
    wanted = _shape(task, args[1] if len(args) > 1 else Const(None), "view", node)
    if math.prod(shape) != math.prod(wanted):
        task.fail(node, f"cannot view {list(shape)} as {list(wanted)}: the numbers of elements differ")
    return TileExpr("view", (args[0],), _type(args[0]), wanted, node)


def concat(task: Task, args: list[Value], options: Options, node: ast.AST) -> Value:
    """Two tiles one after the other along `axis`."""
    first, second = (_expect(task, a, None, "concat", node) for a in args[:2])
    axis = constant_int(task, options.get("axis", args[2] if len(args) > 2 else Const(0)), node, "axis")
    rest = [[n for d, n in enumerate(s) if d != axis] for s in (first, second)]
    if not 0 <= axis < len(first) or rest[0] != rest[1]:
        task.fail(node, f"cannot concatenate {list(first)} and {list(second)} along axis {axis}")
    shape = tuple(n + (second[d] if d == axis else 0) for d, n in enumerate(first))
    return TileExpr("concat", tuple(args[:2]), _type(*args[:2]), shape, node, (axis,))


def tril(task: Task, args: list[Value], options: Options, node: ast.AST) -> Value:
    """The lower triangle of a matrix."""
    shape = _expect(task, args[0], 2, "tril", node)
    return TileExpr("tril", (args[0],), _type(args[0]), shape, node)


def filled(number: int) -> Callable[[Task, list[Value], Options, ast.AST], Value]:
    """A tile of zeros or ones: `zeros(shape, dtype)`."""

    def lower(task: Task, args: list[Value], options: Options, node: ast.AST) -> Value:
        shape = _shape(task, args[0] if args else Const(None), "zeros", node)
        given = options.get("dtype", args[1] if len(args) > 1 else Const(float32))
        python: dict[object, DType] = {float: float32, int: int32, bool: bool_}
        dtype = python.get(given.value, given.value) if isinstance(given, Const) else None
        if not isinstance(dtype, DType):
            task.fail(node, "the second argument must be an element type")
        return TileExpr("fill", (Const(number),), dtype, shape, node)

    return lower


def _shape(task: Task, value: Value, name: str, node: ast.AST) -> tuple[int, ...]:
    shape = value.value if isinstance(value, Const) else None
    shape = (shape,) if isinstance(shape, int) else shape
    if not isinstance(shape, (tuple, list)) or not all(isinstance(n, int) and n > 0 for n in shape):
        task.fail(node, f"{name}() needs a shape that is known at compile time")
    return tuple(shape)


LIBRARY: dict[str, Callable[[Task, list[Value], Options, ast.AST], Value]] = {
    "softmax": softmax,
    "layernorm": layernorm,
    "bmm": bmm,
    "linear": linear,
    "conv2d": conv2d,
    "maxpool": pool("maxpool"),
    "sumpool": pool("sumpool"),
    "view": view,
    "concat": concat,
    "tril": tril,
    "zeros": filled(0),
    "ones": filled(1),
}


# -- code ------------------------------------------------------------------------------------------------------------


class _Accumulator:
    """A scalar that loops add to."""

    def __init__(self, task: Task, dtype: DType, initial: float) -> None:
        self.task, self.dtype = task, dtype
        self.type = f"memref<{element_type(dtype)}>"
        self.slot = task.text.slot(self.type)
        task.text.line(f"memref.store {task.text.constant(initial, dtype)}, {self.slot}[] : {self.type}")

    def get(self) -> Scalar:
        return Scalar(self.task.text.op(f"memref.load {self.slot}[] : {self.type}"), self.dtype)

    def combine(self, op: str, value: Scalar) -> None:
        result = binary_as(self.task, op, self.get(), value, self.dtype)
        self.task.text.line(f"memref.store {result.ssa}, {self.slot}[] : {self.type}")


def _tiles(operands: Sequence[Value]) -> list[Buffer]:
    return [o for o in operands if isinstance(o, Buffer)]


def _softmax_code(task: Task, expr: TileExpr, operands: Sequence[Value], work: DType, target: Buffer) -> None:
    (source,) = _tiles(operands)
    with loops(task, expr.shape[:-1]) as row:
        top, total = _Accumulator(task, work, -math.inf), _Accumulator(task, work, 0.0)
        with loops(task, expr.shape[-1:]) as (j,):
            top.combine("max", convert(task, load(task, source, (*row, j)), work))
        with loops(task, expr.shape[-1:]) as (j,):
            shifted = binary_as(task, "-", convert(task, load(task, source, (*row, j)), work), top.get(), work)
            total.combine("+", math_unary(task, "exp", shifted))
        with loops(task, expr.shape[-1:]) as (j,):
            shifted = binary_as(task, "-", convert(task, load(task, source, (*row, j)), work), top.get(), work)
            share = binary_as(task, "/", math_unary(task, "exp", shifted), total.get(), work)
            store(task, convert(task, share, target.dtype), target, (*row, j))


def _layernorm_code(task: Task, expr: TileExpr, operands: Sequence[Value], work: DType, target: Buffer) -> None:
    source, gamma, beta = _tiles(operands)
    count = Scalar(task.text.constant(float(expr.shape[-1]), work), work)
    epsilon = Scalar(task.text.constant(expr.options[0], work), work)
    with loops(task, expr.shape[:-1]) as row:
        total, squares = _Accumulator(task, work, 0.0), _Accumulator(task, work, 0.0)
        with loops(task, expr.shape[-1:]) as (j,):
            total.combine("+", convert(task, load(task, source, (*row, j)), work))
        mean = binary_as(task, "/", total.get(), count, work)
        with loops(task, expr.shape[-1:]) as (j,):
            difference = binary_as(task, "-", convert(task, load(task, source, (*row, j)), work), mean, work)
            squares.combine("+", binary_as(task, "*", difference, difference, work))
        variance = binary_as(task, "/", squares.get(), count, work)
        deviation = math_unary(task, "sqrt", binary_as(task, "+", variance, epsilon, work))
        with loops(task, expr.shape[-1:]) as (j,):
            difference = binary_as(task, "-", convert(task, load(task, source, (*row, j)), work), mean, work)
            scaled = binary_as(task, "/", difference, deviation, work)
            scaled = binary_as(task, "*", scaled, convert(task, load(task, gamma, (j,)), work), work)
            shifted = binary_as(task, "+", scaled, convert(task, load(task, beta, (j,)), work), work)
            store(task, convert(task, shifted, target.dtype), target, (*row, j))


def _bmm_code(task: Task, expr: TileExpr, operands: Sequence[Value], work: DType, target: Buffer) -> None:
    a, b = _tiles(operands)
    with loops(task, expr.shape) as (*batch, i, j):
        total = _Accumulator(task, work, 0)
        with loops(task, a.shape[-1:]) as (k,):
            left = factor(task, a, (*batch, i, k), work)
            right = factor(task, b, (*batch[: len(b.shape) - 2], k, j), work)
            total.combine("+", binary_as(task, "*", left, right, work))
        store(task, convert(task, total.get(), target.dtype), target, (*batch, i, j))


def _conv2d_code(task: Task, expr: TileExpr, operands: Sequence[Value], work: DType, target: Buffer) -> None:
    image, window = _tiles(operands)
    with loops(task, expr.shape) as (n, f, y, x):
        total = _Accumulator(task, work, 0)
        with loops(task, window.shape[1:]) as (c, p, q):
            left = factor(task, image, (n, c, _plus(task, y, p), _plus(task, x, q)), work)
            right = factor(task, window, (f, c, p, q), work)
            total.combine("+", binary_as(task, "*", left, right, work))
        store(task, convert(task, total.get(), target.dtype), target, (n, f, y, x))


def _pool_code(task: Task, expr: TileExpr, operands: Sequence[Value], work: DType, target: Buffer) -> None:
    (image,) = _tiles(operands)
    with loops(task, expr.shape) as (n, c, y, x):
        largest = expr.op == "maxpool"
        total = _Accumulator(task, work, _lowest(work) if largest else 0)
        with loops(task, expr.options) as (p, q):
            value = convert(task, load(task, image, (n, c, _plus(task, y, p), _plus(task, x, q))), work)
            total.combine("max" if largest else "+", value)
        store(task, convert(task, total.get(), target.dtype), target, (n, c, y, x))


def _lowest(dtype: DType) -> float:
    if dtype.is_float:
        return -math.inf
    return -(1 << (dtype.bits - 1)) if dtype.is_signed else 0


def _plus(task: Task, a: str, b: str) -> str:
    return task.text.op(f"arith.addi {a}, {b} : index")


def _view_code(task: Task, expr: TileExpr, operands: Sequence[Value], work: DType, target: Buffer) -> None:
    (source,) = _tiles(operands)
    with loops(task, target.shape) as where:
        linear = Scalar(where[0], index)
        for name, extent in zip(where[1:], target.shape[1:], strict=True):
            scaled = binary_as(task, "*", linear, Scalar(task.text.constant(extent, index), index), index)
            linear = binary_as(task, "+", scaled, Scalar(name, index), index)
        position: list[str] = []
        for extent in reversed(source.shape):
            size = task.text.constant(extent, index)
            position.insert(0, task.text.op(f"arith.remui {linear.ssa}, {size} : index"))
            linear = Scalar(task.text.op(f"arith.divui {linear.ssa}, {size} : index"), index)
        store(task, convert(task, load(task, source, position), target.dtype), target, where)


def _concat_code(task: Task, expr: TileExpr, operands: Sequence[Value], work: DType, target: Buffer) -> None:
    (axis,), begin = expr.options, 0
    for source in _tiles(operands):
        with loops(task, source.shape) as where:
            shifted = list(where)
            shifted[axis] = _plus(task, where[axis], task.text.constant(begin, index))
            store(task, convert(task, load(task, source, where), target.dtype), target, shifted)
        begin += source.shape[axis]


def _tril_code(task: Task, expr: TileExpr, operands: Sequence[Value], work: DType, target: Buffer) -> None:
    (source,) = _tiles(operands)
    zero = task.text.constant(0, target.dtype)
    type_ = element_type(target.dtype)
    with loops(task, target.shape) as (i, j):
        value = convert(task, load(task, source, (i, j)), target.dtype)
        inside = task.text.op(f"arith.cmpi sle, {j}, {i} : index")
        store(
            task,
            Scalar(task.text.op(f"arith.select {inside}, {value.ssa}, {zero} : {type_}"), target.dtype),
            target,
            (i, j),
        )


def _fill_code(task: Task, expr: TileExpr, operands: Sequence[Value], work: DType, target: Buffer) -> None:
    (number,) = operands
    assert isinstance(number, Scalar)
    with loops(task, target.shape) as where:
        store(task, convert(task, number, target.dtype), target, where)


CODE.update(
    {
        "softmax": _softmax_code,
        "layernorm": _layernorm_code,
        "bmm": _bmm_code,
        "conv2d": _conv2d_code,
        "maxpool": _pool_code,
        "sumpool": _pool_code,
        "view": _view_code,
        "concat": _concat_code,
        "tril": _tril_code,
        "fill": _fill_code,
    }
)
