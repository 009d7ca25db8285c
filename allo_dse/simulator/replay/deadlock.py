"""Why a replay stopped before its end, in the trace's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..engine.deadlock import Blocked, Deadlock
from ..trace.data import IntArray, TraceData
from .plan import Plan

Wait = tuple[bool, int, int]
"""Whether a process waits to get, the stream, and the process at the other end (or -1)."""


@dataclass(frozen=True)
class PlaceLabels:
    """How a trace calls its processes and streams, and the places where processes are."""

    trace: TraceData
    places: Mapping[int, str]

    def task(self, task: int) -> str:
        return self.trace.processes[task]

    def stream(self, stream: int) -> str:
        return self.trace.streams[stream]

    def operation(self, task: int, op: int) -> str:
        return self.places[task]


def describe_place(iteration: int, loop: int, source: str) -> str:
    """A place in a process, `loop` counting its loops."""
    return f"iteration {iteration} of its loop {loop}{f' at {source}' if source else ''}"


def trace_labels(trace: TraceData, plan: Plan, position: IntArray) -> PlaceLabels:
    """Labels for processes that have come to these operations."""
    places = {}
    for p in range(plan.processes):
        if position[p] < plan.first[p + 1]:
            event = int(plan.event[position[p]])
            if trace.place is not None:
                places[p] = trace.places[trace.place[event]]
                continue
            number = int(trace.events.loop[event])
            of_process = sum(other.process == p for other in trace.loops[:number])
            places[p] = describe_place(int(trace.events.iteration[event]), of_process, trace.loops[number].source)
    return PlaceLabels(trace, places)


def waits(plan: Plan, position: IntArray) -> dict[int, Wait]:
    """What each process that has not ended waits for."""
    result = {}
    for p in range(plan.processes):
        if position[p] < plan.first[p + 1]:
            port = int(plan.port[position[p]])
            getting = port < plan.streams
            stream = port if getting else port - plan.streams
            result[p] = (getting, stream, int((plan.producer if getting else plan.consumer)[stream]))
    return result


def wait_cycle(waiting: Mapping[int, Wait]) -> list[int]:
    """Processes that wait for each other, each for the next and the last for the first; empty if there are none."""
    done: set[int] = set()
    for start in waiting:
        path: list[int] = []
        p = start
        while p in waiting and p not in done:
            done.add(p)
            path.append(p)
            p = waiting[p][2]
        if p in path:
            return path[path.index(p) :]
    return []


def deadlock_of(waiting: Mapping[int, Wait], op: Mapping[int, int], depths: IntArray, clock: IntArray) -> Deadlock:
    """Explain a replay that stopped with these processes waiting, at these operations and cycles."""
    blocked = {
        p: Blocked(
            task=p,
            node=p,
            direction="get" if getting else "put",
            stream=stream,
            op=op.get(p, 0),
            clock=int(clock[p]),
            held=0 if getting else int(depths[stream]),
            peer=None if peer < 0 else peer,
        )
        for p, (getting, stream, peer) in waiting.items()
    }
    cycle = tuple(blocked[p] for p in wait_cycle(waiting))
    starved = None
    if not cycle:
        # Without a cycle all waiting goes back to a process whose peer has ended, or that has no peer.
        starved = next((b for b in blocked.values() if b.peer not in blocked), None)
    return Deadlock(tuple(blocked.values()), cycle, starved)
