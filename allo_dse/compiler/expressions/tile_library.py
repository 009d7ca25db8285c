"""The library's operations on tiles beyond elementwise ones and matmul."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from typing import NoReturn

from allo_dse.common.records import Frozen, Ints
from allo_dse.lang.types import DType, float32, index, int32
from allo_dse.lang.types import bool as bool_

from ..model.mlir_text import element_type
from ..model.values import Const, Scalar, TileExpr, Value
from ..regions.task_state import Task
from .scalars import Number, convert, math_unary
from .subscripts import constant_int
from .tiles import CODE, TileCode, common_type, elementwise, is_tile, load, matmul, shape_of

EPSILON = 1e-5

# -- what the operations mean ----------------------------------------------------------------------------------------


class Call(Frozen):
    """A call of an operation of the library, with the arguments that it needs at least."""

    task: Task
    name: str
    args: list[Value]
    options: dict[str, Value]
    node: ast.AST

    def tile(self, position: int, rank: int | None = None) -> Ints:
        """The shape of an argument, which must be a tile (of a given rank)."""
        shape = shape_of(self.args[position])
        if not is_tile(self.args[position]) or (rank is not None and len(shape) != rank):
            wanted = "a tile" if rank is None else f"a tile of {rank} dimensions"
            self.fail(f"{self.name}() needs {wanted}, not shape {list(shape)}")
        return shape

    def argument(self, name: str, position: int, default: object) -> Value:
        """An argument by its name or position, if it is given."""
        given = self.args[position] if len(self.args) > position else Const(default)
        return self.options.get(name, given)

    def shape(self, position: int) -> Ints:
        """An argument that is a shape."""
        value = self.args[position]
        shape = value.value if isinstance(value, Const) else None
        shape = (shape,) if isinstance(shape, int) else shape
        if not isinstance(shape, (tuple, list)) or not all(isinstance(n, int) and n > 0 for n in shape):
            self.fail(f"{self.name}() needs a shape that is known at compile time")
        return tuple(shape)

    def fail(self, message: str) -> NoReturn:
        self.task.fail(self.node, message)

    def result(self, tiles: int, shape: Sequence[int], *options: object, floating: bool = False) -> TileExpr:
        """The operation on the first arguments."""
        operands = tuple(self.args[:tiles])
        dtype = common_type(operands)
        dtype = float32 if floating and not dtype.is_float else dtype
        return TileExpr(self.name, operands, dtype, tuple(shape), self.node, options)


def softmax(call: Call) -> Value:
    """Softmax over the last dimension."""
    return call.result(1, call.tile(0), floating=True)


def layernorm(call: Call) -> Value:
    """Normalisation over the last dimension, scaled and shifted: `layernorm(x, gamma, beta, eps=1e-5)`."""
    shape = call.tile(0)
    if any(shape_of(a) != shape[-1:] for a in call.args[1:3]):
        call.fail(f"layernorm() needs a tile, and a scale and a shift of {shape[-1]} elements")
    epsilon = call.options.get("eps", Const(EPSILON))
    if not isinstance(epsilon, Const):
        call.fail("eps must be known at compile time")
    return call.result(3, shape, float(epsilon.value), floating=True)


def bmm(call: Call) -> Value:
    """Products of a batch of matrices."""
    first, second = call.tile(0, 3), call.tile(1, 3)
    if first[0] != second[0] or first[2] != second[1]:
        call.fail(f"bmm of {list(first)} and {list(second)}: the shapes do not match")
    return call.result(2, (*first[:2], second[2]))


def linear(call: Call) -> Value:
    """`x @ weights.T + bias`; the bias may be left out."""
    x, weights, *bias = call.args
    shape = call.tile(1, 2)
    turned = TileExpr("transpose", (weights,), common_type((weights,)), shape[::-1], call.node, (1, 0))
    product = matmul(call.task, x, turned, call.node)
    return elementwise(call.task, "add", (product, bias[0]), call.node) if bias else product


def conv2d(call: Call) -> Value:
    """Convolution without padding: image [n, c, h, w], filter [f, c, kh, kw]."""
    image, window = call.tile(0, 4), call.tile(1, 4)
    if image[1] != window[1] or image[2] < window[2] or image[3] < window[3]:
        call.fail(f"conv2d of {list(image)} with filter {list(window)}: the shapes do not match")
    return call.result(2, (image[0], window[0], image[2] - window[2] + 1, image[3] - window[3] + 1))


def pool(call: Call) -> Value:
    """Maxima or sums over windows as large as the second operand; image [n, c, h, w]."""
    image, window = call.tile(0, 4), call.tile(1, 2)
    if image[2] < window[0] or image[3] < window[1]:
        call.fail(f"{call.name} of {list(image)} with window {list(window)}: the window is too large")
    return call.result(1, (*image[:2], image[2] - window[0] + 1, image[3] - window[1] + 1), *window)


def view(call: Call) -> Value:
    """The elements in another shape."""
    shape, wanted = call.tile(0), call.shape(1)
    if math.prod(shape) != math.prod(wanted):
        call.fail(f"cannot view {list(shape)} as {list(wanted)}: the numbers of elements differ")
    return call.result(1, wanted)


def concat(call: Call) -> Value:
    """Two tiles one after the other along `axis`."""
    first, second = call.tile(0), call.tile(1)
    axis = constant_int(call.task, call.argument("axis", 2, 0), call.node, "axis")
    rest = [[n for d, n in enumerate(s) if d != axis] for s in (first, second)]
    if not 0 <= axis < len(first) or rest[0] != rest[1]:
        call.fail(f"cannot concatenate {list(first)} and {list(second)} along axis {axis}")
    return call.result(2, (*first[:axis], first[axis] + second[axis], *first[axis + 1 :]), axis)


def tril(call: Call) -> Value:
    """The lower triangle of a matrix."""
    return call.result(1, call.tile(0, 2))


def filled(call: Call) -> Value:
    """A tile of zeros or ones: `zeros(shape, dtype)`."""
    shape, given = call.shape(0), call.argument("dtype", 1, float32)
    python: dict[object, DType] = {float: float32, int: int32, bool: bool_}
    dtype = python.get(given.value, given.value) if isinstance(given, Const) else None
    if not isinstance(dtype, DType):
        call.fail("the second argument must be an element type")
    return TileExpr("fill", (Const(int(call.name == "ones")),), dtype, shape, call.node)


LIBRARY: dict[str, Callable[[Call], Value]] = {
    "softmax": softmax,
    "layernorm": layernorm,
    "bmm": bmm,
    "linear": linear,
    "conv2d": conv2d,
    "maxpool": pool,
    "sumpool": pool,
    "view": view,
    "concat": concat,
    "tril": tril,
    "zeros": filled,
    "ones": filled,
}


# -- code ------------------------------------------------------------------------------------------------------------


class _Accumulator:
    """A number that loops add to."""

    def __init__(self, code: TileCode, initial: float) -> None:
        self.code, self.variable = code, code.task.variable(code.work)
        code.task.set(self.variable, code.task.number(initial, code.work))

    def get(self) -> Number:
        return self.code.number(self.code.task.get(self.variable))

    def combine(self, op: str, value: Number) -> None:
        self.code.task.set(self.variable, self.get().apply(op, value).scalar)


def _function(code: TileCode, name: str, value: Number) -> Number:
    return code.number(math_unary(code.task, name, value.scalar))


def _softmax(code: TileCode) -> None:
    (source,), (*outer, extent) = code.tiles, code.expr.shape
    with code.loops(*outer) as row:
        top, total = _Accumulator(code, -math.inf), _Accumulator(code, 0.0)
        with code.loops(extent) as (j,):
            top.combine("max", code.read(source, *row, j))
        with code.loops(extent) as (j,):
            total.combine("+", _function(code, "exp", code.read(source, *row, j) - top.get()))
        with code.loops(extent) as (j,):
            share = _function(code, "exp", code.read(source, *row, j) - top.get()) / total.get()
            code.write(share.scalar, (*row, j))


def _layernorm(code: TileCode) -> None:
    (source, gamma, beta), (*outer, extent), task = code.tiles, code.expr.shape, code.task
    count, epsilon = (task.number(number, code.work) for number in (float(extent), code.expr.options[0]))
    with code.loops(*outer) as row:
        total, squares = _Accumulator(code, 0.0), _Accumulator(code, 0.0)
        with code.loops(extent) as (j,):
            total.combine("+", code.read(source, *row, j))
        mean = total.get() / count
        with code.loops(extent) as (j,):
            difference = code.read(source, *row, j) - mean
            squares.combine("+", difference * difference)
        deviation = _function(code, "sqrt", squares.get() / count + epsilon)
        with code.loops(extent) as (j,):
            scaled = (code.read(source, *row, j) - mean) / deviation * code.read(gamma, j)
            code.write((scaled + code.read(beta, j)).scalar, (*row, j))


def _bmm(code: TileCode) -> None:
    a, b = code.tiles
    with code.loops(*code.expr.shape) as (*batch, i, j):
        total = _Accumulator(code, 0)
        with code.loops(a.shape[-1]) as (k,):
            total.combine("+", code.factor(a, *batch, i, k) * code.factor(b, *batch[: len(b.shape) - 2], k, j))
        code.write(total.get().scalar, (*batch, i, j))


def _conv2d(code: TileCode) -> None:
    image, window = code.tiles
    with code.loops(*code.expr.shape) as (n, f, y, x):
        total = _Accumulator(code, 0)
        with code.loops(*window.shape[1:]) as (c, p, q):
            left = code.factor(image, n, c, _plus(code, y, p), _plus(code, x, q))
            total.combine("+", left * code.factor(window, f, c, p, q))
        code.write(total.get().scalar, (n, f, y, x))


def _pool(code: TileCode) -> None:
    (image,), work, largest = code.tiles, code.work, code.expr.op == "maxpool"
    lowest = -math.inf if work.is_float else work.limits[0]
    with code.loops(*code.expr.shape) as (n, c, y, x):
        total = _Accumulator(code, lowest if largest else 0)
        with code.loops(*code.expr.options) as (p, q):
            value = code.read(image, n, c, _plus(code, y, p), _plus(code, x, q))
            total.combine("max" if largest else "+", value)
        code.write(total.get().scalar, (n, c, y, x))


def _plus(code: TileCode, a: str, b: str) -> str:
    return code.task.text.op(f"arith.addi {a}, {b} : index")


def _view(code: TileCode) -> None:
    (source,), task = code.tiles, code.task
    with code.loops(*code.target.shape) as where:
        linear = Number(task, Scalar(where[0], index), index)
        for name, extent in zip(where[1:], code.target.shape[1:], strict=True):
            linear = linear * task.number(extent, index) + Scalar(name, index)
        rest, position = linear.scalar.ssa, list[str]()
        for extent in reversed(source.shape):
            size = task.text.constant(extent, index)
            position.insert(0, task.text.op(f"arith.remui {rest}, {size} : index"))
            rest = task.text.op(f"arith.divui {rest}, {size} : index")
        code.write(load(task, source, position), where)


def _concat(code: TileCode) -> None:
    (axis,), begin = code.expr.options, 0
    for source in code.tiles:
        with code.loops(*source.shape) as where:
            shifted = list(where)
            shifted[axis] = _plus(code, where[axis], code.task.text.constant(begin, index))
            code.write(load(code.task, source, where), shifted)
        begin += source.shape[axis]


def _tril(code: TileCode) -> None:
    (source,), task, dtype = code.tiles, code.task, code.target.dtype
    zero = task.text.constant(0, dtype)
    with code.loops(*code.target.shape) as (i, j):
        value = convert(task, load(task, source, (i, j)), dtype)
        inside = task.text.op(f"arith.cmpi sle, {j}, {i} : index")
        code.write(task.emit(f"arith.select {inside}, {value.ssa}, {zero} : {element_type(dtype)}", dtype), (i, j))


def _fill(code: TileCode) -> None:
    (number,) = code.operands
    assert isinstance(number, Scalar)
    with code.loops(*code.target.shape) as where:
        code.write(number, where)


CODE.update(
    {
        "softmax": _softmax,
        "layernorm": _layernorm,
        "bmm": _bmm,
        "conv2d": _conv2d,
        "maxpool": _pool,
        "sumpool": _pool,
        "view": _view,
        "concat": _concat,
        "tril": _tril,
        "fill": _fill,
    }
)
