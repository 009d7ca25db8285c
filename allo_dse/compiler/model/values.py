"""Values of a kernel's expressions while it is compiled."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.records import Array, Frozen, Ints
from allo_dse.lang.region import Region
from allo_dse.lang.types import DType, Int, index

from ..program.tensors import StreamArray
from .index_forms import Form
from .mlir_text import FunctionText

# A `Meta` is known at compile time but differs between tasks: a function of the process id. It holds its value for all
# tasks at once, in an array that broadcasts against the mesh. So a condition costs a few NumPy operations on one vector
# per mesh axis, for any number of tasks.


# The expression of a value: ("pid", axis), ("const", value), ("table", array) or (operator, left, right).
Tree = tuple[Any, ...]


class Meta(Frozen, eq=False):
    """A compile-time value per task.

    Attributes:
        array: the values; broadcasts against the mesh (one dimension per mesh axis).
        affine: coefficients per mesh axis and a constant, where the value is an affine function of the pid; else None.
        tree: how to compute it from the pid at run time.
    """

    array: Array
    affine: tuple[Ints, int] | None
    tree: Tree

    @property
    def is_boolean(self) -> bool:
        return self.array.dtype == np.bool_


def integer_of(value: object) -> int | None:
    """An integer that is known at compile time, and the same for all tasks; None for any other value."""
    if not isinstance(value, Const):
        return None
    return int(value.value) if isinstance(value.value, (int, np.integer)) else None


def as_meta(value: Value, rank: int) -> Value:
    """An integer that all tasks have in common as one per task; any other value as it is."""
    known = integer_of(value)
    return value if known is None else constant(known, rank)


def pid_of(mesh: Sequence[int], axis: int) -> Meta:
    """The pid along one mesh axis."""
    shape = [1] * len(mesh)
    shape[axis] = mesh[axis]
    unit = tuple(int(a == axis) for a in range(len(mesh)))
    return Meta(np.arange(mesh[axis], dtype=np.int64).reshape(shape), (unit, 0), ("pid", axis))


def constant(value: int, rank: int) -> Meta:
    """The same value for every task."""
    return Meta(np.full((1,) * rank, value), ((0,) * rank, int(value)), ("const", value))


def table(array: Array) -> Meta:
    """Arbitrary values; `array` broadcasts against the mesh."""
    return Meta(array, None, ("table", array))


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "/": operator.truediv,
    "**": operator.pow,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "min": np.minimum,
    "max": np.maximum,
}


def combine(op: str, left: Meta, right: Meta) -> Meta:
    """`left op right`, task by task.

    Raises:
        ZeroDivisionError: when a task divides by zero.
    """
    if op in ("//", "%", "/") and not right.array.all():
        raise ZeroDivisionError("division by zero")
    return Meta(BINARY[op](left.array, right.array), _affine_result(op, left, right), (op, left.tree, right.tree))


def _affine_result(op: str, left: Meta, right: Meta) -> tuple[Ints, int] | None:
    if left.affine is None or right.affine is None:
        return None
    (a, b), (c, d) = left.affine, right.affine
    if op in ("+", "-"):
        return tuple(map(BINARY[op], a, c)), BINARY[op](b, d)
    if op == "*" and not any(c):
        return tuple(x * d for x in a), b * d
    if op == "*" and not any(a):
        return tuple(x * b for x in c), b * d
    return None


def selected(array: Array, mask: NDArray[np.bool_]) -> Array:
    """The values of the tasks in `mask` (each at least once; axes on which nothing depends are not expanded)."""
    if array.shape == mask.shape:
        return array[mask]
    if all(1 in extents for extents in zip(array.shape, mask.shape, strict=True)):
        return array.reshape(-1)  # mostly: whatever the tasks have in common, each has all values along other axes
    same = tuple(axis for axis, extent in enumerate(array.shape) if extent == 1)
    if same:
        mask = np.any(mask, axis=same, keepdims=True)
    shape = np.broadcast_shapes(array.shape, mask.shape)
    return np.broadcast_to(array, shape)[np.broadcast_to(mask, shape)]


class Const(Frozen, eq=False):
    """A compile-time value that is the same for all tasks: any Python object."""

    value: Any


class Walk(Frozen, eq=False):
    """The values of an index that moves with a loop: `base + values[k]` in iteration k.

    Attributes:
        loop: the loop's variable; indices with the same one move together.
        base: what differs between tasks, or None for nothing.
    """

    loop: str
    values: range
    base: Meta | None = None


class Scalar(Frozen, eq=False):
    """A run-time scalar.

    Attributes:
        form: of an integer, its value in terms of the variables of loops, where that is known.
        walk: the values it takes one after the other, where it follows the variable of a loop.
        facts: of a condition, what is at least 0 where it holds, and where it does not.
    """

    ssa: str
    dtype: DType
    form: Form | None = None
    walk: Walk | None = None
    facts: tuple[tuple[Form, ...], tuple[Form, ...]] = ((), ())


class Variable(Frozen, eq=False):
    """A mutable scalar: a rank-0 memref."""

    ssa: str
    dtype: DType


class Buffer(Frozen, eq=False):
    """A tile in memory: a kernel argument, a local array, or a part of either.

    Attributes:
        type: the memref type as MLIR text.
        root: the array that this is a part of (its own name if it is not a part).
        arg: position of the kernel argument that it belongs to, or None.
        constant: whether it cannot be written.
        is_updated: whether this is the old value in `tile += ...`.
    """

    ssa: str
    dtype: DType
    shape: Ints
    type: str
    root: str
    arg: int | None = None
    constant: bool = False
    is_updated: bool = False


class TileExpr(Frozen, eq=False):
    """An operation on tiles that is computed when it is known where the result goes.

    Attributes:
        op: "matmul", "add", "exp", ...
        operands: `Buffer`, `TileExpr`, `Const` or `Scalar` values.
        dtype: the type of the result where nothing else is asked for.
        node: the source of the operation.
        options: what else the operation needs (an axis, an epsilon).
    """

    op: str
    operands: tuple[Any, ...]
    dtype: DType
    shape: Ints
    node: ast.AST
    options: tuple[Any, ...] = ()


class StreamRef(Frozen, eq=False):
    """A stream, or an array of streams with some indices still missing."""

    stream: StreamArray
    indices: tuple[Value, ...]
    node: ast.AST

    @property
    def is_single(self) -> bool:
        return len(self.indices) == len(self.stream.shape)


class PendingGet(Frozen, eq=False):
    """A `get` of a block that is performed when it is known where the block goes."""

    ref: StreamRef
    node: ast.AST

    @property
    def dtype(self) -> DType:
        return self.ref.stream.dtype

    @property
    def shape(self) -> Ints:
        return self.ref.stream.block


class StreamGroup(Frozen, eq=False):
    """Several streams of one type, in the order in which collective operations serve them.

    Attributes:
        grid: how they are arranged: the extents of the slices that named them.
    """

    streams: tuple[StreamRef, ...]
    grid: Ints
    node: ast.AST


class PendingGather(PendingGet):
    """A `gather` that is performed when it is known where the tokens go.

    The tile has the grid of the streams before the shape of a token; the same tokens end to end along the first
    dimension of a block are accepted as well.
    """

    group: StreamGroup

    @property
    def shape(self) -> Ints:
        return (*self.group.grid, *self.ref.stream.block)

    @property
    def joined_shape(self) -> Ints:
        """The shape of the blocks end to end."""
        block = self.ref.stream.block
        return (len(self.group.streams) * block[0], *block[1:]) if block else (len(self.group.streams),)


class LocalFunction(Frozen, eq=False):
    """A function defined inside a kernel; it sees the names of the blocks around it.

    Attributes:
        scopes: those blocks.
    """

    node: ast.FunctionDef
    scopes: tuple[Any, ...]


class Tuple(Frozen, eq=False):
    """Several values."""

    items: tuple[Value, ...]


class Record(Frozen, eq=False):
    """A variable of several parts, each a scalar."""

    fields: Mapping[str, Variable]


class RegionCall(Frozen, eq=False):
    """A region that a task calls: it runs in the task's place, on tensors of the task's kernel.

    Attributes:
        arguments: positions of the kernel's parameters that are passed.
    """

    region: Region
    arguments: Ints
    node: ast.AST


Value = (
    Const
    | Meta
    | Scalar
    | Variable
    | Buffer
    | TileExpr
    | StreamRef
    | StreamGroup
    | PendingGet
    | Tuple
    | Record
    | LocalFunction
)
TileValue = Buffer | TileExpr | PendingGet


# A function of the pid becomes index arithmetic if possible, else an entry of a table.


TableEntry = Callable[[Array, DType], str]
"""Writes the load of this task's entry of an array that broadcasts against the mesh."""

INDEX_OPERATIONS = {"+": "addi", "-": "subi", "*": "muli", "//": "floordivsi", "min": "minsi", "max": "maxsi"}
INDEX_OPERATIONS |= {"<<": "shli", ">>": "shrsi", "&": "andi", "|": "ori", "^": "xori"}
"""Names in MLIR's `arith` of operations on indices."""


def pid_index(text: FunctionText, value: Meta, entry: TableEntry) -> str:
    """The run-time value (an `index`) of a function of the pid."""
    if value.affine is not None:
        return _affine(text, *value.affine)
    return _tree(text, value.tree if _computable(value.tree) else ("table", value.array), entry)


def _computable(tree: Tree) -> bool:
    """Return whether a function of the pid can be computed by index arithmetic."""
    if tree[0] in ("pid", "const"):
        return True
    if tree[0] == "table":
        return bool(tree[1].dtype.kind in "iu")
    return tree[0] in (*INDEX_OPERATIONS, "%") and _computable(tree[1]) and _computable(tree[2])


def _affine(text: FunctionText, row: Ints, offset: int) -> str:
    if not any(row):
        return text.constant(offset, index)
    if offset == 0 and sorted(row) == [0] * (len(row) - 1) + [1]:
        return f"%pid{row.index(1)}"
    dims = ", ".join(f"d{a}" for a in range(len(row)))
    terms = [f"d{a}" if factor == 1 else f"d{a} * {factor}" for a, factor in enumerate(row) if factor]
    terms += [str(offset)] if offset else []
    pids = ", ".join(f"%pid{a}" for a in range(len(row)))
    return text.shared(f"affine.apply affine_map<({dims}) -> ({' + '.join(terms)})>({pids})")


def _tree(text: FunctionText, tree: Tree, entry: TableEntry) -> str:
    if tree[0] == "pid":
        return f"%pid{tree[1]}"
    if tree[0] == "const":
        return text.constant(int(tree[1]), index)
    if tree[0] == "table":
        loaded = entry(tree[1].astype(np.int64), Int(64))
        return text.shared(f"arith.index_cast {loaded} : i64 to index")
    op, left, right = tree[0], _tree(text, tree[1], entry), _tree(text, tree[2], entry)
    if op == "%":
        quotient = text.shared(f"arith.floordivsi {left}, {right} : index")
        product = text.shared(f"arith.muli {quotient}, {right} : index")
        return text.shared(f"arith.subi {left}, {product} : index")
    return text.shared(f"arith.{INDEX_OPERATIONS[op]} {left}, {right} : index")
