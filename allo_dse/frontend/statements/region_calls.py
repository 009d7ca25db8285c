"""Calls of regions in the middle of a task: the task starts the region's tasks and waits for them, by tokens.

before:  task { work; inner(A); more }
after:   task { work; a token to every task of inner; a token from every task of inner; more }
         task of inner { wait for the token; ...; give a token }

A region that is called in a loop, or only where data says so, has tasks that wait for the next call; the last token
that they get says that there will be none.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from allo_dse.common.records import replace
from allo_dse.lang.types import bool as bool_
from allo_dse.lang.types import index
from allo_dse.program.streams import StreamArray

from ..model import pid_values as meta
from ..model.index_forms import Form, variable
from ..model.pid_values import Meta, pid_of
from ..model.values import Const, RegionCall, Scalar, StreamRef, Walk
from ..ops import streams
from ..ops.scalars import as_scalar
from ..regions.read_regions import read_region
from ..regions.region_sources import RegionSource, Sync
from ..regions.task_state import Task


def start_and_wait(task: Task, call: RegionCall) -> None:
    """Write the tokens that a task exchanges with the tasks of a region it calls."""
    node, first = call.node, np.argwhere(np.broadcast_to(task.mask, task.kernel.mesh))[0]
    parts = [task.parameter(position).part(first) for position in call.arguments]
    count = read_region(call.region, "", parts).task_count
    name = f"{task.kernel.name}_{''.join(task.path) or 'all'}_call{len(task.region_calls)}"
    shape = (*task.kernel.mesh, count)
    start, done = (
        StreamArray(f"{name}_{what}", bool_, (), 1, shape, task.location(node)) for what in ("start", "done")
    )
    once = isinstance(task.count, int) and task.count == 1
    sync = Sync(start, done, repeated=not once, node=node)
    task.handovers.append(sync)
    _tell(task, sync, True)
    with _each(task, count) as which:
        streams.get(task, StreamRef(done, (*_own_pid(task), which), node), node)


def stop_called(task: Task) -> None:
    """The last thing that a task does: the tasks of regions that it calls again and again wait for no more calls."""
    for sync in task.handovers:
        if sync.repeated:
            _tell(task, sync, False)


def _tell(task: Task, sync: Sync, go: bool) -> None:
    """A token to every task of a called region."""
    with _each(task, sync.start.shape[-1]) as which:
        streams.put(task, StreamRef(sync.start, (*_own_pid(task), which), sync.node), Const(go), sync.node)


def _own_pid(task: Task) -> tuple[Meta, ...]:
    return tuple(pid_of(task.kernel.mesh, axis) for axis in range(len(task.kernel.mesh)))


@contextmanager
def _each(task: Task, count: int) -> Iterator[Scalar]:
    """A loop over the tasks of the region."""
    zero, stop, one = (task.text.constant(n, index) for n in (0, count, 1))
    name = task.text.name()
    with task.text.block(f"scf.for {name} = {zero} to {stop} step {one} {{"), task.repeated(count):
        yield Scalar(name, index, variable("", Form(0), Form(count), 1), Walk(name, range(count)))


def with_sync(source: RegionSource, sync: Sync, pid: tuple[int, ...]) -> RegionSource:
    """The kernels of a called region, told which tokens to wait for and to give."""
    first = 0
    for position, kernel in enumerate(source.kernels):
        source.kernels[position] = replace(kernel, sync=replace(sync, pid=pid, first=first))
        first += kernel.task_count
    return source


@contextmanager
def when_started(task: Task) -> Iterator[None]:
    """Around the body of a task: that of a called region runs when it is told to, and says when it is done."""
    sync, node = task.kernel.sync, task.kernel.node
    if sync is None:
        yield
        return
    start, done = (_own(task, stream, sync, node) for stream in (sync.start, sync.done))
    if not sync.repeated:
        streams.get(task, start, node)
        yield
        streams.put(task, done, Const(True), node)
        return
    with task.guarded():
        with task.text.block("scf.while : () -> () {", "} do {"):
            told = as_scalar(task, streams.get(task, start, node), node)
            task.text.line(f"scf.condition({told.ssa})")
        with task.text.continued("}"):
            yield
            streams.put(task, done, Const(True), node)
            task.text.line("scf.yield")


def _own(task: Task, stream: StreamArray, sync: Sync, node: ast.AST) -> StreamRef:
    """The stream of this task: one per task of the region, in the order of kernels and pids."""
    mesh = task.kernel.mesh
    number = meta.constant(0, len(mesh))
    for axis, extent in enumerate(mesh):
        scaled = meta.combine("*", number, meta.constant(extent, len(mesh)))
        number = meta.combine("+", scaled, pid_of(mesh, axis))
    number = meta.combine("+", number, meta.constant(sync.first, len(mesh)))
    return StreamRef(stream, (*(Const(i) for i in sync.pid), number), node)
