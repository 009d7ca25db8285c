"""Regions that call regions: a task whose body is a region call is replaced by that region's kernels.

before:  top { wrapper [2]: task 0 calls inner[2, 2], task 1 calls inner[4, 4] }
after:   top { wrapper_0_gemm [2, 2], wrapper_1_gemm [4, 4] }

A task that does other things as well stays, and exchanges tokens with the region's tasks (see `handover.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .checks import check_program
from .classes import compile_kernel
from .handover import with_sync
from .program import Kernel, StreamArray
from .regions import RegionSource, read_region
from .task import Task

MAX_DEPTH = 16


@dataclass(frozen=True, eq=False)
class CompiledPart:
    """The kernels that one region contributes to a program."""

    source: RegionSource
    kernels: tuple[Kernel, ...]
    warnings: tuple[str, ...]
    handovers: tuple[StreamArray, ...] = ()

    @property
    def streams(self) -> tuple[StreamArray, ...]:
        """The declared streams, and those that start the tasks of called regions."""
        return (*self.source.streams.values(), *self.handovers)


def compile_hierarchy(source: RegionSource, depth: int = 0) -> list[CompiledPart]:
    """Compile a region and the regions that its tasks call, outermost first.

    Raises:
        ProgramError: at the first thing that is wrong.
    """
    compiled = [compile_kernel(source, kernel) for kernel in source.kernels]
    kernels, sets = [kernel for kernel, _ in compiled], [tasks for _, tasks in compiled]
    warnings = check_program(source, kernels, sets)
    kept = [kernel for kernel, tasks in compiled if not all(map(_only_calls, tasks))]
    handovers = {stream.name: stream for tasks in sets for task in tasks for pair in task.handovers for stream in pair}
    parts = [CompiledPart(source, tuple(kept), tuple(warnings), tuple(handovers.values()))]
    for kernel, tasks in compiled:
        for task in tasks:
            for sources in _called(kernel, task, depth):
                inner = [compile_hierarchy(one, depth + 1) for one in sources]
                if _only_calls(task):
                    _check_independent(task, inner)
                parts.extend(part for group in inner for part in group)
    return parts


def _only_calls(task: Task) -> bool:
    """Whether the called regions simply take the tasks' place."""
    return bool(task.region_calls) and not task.does_more


def _called(kernel: Kernel, task: Task, depth: int) -> Iterator[list[RegionSource]]:
    """The regions that each task of a class calls."""
    if not task.region_calls:
        return
    first = task.region_calls[0]
    if depth >= MAX_DEPTH:
        task.fail(first.node, f"regions call each other more than {MAX_DEPTH} levels deep")
    for pid in np.argwhere(np.broadcast_to(task.mask, kernel.mesh)):
        sources = []
        for number, call in enumerate(task.region_calls):
            prefix = kernel.task_name(tuple(int(i) for i in pid)) + "_"
            prefix += f"{number}_" if len(task.region_calls) > 1 else ""
            actual = [task.kernel.parameters[position].part(pid) for position in call.arguments]
            inner = read_region(call.region, prefix, actual)
            own = tuple(int(i) for i in pid)
            sources.append(with_sync(inner, task.handovers[number], own) if task.does_more else inner)
        yield sources


def _check_independent(task: Task, called: list[list[CompiledPart]]) -> None:
    """Several regions called by one task run at the same time: none may touch a tensor that another one writes."""
    touched: set[str] = set()
    written: set[str] = set()
    for call, parts in zip(task.region_calls, called, strict=True):
        ports = [p for part in parts for k in part.kernels for c in k.classes for p in c.tensor_ports]
        writes = {p.tensor.name for p in ports if p.writes}
        uses = {p.tensor.name for p in ports if p.reads} | writes
        shared = sorted(writes & touched | uses & written)
        if shared:
            task.fail(
                call.node,
                f"two regions called by one task run at the same time, but share {', '.join(shared)}",
                "connect them with streams, or write to different tensors",
            )
        touched |= uses
        written |= writes
