"""Tries of the depth search (`deadlock.depths`) that are replays, which know the least growth of streams."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..deadlock import Blocked, Growth, Increase, NoDepthHelps, Search, wait_cycle
from .kernels import Bursts, untimed
from .plan import Plan, blocked_processes
from .trace_data import IntArray, TraceData, TraceError


def smallest_depths(data: TraceData, plan: Plan, start: IntArray, max_runs: int) -> Increase:
    """The smallest increase of `start`; after `max_runs` tries, the cheapest choice each time.

    Raises:
        TraceError: if no depths help: a process waits for a token that is never put, or a cycle waits for tokens only.
    """
    if start.ndim != 1:
        raise TraceError("smallest_depths starts from one depth vector, not from a batch")
    origin = np.minimum(start, np.maximum(plan.puts, 1))
    try:
        found = Search(_Replays(data, plan), origin.tolist()).run(max_runs)
    except NoDepthHelps as error:
        raise TraceError(f"no depths clear this deadlock: {error}") from None
    depths = start + (np.array(found.depths, np.int64) - origin)
    grown = np.flatnonzero(depths > start).tolist()
    changes = tuple((s, int(start[s]), int(depths[s])) for s in grown)
    added = int((depths - start).sum())
    return Increase(changes, depths, added, found.at_least, found.runs, found.is_minimal, names=data.streams)


class _Replays:
    """Replays without times."""

    is_least = True

    def __init__(self, data: TraceData, plan: Plan) -> None:
        self._data, self._plan = data, plan

    def __call__(self, depths: tuple[int, ...]) -> Growth:
        plan = self._plan
        vector = np.array(depths, np.int64)
        position = _stuck(plan, vector)
        waiting = {b.node: b for b in blocked_processes(plan, position, vector, position)}
        if not waiting:
            return []
        cycle = wait_cycle(waiting)
        if not cycle:
            return [self._ended_reader(waiting, vector)]
        growth = []
        for i, b in enumerate(cycle):
            if b.direction == "put":
                waiter = cycle[i - 1]
                awaited = waiter.stream + (plan.streams if waiter.direction == "get" else 0)
                growth.append((b.stream, _puts_before(plan, b.node, int(position[b.node]), b.stream, awaited)))
        if not growth:
            names = " -> ".join(self._data.processes[b.task] for b in (*cycle, cycle[0]))
            raise NoDepthHelps(f"{names} all wait for a token before they put one")
        return sorted(set(growth))

    def _ended_reader(self, waiting: Mapping[int, Blocked], depths: IntArray) -> tuple[int, int]:
        """No process reads the rest of a stream: it must hold all of it."""
        plan, data = self._plan, self._data
        b = next(b for b in waiting.values() if b.peer_node not in waiting)
        if b.direction == "get":
            raise NoDepthHelps(
                f"{data.processes[b.task]} takes {plan.gets[b.stream]} tokens from {data.streams[b.stream]}, "
                f"into which only {plan.puts[b.stream]} are put"
            )
        return b.stream, int(plan.puts[b.stream] - plan.gets[b.stream] - depths[b.stream])


def _stuck(plan: Plan, depths: IntArray) -> IntArray:
    position = plan.first[:-1].copy()
    untimed(plan.operations, plan.clip(depths), position, Bursts(np.zeros(0, np.int32), np.zeros(0, np.int64)))
    return position


def _puts_before(plan: Plan, process: int, position: int, stream: int, awaited: int) -> int:
    """Tokens that a process puts to `stream` from `position` on, up to its next operation on the port `awaited`."""
    ports = plan.port[position : plan.first[process + 1]]
    at = np.flatnonzero(ports == awaited)
    end = int(at[0]) if len(at) else len(ports)
    return max(int(np.count_nonzero(ports[:end] == stream + plan.streams)), 1)
