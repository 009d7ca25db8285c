"""Replay of regular traces in a time that does not depend on trip counts: a run of the engine that skips what repeats.

A pipelined loop does its operations in the order in which they are due, and a blocked one delays all later ones by the
same (docs/timing.md, T6 and T7). So it is an operation table: its operations by due time, with the waits between them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from ..deadlock.explain import Blocked, Deadlock
from ..engine.engine import table_engine
from ..engine.run_result import RunResult
from ..network.network import IntArray, Network, NetworkBuilder, read_latency
from ..network.tables import Table
from ..trace.data import GET, PUT, LoopOp, TraceData, TraceError, TraceLoop
from .blocked import PlaceLabels, describe_place

RING_ROOM = 1 << 26
"""Tokens that streams hold together, at most."""
UNBOUNDED_RING = 1 << 16
"""Tokens waiting in a stream that can hold all it ever carries, at most."""


class RegularResult(Struct, frozen=True, eq=False):
    """Times of a replay that did not list its events.

    Attributes:
        process_end: per process the cycle in which it ends, or waits for ever.
        stall_get, stall_put: per process the cycles it waited for tokens, and for room.
        occupancy: per stream the most tokens it held.
        deadlock: what is blocked, and the cycle of processes and streams that wait for each other; None for a finished
            run.
        explanation: the deadlock in names; empty for a finished run.
        computed: operations computed one by one; the others repeat these.
    """

    process_end: IntArray
    stall_get: IntArray
    stall_put: IntArray
    occupancy: IntArray
    deadlock: Deadlock | None
    explanation: str
    computed: int

    @property
    def finished(self) -> bool:
        """True if every process has ended."""
        return self.deadlock is None

    @property
    def cycles(self) -> int:
        """The makespan: the latest process end."""
        return int(self.process_end.max(initial=0))


def replay_regular(data: TraceData, depths: IntArray) -> RegularResult:
    """Replay a trace of regular loops with one depth vector.

    Raises:
        TraceError: if a loop lists its events, or tokens would not fit in memory.
    """
    if not data.regular:
        raise TraceError(
            f"trace {data.name!r} lists events one by one: nothing says that they go on in the same way",
            hint="use replay(), or build the trace from loops with `ops`",
        )
    room = _room(data, depths)
    result = table_engine().run(_network(data, depths, room), extrapolate=True)
    _require_room(data, depths, room, result.occupancy)
    deadlock = result.deadlock
    return RegularResult(
        result.node_end,
        result.stall_get,
        result.stall_put,
        result.occupancy,
        deadlock,
        "" if deadlock is None else deadlock.describe(_labels(data, deadlock, result)),
        result.operations - result.skipped,
    )


def _room(data: TraceData, depths: IntArray) -> IntArray:
    """Per stream the tokens that there is memory for: its depth, unless it can hold all it carries."""
    puts, _ = data.token_counts
    depths = depths.copy()
    # Filled banks of an array channel wait for free banks, and never for room in the stream that announces them.
    depths[data.filled] = np.maximum(depths, puts)[data.filled]
    # A stream that is never full needs no ring of its depth: slots are reused as tokens are read. Whether it was held
    # up by the smaller ring is checked afterwards (`_require_room`).
    room = np.where(depths < puts, depths, np.clip(puts, 1, UNBOUNDED_RING))
    if room.sum() > RING_ROOM:
        raise TraceError(
            f"streams that hold {int(room.sum()):,} tokens together take too much memory",
            hint="a stream that is to hold all its tokens costs nothing: give it that depth",
        )
    return room


def _require_room(data: TraceData, depths: IntArray, room: IntArray, occupancy: IntArray) -> None:
    """A stream that was given less room than depth must not have been held up by that."""
    held_up = np.flatnonzero((room == UNBOUNDED_RING) & (room < depths) & (occupancy >= room))
    if len(held_up):
        raise TraceError(
            f"stream {data.streams[held_up[0]]} comes to hold more than {int(room[held_up[0]]) - 1:,} tokens",
            hint="give the stream the depth that it is going to have",
        )


def _network(data: TraceData, depths: IntArray, room: IntArray) -> Network:
    builder = NetworkBuilder()
    builder.streams(room.tolist(), latency=read_latency(data.fixed_latency, depths).tolist())
    loops: list[list[TraceLoop]] = [[] for _ in data.processes]
    for loop in data.loops:
        if loop.trip:
            loops[loop.process].append(loop)
    for own in loops:
        ports: dict[int, int] = {}
        table = Table()
        table.advance(data.start)
        for position, loop in enumerate(own):
            _write(table, loop, ports, is_last=position == len(own) - 1)
        builder.process(table, list(ports))
    return builder.build()


def _write(table: Table, loop: TraceLoop, ports: dict[int, int], *, is_last: bool) -> None:
    ops = loop.ops or ()
    with table.pipeline(loop.trip, ii=loop.ii, depth=loop.done if is_last else loop.next_base) as round_:
        for op in ops:
            port = ports.setdefault(op.stream, len(ports))
            (round_.put if op.kind == PUT else round_.get)(port, stage=op.stage)


def _labels(data: TraceData, deadlock: Deadlock, result: RunResult) -> PlaceLabels:
    return PlaceLabels(data, {b.task: _place(data, b, result) for b in deadlock.blocked})


def _place(data: TraceData, blocked: Blocked, result: RunResult) -> str:
    """Locate a blocked process by the number of operations that its port has completed."""
    kind = GET if blocked.direction == "get" else PUT
    done = int((result.gets if kind == GET else result.puts)[blocked.stream])
    own = [loop for loop in data.loops if loop.process == blocked.task]
    for number, loop in enumerate(own):
        same = [op for op in loop.ops or () if (op.kind, op.stream) == (kind, blocked.stream)]
        if done < loop.trip * len(same):
            return describe_place(_iteration(same, loop, done), number, loop.source)
        done -= loop.trip * len(same)
    raise AssertionError("a process waits in an operation that it has")


def _iteration(ops: Sequence[LoopOp], loop: TraceLoop, done: int) -> int:
    """The iteration of the operation that comes after `done` of these, in the order in which they are due.

    Iterations further away than the pipeline overlaps are wholly before or behind it.
    """
    overlap = max(op.stage for op in ops) // loop.ii + 1
    first = max(0, done // len(ops) - overlap)
    near = range(first, min(loop.trip, done // len(ops) + overlap + 1))
    # The sort counts iterations from `first` on; all operations of those before are among the `done` ones.
    due = sorted((k * loop.ii + op.stage, k) for k in near for op in ops)
    return due[done - first * len(ops)][1]
