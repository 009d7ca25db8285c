"""Regions that call regions: a task whose body is a region call is replaced by that region's kernels.

before:  top { wrapper [2]: task 0 calls inner[2, 2], task 1 calls inner[4, 4] }
after:   top { wrapper_0_gemm [2, 2], wrapper_1_gemm [4, 4] }
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .checks import check_program
from .classes import compile_kernel
from .program import Kernel
from .regions import RegionSource, read_region
from .task import Task

MAX_DEPTH = 16


@dataclass(frozen=True, eq=False)
class CompiledPart:
    """The kernels that one region contributes to a program."""

    source: RegionSource
    kernels: tuple[Kernel, ...]
    warnings: tuple[str, ...]


def compile_hierarchy(source: RegionSource, depth: int = 0) -> list[CompiledPart]:
    """Compile a region and the regions that its tasks call, outermost first.

    Raises:
        ProgramError: at the first thing that is wrong.
    """
    compiled = [compile_kernel(source, kernel) for kernel in source.kernels]
    kernels, sets = [kernel for kernel, _ in compiled], [tasks for _, tasks in compiled]
    warnings = check_program(source, kernels, sets)
    kept = [kernel for kernel, tasks in compiled if not all(task.region_calls for task in tasks)]
    parts = [CompiledPart(source, tuple(kept), tuple(warnings))]
    for kernel, tasks in compiled:
        for task in tasks:
            for sources in _called(kernel, task, depth):
                inner = [compile_hierarchy(one, depth + 1) for one in sources]
                _check_independent(task, inner)
                parts.extend(part for group in inner for part in group)
    return parts


def _called(kernel: Kernel, task: Task, depth: int) -> Iterator[list[RegionSource]]:
    """The regions that each task of a class calls."""
    if not task.region_calls:
        return
    first = task.region_calls[0]
    if task.work or task.stream_ops:
        task.fail(
            first.node, "a task that calls a region can do nothing else", "move the rest into a kernel of its own"
        )
    if depth >= MAX_DEPTH:
        task.fail(first.node, f"regions call each other more than {MAX_DEPTH} levels deep")
    for pid in np.argwhere(np.broadcast_to(task.mask, kernel.mesh)):
        sources = []
        for number, call in enumerate(task.region_calls):
            prefix = kernel.task_name(tuple(int(i) for i in pid)) + "_"
            prefix += f"{number}_" if len(task.region_calls) > 1 else ""
            actual = [task.kernel.parameters[position].tensor for position in call.arguments]
            sources.append(read_region(call.region, prefix, actual))
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
