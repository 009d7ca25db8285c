"""Regions that call regions: a task whose body is a region call is replaced by that region's kernels.

before:  top { wrapper [2]: task 0 calls inner[2, 2], task 1 calls inner[4, 4] }
after:   top { wrapper_0_gemm [2, 2], wrapper_1_gemm [4, 4] }

A task that does other things as well stays, and exchanges tokens with the region's tasks (see `region_calls.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from allo_dse.program.kernel import Kernel
from allo_dse.program.locations import Construct
from allo_dse.program.streams import StreamArray
from allo_dse.program.watch import Watch

from .classes import compile_kernel
from .regions.checks import check_program
from .regions.read_regions import read_region
from .regions.region_sources import RegionSource, SharedArray
from .regions.task_state import Task
from .statements.region_calls import with_sync

MAX_DEPTH = 16


class CompiledPart(Struct, frozen=True, eq=False):
    """The kernels that one region contributes to a program."""

    source: RegionSource
    kernels: tuple[Kernel, ...]
    warnings: tuple[str, ...]
    handovers: tuple[StreamArray, ...] = ()
    shared: tuple[SharedArray, ...] = ()
    constructs: tuple[Construct, ...] = ()

    @property
    def streams(self) -> tuple[StreamArray, ...]:
        """The declared streams, and those that start the tasks of called regions."""
        return (*self.source.streams.values(), *self.handovers)


def compile_hierarchy(source: RegionSource, watch: Watch | None = None, depth: int = 0) -> list[CompiledPart]:
    """Compile a region and the regions that its tasks call, outermost first.

    Raises:
        ProgramError: at the first thing that is wrong.
    """
    if watch is not None:  # a task that only calls regions becomes one at least, too
        watch.tasks(source.task_count)
    compiled = [compile_kernel(source, kernel, watch) for kernel in source.kernels]
    kernels, sets = [kernel for kernel, _ in compiled], [tasks for _, tasks in compiled]
    warnings = check_program(source, kernels, sets)
    kept = [kernel for kernel, tasks in compiled if not all(map(_only_calls, tasks))]
    every = [task for tasks in sets for task in tasks]
    handovers = {one.name: one for task in every for sync in task.handovers for one in (sync.start, sync.done)}
    shared = {one.parameter.tensor.name: one for task in every for one in task.shared}
    constructs = tuple(dict.fromkeys(one for task in every for one in task.constructs))
    parts = [
        CompiledPart(
            source, tuple(kept), tuple(warnings), tuple(handovers.values()), tuple(shared.values()), constructs
        )
    ]
    for kernel, tasks in compiled:
        for task in tasks:
            for sources in _called(kernel, task, depth):
                parts.extend(part for one in sources for part in compile_hierarchy(one, watch, depth + 1))
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
            actual = [task.parameter(position).part(pid) for position in call.arguments]
            inner = read_region(call.region, prefix, actual)
            own = tuple(int(i) for i in pid)
            sources.append(with_sync(inner, task.handovers[number], own) if task.does_more else inner)
        yield sources
