"""Contents of a trace: processes, their pipelined loops, the stream operations these issue, and the streams' depths.

A loop's operations are given in one of two ways: as *events*, one by one, or, for a *regular* loop, as the operations
of every iteration. Regular loops cost nothing for any number of iterations, until something needs their events.

The times when operations are due, and when a process is done, are defined in docs/timing.md (T6, T8, T9, T10).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Literal

import numpy as np
from msgspec import field
from msgspec.structs import asdict, astuple
from numpy.typing import NDArray

from allo_dse.common.errors import SimulationError
from allo_dse.common.records import Frozen

from ..network.network import BANK_LATENCY, BY_DEPTH, ArrayStreams

IntArray = NDArray[np.int64]

GET, PUT = 0, 1
KINDS: tuple[Literal["get", "put"], ...] = ("get", "put")
GET_STAGE = 2
"""Stage of a get that does not say its own, in loops that are as deep: the first stage is the loop's control, the
second addresses operands in memory, in the third they arrive and the stream is read with them (T9)."""
MAX_EVENTS = 1 << 28
"""Most events that a trace is expanded to; more would not fit in memory."""


class TraceError(SimulationError):
    """A trace that cannot be read, built or replayed."""


class LoopOp(Frozen):
    """A stream operation that every iteration of a regular loop does.

    Attributes:
        kind: `GET` or `PUT`.
        stream: the stream's number.
        stage: cycles after the iteration's start at which it is due.
    """

    kind: int
    stream: int
    stage: int


class TraceLoop(Frozen):
    """A pipelined loop.

    Attributes:
        process: number of the process that runs it.
        ii, depth, trip: initiation interval, pipeline depth (cycles of one iteration), number of iterations.
        ops: the operations of every iteration, in program order; None if the trace lists single events.
        source: its place in the user's program, for messages; may be empty.
        tail: cycles from the start of the last iteration to the next loop's base, or the process's end; None: T8, T10.
    """

    process: int
    ii: int
    depth: int
    trip: int
    ops: tuple[LoopOp, ...] | None = None
    source: str = ""
    tail: int | None = None

    def stage(self, kind: int) -> int:
        """The stage of an operation that does not say its own (T9)."""
        return self.last_stage if kind == PUT else min(GET_STAGE, self.last_stage)

    @property
    def last_stage(self) -> int:
        """The pipeline's stages are 0 to this."""
        return max(self.depth - 1, 0)

    @property
    def span(self) -> int:
        """Cycles from this loop's base to the next one's, without stalls (T8)."""
        return (self.trip - 1) * self.ii + self.next_base if self.trip else 0

    @property
    def next_base(self) -> int:
        """Cycles from the start of the last iteration to the next loop's base (T8)."""
        return self.depth + 1 if self.tail is None else self.tail

    @property
    def done(self) -> int:
        """Cycles from the start of the last iteration to the end of a process whose last loop this is (T10).

        Without a tail of its own, that is the cycle of its last stage. Events that are listed are not looked at.
        """
        if self.tail is not None:
            return self.tail
        return max([self.last_stage, *(op.stage for op in self.ops or ())])


class StreamOperations(Frozen):
    """Stream operations one by one, equally long arrays; those of one process in program order.

    Attributes:
        loop, kind, stream, iteration: per event.
        stage: cycles after its iteration's start.
    """

    loop: IntArray
    kind: IntArray
    stream: IntArray
    iteration: IntArray
    stage: IntArray

    def __len__(self) -> int:
        return len(self.loop)

    def select(self, which: NDArray[np.bool_] | IntArray) -> StreamOperations:
        """Some of the events."""
        return StreamOperations(*(column[which] for column in astuple(self)))


class TraceData(Frozen, dict=True):
    """A trace as plain data, checked by `check_trace`.

    Attributes:
        name, clock_ns: of the design; the clock period may be None.
        processes, streams: names.
        stream_depth: per stream, as built.
        loops: in the order in which their processes run them.
        listed: the events of the loops that have no `ops`.
        occupancy_dependent: numbers of processes that look at `empty()` or `full()`.
        start: base of the first loop of a process.
        latency: per stream the cycles from put to get, -1 where they follow from the depth; None: everywhere.
        arrays: channels that are whole arrays, as pairs of streams (see `ArrayStreams`).
        places, place: places in the user's program, and the index of each listed event's place.
    """

    name: str
    clock_ns: float | None
    processes: tuple[str, ...]
    streams: tuple[str, ...]
    stream_depth: IntArray
    loops: tuple[TraceLoop, ...]
    listed: StreamOperations
    occupancy_dependent: frozenset[int] = field(default_factory=frozenset)
    start: int = 0
    latency: IntArray | None = None
    arrays: tuple[ArrayStreams, ...] = ()
    places: tuple[str, ...] = ()
    place: IntArray | None = None

    @property
    def regular(self) -> bool:
        """True if every loop is given by the operations of one iteration."""
        return not len(self.listed) and all(loop.ops is not None for loop in self.loops)

    @cached_property
    def fixed_latency(self) -> IntArray:
        """`latency`, with -1 everywhere if there is none; arrays that do not say theirs have T14's."""
        result = np.full(len(self.streams), BY_DEPTH, np.int64) if self.latency is None else self.latency.copy()
        for array in self.arrays:
            own = np.array(array)
            result[own[result[own] == BY_DEPTH]] = BANK_LATENCY
        return result

    @cached_property
    def filled(self) -> IntArray:
        """Streams of filled banks of arrays: their depth is that of the banks, so that they never hold anybody up."""
        return np.array([array.filled for array in self.arrays], np.int64)

    @cached_property
    def event_count(self) -> int:
        return len(self.listed) + sum(loop.trip * len(loop.ops) for loop in self.loops if loop.ops)

    @cached_property
    def bases(self) -> IntArray:
        """Per loop its base without stalls."""
        return self._bases_and_ends[0]

    @cached_property
    def process_end(self) -> IntArray:
        """Per process the cycle in which it would end without stalls."""
        return self._bases_and_ends[1]

    @cached_property
    def _bases_and_ends(self) -> tuple[IntArray, IntArray]:
        base = np.full(len(self.processes), self.start, np.int64)
        end = base.copy()
        bases = np.zeros(len(self.loops), np.int64)
        latest = np.zeros(len(self.loops), np.int64)
        np.maximum.at(latest, self.listed.loop, self.listed.stage)
        for i, loop in enumerate(self.loops):
            p = loop.process
            bases[i] = base[p]
            base[p] += loop.span
            if loop.trip:
                end[p] = bases[i] + (loop.trip - 1) * loop.ii + max(loop.done, int(latest[i]))
        return bases, end

    @cached_property
    def events(self) -> StreamOperations:
        """All events, those of regular loops included; events of one process are in program order.

        Raises:
            TraceError: if they are too many to list.
        """
        regular = [i for i, loop in enumerate(self.loops) if loop.ops]
        if not regular:
            return self.listed
        if self.event_count > MAX_EVENTS:
            raise TraceError(
                f"trace {self.name!r} has {self.event_count:,} events, too many to list (at most {MAX_EVENTS:,})",
                hint="extrapolate() times traces of regular loops without listing their events",
            )
        parts = [self.listed, *(_expand(i, self.loops[i]) for i in regular)]
        joined = StreamOperations(*map(np.concatenate, zip(*map(astuple, parts), strict=True)))
        return joined.select(np.argsort(joined.loop, kind="stable"))

    @cached_property
    def token_counts(self) -> tuple[IntArray, IntArray]:
        """Per stream the tokens put and the tokens taken out."""
        counts = np.zeros((2, len(self.streams)), np.int64)
        kind, stream, _, tokens = self._uses
        np.add.at(counts, (kind, stream), tokens)
        return counts[PUT], counts[GET]

    @cached_property
    def ends(self) -> tuple[IntArray, IntArray]:
        """Per stream the process that puts to it and the one that gets from it, -1 for none."""
        ends = np.full((2, len(self.streams)), -1, np.int64)
        kind, stream, process, _ = self._uses
        ends[kind, stream] = process
        return ends[PUT], ends[GET]

    @property
    def _uses(self) -> IntArray:
        """Kind, stream, process and number of tokens of all listed events and of the operations of regular loops."""
        listed = self.listed
        events = listed.kind, listed.stream, self.of_loops("process")[listed.loop], np.ones_like(listed.kind)
        regular = [
            (op.kind, op.stream, loop.process, loop.trip) for loop in self.loops if loop.trip for op in loop.ops or ()
        ]
        return np.concatenate([np.stack(events), np.array(regular, np.int64).reshape(-1, 4).T], axis=1)

    def of_loops(self, attribute: str) -> IntArray:
        """Per loop one of its numbers."""
        return np.array([getattr(loop, attribute) for loop in self.loops], np.int64)

    @cached_property
    def stream_number(self) -> Mapping[str, int]:
        """Stream numbers by name."""
        return {name: i for i, name in enumerate(self.streams)}


def _expand(number: int, loop: TraceLoop) -> StreamOperations:
    ops = np.array([(op.kind, op.stream, op.stage) for op in loop.ops or ()], np.int64).reshape(-1, 3)
    kind, stream, stage = (np.tile(column, loop.trip) for column in ops.T)
    iteration = np.repeat(np.arange(loop.trip, dtype=np.int64), len(ops))
    return StreamOperations(np.full(len(kind), number, np.int64), kind, stream, iteration, stage)


LARGEST = 1 << 40
"""Largest number of cycles, iterations or tokens that a trace may name; keeps sums far from 64-bit overflow."""


def check_trace(data: TraceData) -> None:
    """Raises TraceError for the first thing that is wrong."""
    _check_names(data.processes, "process")
    _check_names(data.streams, "stream")
    _check_loops(data)
    period: object = data.clock_ns
    is_number = isinstance(period, int | float) and not isinstance(period, bool)
    if period is not None and not (is_number and 0 < (data.clock_ns or 0) < math.inf):
        raise TraceError(f"clock_ns is {period!r}, it must be a positive number")
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
            if not 0 <= op.stage <= max(loop.depth, 1):
                raise TraceError(f"{where}: an operation at stage {op.stage} of a pipeline that is {loop.depth} deep")
        if loop.tail is not None and not 0 <= loop.tail <= LARGEST:
            raise TraceError(f"{where}: tail is {loop.tail}, it must be 0 to {LARGEST:,}")
        if loop.trip and any(op.stage > loop.next_base for op in loop.ops or ()):
            raise TraceError(f"{where}: tail is {loop.tail}, before its last operation is due")
        cycles[loop.process] += loop.span
        if cycles[loop.process] > LARGEST:
            raise TraceError(f"{where} would end after {cycles[loop.process]:,} cycles; at most {LARGEST:,}")


def _check_events(data: TraceData) -> None:
    events = data.listed
    for name, column in asdict(events).items():
        if len(column) != len(events):
            raise TraceError(
                f"the arrays of a trace differ in length: loop has {len(events)}, {name} has {len(column)}"
            )
    if not len(events):
        return
    _in_range(events.loop, len(data.loops), "loop")
    _in_range(events.kind, len(KINDS), "kind")
    _in_range(events.stream, len(data.streams), "stream")
    trip, depth, ii, next_base = (data.of_loops(name)[events.loop] for name in ("trip", "depth", "ii", "next_base"))
    _first_bad(
        (events.iteration < 0) | (events.iteration >= trip),
        lambda e: f"is in iteration {events.iteration[e]} of a loop of {trip[e]}",
    )
    _first_bad(
        (events.stage < 0) | (events.stage > np.maximum(depth, 1)),
        lambda e: f"is at stage {events.stage[e]} of a pipeline that is {depth[e]} deep",
    )
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
    process = data.of_loops("process")[events.loop]
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
    kind, stream, process, _ = data._uses
    puts, gets = data.ends
    other = np.where(kind == PUT, puts[stream], gets[stream])
    for u in np.flatnonzero(other != process)[:1].tolist():
        raise TraceError(
            f"{data.processes[process[u]]} and {data.processes[other[u]]} both "
            f"{'put to' if kind[u] == PUT else 'get from'} stream {data.streams[stream[u]]}; "
            "a stream has one process at each end",
            hint="give every process a stream of its own",
        )


def _in_range(column: IntArray, count: int, what: str) -> None:
    _first_bad((column < 0) | (column >= count), lambda e: f"has {what} {column[e]}, there are {count}")


def _first_bad(bad: NDArray[np.bool_], message: Callable[[int], str]) -> None:
    if bad.any():
        e = int(np.argmax(bad))
        raise TraceError(f"event {e} {message(e)}")
