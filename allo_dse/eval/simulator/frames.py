"""Networks whose tasks are started once per frame, as the tasks of a dataflow region are that is called again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...errors import SimulationError
from ...ir.layout import Code
from .network import IntArray, Network, Processes


def repeated(network: Network, frames: int, *, restart: int = 1) -> Network:
    """The network with its tasks run once per frame.

    A node begins its next frame `restart` cycles after it has done the one before, whatever the others do; streams
    and arrays carry on from frame to frame. Task t of frame f is task `f * network.task_count + t`; after these come
    the restarts.

    Raises:
        SimulationError: if there is no frame.
    """
    if frames < 1:
        raise SimulationError(f"a network cannot run for {frames} frames", hint="run it for one or more")
    nodes, tasks = network.node_count, network.task_count
    pauses = (frames - 1) * nodes
    row = len(network.rows) // 4
    none = np.zeros(pauses, np.int64)
    ports = len(network.resource_ports)
    restarts = Processes(np.full(pauses, row), np.full(pauses, len(network.stream_ports)), none + ports, none)
    order, node, frame = _all_tasks(network, frames)
    return replace(
        network,
        groups=(*network.groups * frames, restarts) if pauses else network.groups,
        rows=np.concatenate([network.rows, [Code.WAIT, 0, restart, 0, Code.HALT, 0, 0, 0]]),
        order=order[np.lexsort((np.arange(len(order)), order >= frames * tasks, frame, node))],
        first=np.concatenate(([0], np.cumsum(np.bincount(node, minlength=nodes)))),
    )


def _all_tasks(network: Network, frames: int) -> tuple[IntArray, IntArray, IntArray]:
    """All tasks and restarts in the order of one node's frame, with their nodes and frames."""
    nodes, tasks = network.node_count, network.task_count
    of_frame = np.arange(frames)[:, None]
    order = (network.order + tasks * of_frame).ravel()
    node = np.tile(np.repeat(np.arange(nodes), np.diff(network.first)), frames)
    frame = np.repeat(np.arange(frames), tasks)
    pauses = np.arange((frames - 1) * nodes)
    order = np.concatenate([order, frames * tasks + pauses])
    return order, np.concatenate([node, pauses % max(nodes, 1)]), np.concatenate([frame, pauses // max(nodes, 1)])
