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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from numbers import Integral
from typing import Any, Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from allo_dse.common.errors import AlloDseError, SimulationError
from allo_dse.common.records import collection_text, hashed_once, replace

from .kernel import CommonTensor, Kernel, TaskClass, common_tensors
from .tensors import Construct, IntArray, SharedTensor, SourceLocation, StreamArray, Tensor, TensorPort

Pid = tuple[int, ...]


class Decisions(Struct, frozen=True):
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
DATAFLOW, STREAM = "dataflow", "stream"
"""The kinds of directives about nests that run at once: of which function (or loop), and which arrays are FIFOs."""


@hashed_once
@dataclass(frozen=True)
class Directive:
    """A customization of a schedule: attributes that cost models and code generators read; results do not change.

    Attributes:
        kind: "partition", "pipeline", "unroll", "dataflow" or "stream"; for FPGAs also "place", "pack" and "adders".
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
    def first_task(self) -> tuple[int, ...]:
        """The first task id of each kernel, and the number of tasks as last entry."""
        result = [0]
        for kernel in self.kernels:
            result.append(result[-1] + kernel.task_count)
        return tuple(result)

    @property
    def task_classes(self) -> Iterator[TaskClass]:
        """The classes of all kernels, kernel by kernel."""
        return (task_class for kernel in self.kernels for task_class in kernel.classes)

    @property
    def tensor_ports(self) -> Iterator[TensorPort]:
        """Yield the tensor ports of all classes."""
        return (port for task_class in self.task_classes for port in task_class.tensor_ports)

    @cached_property
    def common_tensors(self) -> Mapping[str, CommonTensor]:
        """The tensors that one kernel writes and another one uses."""
        return common_tensors(self.kernels)

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
    return next((name for name in tasks if scope[len(name) + 1 :].replace("_", "").isdigit()), None)


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


class Conflict(Struct, frozen=True):
    """Two kernels that want one memory split in different ways along an axis.

    Attributes:
        uses: per kernel its place in the source, and its schedule's directive.
    """

    tensor: str
    axis: int
    uses: tuple[str, str]


def conflicts(program: CompiledProgram, directives: Sequence[Directive]) -> Iterator[Conflict]:
    """Yield the conflicts between schedules of two kernels that split a common tensor differently."""
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
                yield Conflict(name, axis, (_use(program, first, one, way), _use(program, second, two, other)))


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
