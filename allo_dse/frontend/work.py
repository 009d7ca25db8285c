"""How often the work of a body is done where its loops depend on each other."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from allo_dse.common.records import replace
from allo_dse.ir.nest import Nest, read_nest
from allo_dse.ir.rounds import rounds
from allo_dse.program.index_maps import IntArray
from allo_dse.program.tasks import TileOp

from .model.pid_values import table
from .regions.task_state import Task

_MOST_TRIED = 1 << 18
"""Tasks, and values of loop variables in them, that are gone through one by one."""


def counted(task: Task, mlir: str) -> Iterator[TileOp]:
    """The work of a body, counted where loops and conditions on their variables decide how often it is done."""
    unknown = [site for site, op in enumerate(task.work) if op.count is None and op.counts is None]
    nest = read_nest(mlir) if unknown else None
    for site, op in enumerate(task.work):
        counts = None if nest is None or site not in unknown else _rounds_of(task, nest, site)
        if counts is None:
            yield op
            continue
        alike = np.unique(task.per_task(table(counts)))
        yield replace(op, count=int(alike[0])) if len(alike) == 1 else replace(op, counts=counts)


def _rounds_of(task: Task, nest: Nest, site: int) -> IntArray | None:
    """How often each task does some of its work; broadcasts against the mesh. None where data decides."""
    paths = nest.priced.get(site, ())
    deciding = {v for path in paths for around in path for v in around.variables}
    mesh = tuple(extent if pid in deciding else 1 for pid, extent in zip(nest.pids, task.kernel.mesh, strict=True))
    if math.prod(mesh) > _MOST_TRIED:
        return None
    counts, left = np.zeros(mesh, np.int64), iter(range(_MOST_TRIED))
    for pid in np.ndindex(mesh):
        found = [rounds(path, dict(zip(nest.pids, pid, strict=True)), left) for path in paths]
        if not found or None in found:
            return None
        counts[pid] = sum(one for one in found if one is not None)
    return counts
