"""Kernels: a mesh of tasks, and the class of each task."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
from msgspec import Struct

from allo_dse.common.records import Array, replace
from allo_dse.lang.types import DType

from .tensors import (
    IndexCheck,
    IntArray,
    LayoutUse,
    SourceArray,
    SourceLocation,
    SourceLoop,
    StreamArray,
    StreamOp,
    StreamPort,
    Tensor,
    TensorPort,
)


class TileUse(Struct, frozen=True):
    """The operands and the target of a tile operation.

    Attributes:
        scalars: operands that are single values.
        part_bytes: bytes of the operands that are parts of tiles.
        result_bytes: bytes of the operands that the task has computed.
        sums: whether it adds to a product in the same expression.
        is_new: whether the result is the first content of a task's array, or part of an array, or a function (other
            than a sum) of the array's content.
        is_part: whether it is part of an array.
        copy: the iterations of the surrounding compile-time loops that `meta_if` tests.
    """

    scalars: int = 0
    part_bytes: int = 0
    result_bytes: int = 0
    sums: bool = False
    is_new: bool = False
    is_part: bool = False
    copy: tuple[int, ...] = ()


NO_TILES = TileUse()


@dataclass(frozen=True)
class TileOp:
    """One unit of work that a cost model prices: a library operation on whole tiles, or a loop of scalar operations.

    Attributes:
        kind: "matmul", "add", "fill", "copy", "exp", ... for tile operations; "loop" for one iteration of a source
            loop; "external" for a vendor kernel.
        shape: (m, k, n) for matmul; the tile's shape otherwise; () for "loop".
        dtypes: operand types, then the result type.
        count: how often a task performs it, or None where that is data-dependent or not the same for all tasks.
        counts: how often each task does, where that follows from its pid; broadcasts against the mesh.
        name: of the vendor kernel, for kind "external".
        use: of a tile operation, what its operands and its result are.
    """

    kind: str
    shape: tuple[int, ...]
    dtypes: tuple[DType, ...]
    count: int | None = 1
    location: SourceLocation | None = None
    name: str = ""
    use: TileUse = NO_TILES
    counts: IntArray | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class StateVariable:
    """A variable of a task that keeps its value from one call to the next; a scalar when `shape` is empty.

    Attributes:
        initial: its value before the first call.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    initial: Array = field(compare=False)


class ExternalCall(Struct, frozen=True):
    """A call of a vendor kernel; the program does not define its results.

    Attributes:
        top: the name of the vendor kernel's function.
        operands: element type and shape of each argument.
        inputs, outputs: positions of the arguments that are read, and that are written.
    """

    top: str
    operands: tuple[tuple[DType, tuple[int, ...]], ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    location: SourceLocation | None = None


class TaskBody(Struct, frozen=True):
    """The MLIR function of a task class (see `allo_dse/common/mlir/dialect.py` for the operations it uses).

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


class TaskClass(Struct, frozen=True):
    """Tasks of one kernel with the same outcomes of meta conditions.

    Attributes:
        work: the body's work in order; entry i is priced at cost site i of the body.
        stream_ops: the put and get operations of the source, numbered as in the body.
        state: variables that live from call to call.
        externals: calls of vendor kernels; the i-th is priced by the i-th entry of `work` of kind "external".
        loops: the loops of the source; a loop of the body carries its position here as attribute `df.loop`.
        index_checks: checks when the body runs.
        arrays: the arrays' names in its functions.
        loop_arrays: bytes of each local array that is first written element by element.
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
    arrays: tuple[SourceArray, ...] = ()
    loop_arrays: tuple[int, ...] = ()

    @property
    def used_ports(self) -> list[TensorPort]:
        """The tensor ports that the body reads or writes."""
        return [port for port in self.tensor_ports if port.reads or port.writes]

    @property
    def loop_names(self) -> tuple[str, ...]:
        """A name for each loop that no loop of another place has: `t`, or `t@1` and `t@2` for two loops `t`."""
        return _unique_names(self.loops)

    def called(self, name: str) -> list[int]:
        """Return the positions of the loops that a directive's name refers to."""
        pairs = zip(self.loops, self.loop_names, strict=True)
        return [number for number, (loop, own) in enumerate(pairs) if own == name or loop.is_called(name)]

    @property
    def polls(self) -> bool:
        """Return whether tasks react to the fill level of streams: a recorded run cannot be re-timed then."""
        return any(not op.blocking for op in self.stream_ops)


@lru_cache(maxsize=1 << 10)
def _unique_names(loops: tuple[SourceLoop, ...]) -> tuple[str, ...]:
    alike: dict[str, dict[tuple[object, ...], int]] = {}
    places = [(loop.name, (loop.location, loop.function, loop.call, loop.band)) for loop in loops]
    for name, place in places:
        alike.setdefault(name, {}).setdefault(place, len(alike[name]) + 1)
    return tuple(f"{name}@{alike[name][place]}" if len(alike[name]) > 1 else name for name, place in places)


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
    def class_sizes(self) -> list[int]:
        """Return the number of tasks of each class."""
        table = np.broadcast_to(self.class_table, self.mesh)
        return [int(count) for count in np.bincount(table.ravel(), minlength=len(self.classes))]

    @cached_property
    def varying_classes(self) -> IntArray:
        """`class_table` with length 1 along every axis along which the class does not change."""
        table = self.class_table
        for axis in range(table.ndim):
            first = np.take(table, [0], axis=axis)
            if (table == first).all():
                table = first
        return table

    @cached_property
    def by_work(self) -> tuple[tuple[TaskClass, ...], IntArray]:
        """The classes, apart where their tasks do some of their work more or less often than others, and the position
        of every task's among them, as `varying_classes` has it."""
        table = self.varying_classes
        varied = [[op.counts for op in cls.work if op.counts is not None] for cls in self.classes]
        if not any(varied):
            return self.classes, table
        shape = np.broadcast_shapes(table.shape, *(counts.shape for own in varied for counts in own))
        table, result = np.broadcast_to(table, shape), np.zeros(shape, np.int64)
        found: list[TaskClass] = []
        for position, (cls, own) in enumerate(zip(self.classes, varied, strict=True)):
            here = table == position
            each = np.stack([np.broadcast_to(counts, shape)[here] for counts in own], 1) if own else None
            alike, codes = (np.zeros((1, 0), int), 0) if each is None else np.unique(each, axis=0, return_inverse=True)
            result[here] = len(found) + codes
            found += [_doing(cls, counts.tolist()) for counts in alike]
        return tuple(found), result

    def class_of(self, pids: IntArray) -> IntArray:
        """Position in `classes` for each pid; `pids` has shape (n, mesh rank)."""
        return _at(self.class_table, pids)

    def work_of(self, pids: IntArray) -> IntArray:
        """Position among the classes of `by_work` for each pid."""
        return _at(self.by_work[1], pids)

    def task_name(self, pid: tuple[int, ...]) -> str:
        """The name Allo gives a task: `<kernel>_<i>_<j>...`."""
        return "_".join([self.name, *map(str, pid)])


def _at(table: IntArray, pids: IntArray) -> IntArray:
    """The entry of each pid in a table that broadcasts against the mesh; `pids` has shape (n, mesh rank)."""
    index = tuple(pids[:, a] if n > 1 else np.zeros(len(pids), np.int64) for a, n in enumerate(table.shape))
    return table[index]


def _doing(cls: TaskClass, counts: list[int]) -> TaskClass:
    """A class with the counts of work that its tasks do a different number of times."""
    left = iter(counts)
    return replace(
        cls, work=tuple(op if op.counts is None else replace(op, count=next(left), counts=None) for op in cls.work)
    )


# A tensor that one kernel writes and another one uses has one on-chip memory for both.


class CommonTensor(Struct, frozen=True):
    """A tensor that one kernel writes and another one uses.

    Attributes:
        users: the most tasks that use one memory of it.
        is_tiled: whether each tile is a memory of its own, since all kernels cut the tensor into the same tiles.
    """

    users: int
    is_tiled: bool


def common_tensors(kernels: Sequence[Kernel]) -> Mapping[str, CommonTensor]:
    """The tensors that one kernel writes and another one uses, by name."""
    uses: dict[str, list[tuple[Kernel, TensorPort, IntArray]]] = {}
    for kernel, port, pids in _ports(kernels):
        uses.setdefault(port.tensor.name, []).append((kernel, port, pids))
    found = {}
    for name, ports in uses.items():
        if len({kernel.name for kernel, *_ in ports}) > 1 and any(port.writes for _, port, _ in ports):
            is_tiled = len({(port.tile_shape, port.tile.grid) for _, port, _ in ports}) == 1
            tiles = np.concatenate([tile_of(port, pids) if is_tiled else 0 * pids[:, 0] for _, port, pids in ports])
            found[name] = CommonTensor(int(np.bincount(tiles).max(initial=0)), is_tiled)
    return found


def tile_of(port: TensorPort, pids: IntArray) -> IntArray:
    """The number of the tile that each of some tasks has of a tensor."""
    return port.tile.linear(pids) if port.tile.grid else np.zeros(len(pids), np.int64)


def _ports(kernels: Sequence[Kernel]) -> Iterable[tuple[Kernel, TensorPort, IntArray]]:
    """The tensors with a shape that classes use, with the pids of the tasks."""
    written = {p.tensor.name for k in kernels for c in k.classes for p in c.tensor_ports if p.writes}
    for kernel in kernels:
        if written.isdisjoint(tensor.name for tensor in kernel.args):
            continue
        pids = np.argwhere(np.ones(kernel.mesh, bool)).astype(np.int64)
        classes = kernel.class_of(pids)
        for number, task_class in enumerate(kernel.classes):
            for port in task_class.tensor_ports:
                if port.tensor.name in written and port.tensor.shape and (port.reads or port.writes):
                    yield kernel, port, pids[classes == number]
