"""What the front end hands to the rest of allo-dse: a compiled program, described per task class.

A kernel with mesh `[32, 32, 32]` is 32,768 tasks but only a few *task classes*: tasks whose `meta_if` conditions
resolve alike. Everything here is stated per kernel, per class and as functions of the process id (pid), so that nothing
grows with the number of tasks; `CompiledProgram.pids` and the index maps materialise as many tasks as a caller asks
for.

Task ids: the tasks of all kernels are numbered consecutively, kernel by kernel in program order, and within a kernel in
row-major order of the pid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from allo_dse.lang.types import DType

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class SourceLocation:
    """A place in the user's source: 1-based line and column."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Tensor:
    """An argument of the region: a tensor in host memory (DRAM), or a scalar when `shape` is empty."""

    name: str
    dtype: DType
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.bits // 8


@dataclass(frozen=True)
class StreamArray:
    """A declared stream or array of streams; a token is one element (`block == ()`) or a block of elements."""

    name: str
    dtype: DType
    block: tuple[int, ...]
    depth: int
    shape: tuple[int, ...]
    location: SourceLocation | None = None

    @property
    def token_bytes(self) -> int:
        return max(1, math.prod(self.block) * self.dtype.bits // 8)

    @property
    def count(self) -> int:
        """How many streams the array has (1 for a single stream)."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class IndexMap:
    """Which element of a grid a task refers to, as a function of its pid.

    Either affine, `index = matrix @ pid + offset` per grid dimension (`table is None`), or a table over the whole mesh
    that gives the linear index (for expressions that are not affine).

    Attributes:
        grid: the shape of what is indexed (a stream array, a tensor's tile grid).
        matrix: one row per grid dimension, one column per mesh axis.
        offset: one entry per grid dimension.
    """

    grid: tuple[int, ...]
    matrix: tuple[tuple[int, ...], ...] = ()
    offset: tuple[int, ...] = ()
    table: IntArray | None = field(default=None, compare=False)

    @property
    def is_affine(self) -> bool:
        return self.table is None

    def linear(self, pids: IntArray) -> IntArray:
        """Row-major linear index for each pid; `pids` has shape (n, mesh rank), the result shape (n,)."""
        if self.table is not None:
            return self.table[tuple(pids.T)]
        result = np.zeros(len(pids), np.int64)
        for row, offset, extent in zip(self.matrix, self.offset, self.grid, strict=True):
            result *= extent
            for axis, factor in enumerate(row):
                if factor:
                    result += factor * pids[:, axis]
            if offset:
                result += offset
        return result

    def depends_on(self, axis: int) -> bool:
        """Whether the index changes with the pid along a mesh axis."""
        if self.table is not None:
            return bool((self.table != np.take(self.table, [0], axis=axis)).any())
        return any(row[axis] for row in self.matrix)


@dataclass(frozen=True)
class TensorPort:
    """A tensor argument as one task class uses it.

    Attributes:
        arg: position in the kernel's `args`.
        layout: per tensor dimension the mesh axis it is sharded on, or None where it is replicated.
        tile_shape: the local shape a task sees.
        tile: which tile of the tensor a task holds (grid = number of tiles per dimension).
        reads, writes: what the class does with it. A port that is neither is not used by the class.
    """

    arg: int
    tensor: Tensor
    layout: tuple[int | None, ...]
    tile_shape: tuple[int, ...]
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


@dataclass(frozen=True)
class StreamPort:
    """A stream that tasks of a class get from or put to.

    Attributes:
        index: which stream of the array, as a function of the pid.
        tokens: how many tokens one task moves through it, or None where that is data-dependent.
    """

    stream: StreamArray
    direction: Literal["get", "put"]
    index: IndexMap
    tokens: int | None
    location: SourceLocation | None = None


@dataclass(frozen=True)
class TileOp:
    """One unit of work that a cost model prices: a library operation on whole tiles, or a loop of scalar operations.

    Attributes:
        kind: "matmul", "add", "fill", "copy", "exp", ... for tile operations; "loop" for one iteration of a source
            loop; "external" for a vendor kernel.
        shape: (m, k, n) for matmul; the tile's shape otherwise; () for "loop".
        dtypes: operand types, then the result type.
        count: how often a task performs it, or None where that is data-dependent.
        name: of the vendor kernel, for kind "external".
    """

    kind: str
    shape: tuple[int, ...]
    dtypes: tuple[DType, ...]
    count: int | None = 1
    location: SourceLocation | None = None
    name: str = ""


@dataclass(frozen=True)
class StreamOp:
    """One stream operation in the source: `TaskBody` operations carry its position in `TaskClass.stream_ops`.

    Attributes:
        blocking: False for `try_get`, `try_put`, `empty` and `full`, which look at how many tokens a stream holds.
    """

    stream: StreamArray
    direction: Literal["get", "put"]
    location: SourceLocation
    blocking: bool = True


@dataclass(frozen=True)
class IndexCheck:
    """An index whose range is not known at compile time: `df.check` attributes of a body carry its position in
    `TaskClass.index_checks`.

    Attributes:
        text: the index in the source.
        of: what is indexed: "dimension 0 of size 16".
    """

    text: str
    of: str
    location: SourceLocation


@dataclass(frozen=True)
class SourceLoop:
    """A loop of the source that runs in the task.

    Attributes:
        name: its variable; empty for `while`.
        grid: the name given to the `allo.grid` it belongs to, if any.
    """

    name: str
    grid: str
    location: SourceLocation


@dataclass(frozen=True)
class StateVariable:
    """A variable of a task that keeps its value from one call to the next; a scalar when `shape` is empty.

    Attributes:
        initial: its value before the first call.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    initial: NDArray[Any] = field(compare=False)


@dataclass(frozen=True)
class SharedTensor:
    """Memory that several tasks use, but no argument of the program: local arrays that a task calls regions with.

    Attributes:
        initial: its contents before the first run, of the tensor's shape.
    """

    tensor: Tensor
    initial: NDArray[Any] = field(compare=False)


@dataclass(frozen=True)
class ExternalCall:
    """A call of a vendor kernel; what it computes is not in the program.

    Attributes:
        top: the name of the vendor kernel's function.
        operands: element type and shape of each argument.
        inputs, outputs: positions of the arguments that are read, and of those that are written.
    """

    top: str
    operands: tuple[tuple[DType, tuple[int, ...]], ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    location: SourceLocation | None = None


@dataclass(frozen=True)
class LayoutStep:
    """Elements in another order: "transpose" with the permutation of the dimensions, or "view" with the new shape."""

    kind: Literal["transpose", "view"]
    argument: tuple[int, ...]


@dataclass(frozen=True)
class LayoutUse:
    """A tensor argument that a body reads in another layout only, or writes in another than it computes it in.

    Attributes:
        arg: position among the kernel's arguments.
        direction: "in" for what it reads.
        shape: of what the steps begin with: the argument, or the array that is written to it.
        steps: what the body does, in order, before it uses the argument or to write it.
        sites: positions in `TaskClass.work` of the operations that do so.
    """

    arg: int
    direction: Literal["in", "out"]
    shape: tuple[int, ...]
    steps: tuple[LayoutStep, ...]
    sites: tuple[int, ...]


@dataclass(frozen=True)
class TaskBody:
    """The MLIR function of a task class (see `allo_dse/ir/dialect.py` for the operations it uses).

    Arguments in order: one `index` per mesh axis (the pid); one memref per kernel argument (the task's local tile); one
    memref per entry of `TaskClass.state`; one `index` per entry of `TaskClass.externals` (the address of a C function
    that takes a pointer to each operand, row-major); one `index` per entry of `streams` (the stream's number).

    Attributes:
        mlir: text of one `func.func` whose name is `symbol`; equal text means equal code, however large the mesh.
        streams: what each stream argument is bound to: a port whose index depends only on the pid, or a whole array
            (its first stream's number) where the body computes the index itself.
    """

    symbol: str
    mlir: str
    streams: tuple[StreamPort | StreamArray, ...]


@dataclass(frozen=True)
class TaskClass:
    """Tasks of one kernel whose meta conditions resolve alike.

    Attributes:
        work: what the body does, in order; entry i is priced at cost site i of the body.
        stream_ops: the put and get operations of the source, numbered as in the body.
        state: variables that live from call to call.
        externals: calls of vendor kernels; the i-th is priced by the i-th entry of `work` of kind "external".
        loops: the loops of the source; a loop of the body carries its position here as attribute `df.loop`.
        index_checks: what must be checked when the body runs.
        layouts: tensor arguments that are only read, or only written, in another layout.
    """

    name: str
    kernel: str
    tensor_ports: tuple[TensorPort, ...]
    stream_ports: tuple[StreamPort, ...]
    work: tuple[TileOp, ...]
    stream_ops: tuple[StreamOp, ...]
    body: TaskBody
    location: SourceLocation | None = None
    state: tuple[StateVariable, ...] = ()
    externals: tuple[ExternalCall, ...] = ()
    loops: tuple[SourceLoop, ...] = ()
    layouts: tuple[LayoutUse, ...] = ()
    index_checks: tuple[IndexCheck, ...] = ()

    @property
    def polls(self) -> bool:
        """Whether what it does depends on how many tokens streams hold: a recorded run cannot be re-timed."""
        return any(not op.blocking for op in self.stream_ops)


@dataclass(frozen=True)
class Kernel:
    """A kernel: `prod(mesh)` tasks.

    Attributes:
        class_table: position in `classes` for every pid, of shape `mesh` except that axes no condition depends on have
            length 1 (broadcast it against the mesh).
    """

    name: str
    mesh: tuple[int, ...]
    args: tuple[Tensor, ...]
    classes: tuple[TaskClass, ...]
    class_table: IntArray = field(compare=False)
    location: SourceLocation | None = None

    @property
    def task_count(self) -> int:
        return math.prod(self.mesh)

    @cached_property
    def varying_classes(self) -> IntArray:
        """`class_table` with length 1 along every axis along which the class does not change."""
        table = self.class_table
        for axis in range(table.ndim):
            first = np.take(table, [0], axis=axis)
            if (table == first).all():
                table = first
        return table

    def class_of(self, pids: IntArray) -> IntArray:
        """Position in `classes` for each pid; `pids` has shape (n, mesh rank)."""
        index = tuple(
            pids[:, a] if n > 1 else np.zeros(len(pids), np.int64) for a, n in enumerate(self.class_table.shape)
        )
        return self.class_table[index]

    def task_name(self, pid: tuple[int, ...]) -> str:
        """The name Allo gives a task: `<kernel>_<i>_<j>...`."""
        return "_".join([self.name, *map(str, pid)])


@dataclass(frozen=True)
class Directive:
    """A customization of a schedule: attributes that cost models and code generators read; results do not change.

    Attributes:
        kind: "partition", "pipeline" or "unroll".
        scope: the region or kernel whose array or loop is meant.
        name: the array or loop.
        options: for "partition" `dim` (1-based; 0: all), `factor` (0: as many banks as elements), `partition_type`
            ("complete", "block" or "cyclic"); for "pipeline" `initiation_interval`, `rewind`; for "unroll" `factor` (0:
            completely).
    """

    kind: str
    scope: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.kind}({self.scope}:{self.name}, {options})"


@dataclass(frozen=True, eq=False)
class CompiledProgram:
    """A compiled program: immutable, and independent of any mapping or device.

    Attributes:
        tensors: the region's arguments in order.
        params: the parameters it was instantiated with (values are plain data).
        results: how many tensors at the end of `tensors` stand for what a plain function returns.
        schedule: customizations, in the order in which they were applied.
        shared: memory of the program's own that tensor ports refer to beside the arguments.
    """

    name: str
    tensors: tuple[Tensor, ...]
    streams: tuple[StreamArray, ...]
    kernels: tuple[Kernel, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    results: int = 0
    schedule: tuple[Directive, ...] = ()
    shared: tuple[SharedTensor, ...] = ()

    @cached_property
    def first_task(self) -> tuple[int, ...]:
        """The first task id of each kernel, and the number of tasks as last entry."""
        result = [0]
        for kernel in self.kernels:
            result.append(result[-1] + kernel.task_count)
        return tuple(result)

    @property
    def task_count(self) -> int:
        return self.first_task[-1]

    @cached_property
    def first_stream(self) -> Mapping[str, int]:
        """The number of the first stream of each stream array; streams are numbered array by array, row-major."""
        result, total = {}, 0
        for array in self.streams:
            result[array.name] = total
            total += array.count
        return result

    @property
    def stream_count(self) -> int:
        return sum(array.count for array in self.streams)

    def kernel(self, name: str) -> Kernel:
        return next(k for k in self.kernels if k.name == name)

    def pids(self, kernel: int, tasks: IntArray) -> IntArray:
        """Pids, of shape (n, mesh rank), of task ids that belong to the kernel at position `kernel`."""
        local = tasks - self.first_task[kernel]
        return np.stack(np.unravel_index(local, self.kernels[kernel].mesh), axis=1).astype(np.int64)

    def task_name(self, task: int) -> str:
        kernel = next(i for i, end in enumerate(self.first_task[1:]) if task < end)
        pid = np.unravel_index(task - self.first_task[kernel], self.kernels[kernel].mesh)
        return self.kernels[kernel].task_name(tuple(int(p) for p in pid))

    def stream_name(self, stream: int) -> str:
        """The name of a stream, with its index in an array of streams."""
        array = next(a for a in self.streams if stream < self.first_stream[a.name] + a.count)
        if not array.shape:
            return array.name
        index = np.unravel_index(stream - self.first_stream[array.name], array.shape)
        return f"{array.name}[{', '.join(str(int(i)) for i in index)}]"
