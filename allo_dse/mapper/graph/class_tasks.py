"""The tasks of every class, with what their bodies are called with that is the same in every run."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from allo_dse.program.compiled import CompiledProgram
from allo_dse.program.index_maps import IntArray
from allo_dse.program.streams import StreamArray
from allo_dse.program.tasks import TaskClass


class ClassTasks(Struct, frozen=True):
    """The tasks of one class, and the arguments of theirs that are the same in every run.

    Attributes:
        pid: per mesh axis.
        tiles: per tensor its name, where each task's tile begins, and the tile's strides, in elements.
        streams: per stream argument the number of the stream, of each task or of the array that the body indexes.
    """

    task_class: TaskClass
    tasks: IntArray
    pid: tuple[IntArray, ...]
    tiles: tuple[tuple[str, IntArray, tuple[int, ...]], ...]
    streams: tuple[IntArray | int, ...]


def class_tasks(program: CompiledProgram) -> tuple[ClassTasks, ...]:
    """The tasks of a program by class."""
    return tuple(_group(program, *own) for own in tasks_by_class(program))


def tasks_by_class(program: CompiledProgram) -> Iterator[tuple[TaskClass, IntArray, IntArray]]:
    """Every class with its tasks, and their process ids: (tasks,) and (tasks, mesh rank)."""
    for position, kernel in enumerate(program.kernels):
        tasks = np.arange(program.first_task[position], program.first_task[position + 1])
        pids = program.pids(position, tasks)
        classes = kernel.class_of(pids)
        for number, task_class in enumerate(kernel.classes):
            own = classes == number
            yield task_class, tasks[own], pids[own]


def _group(program: CompiledProgram, task_class: TaskClass, tasks: IntArray, pids: IntArray) -> ClassTasks:
    streams: list[IntArray | int] = []
    for binding in task_class.body.streams:
        if isinstance(binding, StreamArray):
            streams.append(program.first_stream[binding.name])
        else:
            streams.append(program.first_stream[binding.stream.name] + binding.index.linear(pids))
    ports = sorted(task_class.tensor_ports, key=lambda port: port.arg)
    pid = tuple(np.ascontiguousarray(pids[:, axis]) for axis in range(pids.shape[1]))
    tiles = tuple((port.tensor.name, port.offsets(pids), port.tensor.strides) for port in ports)
    return ClassTasks(task_class, tasks, pid, tiles, tuple(streams))
