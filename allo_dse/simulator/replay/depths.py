"""The smallest depths that clear a deadlock.

Whether a design deadlocks does not depend on its times, and deeper streams never cause one. Where it sticks at depths
d, processes wait for each other in a cycle; each of them that waits to put needs m free slots (one at least) before it
comes to the operation that its waiter is waiting for. If every full stream of the cycle grew by less than its m, none
of them could be the first to come to that operation, so every vector that clears the deadlock has some stream s of the
cycle at least at d[s] + m. Trying these streams one by one, smallest total increase first, therefore finds the smallest
total; when only one stream of the cycle is full, as is usual, there is nothing to choose.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from ..trace.data import IntArray, TraceData, TraceError
from .deadlock import wait_cycle, waits
from .kernels import untimed
from .plan import Plan


@dataclass(frozen=True, eq=False)
class SmallestDepths:
    """Depths that do not deadlock.

    Attributes:
        depths: int64[streams].
        increase: the streams that had to grow, by name, with their new depths.
        added: total number of slots added.
        at_least: no increase by fewer slots clears the deadlock.
        runs: depth vectors tried.
    """

    depths: IntArray
    increase: dict[str, int]
    added: int
    at_least: int
    runs: int

    @property
    def advice(self) -> str:
        """What to do, in a sentence."""
        if not self.increase:
            return "nothing has to be deeper"
        what = ", ".join(f"{name} to {depth}" for name, depth in self.increase.items())
        return f"raise {what}" + ("" if self.proven else " (perhaps less is enough: the search was cut short)")

    @property
    def proven(self) -> bool:
        """Whether no smaller total increase exists; if not, still no single stream can be less deep."""
        return self.added == self.at_least


def smallest_depths(data: TraceData, plan: Plan, start: IntArray, max_runs: int) -> SmallestDepths:
    """Best-first search over the streams that must grow; after `max_runs` tries, the cheapest choice each time.

    Raises:
        TraceError: if no depths help: a process waits for a token that is never put, or a cycle waits for tokens only.
    """
    if start.ndim != 1:
        raise TraceError("smallest_depths starts from one depth vector, not from a batch")
    origin = np.minimum(start, np.maximum(plan.puts, 1))
    open_: list[tuple[int, tuple[int, ...]]] = [(0, tuple(origin.tolist()))]
    seen = {open_[0][1]}
    runs = 0
    while runs < max_runs:
        added, vector = heapq.heappop(open_)
        runs += 1
        choices = required_growth(data, plan, np.array(vector, np.int64))
        if not choices:
            return _answer(data, start, origin, np.array(vector, np.int64), added, runs)
        for stream, slots in choices:
            deeper = (*vector[:stream], vector[stream] + slots, *vector[stream + 1 :])
            if deeper not in seen:
                seen.add(deeper)
                heapq.heappush(open_, (added + slots, deeper))
    bound, vector = open_[0]
    depths = np.array(vector, np.int64)
    while choices := required_growth(data, plan, depths):
        stream, slots = min(choices, key=lambda choice: choice[1])
        depths[stream] += slots
        runs += 1
    runs += _shrink(plan, depths, origin)
    return _answer(data, start, origin, depths, bound, runs)


def _answer(
    data: TraceData, start: IntArray, origin: IntArray, found: IntArray, bound: int, runs: int
) -> SmallestDepths:
    depths = start + (found - origin)
    grown = np.flatnonzero(depths > start).tolist()
    increase = {data.streams[s]: int(depths[s]) for s in grown}
    return SmallestDepths(depths, increase, int((depths - start).sum()), bound, runs)


def required_growth(data: TraceData, plan: Plan, depths: IntArray) -> list[tuple[int, int]]:
    """Streams of which at least one must grow by at least so many slots; empty if `depths` do not deadlock."""
    position = _stuck(plan, depths)
    waiting = waits(plan, position)
    if not waiting:
        return []
    cycle = wait_cycle(waiting)
    if not cycle:
        return [_ended_reader(data, plan, waiting, depths)]
    growth = []
    for i, p in enumerate(cycle):
        getting, stream, _ = waiting[p]
        if not getting:
            theirs_getting, theirs, _ = waiting[cycle[i - 1]]
            awaited = theirs + (plan.streams if theirs_getting else 0)
            growth.append((stream, _puts_before(plan, p, int(position[p]), stream, awaited)))
    if not growth:
        names = " -> ".join(data.processes[p] for p in [*cycle, cycle[0]])
        raise TraceError(f"no depths clear this deadlock: {names} all wait for a token before they put one")
    return sorted(set(growth))


def _stuck(plan: Plan, depths: IntArray) -> IntArray:
    position = plan.first[:-1].copy()
    held = np.zeros(plan.streams, np.int64)
    none = np.zeros(0, np.int64)
    untimed(plan.first, plan.port, plan.clip(depths), plan.peers, plan.peer, plan.streams, position, held,
            none.astype(np.int32), none)  # fmt: skip
    return position


def _puts_before(plan: Plan, process: int, position: int, stream: int, awaited: int) -> int:
    """Tokens that a process puts to `stream` from `position` on, up to its next operation on the port `awaited`."""
    ports = plan.port[position : plan.first[process + 1]]
    at = np.flatnonzero(ports == awaited)
    end = int(at[0]) if len(at) else len(ports)
    return max(int(np.count_nonzero(ports[:end] == stream + plan.streams)), 1)


def _ended_reader(
    data: TraceData, plan: Plan, waiting: dict[int, tuple[bool, int, int]], depths: IntArray
) -> tuple[int, int]:
    """Nobody reads the rest of a stream: it must hold all of it."""
    p, (getting, stream, _) = next((p, w) for p, w in waiting.items() if w[2] not in waiting)
    if getting:
        raise TraceError(
            f"no depths clear this deadlock: {data.processes[p]} takes {plan.gets[stream]} tokens from "
            f"{data.streams[stream]}, into which only {plan.puts[stream]} are put"
        )
    return stream, int(plan.puts[stream] - plan.gets[stream] - depths[stream])


def _shrink(plan: Plan, depths: IntArray, least: IntArray) -> int:
    """Make every stream as shallow as the others allow; returns the number of runs."""
    runs = 0
    for stream in np.flatnonzero(depths > least).tolist():
        low, high = int(least[stream]), int(depths[stream])
        while low < high:
            depths[stream] = (low + high) // 2
            runs += 1
            if (_stuck(plan, depths) < plan.first[1:]).any():
                low = int(depths[stream]) + 1
            else:
                high = int(depths[stream])
        depths[stream] = high
    return runs
