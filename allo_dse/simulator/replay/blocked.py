"""Why a replay stopped before its end, in the trace's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..deadlock.explain import Blocked
from ..network.labels import Labels
from ..trace.data import IntArray, TraceData
from .replay_plan import Plan


@dataclass(frozen=True)
class PlaceLabels(Labels):
    """Names of a trace's processes and streams, and the places where processes are."""

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


def blocked_processes(plan: Plan, position: IntArray, depths: IntArray, clock: IntArray) -> list[Blocked]:
    """Return the wait of each process that has not ended; `clock` says since when."""
    result = []
    for p in np.flatnonzero(position < plan.first[1:]).tolist():
        port = int(plan.port[position[p]])
        getting = port < plan.streams
        stream = port if getting else port - plan.streams
        peer = int((plan.producer if getting else plan.consumer)[stream])
        result.append(
            Blocked(
                task=p,
                node=p,
                direction="get" if getting else "put",
                stream=stream,
                op=int(position[p] - plan.first[p]),
                clock=int(clock[p]),
                held=0 if getting else int(depths[stream]),
                peer=None if peer < 0 else peer,
                peer_node=None if peer < 0 else peer,
            )
        )
    return result
