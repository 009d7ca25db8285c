"""Requirements on a trace before anything replays it, and notes on what is odd but allowed."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .data import GET, KINDS, PUT, IntArray, TraceData, TraceError

LARGEST = 1 << 40
"""Largest number of cycles, iterations or tokens that a trace may name; keeps sums far from 64-bit overflow."""


def check_trace(data: TraceData) -> None:
    """Raises TraceError for the first thing that is wrong."""
    _check_names(data.processes, "process")
    _check_names(data.streams, "stream")
    _check_loops(data)
    _check_clock(data.clock_ns)
    if len(data.stream_depth) != len(data.streams):
        raise TraceError(f"{len(data.streams)} streams are named, but {len(data.stream_depth)} have a depth")
    if not 0 <= data.start <= LARGEST:
        raise TraceError(f"start is {data.start}, it must be 0 to {LARGEST:,}")
    if data.latency is not None and (
        len(data.latency) != len(data.streams) or ((data.latency < -1) | (data.latency > LARGEST)).any()
    ):
        raise TraceError("latency must have one entry per stream: cycles, or -1 where they follow from the depth")
    streams = [stream for array in data.arrays for stream in array]
    if len(set(streams)) != len(streams) or not all(0 <= stream < len(data.streams) for stream in streams):
        raise TraceError("arrays must be pairs of different streams, each of one array only")
    if data.place is not None and (
        len(data.place) != data.event_count or ((data.place < 0) | (data.place >= len(data.places))).any()
    ):
        raise TraceError("place must have one entry per event, a position in places")
    shallow = np.flatnonzero((data.stream_depth < 1) | (data.stream_depth > LARGEST))
    if len(shallow):
        stream = int(shallow[0])
        raise TraceError(
            f"stream {data.streams[stream]} has depth {int(data.stream_depth[stream])}; depths are at least 1"
        )
    _check_events(data)
    _check_ends(data)


def trace_notes(data: TraceData) -> tuple[str, ...]:
    """Return the oddities of a trace, one sentence each: streams whose puts and gets differ in number."""
    puts, gets = data.token_counts
    notes = []
    for s in np.flatnonzero(puts != gets).tolist():
        counts = f"stream {data.streams[s]} carries {puts[s]} tokens in and {gets[s]} out"
        if gets[s] > puts[s]:
            notes.append(f"{counts}: its reader waits for ever")
        elif puts[s] - gets[s] > data.stream_depth[s]:
            notes.append(f"{counts}, and holds only {data.stream_depth[s]}: its writer waits for ever")
        else:
            notes.append(f"{counts}: the rest stays in it")
    return tuple(notes)


def _check_clock(period: object) -> None:
    if period is None or (isinstance(period, int | float) and not isinstance(period, bool) and 0 < period < math.inf):
        return
    raise TraceError(f"clock_ns is {period!r}, it must be a positive number")


def _check_names(names: tuple[str, ...], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise TraceError(f"two {what}{'es' if what == 'process' else 's'} are called {name!r}")
        seen.add(name)


def _check_loops(data: TraceData) -> None:
    cycles = [0] * len(data.processes)
    for number, loop in enumerate(data.loops):
        where = f"loop {number}"
        if not 0 <= loop.process < len(data.processes):
            raise TraceError(f"{where} belongs to process {loop.process}, which does not exist")
        where += f" of process {data.processes[loop.process]}"
        for what, value, least in (("ii", loop.ii, 1), ("depth", loop.depth, 0), ("trip", loop.trip, 0)):
            if not least <= value <= LARGEST:
                raise TraceError(f"{where}: {what} is {value}, it must be {least} to {LARGEST:,}")
        for op in loop.ops or ():
            if not 0 <= op.stream < len(data.streams):
                raise TraceError(f"{where} uses stream {op.stream}, which does not exist")
            _check_stage(op.stage, loop.depth, where)
        if loop.tail is not None and not 0 <= loop.tail <= LARGEST:
            raise TraceError(f"{where}: tail is {loop.tail}, it must be 0 to {LARGEST:,}")
        if loop.trip and any(op.stage > loop.next_base for op in loop.ops or ()):
            raise TraceError(f"{where}: tail is {loop.tail}, before its last operation is due")
        cycles[loop.process] += loop.span
        if cycles[loop.process] > LARGEST:
            raise TraceError(f"{where} would end after {cycles[loop.process]:,} cycles; at most {LARGEST:,}")


def _check_stage(stage: int, depth: int, where: str) -> None:
    if not 0 <= stage <= max(depth, 1):
        raise TraceError(f"{where}: an operation at stage {stage} of a pipeline that is {depth} deep")


def _check_events(data: TraceData) -> None:
    events = data.listed
    columns = {name: getattr(events, name) for name in ("loop", "kind", "stream", "iteration", "stage")}
    for name, column in columns.items():
        if len(column) != len(events):
            raise TraceError(
                f"the arrays of a trace differ in length: loop has {len(events)}, {name} has {len(column)}"
            )
    if not len(events):
        return
    _in_range(events.loop, len(data.loops), "loop")
    _in_range(events.kind, len(KINDS), "kind")
    _in_range(events.stream, len(data.streams), "stream")
    trip = np.array([loop.trip for loop in data.loops])[events.loop]
    _first_bad(
        (events.iteration < 0) | (events.iteration >= trip),
        lambda e: f"is in iteration {events.iteration[e]} of a loop of {trip[e]}",
    )
    depth = np.array([loop.depth for loop in data.loops])[events.loop]
    _first_bad(
        (events.stage < 0) | (events.stage > np.maximum(depth, 1)),
        lambda e: f"is at stage {events.stage[e]} of a pipeline that is {depth[e]} deep",
    )
    ii = np.array([loop.ii for loop in data.loops])[events.loop]
    next_base = np.array([loop.next_base for loop in data.loops])[events.loop]
    _first_bad(
        events.iteration * ii + events.stage > (trip - 1) * ii + next_base,
        lambda e: f"is due after the tail of its loop, {next_base[e]}",
    )
    listed = np.array([loop.ops is None for loop in data.loops])[events.loop]
    _first_bad(~listed, lambda e: f"belongs to loop {events.loop[e]}, which says what every iteration does")
    _check_order(data)


def _check_order(data: TraceData) -> None:
    """Events of one process come in program order: its loops in turn, a loop's iterations in turn."""
    events = data.listed
    process = np.array([loop.process for loop in data.loops], np.int64)[events.loop]
    order = np.argsort(process, kind="stable")
    p, loop, iteration = process[order], events.loop[order], events.iteration[order]
    back = (loop[1:] < loop[:-1]) | ((loop[1:] == loop[:-1]) & (iteration[1:] < iteration[:-1]))
    wrong = np.flatnonzero((p[1:] == p[:-1]) & back)
    if len(wrong):
        e = int(order[wrong[0] + 1])
        raise TraceError(
            f"event {e} (loop {events.loop[e]}, iteration {events.iteration[e]}) of process "
            f"{data.processes[process[e]]} comes after a later one; a process's events are in program order"
        )


def _check_ends(data: TraceData) -> None:
    """Every stream has at most one process that puts to it and one that gets from it."""
    pairs: list[tuple[int, int, int]] = []
    count = len(data.streams)
    events = data.listed
    if len(events):
        process = np.array([loop.process for loop in data.loops], np.int64)[events.loop]
        size = len(data.processes)
        keys = np.unique((events.kind * count + events.stream) * size + process).tolist()
        pairs = [(key // size // count, key // size % count, key % size) for key in keys]
    pairs += [(op.kind, op.stream, loop.process) for loop in data.loops if loop.trip for op in loop.ops or ()]
    known: dict[tuple[int, int], int] = {}
    for kind, stream, owner in pairs:
        other = known.setdefault((kind, stream), owner)
        if other != owner:
            way = {GET: "get from", PUT: "put to"}[kind]
            raise TraceError(
                f"{data.processes[other]} and {data.processes[owner]} both {way} stream {data.streams[stream]}; "
                "a stream has one process at each end",
                hint="give every process a stream of its own",
            )


def _in_range(column: IntArray, count: int, what: str) -> None:
    _first_bad((column < 0) | (column >= count), lambda e: f"has {what} {column[e]}, there are {count}")


def _first_bad(bad: NDArray[np.bool_], message: Callable[[int], str]) -> None:
    if bad.any():
        e = int(np.argmax(bad))
        raise TraceError(f"event {e} {message(e)}")
