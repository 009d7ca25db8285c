"""Replay of regular traces in a time that does not depend on trip counts.

Loops that do the same every iteration settle: after a transient, the same operations happen again and again, and every
time that decides anything grows by a fixed amount per period. Where that is so, the rest follows exactly. For each
operation the larger of two times counts; both grow steadily, so it stays the same one for ever or up to a computable
period. The replay is moved on by the largest number of periods for which every operation keeps its choice, no loop ends
and no stream gets full, and continues from there.

The state S of the replay (cycles waited per process, times of tokens in streams, times of the last `depth` gets)
decides what follows. If S1 - S0 = S2 - S1 = D over two periods with the same operations, then, as long as each
operation chooses as before, every time within a period is its time one period earlier plus what it grew then, hence
S3 = S2 + D.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..engine.deadlock import Deadlock
from ..network.network import read_latency
from ..trace.data import IntArray, TraceData, TraceError
from .deadlock import PlaceLabels, Wait, deadlock_of, describe_place
from .sweeps import Record, State, empty_record, shape, sweep
from .windows import lay_out_fifos, lay_out_loops

FIRST_SWEEPS = 16
"""Sweeps before periodic behaviour is first looked for; doubled whenever there is none."""
RECORD_ROOM = 1 << 18
"""Operations of the longest period that is recognised."""


@dataclass(frozen=True, eq=False)
class RegularResult:
    """Times of a replay that did not list its events.

    Attributes:
        process_end: per process the cycle in which it ends, or waits for ever.
        deadlock: what is blocked, and the cycle of processes and streams that wait for each other; None for a finished
            run.
        explanation: the deadlock in names; empty for a finished run.
        port_stall: cycles waited at the reading ends of all streams, then at the writing ends.
        computed: operations computed one by one; the others follow from periodic behaviour.
    """

    process_end: IntArray
    deadlock: Deadlock | None
    explanation: str
    port_stall: IntArray
    computed: int

    @property
    def finished(self) -> bool:
        """Whether every process has ended."""
        return self.deadlock is None

    @property
    def cycles(self) -> int:
        """The makespan: the latest process end."""
        return int(self.process_end.max(initial=0))


def replay_regular(data: TraceData, depths: IntArray) -> RegularResult:
    """Replay a trace of regular loops with one depth vector.

    Raises:
        TraceError: if a loop lists its events, or token times would not fit in memory.
    """
    if not data.regular:
        raise TraceError(
            f"trace {data.name!r} lists events one by one: nothing says that they go on in the same way",
            hint="use replay(), or build the trace from loops with `ops`",
        )
    return _Run(data, depths).result()


class _Run:
    """One replay."""

    def __init__(self, data: TraceData, depths: IntArray) -> None:
        self.data = data
        self.depths = depths
        self.loops = lay_out_loops(data)
        puts, _ = data.token_counts
        depths = depths.copy()
        depths[data.filled] = np.maximum(depths, puts)[data.filled]
        self.bounded = depths < puts
        self.fifos = lay_out_fifos(
            self.loops, np.minimum(depths, np.maximum(puts, 1)), read_latency(data.fixed_latency, depths), self.bounded
        )
        processes, streams = len(data.processes), len(data.streams)
        times = np.zeros((2, int(self.fifos.ring[-1])), np.int64)
        first = self.loops.first
        self.state = State(
            loop=first[:-1].copy(),
            window=np.zeros(processes, np.int64),
            step=np.zeros(processes, np.int64),
            stall=np.zeros(processes, np.int64),
            waited=np.zeros(2 * streams, np.int64),
            puts=np.zeros(streams, np.int64),
            gets=np.zeros(streams, np.int64),
            put_time=times[0],
            get_time=times[1],
        )
        for p in range(processes):
            while self.state.loop[p] < first[p + 1] and self.loops.windows[self.state.loop[p]] == 0:
                self.state.loop[p] += 1
        self.now = np.zeros(3 * processes + streams, np.int64)
        self.none = np.zeros(0, np.int64)
        self.record = empty_record(0)
        self.computed = 0

    def result(self) -> RegularResult:
        patience = FIRST_SWEEPS
        while self._sweep(patience):
            periods = self._jump(patience)
            if periods is None:
                break
            patience = FIRST_SWEEPS if periods else 2 * patience
        end = self.data.process_end + self.state.stall
        waiting = {p: self._waits(p, end) for p in np.flatnonzero(self.state.loop < self.loops.first[1:]).tolist()}
        if not waiting:
            return RegularResult(end, None, "", self.state.waited, self.computed)
        deadlock = deadlock_of({p: wait for p, (wait, _) in waiting.items()}, {}, self.depths, end)
        labels = PlaceLabels(self.data, {p: place for p, (_, place) in waiting.items()})
        return RegularResult(end, deadlock, deadlock.describe(labels), self.state.waited, self.computed)

    def _waits(self, p: int, end: IntArray) -> tuple[Wait, str]:
        """What a process waits for and where; puts the cycle into `end`."""
        loops, streams = self.loops, len(self.depths)
        i, window = int(self.state.loop[p]), int(self.state.window[p])
        op = int(loops.op_first[i] + self.state.step[p])
        port = int(loops.port[op])
        end[p] = loops.base[i] + window * loops.ii[i] + loops.place[op] + self.state.stall[p]
        loop = [loop for loop in self.data.loops if loop.process == p][i - int(loops.first[p])]
        place = describe_place(window - int(loops.late[op]), i - int(loops.first[p]), loop.source)
        producer, consumer = self.data.ends
        if port < streams:
            return (True, port, int(producer[port])), place
        return (False, port - streams, int(consumer[port - streams])), place

    def _sweep(self, most: int, stop_at: IntArray | None = None, record: Record | None = None) -> int:
        """Sweeps done, 0 when nothing moves any more."""
        record = record or self.record
        before = int(record.size[0])
        self._require_room()
        done = 0
        while done < most:
            # A sweep adds few tokens to a stream, so that room for them is looked after between short runs.
            step = min(most - done, FIRST_SWEEPS * 16)
            count = int(sweep(step, self.none if stop_at is None else stop_at, self.now, self.loops, self.fifos,
                              self.state, record))  # fmt: skip
            self._require_room()
            if count < 0:
                done = 0
                break
            done += count
            if count < step or (stop_at is not None and self._shape_is(stop_at)):
                break
        self.computed += int(record.size[0]) - before
        return done

    def _require_room(self) -> None:
        held = self.state.puts - self.state.gets
        full = np.flatnonzero(~self.bounded & (held > self.fifos.mask + 1 - self._margin))
        if len(full):
            raise TraceError(
                f"stream {self.data.streams[full[0]]} comes to hold more than {int(held[full[0]]):,} tokens",
                hint="give the stream the depth that it is going to have",
            )

    @property
    def _margin(self) -> IntArray:
        """Tokens that may be added to a stream between two looks at how many it holds."""
        return FIRST_SWEEPS * 16 * self.fifos.soft

    def _shape_is(self, other: IntArray) -> bool:
        shape(self.loops, self.state, self.now)
        return bool(np.array_equal(self.now, other))

    def _jump(self, patience: int) -> int | None:
        """Move on by whole periods, if there are any; returns how many, None when nothing moves any more."""
        shape(self.loops, self.state, self.now)
        before = self.now.copy()
        period = self._sweep(patience, before)
        if not period:
            return None
        if not self._shape_is(before):
            return 0
        snapshots, records = [self._snapshot()], []
        for _ in range(2):
            records.append(empty_record(RECORD_ROOM))
            if not self._sweep(period, record=records[-1]):
                return None
            if not self._shape_is(before):
                return 0
            snapshots.append(self._snapshot())
        periods = self._periods(snapshots, records)
        if periods:
            self._move(snapshots, periods)
        return periods

    def _snapshot(self) -> _Snapshot:
        state, fifos = self.state, self.fifos
        values = [state.stall]
        for s in range(len(fifos.depth)):
            values.append(state.put_time[self._at(s, state.gets[s], state.puts[s])])
            if self._wrapped(s):
                values.append(state.get_time[self._at(s, state.puts[s] - fifos.depth[s], state.gets[s])])
        return _Snapshot(
            np.concatenate(values), state.window.copy(), state.puts.copy(), state.gets.copy(), state.waited.copy()
        )

    def _at(self, stream: int, start: int, end: int) -> IntArray:
        """Where the times of some tokens stand."""
        return self.fifos.ring[stream] + (np.arange(start, end) & self.fifos.mask[stream])

    def _wrapped(self, stream: int) -> bool:
        """Whether puts to a stream already wait for earlier gets."""
        return bool(self.bounded[stream] and self.state.puts[stream] >= self.fifos.depth[stream])

    def _periods(self, snapshots: list[_Snapshot], records: list[Record]) -> int:
        """For how many periods everything goes on as in the last two."""
        a, b, c = snapshots
        if not len(a.values) == len(b.values) == len(c.values):
            return 0
        if not np.array_equal(c.values - b.values, b.values - a.values):
            return 0
        count = int(records[0].size[0])
        if count != records[1].size[0] or count > RECORD_ROOM:
            return 0
        limits = [_steady_for(records, count)]
        advance = c.window - b.window
        running = np.flatnonzero(advance)
        left = self.loops.trip[self.state.loop[running]] - 1 - c.window[running]
        limits += (left // advance[running]).tolist()
        filling = self.bounded & (c.puts < self.fifos.depth) & (c.puts > b.puts)
        limits += ((self.fifos.depth - c.puts)[filling] // (c.puts - b.puts)[filling]).tolist()
        return max(min(limits), 0)

    def _move(self, snapshots: list[_Snapshot], periods: int) -> None:
        """Continue `periods` periods later."""
        a, b, c = snapshots
        state, fifos = self.state, self.fifos
        values = c.values + periods * (c.values - b.values)
        # Waiting per period may grow steadily too: sum it up.
        last, growth = c.waited - b.waited, (c.waited - b.waited) - (b.waited - a.waited)
        state.waited[:] += periods * last + growth * (periods * (periods + 1) // 2)
        state.stall[:] = values[: len(state.stall)]
        at = len(state.stall)
        for s in range(len(fifos.depth)):
            wrapped = self._wrapped(s)
            gets, puts = int(c.gets[s] - b.gets[s]), int(c.puts[s] - b.puts[s])
            if self.bounded[s] and not wrapped and gets:
                self._fill(s, gets, periods)
            state.puts[s] += periods * puts
            state.gets[s] += periods * gets
            held = int(state.puts[s] - state.gets[s])
            state.put_time[self._at(s, state.gets[s], state.puts[s])] = values[at : at + held]
            at += held
            if wrapped:
                kept = int(fifos.depth[s]) - held
                state.get_time[self._at(s, state.puts[s] - fifos.depth[s], state.gets[s])] = values[at : at + kept]
                at += kept
        state.window[:] += periods * (c.window - b.window)

    def _fill(self, stream: int, gets: int, periods: int) -> None:
        """Times of the gets of coming periods; nothing waits for these yet, but later puts will."""
        end = int(self.state.gets[stream])
        last = self.state.get_time[self._at(stream, end - gets, end)]
        growth = last - self.state.get_time[self._at(stream, end - 2 * gets, end - gets)]
        number = np.arange(1, periods + 1)[:, None]
        self.state.get_time[self._at(stream, end, end + periods * gets)] = (last + number * growth).ravel()


@dataclass(frozen=True, eq=False)
class _Snapshot:
    """The state between two periods; `values` are the times that decide what follows."""

    values: IntArray
    window: IntArray
    puts: IntArray
    gets: IntArray
    waited: IntArray


def _steady_for(records: list[Record], count: int) -> int:
    """For how many periods every operation's result grows as it did from the first to the second."""
    own1, own2 = (record.own[:count] for record in records)
    awaited1, awaited2 = (record.awaited[:count] for record in records)
    growth = np.maximum(own2, awaited2) - np.maximum(own1, awaited1)
    ahead = own2 - awaited2
    steps = (own2 - own1) - (awaited2 - awaited1)
    by_own = (ahead >= 0) & (own2 - own1 == growth)
    by_awaited = (ahead <= 0) & (awaited2 - awaited1 == growth)
    if not (by_own | by_awaited).all():
        return 0
    most = np.iinfo(np.int64).max
    closing = np.where(by_own, np.maximum(-steps, 0), most)
    closing = np.minimum(closing, np.where(by_awaited, np.maximum(steps, 0), most))
    still = closing > 0
    return int((np.abs(ahead)[still] // closing[still]).min(initial=most))
