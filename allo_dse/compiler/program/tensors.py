"""Tensors in host memory, and how the tasks of a class use them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.records import Array, Frozen, Ints

if TYPE_CHECKING:
    from allo_dse.lang.types import DType


class SourceLocation(Frozen):
    """A place in the user's source: 1-based line and column."""

    file: str
    line: int
    column: int

    @property
    def file_name(self) -> str:
        """The name of the file as comments of generated code may hold it: nothing in it ends them or goes on."""
        return re.sub(r"[^\w.+ -]", "_", Path(self.file).name)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class SourceLoop(Frozen):
    """A loop of the source that runs in the task.

    Attributes:
        name: its variable; empty for `while`.
        grid: the name given to the `allo.grid` it belongs to, if any.
        function: the function that contains it: the kernel, or a helper compiled in place.
        call: the number of the call of that function, among all that the task makes; 0 for the kernel itself.
        band: the nest of that function it belongs to, where a schedule was made.
        opens: whether it is the outermost loop of that nest.
        hints: the program's options for hardware: "pipeline" with an interval, "unroll" with a factor (0: all).
    """

    name: str
    grid: str
    location: SourceLocation
    function: str = ""
    call: int = 0
    band: str = ""
    opens: bool = False
    hints: tuple[tuple[str, int], ...] = ()

    @property
    def label(self) -> str:
        """The name that tells it from other loops in schedules: `function:band.name`."""
        return f"{self.function}:{self.band}.{self.name}"

    def is_called(self, name: str) -> bool:
        """Return whether a directive's name refers to this loop."""
        return name in (self.name, self.grid, self.label)


class SourceArray(Frozen):
    """The name of an array, or of a variable that changes, in a function of the source.

    Attributes:
        function, call: as of a loop.
        argument: its position among the body's parameters, or None for the body's own memory.
        allocation: the position among the body's allocations of its own memory.
        memory: kind and type of memory ("bram", "ram_2p") if the program names it.
    """

    function: str
    call: int
    name: str
    argument: int | None
    allocation: int = -1
    memory: tuple[str, str] | None = None


class Construct(Frozen):
    """An operation of a task that not every target builds, at its place in the source.

    Attributes:
        kind: "stream index" (computed while the task runs), "call" (of a function of the user's), "choice" (`a if c
            else b`), the name of a function or of an operator, or what it is in words; `backends.npu.allo` says which
            there are, and what to write instead.
        text: it, as written.
    """

    kind: str
    text: str
    location: SourceLocation


IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class IndexMap:
    """A task's element of a grid, as a function of the task's pid.

    Either affine, `index = matrix @ pid + offset` per grid dimension (`table is None`), or a table over the whole mesh
    that gives the linear index (for expressions that are not affine).

    Attributes:
        grid: the shape of the indexed object (a stream array, a tensor's tile grid).
        matrix: one row per grid dimension, one column per mesh axis.
        offset: one entry per grid dimension.
    """

    grid: Ints
    matrix: tuple[Ints, ...] = ()
    offset: Ints = ()
    table: IntArray | None = field(default=None, compare=False)

    @property
    def is_affine(self) -> bool:
        return self.table is None

    def linear(self, pids: IntArray) -> IntArray:
        """Row-major linear index for each pid; `pids` has shape (n, mesh rank), the result shape (n,)."""
        if self.table is not None:
            found: IntArray = self.table[tuple(pids.T)]
            return found
        factors, first = self._row_major
        if factors is None:
            return np.full(len(pids), first, np.int64)
        moved: IntArray = pids.dot(factors)
        return moved + first if first else moved

    @cached_property
    def _row_major(self) -> tuple[IntArray | None, int]:
        """The linear index as an affine function: per mesh axis its factor, None if all are zero, and the constant."""
        factors, first = np.zeros(max(map(len, self.matrix), default=0), np.int64), 0
        for row, offset, extent in zip(self.matrix, self.offset, self.grid, strict=True):
            factors, first = factors * extent + row, first * extent + offset
        return (factors if factors.any() else None), first

    def depends_on(self, axis: int) -> bool:
        """Return whether the index changes with the pid along a mesh axis."""
        if self.table is not None:
            return bool((self.table != np.take(self.table, [0], axis=axis)).any())
        return any(row[axis] for row in self.matrix)


class IndexCheck(Frozen):
    """An index whose range is not known at compile time: `df.check` attributes of a body carry its position in
    `TaskClass.index_checks`.

    Attributes:
        text: the index in the source.
        of: the indexed dimension: "dimension 0 of size 16".
    """

    text: str
    of: str
    location: SourceLocation


Grid = tuple[int, ...]
"""Number of tiles, or pieces, along each dimension of a tensor."""


class Tensor(Frozen):
    """An argument of the region: a tensor in host memory (DRAM), or a scalar when `shape` is empty."""

    name: str
    dtype: DType
    shape: Ints

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.bits // 8

    @property
    def strides(self) -> Ints:
        """Elements from one index to the next along each dimension: tensors lie row by row."""
        return tuple(math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))


class TensorPort(Frozen):
    """A tensor argument as one task class uses it.

    Attributes:
        arg: position in the kernel's `args`.
        layout: per tensor dimension the mesh axis it is sharded on, or None where it is replicated.
        tile_shape: the local shape a task sees.
        tile: which tile of the tensor a task holds (grid = number of tiles per dimension).
        reads, writes: the accesses of the class. A port that is neither is not used by the class.
    """

    arg: int
    tensor: Tensor
    layout: tuple[int | None, ...]
    tile_shape: Ints
    tile: IndexMap
    reads: bool
    writes: bool

    @property
    def tile_bytes(self) -> int:
        return max(1, math.prod(self.tile_shape) * self.tensor.dtype.bits // 8)

    @property
    def run_bytes(self) -> int:
        """Bytes that lie contiguously in DRAM within one tile (row-major tensors)."""
        run = 1
        for tile, full in zip(reversed(self.tile_shape), reversed(self.tensor.shape), strict=True):
            run *= tile
            if tile != full:
                break
        return max(1, run * self.tensor.dtype.bits // 8)

    @property
    def directions(self) -> tuple[Literal["in", "out"], ...]:
        """The directions in which it moves tiles."""
        ways: tuple[tuple[Literal["in", "out"], bool], ...] = (("in", self.reads), ("out", self.writes))
        return tuple(way for way, moves in ways if moves)

    def offsets(self, pids: IntArray) -> IntArray:
        """Elements from the tensor's first to the first of the tile of each task: (n,) for pids (n, mesh rank)."""
        result = np.zeros(len(pids), np.int64)
        if self.tile.grid:
            coordinates = np.unravel_index(self.tile.linear(pids), self.tile.grid)
            for coordinate, extent, stride in zip(coordinates, self.tile_shape, self.tensor.strides, strict=True):
                result += coordinate * extent * stride
        return result


@dataclass(frozen=True)
class SharedTensor:
    """Memory of several tasks that is no argument of the program: local arrays that a task passes to regions.

    Attributes:
        initial: its contents before the first run, of the tensor's shape.
    """

    tensor: Tensor
    initial: Array = field(compare=False)


class LayoutStep(Frozen):
    """Elements in another order: "transpose" with the permutation of the dimensions, or "view" with the new shape."""

    kind: Literal["transpose", "view"]
    argument: Ints


class LayoutUse(Frozen):
    """A tensor argument that a body reads in another layout only, or writes in another than it computes it in.

    Attributes:
        arg: position among the kernel's arguments.
        direction: "in" for an argument that it reads.
        shape: of the first step's array: the argument, or the array that is written to it.
        steps: the rearrangements, in order, before the argument is used or written.
        sites: positions in `TaskClass.work` of the operations that do so.
    """

    arg: int
    direction: Literal["in", "out"]
    shape: Ints
    steps: tuple[LayoutStep, ...]
    sites: Ints


def piece_grids(ports: Iterable[TensorPort]) -> dict[str, Grid]:
    """Return by tensor the fewest pieces along each dimension that all tiles of all ports are unions of: the tiles
    themselves where all ports cut it alike."""
    found: dict[str, Grid] = {}
    for port in ports:
        name, own = port.tensor.name, _grid(port)
        found[name] = tuple(map(math.lcm, found[name], own)) if name in found else own
    return found


def ends_of(port: TensorPort, pids: IntArray, grid: Grid) -> tuple[IntArray, IntArray]:
    """The first and the last of the pieces that the tile of each task is made of, both (tasks,)."""
    own = _grid(port)
    tiles = port.tile.linear(pids) if port.tile.grid else np.zeros(len(pids), np.int64)
    if own == grid:
        return tiles, tiles
    ratio = [whole // part for whole, part in zip(grid, own, strict=True)]
    at = np.unravel_index(tiles, own)
    first = [index * times for index, times in zip(at, ratio, strict=True)]
    last = [index + times - 1 for index, times in zip(first, ratio, strict=True)]
    return _number(first, grid), _number(last, grid)


def pieces_of(port: TensorPort, pids: IntArray, grid: Grid) -> IntArray:
    """All pieces that the tiles of these tasks are made of, in ascending order."""
    first = np.unique(ends_of(port, pids, grid)[0])
    if _grid(port) == grid:
        return first
    ratio = [whole // part for whole, part in zip(grid, _grid(port), strict=True)]
    begins, inside = np.unravel_index(first, grid), np.indices(ratio).reshape(len(ratio), -1)
    at = [begin[:, None] + step for begin, step in zip(begins, inside, strict=True)]
    return np.sort(_number(at, grid).ravel())


def _number(at: Sequence[IntArray], grid: Grid) -> IntArray:
    """Row-major."""
    found = np.zeros_like(at[0])
    for index, extent in zip(at, grid, strict=True):
        found = found * extent + index
    return found


def _grid(port: TensorPort) -> Grid:
    return port.tile.grid or (1,) * len(port.tensor.shape)


class StreamArray(Frozen):
    """A declared stream or array of streams; a token is one element (`block == ()`) or a block of elements."""

    name: str
    dtype: DType
    block: Ints
    depth: int
    shape: Ints
    location: SourceLocation | None = None

    @property
    def token_bytes(self) -> int:
        return max(1, math.prod(self.block) * self.dtype.bits // 8)

    @property
    def count(self) -> int:
        """The number of streams in the array (1 for a single stream)."""
        return math.prod(self.shape)


class StreamPort(Frozen):
    """A stream that tasks of a class get from or put to.

    Attributes:
        index: which stream of the array, as a function of the pid.
        tokens: the number of tokens that one task moves through it, or None if it depends on data.
    """

    stream: StreamArray
    direction: Literal["get", "put"]
    index: IndexMap
    tokens: int | None
    location: SourceLocation | None = None


def stream_of(bound: StreamArray | StreamPort) -> StreamArray:
    """Return the array of streams that a stream argument is of."""
    return bound if isinstance(bound, StreamArray) else bound.stream


class StreamOp(Frozen):
    """One stream operation in the source: `TaskBody` operations carry its position in `TaskClass.stream_ops`.

    Attributes:
        blocking: False for `try_get`, `try_put`, `empty` and `full`, which look at how many tokens a stream holds.
        copy: as of a tile operation (`TileUse`).
    """

    stream: StreamArray
    direction: Literal["get", "put"]
    location: SourceLocation
    blocking: bool = True
    copy: Ints = ()
