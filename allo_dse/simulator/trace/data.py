"""Contents of a trace: processes, their pipelined loops, the stream operations these issue, and the streams' depths.

A loop's operations are given in one of two ways: as *events*, one by one, or, for a *regular* loop, as the operations
that every iteration does. Regular loops cost nothing however often they run, until something needs their events.

When operations are due, and when a process is done, is said in docs/timing.md (T6, T8, T9, T10).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from allo_dse.common.errors import SimulationError

from ..network.array_channels import BANK_LATENCY, ArrayStreams
from ..network.network import BY_DEPTH

IntArray = NDArray[np.int64]

GET, PUT = 0, 1
KINDS = ("get", "put")
GET_STAGE = 2
"""Stage of a get that does not say its own, in loops that are as deep: the first stage is the loop's control, the
second addresses operands in memory, in the third they arrive and the stream is read with them (T9)."""
MAX_EVENTS = 1 << 28
"""Most events that a trace is expanded to; more would not fit in memory."""


class TraceError(SimulationError):
    """A trace that cannot be read, built or replayed."""


class LoopOp(Struct, frozen=True):
    """A stream operation that every iteration of a regular loop does.

    Attributes:
        kind: `GET` or `PUT`.
        stream: the stream's number.
        stage: cycles after the iteration's start at which it is due.
    """

    kind: int
    stream: int
    stage: int


class TraceLoop(Struct, frozen=True):
    """A pipelined loop.

    Attributes:
        process: number of the process that runs it.
        ii, depth, trip: initiation interval, pipeline depth (cycles of one iteration), number of iterations.
        ops: what every iteration does, in program order; None where the trace lists the events one by one.
        source: where it stands in the user's program, for messages; may be empty.
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


class Events(Struct, frozen=True):
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

    def select(self, which: NDArray[np.bool_] | IntArray) -> Events:
        """Some of the events."""
        columns = (self.loop, self.kind, self.stream, self.iteration, self.stage)
        return Events(*(column[which] for column in columns))


class TraceData(Struct, frozen=True, dict=True):
    """A trace as plain data, checked by `check.check_trace`.

    Attributes:
        name, clock_ns: of the design; the clock period may be None.
        processes, streams: names.
        stream_depth: per stream, as built.
        loops: in the order in which their processes run them.
        listed: the events of the loops that have no `ops`.
        occupancy_dependent: numbers of processes that look at `empty()` or `full()`.
        start: base of the first loop of a process.
        latency: per stream the cycles from put to get, -1 where they follow from the depth; None: everywhere.
        arrays: channels that are whole arrays, as pairs of streams (see `array_channels`).
        places, place: where operations stand in the user's program, and which of these each listed event is.
    """

    name: str
    clock_ns: float | None
    processes: tuple[str, ...]
    streams: tuple[str, ...]
    stream_depth: IntArray
    loops: tuple[TraceLoop, ...]
    listed: Events
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
    def events(self) -> Events:
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
        names = ("loop", "kind", "stream", "iteration", "stage")
        joined = Events(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
        return joined.select(np.argsort(joined.loop, kind="stable"))

    @cached_property
    def token_counts(self) -> tuple[IntArray, IntArray]:
        """Per stream the tokens put and the tokens taken out."""
        counts = np.zeros((2, len(self.streams)), np.int64)
        np.add.at(counts, (self.listed.kind, self.listed.stream), 1)
        for loop in self.loops:
            for op in loop.ops or ():
                counts[op.kind, op.stream] += loop.trip
        return counts[PUT], counts[GET]

    @cached_property
    def ends(self) -> tuple[IntArray, IntArray]:
        """Per stream the process that puts to it and the one that gets from it, -1 for none."""
        ends = np.full((2, len(self.streams)), -1, np.int64)
        process_of = np.array([loop.process for loop in self.loops], np.int64)
        ends[self.listed.kind, self.listed.stream] = process_of[self.listed.loop] if len(self.listed) else -1
        for loop in self.loops:
            for op in loop.ops or ():
                if loop.trip:
                    ends[op.kind, op.stream] = loop.process
        return ends[PUT], ends[GET]

    @cached_property
    def stream_number(self) -> Mapping[str, int]:
        """Stream numbers by name."""
        return {name: i for i, name in enumerate(self.streams)}


def _expand(number: int, loop: TraceLoop) -> Events:
    ops = np.array([(op.kind, op.stream, op.stage) for op in loop.ops or ()], np.int64).reshape(-1, 3)
    kind, stream, stage = (np.tile(column, loop.trip) for column in ops.T)
    iteration = np.repeat(np.arange(loop.trip, dtype=np.int64), len(ops))
    return Events(np.full(len(kind), number, np.int64), kind, stream, iteration, stage)
