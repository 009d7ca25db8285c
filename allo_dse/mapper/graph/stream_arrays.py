"""The streams of a program as arrays, with the tasks that put and get. Built at the first use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from msgspec import Struct

from allo_dse.common.errors import AlloDseError
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.compiler.program.tensors import IntArray, StreamPort

from ..axes import AxisRule, axis_rules, computed_arrays
from .groups import task_names

MOST_EDGES = 4_000_000
"""More edges than this are not listed: they only arise where stream indices are computed at run time."""


class StreamEdges(Struct, frozen=True):
    """Streams that connect tasks, one entry each.

    Attributes:
        source, target: task ids.
        array: position of the stream's array in `compiler.program.tensors`.
        stream: the stream's number.
    """

    source: IntArray
    target: IntArray
    array: IntArray
    stream: IntArray

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True, eq=False)
class TaskGraph:
    """Tasks and streams of a compiled program."""

    program: CompiledProgram

    @cached_property
    def rules(self) -> tuple[tuple[AxisRule, ...], ...]:
        """The rule of each mesh axis of each kernel."""
        return axis_rules(self.program)

    @cached_property
    def names(self) -> list[str]:
        """The name of every task, by task id."""
        return task_names(self.program)

    @cached_property
    def edges(self) -> StreamEdges:
        """All streams that have both a producer and a consumer.

        Where a task computes at run time which stream of an array it uses, every stream it can reach counts.

        Raises:
            AlloDseError: if two tasks use the same end of a stream.
        """
        first = self.program.first_task
        return self._connect([(k, np.arange(first[k], first[k + 1])) for k in range(len(self.program.kernels))])

    @cached_property
    def crosses_kernels(self) -> bool:
        """True if any stream leads from one kernel to another."""
        users: dict[str, set[str]] = {}
        for kernel in self.program.kernels:
            for task_class in kernel.classes:
                for port in task_class.stream_ports:
                    users.setdefault(port.stream.name, set()).add(kernel.name)
        return any(len(kernels) > 1 for kernels in users.values())

    def cut_axes(self, kernel: int) -> tuple[int, ...]:
        """Axes along which nothing changes: no streams run along them and all tasks along them are of one class."""
        return tuple(axis for axis, rule in enumerate(self.rules[kernel]) if rule.how == "bundle")

    def slice_edges(self, kernel: int) -> StreamEdges:
        """The streams inside one kernel between tasks at index 0 of every cut axis; others are copies of these."""
        if kernel not in self._slices:
            mesh = self.program.kernels[kernel].mesh
            cut = self.cut_axes(kernel)
            kept = np.indices([1 if axis in cut else n for axis, n in enumerate(mesh)]).reshape(len(mesh), -1)
            tasks = np.asarray(np.ravel_multi_index(tuple(kept), mesh), np.int64) + self.program.first_task[kernel]
            self._slices[kernel] = self._connect([(kernel, tasks)])
        return self._slices[kernel]

    @cached_property
    def _slices(self) -> dict[int, StreamEdges]:
        return {}

    def _ports(self, number: int, tasks: IntArray) -> Iterator[tuple[StreamPort, IntArray, IntArray]]:
        """For each stream port of a kernel's classes: the streams it means, and which of the given tasks use it."""
        program = self.program
        kernel = program.kernels[number]
        if not any(cls.stream_ports for cls in kernel.classes):
            return
        pids = program.pids(number, tasks)
        classes = kernel.class_of(pids)
        for cls, task_class in enumerate(kernel.classes):
            members = np.flatnonzero(classes == cls)
            for port in task_class.stream_ports:
                yield port, program.first_stream[port.stream.name] + port.index.linear(pids[members]), tasks[members]

    def _connect(self, tasks: Sequence[tuple[int, IntArray]]) -> StreamEdges:
        """The streams among some tasks of some kernels."""
        ends: tuple[list[IntArray], list[IntArray]] = ([], [])
        for kernel, members in tasks:
            for port, streams, users in self._ports(kernel, members):
                ends[int(port.direction == "get")].append(np.stack([streams, users]))
        if not (ends[0] and ends[1]):
            return StreamEdges(*(np.zeros(0, np.int64) for _ in range(4)))
        puts, gets = (
            self._users(np.concatenate(end, axis=1), word) for end, word in zip(ends, ("put", "get"), strict=True)
        )
        starts = np.searchsorted(gets[0], puts[0], side="left")
        counts = np.searchsorted(gets[0], puts[0], side="right") - starts
        if counts.sum() > MOST_EDGES:
            raise AlloDseError(
                f"{self.program.name}: too many streams could connect too many tasks",
                hint="let stream indices depend on the process id only, so that it is known which tasks they connect",
            )
        stream, source = np.repeat(puts, counts, axis=1)
        first = np.repeat(starts - np.cumsum(counts) + counts, counts)
        return StreamEdges(source, gets[1, first + np.arange(len(first))], self.program.arrays_of(stream), stream)

    def _users(self, pairs: IntArray, word: str) -> IntArray:
        """Streams and the tasks at one end of them, (2, n), sorted by stream; a stream has one task at each end."""
        order = np.lexsort((pairs[1], pairs[0]))
        pairs = pairs[:, order]
        new = np.ones(pairs.shape[1], bool)
        new[1:] = (np.diff(pairs) != 0).any(axis=0)
        pairs = pairs[:, new]
        shared = np.flatnonzero(np.diff(pairs[0]) == 0)
        for at in shared.tolist():
            array = self.program.streams[int(self.program.arrays_of(pairs[0, at : at + 1])[0])]
            if array.name in self._computed:
                continue
            names = [self.program.task_name(int(task)) for task in pairs[1, at : at + 2]]
            raise AlloDseError(
                f"stream {array.name}: both {names[0]} and {names[1]} {word} tokens on the same stream",
                hint="a stream connects one producer with one consumer; use an array of streams",
            )
        return pairs

    @cached_property
    def _computed(self) -> set[str]:
        """Arrays of which some task computes at run time which stream it uses."""
        return {name for cls in self.program.task_classes for name in computed_arrays(cls)}

    @cached_property
    def element_type(self) -> IntArray:
        """Per stream array a number for its element type and block shape; equal numbers are equal types."""
        types: dict[tuple[object, ...], int] = {}
        numbers = [types.setdefault((a.dtype, a.block), len(types)) for a in self.program.streams]
        return np.array(numbers, np.int64)
