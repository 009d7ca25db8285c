"""Length of a run if some of its processes worked twice as fast: the whole run's bottleneck, by experiment."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from allo_dse.common.records import Frozen, replace

from ..network.network import IntArray, Network
from ..run_time.records import Code, Op
from .engine import table_engine

SHARED = "DRAM"
"""Name of the service of shared resources."""


class Faster(Frozen):
    """Length of the run when one thing is twice as fast.

    Attributes:
        name: of the faster thing; share: fraction of the run's cycles that remains.
    """

    name: str
    share: float


def twice_as_fast(network: Network, kinds: Sequence[str], *, seconds: float | None = None) -> list[Faster]:
    """Run a network of table processes once for each kind of nodes, and once for the service of shared resources.

    Everything else takes twice the cycles instead, so that no time is rounded; cycles that tokens are on their way in
    FIFOs stay as they are. Where resources are shared, requests may come in another order: a share can then be less
    than a half, or more than 1.

    Args:
        kinds: of each node.
        seconds: time limit of each run.

    Returns:
        What helps most first.

    Raises:
        SimulationError: at the time limit.
    """
    rows = network.rows.reshape(-1, Op.SIZE)
    code, owner = rows[:, Op.CODE], _owners(network)
    waits = np.flatnonzero(code == Code.WAIT)
    asks = np.flatnonzero(code == Code.REQUEST)
    names = list(dict.fromkeys(kinds))
    number = np.array([names.index(kind) for kind in kinds])
    own = {name: waits[number[owner[waits]] == place] for place, name in enumerate(names)}
    groups = {**own, SHARED: asks}

    def cycles(fast: IntArray) -> int:
        changed = network.rows.copy()
        slow = np.setdiff1d(np.concatenate([waits, asks]), fast)
        changed.reshape(-1, Op.SIZE)[slow, Op.VALUE] *= 2
        return table_engine().run(replace(network, rows=changed), extrapolate=True, seconds=seconds).cycles

    base = max(1, cycles(np.zeros(0, np.int64)))
    found = [Faster(name, cycles(fast) / base) for name, fast in groups.items() if len(fast)]
    return sorted(found, key=lambda faster: faster.share)


def _owners(network: Network) -> IntArray:
    """Per row a node that executes it; tables that several share belong to the first of them."""
    tables, first = np.unique(network.first_row, return_index=True)
    table = np.searchsorted(tables, np.arange(len(network.rows) // Op.SIZE), side="right") - 1
    return network.task_node[first[np.maximum(table, 0)]]
