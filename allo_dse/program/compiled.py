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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral

import numpy as np

from allo_dse.common.errors import SimulationError

from .common_tensors import CommonTensor, common_tensors
from .decisions import Decisions
from .directive import Directive
from .index_maps import IntArray
from .kernel import Kernel
from .locations import Construct
from .streams import StreamArray
from .tasks import TaskClass
from .tensors import SharedTensor, Tensor, TensorPort


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
        constructs: what not every target builds.
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
        """Those of all classes."""
        return (port for task_class in self.task_classes for port in task_class.tensor_ports)

    @cached_property
    def common_tensors(self) -> Mapping[str, CommonTensor]:
        """The tensors that one kernel writes and another one uses."""
        return common_tensors(self.kernels)

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
            SimulationError: for a stream that there is not, or what is no depth.
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
