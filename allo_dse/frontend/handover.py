"""Calls of regions in the middle of a task: the task starts the region's tasks and waits for them, by tokens.

before:  task { work; inner(A); more }
after:   task { work; a token to every task of inner; a token from every task of inner; more }
         task of inner { wait for the token; ...; give a token }
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from ..lang.types import bool as bool_
from ..lang.types import index
from . import meta, streams
from .meta import pid_of
from .program import StreamArray
from .regions import RegionSource, Sync, read_region
from .task import Task
from .values import Const, RegionCall, Scalar, StreamRef, Walk


def start_and_wait(task: Task, call: RegionCall) -> None:
    """Write the tokens that a task exchanges with the tasks of a region it calls."""
    node, first = call.node, np.argwhere(np.broadcast_to(task.mask, task.kernel.mesh))[0]
    parts = [task.kernel.parameters[position].part(first) for position in call.arguments]
    count = sum(math.prod(kernel.mesh) for kernel in read_region(call.region, "", parts).kernels)
    name = f"{task.kernel.name}_{''.join(task.path) or 'all'}_call{len(task.region_calls)}"
    shape = (*task.kernel.mesh, count)
    start, done = (
        StreamArray(f"{name}_{what}", bool_, (), 1, shape, task.location(node)) for what in ("start", "done")
    )
    task.handovers.append((start, done))
    pids = tuple(pid_of(task.kernel.mesh, axis) for axis in range(len(task.kernel.mesh)))
    with _each(task, count) as which:
        streams.put(task, StreamRef(start, (*pids, which), node), Const(True), node)
    with _each(task, count) as which:
        streams.get(task, StreamRef(done, (*pids, which), node), node)


@contextmanager
def _each(task: Task, count: int) -> Iterator[Scalar]:
    """A loop over the tasks of the region."""
    zero, stop, one = (task.text.constant(n, index) for n in (0, count, 1))
    name = task.text.name()
    with task.text.block(f"scf.for {name} = {zero} to {stop} step {one} {{"), task.repeated(count):
        yield Scalar(name, index, (0, count - 1), Walk(name, range(count)))


def with_sync(source: RegionSource, handover: tuple[StreamArray, StreamArray], pid: tuple[int, ...]) -> RegionSource:
    """The kernels of a called region, told which tokens to wait for and to give."""
    first = 0
    for position, kernel in enumerate(source.kernels):
        source.kernels[position] = replace(kernel, sync=Sync(*handover, pid, first))
        first += math.prod(kernel.mesh)
    return source


def wait_for_start(task: Task, sync: Sync, node: ast.AST) -> None:
    """The first thing that a task of a called region does."""
    streams.get(task, _own(task, sync.start, sync, node), node)


def say_done(task: Task, sync: Sync, node: ast.AST) -> None:
    """The last thing that a task of a called region does."""
    streams.put(task, _own(task, sync.done, sync, node), Const(True), node)


def _own(task: Task, stream: StreamArray, sync: Sync, node: ast.AST) -> StreamRef:
    """The stream of this task: one per task of the region, in the order of kernels and pids."""
    mesh = task.kernel.mesh
    number = meta.constant(0, len(mesh))
    for axis, extent in enumerate(mesh):
        scaled = meta.combine("*", number, meta.constant(extent, len(mesh)))
        number = meta.combine("+", scaled, pid_of(mesh, axis))
    number = meta.combine("+", number, meta.constant(sync.first, len(mesh)))
    return StreamRef(stream, (*(Const(i) for i in sync.pid), number), node)
