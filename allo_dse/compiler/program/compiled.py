"""A compiled program, described per task class: the result of the front end.

A kernel with mesh `[32, 32, 32]` has 32,768 tasks but only a few *task classes*: tasks whose `meta_if` conditions
have the same outcome. Everything is stated per kernel, per class and as functions of the process id (pid). So nothing
grows with the number of tasks. `CompiledProgram.pids` and the index maps list as many tasks as a caller asks for.

Task ids number the tasks of all kernels consecutively: kernels in program order, tasks in row-major order of the
pid.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from itertools import accumulate
from numbers import Integral
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from allo_dse.common.errors import AlloDseError, SimulationError
from allo_dse.common.records import Array, Frozen, Ints, collection_text, hashed_once, replace

from .tensors import (
    Construct,
    IndexCheck,
    IntArray,
    LayoutUse,
    SharedTensor,
    SourceArray,
    SourceLocation,
    SourceLoop,
    StreamArray,
    StreamOp,
    StreamPort,
    Tensor,
    TensorPort,
)

if TYPE_CHECKING:
    from allo_dse.lang.types import DType

# Kernels: a mesh of tasks, and the class of each task.


class TileUse(Frozen):
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
    copy: Ints = ()


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
    shape: Ints
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
    shape: Ints
    initial: Array = field(compare=False)


class ExternalCall(Frozen):
    """A call of a vendor kernel; the program does not define its results.

    Attributes:
        top: the name of the vendor kernel's function.
        operands: element type and shape of each argument.
        inputs, outputs: positions of the arguments that are read, and that are written.
    """

    top: str
    operands: tuple[tuple[DType, Ints], ...]
    inputs: Ints
    outputs: Ints
    location: SourceLocation | None = None


class TaskBody(Frozen):
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

    def with_own_words(self, type_: str) -> str:
        """Return the function with the argument `%df_words`: after its last array, before numbers of streams.

        Args:
            type_: of the argument, memory of the task's own: a memref whose layout is `strided<[?], offset: ?>`.
        """
        head, opening, rest = self.mlir.partition(f"func.func @{self.symbol}(")
        arguments, closing, code = rest.partition(") {\n")
        names = arguments.split(", %")
        arrays = [k for k, name in enumerate(names) if "memref<" in name]
        place = arrays[-1] + 1 if arrays else next(k for k, n in enumerate([*names, ""]) if "pid" not in n)
        names.insert(place, f"df_words: {type_}")
        return head + opening + ", %".join(names) + closing + code


class TaskClass(Frozen):
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
    loop_arrays: Ints = ()

    @property
    def used_ports(self) -> list[TensorPort]:
        """The tensor ports that the body reads or writes."""
        return [port for port in self.tensor_ports if port.reads or port.writes]

    @property
    def loop_names(self) -> tuple[str, ...]:
        """A name for each loop that no loop of another place has: `t`, or `t@1` and `t@2` for two loops `t`."""
        alike: dict[str, dict[tuple[object, ...], int]] = {}
        places = [(loop.name, (loop.location, loop.function, loop.call, loop.band)) for loop in self.loops]
        for name, place in places:
            alike.setdefault(name, {}).setdefault(place, len(alike[name]) + 1)
        return tuple(f"{name}@{alike[name][place]}" if len(alike[name]) > 1 else name for name, place in places)

    def called(self, name: str) -> list[int]:
        """Return the positions of the loops that a directive's name refers to."""
        pairs = zip(self.loops, self.loop_names, strict=True)
        return [number for number, (loop, own) in enumerate(pairs) if own == name or loop.is_called(name)]

    @property
    def polls(self) -> bool:
        """Return whether tasks react to the fill level of streams: a recorded run cannot be re-timed then."""
        return any(not op.blocking for op in self.stream_ops)


@dataclass(frozen=True)
class Kernel:
    """A kernel: `prod(mesh)` tasks.

    Attributes:
        class_table: position in `classes` for every pid, of shape `mesh` except that axes no condition depends on have
            length 1 (broadcast it against the mesh).
    """

    name: str
    mesh: Ints
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
            for counts in alike:
                left = iter(counts.tolist())
                work = (op if op.counts is None else replace(op, count=next(left), counts=None) for op in cls.work)
                found.append(replace(cls, work=tuple(work)))
        return tuple(found), result

    def class_of(self, pids: IntArray) -> IntArray:
        """Position in `classes` for each pid; `pids` has shape (n, mesh rank)."""
        return _at(self.class_table, pids)

    def work_of(self, pids: IntArray) -> IntArray:
        """Position among the classes of `by_work` for each pid."""
        return _at(self.by_work[1], pids)

    def task_name(self, pid: Ints) -> str:
        """The name Allo gives a task: `<kernel>_<i>_<j>...`."""
        return "_".join([self.name, *map(str, pid)])


def _at(table: IntArray, pids: IntArray) -> IntArray:
    """The entry of each pid in a table that broadcasts against the mesh; `pids` has shape (n, mesh rank)."""
    index = tuple(pids[:, a] if n > 1 else np.zeros(len(pids), np.int64) for a, n in enumerate(table.shape))
    return table[index]


# A tensor that one kernel writes and another one uses has one on-chip memory for both.


class CommonTensor(Frozen):
    """A tensor that one kernel writes and another one uses.

    Attributes:
        users: the most tasks that use one memory of it.
        is_tiled: whether each tile is a memory of its own, since all kernels cut the tensor into the same tiles.
    """

    users: int
    is_tiled: bool


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


Pid = tuple[int, ...]


class Decisions(Frozen):
    """One run.

    Attributes:
        classes: by kernel and class where data decides, by process id, and by the site of a condition or loop in the
            task's body, a row per execution: whether the condition held, or the loop's rounds and the last value of
            its variable.
    """

    classes: Mapping[tuple[str, str], Mapping[Pid, Mapping[int, NDArray[np.int64]]]]

    def of_class(self, kernel: str, name: str) -> Mapping[Pid, Mapping[int, NDArray[np.int64]]]:
        """Return the decisions of the tasks of a class; empty if none of them depends on data."""
        return self.classes.get((kernel, name), {})

    @property
    def digest(self) -> str:
        """Equal for runs that decided alike."""
        found = hashlib.sha256()
        for place, tasks in sorted(self.classes.items()):
            for pid, sites in sorted(tasks.items()):
                for site, rows in sorted(sites.items()):
                    found.update(repr((place, pid, site)).encode() + np.ascontiguousarray(rows).tobytes())
        return found.hexdigest()[:16]


ADDERS = "adders"
"""The kind of directives about the operators of floating-point sums; they are about the whole program."""
LANES = "lanes"
"""The kind of directives about operations on tiles: a kernel, or the whole program, computes so many elements at once,
neighbours in the last dimension, along which its arrays have as many banks."""
DATAFLOW, STREAM = "dataflow", "stream"
"""The kinds of directives about concurrent nests: their function or loop, and the arrays that are FIFOs."""


@hashed_once
@dataclass(frozen=True)
class Directive:
    """A customization of a schedule: attributes that cost models and code generators read; results do not change.

    Attributes:
        kind: "partition", "pipeline", "unroll", "dataflow" or "stream"; for FPGAs also "place", "pack", "adders" and
            "lanes".
        scope: the region or kernel of the array or loop.
        name: the array or loop.
        options: for "partition" `dim` (1-based; 0: all), `factor` (0: as many banks as elements), `partition_type`
            ("complete", "block" or "cyclic"); for "pipeline" `initiation_interval`, `rewind`; for "unroll" `factor` (0:
            completely); for "stream" `depth` (-1: the default), `to`; for "adders" `impl`, "fabric" for those without
            DSPs.
    """

    kind: str
    scope: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.kind, self.scope, self.name, *self.options.values()))

    def banks(self, shape: Sequence[int]) -> dict[int, int]:
        """The number of banks that a "partition" splits an array of this shape into, per partitioned axis."""
        dim, factor = self.options.get("dim", 0), self.options.get("factor", 0)
        complete = not factor or self.options.get("partition_type", "complete") == "complete"
        axes = range(len(shape)) if dim == 0 else (dim - 1,)
        return {axis: shape[axis] if complete else factor for axis in axes if axis < len(shape)}

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.kind}({self.scope}:{self.name}, {options})"


def lanes_in(directives: Sequence[Directive]) -> int:
    """Return how many elements operations on tiles compute at once; the last directive counts."""
    return next((int(d.options["factor"]) for d in reversed(directives) if d.kind == LANES), 1)


def lanes_of(factor: int, extent: int) -> int:
    """Return how many of the elements of a dimension, or rounds of a loop, are computed at once; never all."""
    lanes = math.gcd(factor, extent)
    return lanes if lanes < extent else max(1, lanes // 2)


def stream_depth(directive: Directive) -> int:
    """Return the depth of an array that is passed on as a stream, in elements; 2 if the program gives none."""
    return max(2, int(directive.options.get("depth", 0)))


@dataclass(frozen=True, eq=False)
class CompiledProgram:
    """A compiled program: immutable, and independent of any mapping or device.

    Attributes:
        tensors: the region's arguments in order.
        params: the parameters it was instantiated with (values are plain data).
        results: of the tensors at the end of `tensors` that stand for what a plain function returns, the name of the
            argument that is returned there, if it is one.
        schedule: customizations, in the order in which they were applied.
        shared: memory of the program's own that tensor ports refer to beside the arguments.
        constructs: parts of the program that not every target builds.
        runs: what was decided in runs on given inputs, where data decides; one for each set of them.
    """

    name: str
    tensors: tuple[Tensor, ...]
    streams: tuple[StreamArray, ...]
    kernels: tuple[Kernel, ...]
    params: Mapping[str, object] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    results: tuple[str | None, ...] = ()
    schedule: tuple[Directive, ...] = ()
    shared: tuple[SharedTensor, ...] = ()
    constructs: tuple[Construct, ...] = ()
    runs: tuple[Decisions, ...] = ()

    @cached_property
    def first_task(self) -> Ints:
        """The first task id of each kernel, and the number of tasks as last entry."""
        return tuple(accumulate((kernel.task_count for kernel in self.kernels), initial=0))

    @property
    def task_classes(self) -> Iterator[TaskClass]:
        """The classes of all kernels, kernel by kernel."""
        return (task_class for kernel in self.kernels for task_class in kernel.classes)

    @property
    def tensor_ports(self) -> Iterator[TensorPort]:
        """Yield the tensor ports of all classes."""
        return (port for task_class in self.task_classes for port in task_class.tensor_ports)

    @cached_property
    def written_tensors(self) -> frozenset[str]:
        """Names of the tensors that tasks write."""
        return frozenset(port.tensor.name for port in self.tensor_ports if port.writes)

    @cached_property
    def common_tensors(self) -> Mapping[str, CommonTensor]:
        """The tensors that one kernel writes and another one uses, by name."""
        uses: dict[str, list[tuple[Kernel, TensorPort, IntArray]]] = {}
        for kernel, port, pids in _ports(self.kernels):
            uses.setdefault(port.tensor.name, []).append((kernel, port, pids))
        found = {}
        for name, ports in uses.items():
            if len({kernel.name for kernel, *_ in ports}) > 1 and any(port.writes for _, port, _ in ports):
                is_tiled = len({(port.tile_shape, port.tile.grid) for _, port, _ in ports}) == 1
                tiles = np.concatenate([tile_of(port, pids) if is_tiled else 0 * pids[:, 0] for _, port, pids in ports])
                found[name] = CommonTensor(int(np.bincount(tiles).max(initial=0)), is_tiled)
        return found

    @property
    def compiled_fields(self) -> dict[str, Any]:
        """The program as data: its fields by name, without those of a derived class."""
        return {own.name: getattr(self, own.name) for own in fields(CompiledProgram)}

    @property
    def task_count(self) -> int:
        return self.first_task[-1]

    @cached_property
    def elements_computed(self) -> int | None:
        """About how many elements all tasks compute, an iteration of a loop being one; None where data decides."""
        total = 0
        for kernel in self.kernels:
            for task_class, tasks in zip(kernel.classes, kernel.class_sizes, strict=True):
                for op in task_class.work:
                    times = op.count if op.counts is None else int(op.counts.max(initial=0))
                    if times is None:
                        return None
                    total += tasks * times * math.prod(op.shape)
        return total

    @cached_property
    def first_stream(self) -> Mapping[str, int]:
        """The number of the first stream of each stream array; streams are numbered array by array, row-major."""
        result, total = {}, 0
        for array in self.streams:
            result[array.name] = total
            total += array.count
        return result

    def arrays_of(self, streams: IntArray) -> IntArray:
        """Positions of the stream arrays that streams belong to."""
        found: IntArray = np.searchsorted(list(self.first_stream.values()), streams, side="right") - 1
        return found

    @property
    def stream_count(self) -> int:
        return sum(array.count for array in self.streams)

    def depths_with(self, changes: Mapping[str, int]) -> dict[str, int]:
        """Depths of all stream arrays by name: as declared, but for some.

        Raises:
            SimulationError: for a stream that does not exist, or an invalid depth.
        """
        known = {array.name: array.depth for array in self.streams}
        for name, depth in changes.items():
            if name not in known:
                names = ", ".join(known) or "none"
                raise SimulationError(f"depths: {self.name} has no stream {name!r}", hint=f"its streams: {names}")
            if not isinstance(depth, Integral) or depth < 1:
                hint = "a depth is a whole number, at least 1"
                raise SimulationError(f"depths: stream {name!r} cannot hold {depth!r} tokens", hint=hint)
        return {**known, **changes}

    def kernel(self, name: str) -> Kernel:
        return next(k for k in self.kernels if k.name == name)

    def pids(self, kernel: int, tasks: IntArray) -> IntArray:
        """Pids, of shape (n, mesh rank), of task ids that belong to the kernel at position `kernel`."""
        local = tasks - self.first_task[kernel]
        return np.array(np.unravel_index(local, self.kernels[kernel].mesh), np.int64).T

    @property
    def tasks_by_class(self) -> Iterator[tuple[TaskClass, IntArray, IntArray]]:
        """Every class with its tasks, and their process ids: (tasks,) and (tasks, mesh rank)."""
        for position, kernel in enumerate(self.kernels):
            tasks = np.arange(self.first_task[position], self.first_task[position + 1])
            pids = self.pids(position, tasks)
            classes = kernel.class_of(pids)
            for number, task_class in enumerate(kernel.classes):
                own = classes == number
                yield task_class, tasks[own], pids[own]

    def task_name(self, task: int) -> str:
        kernel = bisect_right(self.first_task, task) - 1
        pid = np.unravel_index(task - self.first_task[kernel], self.kernels[kernel].mesh)
        return self.kernels[kernel].task_name(tuple(map(int, pid)))

    def stream_name(self, stream: int) -> str:
        """The name of a stream, with its index in an array of streams."""
        array = next(a for a in self.streams if stream < self.first_stream[a.name] + a.count)
        if not array.shape:
            return array.name
        index = np.unravel_index(stream - self.first_stream[array.name], array.shape)
        return f"{array.name}[{', '.join(str(int(i)) for i in index)}]"


_PLAIN = frozenset({str, int, bool, float, type(None)})
_BESIDE = ("params", "warnings")  # parameters may be any objects; their effects are in the other fields


def program_digest(program: CompiledProgram) -> str:
    """Return a hash of everything in a program but its place in the source: comments do not change it."""
    known: dict[int, str] = {}
    texts = [_text(value, known) for name, value in program.compiled_fields.items() if name not in _BESIDE]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def _text(value: Any, known: dict[int, str]) -> str:
    """A text of a value, equal in every process; made once for objects that are shared."""
    if type(value) in _PLAIN:
        return repr(value)
    if isinstance(value, SourceLocation):
        return ""
    if isinstance(value, Decisions):
        return value.digest
    if isinstance(value, Struct) or is_dataclass(value):
        if id(value) not in known:
            names = value.__struct_fields__ if isinstance(value, Struct) else [own.name for own in fields(value)]
            parts = ", ".join(_text(getattr(value, name), known) for name in names)
            known[id(value)] = f"{type(value).__name__}({parts})"
        return known[id(value)]
    found = collection_text(value, lambda one: _text(one, known))
    return repr(value) if found is None else found


class Hopeless(AlloDseError):
    """A program is not compiled any further."""


class Watch(Protocol):
    """An observer of a compilation, called with early parts of the program. Raises `Hopeless` to stop it."""

    def tasks(self, count: int) -> None:
        """Receive the least number of tasks."""
        ...

    def ports(self, ports: Sequence[TensorPort]) -> None:
        """Receive the tensor ports of some tasks."""
        ...


# Arrays that two kernels use: a tensor in memory on the chip that one of them writes. Its partition serves both.
#
# A directive about one kernel's argument becomes one about the tensor, and so also about the other kernel's argument:
#
#     before:  partition(fill:x, dim=1, factor=4)           after:  partition(top:X, dim=1, factor=4)
#
# Different directives of two kernels are a conflict. The tasks that use the memory run at once and have an equal part
# of each bank's ports, whatever they do.


REGION = "top"
"""The scope of directives about the whole program, whatever it is called."""


def is_region(scope: str, program: CompiledProgram) -> bool:
    """Return whether a directive's scope is the whole program."""
    return scope in (program.name, REGION) and scope not in {kernel.name for kernel in program.kernels}


def kernel_of(scope: str, program: CompiledProgram) -> str | None:
    """The kernel that a directive's scope means, by its name or by that of one of its tasks."""
    names = [kernel.name for kernel in program.kernels]
    if scope in names:
        return scope
    tasks = (name for name in names if scope.startswith(f"{name}_"))
    return next((name for name in tasks if all(map(str.isdigit, scope[len(name) + 1 :].split("_")))), None)


def kept_in_common(program: CompiledProgram, directives: Iterable[Directive]) -> Mapping[str, CommonTensor]:
    """The tensors in memory on the chip that one kernel writes and another one uses."""
    common = program.common_tensors
    if not common:
        return {}
    return {
        d.name: common[d.name]
        for d in directives
        if d.name in common and d.options.get("memory") == "onchip" and is_region(d.scope, program)
    }


def of_region(program: CompiledProgram, directives: Sequence[Directive]) -> tuple[Directive, ...]:
    """The directives; those about a kernel's argument refer to the tensor if kernels share it."""
    owners = dict(_owners(program, directives))
    if not owners:
        return tuple(directives)
    region = program.name if REGION in {kernel.name for kernel in program.kernels} else REGION
    return tuple(
        replace(d, scope=region, name=owners[number].name) if number in owners else d
        for number, d in enumerate(directives)
    )


def conflicts(program: CompiledProgram, directives: Sequence[Directive]) -> Iterator[tuple[str, int, str]]:
    """Yield tensors and axes that schedules of two kernels split differently, with both places and directives."""
    said: dict[tuple[str, int], dict[str, tuple[tuple[str, int], Directive]]] = {}
    for number, tensor in _owners(program, directives):
        directive = directives[number]
        kernel = kernel_of(directive.scope, program)
        assert kernel is not None
        kind = str(directive.options.get("partition_type", "complete"))
        for axis, banks in directive.banks(tensor.shape).items():
            way = ("cyclic" if banks == tensor.shape[axis] else kind, banks)
            said.setdefault((tensor.name, axis), {})[kernel] = way, directive
    for (name, axis), by_kernel in said.items():
        (first, (way, one)), *rest = by_kernel.items()
        for second, (other, two) in rest:
            if other != way:
                yield name, axis, f"{_use(program, first, one, way)}, {_use(program, second, two, other)}"


def _use(program: CompiledProgram, kernel: str, directive: Directive, way: tuple[str, int]) -> str:
    location = program.kernel(kernel).location
    place = f" ({location})" if location else ""
    return f"{kernel}{place} has its {directive.name} in {way[1]} banks ({way[0]})"


def _owners(program: CompiledProgram, directives: Sequence[Directive]) -> Iterator[tuple[int, Tensor]]:
    """The numbers of partitions of a kernel's argument that is a shared tensor."""
    kept = kept_in_common(program, directives)
    if not kept:
        return
    from ..ir.nest import read_nest  # imports MLIR, which commands about runs do without

    arguments = {
        (kernel.name, array.name): port.tensor
        for kernel in program.kernels
        for task_class in kernel.classes
        for array in read_nest(task_class.body.mlir).arrays.values()
        for port in task_class.tensor_ports
        if port.arg == array.argument and port.tensor.name in kept
    }
    for number, directive in enumerate(directives):
        if directive.kind == "partition" and not is_region(directive.scope, program):
            key = (kernel_of(directive.scope, program) or "", directive.name)
            if key in arguments:
                yield number, arguments[key]
