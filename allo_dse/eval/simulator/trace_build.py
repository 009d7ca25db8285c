"""Building traces in Python: what processes, loops and streams other tools saw.

Trace.build(
    streams={"a": 2, "b": 16},
    processes={
        "load": [Loop(trip=1024, ops=[Put("a")])],
        "scale": [Loop(trip=1024, ii=1, depth=5, ops=[Get("a"), Put("b")])],
        "store": [Loop(trip=1024, depth=3, ops=[Get("b")])],
    },
)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from .trace_check import check_trace
from .trace_data import GET, PUT, Events, IntArray, LoopOp, TraceData, TraceError, TraceLoop


@dataclass(frozen=True)
class Get:
    """Every iteration takes a token from `stream`, `stage` cycles after it starts (by default 0)."""

    stream: str
    stage: int | None = None


@dataclass(frozen=True)
class Put:
    """Every iteration puts a token to `stream`, `stage` cycles after it starts (by default `max(depth - 1, 1)`)."""

    stream: str
    stage: int | None = None


Event = tuple[Literal["get", "put"], str, int]
"""What happened, on which stream, in which iteration."""


@dataclass(frozen=True)
class Loop:
    """A pipelined loop of a process; a piece of straight code is a loop of one iteration.

    Args:
        trip: number of iterations.
        ii, depth: initiation interval and pipeline depth, in cycles.
        ops: what every iteration does, in program order. A loop given so is *regular*.
        events: instead of `ops`, everything that happened, in program order, as (kind, stream, iteration).
        source: where the loop stands in the program, for messages.
    """

    trip: int
    ii: int = 1
    depth: int = 1
    ops: Sequence[Get | Put] = ()
    events: Sequence[Event] | None = None
    source: str = ""


def build_trace(
    streams: Mapping[str, int],
    processes: Mapping[str, Sequence[Loop]],
    *,
    name: str,
    clock_ns: float | None,
    looks_at_occupancy: Collection[str],
) -> TraceData:
    """See `Trace.build`."""
    numbers = {stream: i for i, stream in enumerate(streams)}
    names = tuple(processes)
    unknown = [process for process in looks_at_occupancy if process not in processes]
    if unknown:
        raise TraceError(f"looks_at_occupancy names {unknown[0]!r}, which is not a process")
    loops: list[TraceLoop] = []
    columns: list[IntArray] = []
    for p, process in enumerate(names):
        for loop in processes[process]:
            _check_loop(loop, process)
            made = TraceLoop(p, loop.ii, loop.depth, loop.trip, _ops(loop, numbers, process), loop.source)
            if loop.events is not None:
                columns.append(_listed(loop.events, made, len(loops), numbers, process))
            loops.append(made)
    table = np.concatenate(columns, axis=1) if columns else np.zeros((5, 0), np.int64)
    data = TraceData(
        name=name,
        clock_ns=clock_ns,
        processes=names,
        streams=tuple(streams),
        stream_depth=np.array([_integer(d, f"depth of stream {s}") for s, d in streams.items()], np.int64),
        loops=tuple(loops),
        listed=Events(*table),
        occupancy_dependent=frozenset(names.index(process) for process in looks_at_occupancy),
    )
    check_trace(data)
    return data


def _check_loop(loop: Loop, process: str) -> None:
    if loop.events is not None and loop.ops:
        raise TraceError(f"a loop of process {process} has both ops and events; give one of them")
    for what in ("trip", "ii", "depth"):
        _integer(getattr(loop, what), f"{what} of a loop of process {process}")


def _integer(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TraceError(f"{what} is {value!r}, it must be an integer")
    return int(value)


def _stream(stream: str, numbers: Mapping[str, int], process: str) -> int:
    if stream not in numbers:
        raise TraceError(f"process {process} uses stream {stream!r}, which has no depth in `streams`")
    return numbers[stream]


def _ops(loop: Loop, numbers: Mapping[str, int], process: str) -> tuple[LoopOp, ...] | None:
    if loop.events is not None:
        return None
    made = []
    for op in loop.ops:
        kind = GET if isinstance(op, Get) else PUT
        default = TraceLoop(0, loop.ii, loop.depth, loop.trip).stage(kind)
        stage = default if op.stage is None else _integer(op.stage, f"stage of {op}")
        made.append(LoopOp(kind, _stream(op.stream, numbers, process), stage))
    return tuple(made)


def _listed(
    events: Sequence[Event], loop: TraceLoop, number: int, numbers: Mapping[str, int], process: str
) -> IntArray:
    """The five columns of `Events`."""
    kinds = {"get": GET, "put": PUT}
    rows = []
    for kind, stream, iteration in events:
        if kind not in kinds:
            raise TraceError(f"process {process} has an event of kind {kind!r}; there are 'get' and 'put'")
        number_of = _stream(stream, numbers, process)
        at = _integer(iteration, f"iteration of an event of process {process}")
        rows.append((number, kinds[kind], number_of, at, loop.stage(kinds[kind])))
    return np.array(rows, np.int64).reshape(-1, 5).T
