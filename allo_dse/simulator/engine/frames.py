"""Networks whose tasks start once per frame, like the tasks of a dataflow region that is called repeatedly."""

from __future__ import annotations

import numpy as np

from allo_dse.common.errors import SimulationError
from allo_dse.common.records import replace

from ..network.network import Network, Processes
from ..run_time.records import MAX_NESTING, Code, Op
from .steady import can_repeat


def repeated(network: Network, frames: int, *, restart: int = 1) -> Network:
    """The network with its tasks run once per frame.

    A node begins its next frame `restart` cycles after it has done the one before (T14), whatever others do; streams
    and arrays carry on from frame to frame. Where each node runs one table process, its table says so, and tasks keep
    their numbers. Otherwise task t of frame f is task `f * network.task_count + t`; after these come the restarts.

    Raises:
        SimulationError: if there is no frame.
    """
    if frames < 1:
        raise SimulationError(f"a network cannot run for {frames} frames", hint="run it for one or more")
    if frames == 1:
        return network
    if can_repeat(network) and network.node_count == network.task_count and nesting(network) < MAX_NESTING:
        return _in_rounds(network, frames, restart)
    nodes, tasks = network.node_count, network.task_count
    pauses = (frames - 1) * nodes
    row = len(network.rows) // 4
    none = np.zeros(pauses, np.int64)
    ports = len(network.resource_ports)
    restarts = Processes(np.full(pauses, row), np.full(pauses, len(network.stream_ports)), none + ports, none)
    # All tasks and restarts in the order of one node's frame, with their nodes and frames.
    order = np.append(network.order + tasks * np.arange(frames)[:, None], frames * tasks + np.arange(pauses))
    node = np.append(np.tile(network.task_node[network.order], frames), np.arange(pauses) % max(nodes, 1))
    frame = np.append(np.repeat(np.arange(frames), tasks), np.arange(pauses) // max(nodes, 1))
    return replace(
        network,
        groups=(*network.groups * frames, restarts),
        rows=np.concatenate([network.rows, [Code.WAIT, 0, restart, 0, Code.HALT, 0, 0, 0]]),
        order=order[np.lexsort((np.arange(len(order)), order >= frames * tasks, frame, node))],
        first=np.concatenate(([0], np.cumsum(np.bincount(node, minlength=nodes)))),
    )


def nesting(network: Network) -> int:
    """Return the nesting depth of repeats in a network's tables."""
    rows = network.rows.reshape(-1, Op.SIZE)
    return int(rows[rows[:, Op.CODE] == Code.REPEAT, Op.OPERAND].max(initial=-1)) + 1


def _in_rounds(network: Network, frames: int, restart: int) -> Network:
    """Each table once, and then frames - 1 times after a pause."""
    rows = network.rows.reshape(-1, Op.SIZE)
    level = nesting(network)
    ends = np.flatnonzero(rows[:, Op.CODE] == Code.HALT)
    starts = np.concatenate(([0], ends[:-1] + 1))
    pause = np.array([[Code.WAIT, 0, restart, 0]], np.int64)
    parts, first, at = [], {}, 0
    # Pauses separate frames, with none after the last: body, then (pause, body) frames - 1 times.
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        body = rows[start:end]
        again = np.array([[Code.REPEAT, level, frames - 1, len(body) + 1]], np.int64)
        once_more = [again] if frames > 2 else []
        parts += [body, pause, body, *once_more, rows[end : end + 1]]
        first[start] = at
        at += 2 * len(body) + 2 + len(once_more)
    groups = [
        replace(g, first_row=np.array([first[row] for row in g.first_row.tolist()], np.int64))
        for g in network.groups
        if isinstance(g, Processes)
    ]
    return replace(network, groups=tuple(groups), rows=np.concatenate(parts).ravel())
