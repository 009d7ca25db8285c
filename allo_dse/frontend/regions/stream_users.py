"""Who uses which stream: counts per stream of an array, without listing tasks where a rule covers them all.

Arrays in this module broadcast against the shape of a stream array: length 1 stands for "the same for all".
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from msgspec import Struct

from allo_dse.program.index_maps import IntArray
from allo_dse.program.kernel import Kernel

from .blocks import PortUse
from .task_state import Task


class Endpoint(Struct, frozen=True, eq=False):
    """One put or get side: what tasks of a class do with streams of an array.

    Attributes:
        users: how many tasks use each stream.
        tokens: how many tokens they move through each, or None where that depends on data.
    """

    kernel: Kernel
    task: Task
    port: PortUse
    users: IntArray
    tokens: IntArray | None


def endpoint(kernel: Kernel, task: Task, port: PortUse) -> Endpoint:
    """The endpoint of a port with a known index."""
    passed = _passed_on(task, port)
    users, tokens = _scatter(task, port, passed)
    return Endpoint(kernel, task, port, users, tokens if port.tokens is not None else None)


def _passed_on(task: Task, port: PortUse) -> dict[int, int]:
    """Mesh axes that a dimension of the array just follows from end to end: {axis: dimension}."""
    assert port.index is not None
    passed: dict[int, int] = {}
    for axis, extent in enumerate(task.kernel.mesh):
        varying = [d for d, value in enumerate(port.index) if value.array.shape[axis] > 1]
        counted = isinstance(port.tokens, np.ndarray) and port.tokens.shape[axis] > 1
        if task.mask.shape[axis] > 1 or counted or len(varying) != 1:
            continue
        (dimension,) = varying
        unit = tuple(int(a == axis) for a in range(len(task.kernel.mesh)))
        if port.index[dimension].affine == (unit, 0) and port.stream.shape[dimension] == extent:
            passed[axis] = dimension
    return passed


def _scatter(task: Task, port: PortUse, passed: dict[int, int]) -> tuple[IntArray, IntArray]:
    """Count users and tokens per stream over the axes that are not passed on."""
    assert port.index is not None
    mesh = task.kernel.mesh
    tokens = np.asarray(0 if port.tokens is None else port.tokens)
    arrays = [task.mask, *(v.array for v in port.index)] + ([tokens] if tokens.ndim else [])
    shape = tuple(1 if a in passed else max(x.shape[a] for x in arrays) for a in range(len(mesh)))
    same = math.prod(n for a, n in enumerate(mesh) if shape[a] == 1 and a not in passed)
    where = np.nonzero(np.broadcast_to(task.mask, shape))
    grid = tuple(1 if d in passed.values() else n for d, n in enumerate(port.stream.shape))
    index: tuple[Any, ...] = tuple(
        0 if d in passed.values() else np.broadcast_to(value.array, shape)[where] for d, value in enumerate(port.index)
    )
    users, moved = np.zeros(grid, np.int64), np.zeros(grid, np.int64)
    np.add.at(users, index, same)
    np.add.at(moved, index, same * (np.broadcast_to(tokens, shape)[where] if tokens.ndim else tokens))
    return users, moved


def tasks_on(end: Endpoint, stream: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The pids of the tasks of an endpoint that use one stream (expands the mesh: for messages only)."""
    assert end.port.index is not None
    mesh = end.task.kernel.mesh
    hit = np.broadcast_to(end.task.mask, mesh).copy()
    for value, position in zip(end.port.index, stream, strict=True):
        hit &= np.broadcast_to(value.array == position, mesh)
    return [tuple(int(i) for i in pid) for pid in np.argwhere(hit)]


def at(array: IntArray, stream: tuple[int, ...]) -> int:
    """The entry of a broadcasting array for one stream."""
    return int(array[tuple(0 if n == 1 else i for i, n in zip(stream, array.shape, strict=True))])
