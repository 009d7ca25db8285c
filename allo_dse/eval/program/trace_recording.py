"""Recording the trace of a program, also of one that deadlocks at its depths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from allo_dse.mapper.fold.vmg import VMG
from allo_dse.simulator.deadlock.explain import DeadlockError
from allo_dse.simulator.replay.trace import Trace

from .functional import run_graph


def record_graph(
    vmg: VMG, *arrays: object, depths: Mapping[str, int] | None = None, seconds: float | None = None
) -> Trace:
    """The trace of a graph's run on arrays, which keep their contents.

    Raises:
        DeadlockError: if it deadlocks with any depths.
        SimulationError: as `run_graph`.
        TraceError: if what it does cannot be replayed.
    """
    given = [a.copy() if isinstance(a, np.ndarray) else a for a in arrays]
    try:
        return Trace.recorded(run_graph(vmg, *given, depths=depths, seconds=seconds, record=True))
    except DeadlockError as error:
        if error.increase is None or not error.increase.changes:
            raise
        changes = {error.labels.array(stream): (old, new) for stream, old, new in error.increase.changes}
    deeper = {array: new for array, (_, new) in changes.items()}
    given = [a.copy() if isinstance(a, np.ndarray) else a for a in arrays]
    result = run_graph(vmg, *given, depths={**(depths or {}), **deeper}, seconds=seconds, record=True)
    depth = result.network.depth.copy()
    for stream in range(len(depth)):
        old, new = changes.get(result.labels.array(stream), (0, 0))
        if depth[stream] == new:
            depth[stream] = old
    return Trace(replace(Trace.recorded(result).data, stream_depth=depth))
