"""A program as a circuit: which kernel each task is, what its ports are connected to, the FIFOs between tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from allo_dse.common.records import replace
from allo_dse.program.compiled import CompiledProgram
from allo_dse.program.index_maps import IntArray
from allo_dse.program.streams import StreamArray
from allo_dse.program.tasks import TaskClass

from .flat_kernel import lower_kernel
from .kernel_ports import RtlError, RtlKernel

if TYPE_CHECKING:
    from ..hls import Folding


@dataclass(frozen=True)
class Tile:
    """Location of a task's part of a tensor: the part's row-major shape, and strides and offset in the tensor."""

    tensor: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


class Task(Struct, frozen=True):
    """One task: its kernel, the values of its pid, its tensors' parts and the numbers of its FIFOs.

    Attributes:
        node: the processing element it runs on.
        after: the task that runs there before it.
    """

    name: str
    kernel: int
    pid: tuple[int, ...]
    tiles: tuple[Tile, ...]
    streams: tuple[int, ...]
    node: int
    after: int | None = None


class Fifo(Struct, frozen=True):
    """A stream: bits of a word, words it holds. A block is as many words as it has elements."""

    name: str
    width: int
    depth: int


class Circuit(Struct, frozen=True):
    """Everything the test bench and synthesis need.

    Attributes:
        tensors: per tensor bits of an element and number of elements.
    """

    kernels: tuple[RtlKernel, ...]
    tasks: tuple[Task, ...]
    fifos: tuple[Fifo, ...]
    tensors: dict[str, tuple[int, int]]


def build_circuit(
    program: CompiledProgram, depths: Mapping[str, int], *, overlap: bool = False, folding: Folding | None = None
) -> Circuit:
    """The circuit of a program.

    Args:
        depths: stream depths by array name, where they differ from the declared ones.
        overlap: see `lower_kernel`.
        folding: which tasks run on one processing element, and which FIFO carries each stream, with depths; by default
            every task and every stream has its own.

    Raises:
        RtlError: for what the flow cannot do.
    """
    for name in depths:
        if name not in {array.name for array in program.streams}:
            raise RtlError(f"{program.name} has no stream {name!r}", hint="name a stream array of the program")
    for tensor in program.tensors:
        if tensor.dtype.is_float:
            raise RtlError(f"tensor {tensor.name} is of {tensor.dtype}", hint="the open RTL flow has integers only")
    kernels: list[RtlKernel] = []
    tasks: list[Task] = []
    for position, kernel in enumerate(program.kernels):
        numbers = np.arange(program.first_task[position], program.first_task[position + 1])
        pids = program.pids(position, numbers)
        classes = kernel.class_of(pids)
        first = len(kernels)
        kernels += [lower_kernel(task_class, kernel.mesh, overlap=overlap) for task_class in kernel.classes]
        for row, which in enumerate(classes):
            task = _task(program, kernel.classes[which], first + int(which), pids[row : row + 1])
            tasks.append(replace(task, node=len(tasks)))
    fifos = [fifo for array in program.streams for fifo in _fifos(array, depths.get(array.name, array.depth))]
    if folding is not None:
        tasks, fifos = _folded_tasks(tasks, folding), _folded_fifos(program, fifos, folding)
    tensors = {t.name: (t.dtype.bits, max(1, math.prod(t.shape))) for t in program.tensors}
    return Circuit(tuple(kernels), tuple(tasks), tuple(fifos), tensors)


def _task(program: CompiledProgram, task_class: TaskClass, kernel: int, pid: IntArray) -> Task:
    tiles = tuple(
        Tile(port.tensor.name, port.tile_shape, port.tensor.strides, int(port.offsets(pid)[0]))
        for port in sorted(task_class.tensor_ports, key=lambda port: port.arg)
    )
    streams = tuple(
        program.first_stream[binding.stream.name] + int(binding.index.linear(pid)[0])
        for binding in task_class.body.streams
        if not isinstance(binding, StreamArray)
    )
    values = tuple(int(p) for p in pid[0])
    return Task("_".join([task_class.kernel, *map(str, values)]), kernel, values, tiles, streams, node=0)


def _folded_tasks(tasks: list[Task], folding: Folding) -> list[Task]:
    """Tasks with their nodes and predecessors, at the FIFOs of the fold."""
    found = [replace(task, streams=tuple(folding.fifo[stream] for stream in task.streams)) for task in tasks]
    for node, members in enumerate(folding.nodes):
        for before, number in zip((None, *members), members, strict=False):
            found[number] = replace(found[number], node=node, after=before)
    return found


def _folded_fifos(program: CompiledProgram, fifos: list[Fifo], folding: Folding) -> list[Fifo]:
    """The fold's FIFOs, named after the first of the streams that they carry."""
    blocks = [max(1, math.prod(array.block)) for array in program.streams for _ in range(array.count)]
    carried = {fifo: stream for stream, fifo in reversed(list(enumerate(folding.fifo)))}
    return [
        replace(fifos[carried[number]], depth=depth * blocks[carried[number]])
        for number, depth in enumerate(folding.depth)
    ]


def _fifos(array: StreamArray, depth: int) -> list[Fifo]:
    if depth < 1:
        raise RtlError(f"stream {array.name} cannot hold {depth} tokens", hint="a depth is at least 1")
    if array.dtype.is_float:
        raise RtlError(f"stream {array.name} is of {array.dtype}", hint="the open RTL flow has integers only")
    names = [array.name]
    if array.shape:
        names = [f"{array.name}[{', '.join(map(str, index))}]" for index in np.ndindex(*array.shape)]
    return [Fifo(name, array.dtype.bits, depth * max(1, math.prod(array.block))) for name in names]
