"""What an expression of a kernel can stand for while it is compiled."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from allo_dse.lang.region import Region
from allo_dse.lang.types import DType
from allo_dse.program.streams import StreamArray

from .index_forms import Form
from .pid_values import Meta


class Const(Struct, frozen=True, eq=False):
    """A compile-time value that is the same for all tasks: any Python object."""

    value: Any


class Walk(Struct, frozen=True, eq=False):
    """The values of an index that moves with a loop: `base + values[k]` in iteration k.

    Attributes:
        loop: the loop's variable; indices with the same one move together.
        base: what differs between tasks, or None for nothing.
    """

    loop: str
    values: range
    base: Meta | None = None


class Scalar(Struct, frozen=True, eq=False):
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


class Variable(Struct, frozen=True, eq=False):
    """A mutable scalar: a rank-0 memref."""

    ssa: str
    dtype: DType


class Buffer(Struct, frozen=True, eq=False):
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
    shape: tuple[int, ...]
    type: str
    root: str
    arg: int | None = None
    constant: bool = False
    is_updated: bool = False


class TileExpr(Struct, frozen=True, eq=False):
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
    shape: tuple[int, ...]
    node: ast.AST
    options: tuple[Any, ...] = ()


class StreamRef(Struct, frozen=True, eq=False):
    """A stream, or an array of streams with some indices still missing."""

    stream: StreamArray
    indices: tuple[Value, ...]
    node: ast.AST

    @property
    def is_single(self) -> bool:
        return len(self.indices) == len(self.stream.shape)


class PendingGet(Struct, frozen=True, eq=False):
    """A `get` of a block that is performed when it is known where the block goes."""

    ref: StreamRef
    node: ast.AST

    @property
    def dtype(self) -> DType:
        return self.ref.stream.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.ref.stream.block


class StreamGroup(Struct, frozen=True, eq=False):
    """Several streams of one type, in the order in which collective operations serve them.

    Attributes:
        grid: how they are arranged: the extents of the slices that named them.
    """

    streams: tuple[StreamRef, ...]
    grid: tuple[int, ...]
    node: ast.AST


class PendingGather(PendingGet, frozen=True, eq=False):
    """A `gather` that is performed when it is known where the tokens go.

    The tile has the grid of the streams before the shape of a token; the same tokens end to end along the first
    dimension of a block are accepted as well.
    """

    group: StreamGroup

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.group.grid, *self.ref.stream.block)

    @property
    def joined_shape(self) -> tuple[int, ...]:
        """The shape of the blocks end to end."""
        block = self.ref.stream.block
        return (len(self.group.streams) * block[0], *block[1:]) if block else (len(self.group.streams),)


class LocalFunction(Struct, frozen=True, eq=False):
    """A function defined inside a kernel; it sees the names of the blocks around it.

    Attributes:
        scopes: those blocks.
    """

    node: ast.FunctionDef
    scopes: tuple[Any, ...]


class Tuple(Struct, frozen=True, eq=False):
    """Several values."""

    items: tuple[Value, ...]


class Record(Struct, frozen=True, eq=False):
    """A variable of several parts, each a scalar."""

    fields: Mapping[str, Variable]


class RegionCall(Struct, frozen=True, eq=False):
    """A region that a task calls: it runs in the task's place, on tensors of the task's kernel.

    Attributes:
        arguments: positions of the kernel's parameters that are passed.
    """

    region: Region
    arguments: tuple[int, ...]
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
