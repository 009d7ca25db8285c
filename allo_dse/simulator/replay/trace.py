"""Traces of dataflow designs: load, save, build, and replay with other stream depths."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import overload

import numpy as np
from msgspec import structs
from numpy.typing import ArrayLike

from allo_dse.common.records import Frozen

from ..deadlock import Blocked, Deadlock, Increase
from ..engine.engine import table_engine
from ..engine.run_result import RunResult
from ..network.network import Network, NetworkBuilder, read_latency
from ..network.tables import Table
from .depth_tries import smallest_depths
from .plan import AlikeStreams, PlaceLabels, Plan, describe_place, make_plan
from .replay import Depths, depth_array, replay_batch, replay_one, require_replayable
from .replay_result import ReplayResult
from .trace_build import Process, build_trace, recorded_trace
from .trace_data import GET, PUT, IntArray, LoopOp, TraceData, TraceError, TraceLoop, trace_notes
from .trace_file import load_trace, save_trace

# The engine replays a regular trace in a time that does not depend on trip counts, because it skips repeated periods.
#
# A pipelined loop performs its operations in the order in which they are due, and a blocked one delays all later ones
# equally (docs/timing.md, T6 and T7). So the loop is an operation table: its operations by due time, with the waits
# between them.


RING_ROOM = 1 << 26
"""Tokens that streams hold together, at most."""
UNBOUNDED_RING = 1 << 16
"""Tokens waiting in a stream that can hold all it ever carries, at most."""

LISTED = 1 << 21
"""Events of a regular trace that are listed and replayed, which takes less time than the engine."""


class RegularResult(Frozen, eq=False):
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


Regular = RegularResult | ReplayResult


def replay_regular(data: TraceData, depths: IntArray, alike: Callable[[], AlikeStreams]) -> Regular:
    """Replay a trace of regular loops with one depth vector; a short one with all its operations.

    Args:
        alike: returns the trace laid out for replay.

    Raises:
        TraceError: if a loop lists its events, or tokens would not fit in memory.
    """
    if not data.regular:
        raise TraceError(
            f"trace {data.name!r} lists events one by one: nothing says that they go on in the same way",
            hint="use replay(), or build the trace from loops with `ops`",
        )
    if data.event_count <= LISTED:
        return replay_one(data, alike(), depths)
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
        ""
        if deadlock is None
        else deadlock.describe(PlaceLabels(data, {b.task: _place(data, b, result) for b in deadlock.blocked})),
        result.operations - result.skipped,
    )


def _room(data: TraceData, depths: IntArray) -> IntArray:
    """Per stream the tokens that there is memory for: its depth, unless it can hold all it carries."""
    puts, _ = data.token_counts
    depths = depths.copy()
    # Filled banks of an array channel wait for free banks, never for room in the stream that announces them.
    depths[data.filled] = np.maximum(depths, puts)[data.filled]
    # A stream that is never full needs no ring of its depth: slots are reused as tokens are read. `_require_room`
    # checks afterwards that the smaller ring has not delayed it.
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
    # Iterations count from `first`; all operations of earlier ones are among the `done` ones.
    due = sorted((k * loop.ii + op.stage, k) for k in near for op in ops)
    return due[done - first * len(ops)][1]


class Trace:
    """The stream operations of one run of a dataflow design, as loops of processes; immutable.

    Get one with `Trace.load` or `Trace.build`. Operations are timed by `replay`; a trace itself holds no times.
    """

    def __init__(self, data: TraceData) -> None:
        self.data = data
        for array in (data.stream_depth, *structs.asdict(data.listed).values(), data.latency, data.place):
            if array is not None:
                array.flags.writeable = False

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read a trace file (see `trace.file` for the format).

        Raises:
            TraceError: if the file is missing, damaged, not a trace, or contradicts itself.
        """
        return cls(load_trace(path))

    def save(self, path: str | Path) -> None:
        """Write the trace; `load` gives it back."""
        save_trace(self.data, path)

    @classmethod
    def build(
        cls,
        streams: Mapping[str, int],
        processes: Mapping[str, Process],
        *,
        arrays: Mapping[str, int] | None = None,
        name: str = "trace",
        clock_ns: float | None = None,
        looks_at_occupancy: Collection[str] = (),
    ) -> Trace:
        """Build a trace from another tool's data.

        Args:
            streams: depth of each stream, as built.
            processes: per process the loops that it runs one after the other, or `Frames`.
            arrays: number of banks of each channel that is a whole array (2: a ping-pong buffer). In depths these
                are streams called like the arrays.
            clock_ns: clock period.
            looks_at_occupancy: processes that call `empty()` or `full()`; their traces are not replayed.

        Raises:
            TraceError: if the parts contradict each other.
        """
        return cls(
            build_trace(
                streams,
                processes,
                arrays=arrays or {},
                name=name,
                clock_ns=clock_ns,
                looks_at_occupancy=looks_at_occupancy,
            )
        )

    @classmethod
    def recorded(cls, result: RunResult) -> Trace:
        """Build the trace of a run with `record=True`, to be timed again for other stream depths.

        Raises:
            TraceError: if the run did not finish, or waited for shared resources.
            SimulationError: if it was not recorded.
        """
        return cls(recorded_trace(result.timeline, result.labels, result.polling_nodes, result.name))

    def __repr__(self) -> str:
        data = self.data
        return (
            f"<Trace {data.name!r}: {len(data.processes)} processes, {len(data.streams)} streams, "
            f"{data.event_count:,} events>"
        )

    @property
    def name(self) -> str:
        return self.data.name

    @property
    def processes(self) -> tuple[str, ...]:
        """Names of the processes."""
        return self.data.processes

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams."""
        return self.data.streams

    @property
    def stream_depth(self) -> IntArray:
        """Per stream its depth as built."""
        return self.data.stream_depth

    @property
    def event_count(self) -> int:
        """Number of stream operations."""
        return self.data.event_count

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Return oddities of the trace: streams whose puts and gets differ in number."""
        return trace_notes(self.data)

    @cached_property
    def plan(self) -> Plan:
        """The trace laid out for replay."""
        require_replayable(self.data)
        return make_plan(self.data)

    @cached_property
    def _alike_streams(self) -> AlikeStreams:
        return AlikeStreams(self.plan)

    @overload
    def replay(self, depths: Mapping[str, int] | Mapping[int, int] | None = None) -> ReplayResult: ...

    @overload
    def replay(self, depths: ArrayLike) -> ReplayResult | IntArray: ...

    def replay(self, depths: Depths = None) -> ReplayResult | IntArray:
        """Times with other stream depths.

        Args:
            depths: None (as built), depths of some streams by name or number (the others as built), one depth per
                stream, or a batch of such vectors, int[n, streams].

        Returns:
            A `ReplayResult`; for a batch the makespans in cycles, int64[n], -1 where the design deadlocks.

        Raises:
            TraceError: if the trace depends on stream occupancy, or depths are wrong.
        """
        require_replayable(self.data)
        array = depth_array(self.data, depths)
        if array.ndim == 1:
            return replay_one(self.data, self._alike_streams, array)
        return replay_batch(self.data, self._alike_streams, array)

    def extrapolate(self, depths: Depths = None) -> Regular:
        """The same times as `replay`, in a time that does not grow with trip counts; for traces of regular loops only.

        Short traces are replayed.

        Args:
            depths: as for `replay`, not a batch.

        Raises:
            TraceError: if a loop lists its events, or as for `replay`.
        """
        require_replayable(self.data)
        array = depth_array(self.data, depths)
        if array.ndim != 1:
            raise TraceError("extrapolate takes one depth vector, not a batch")
        return replay_regular(self.data, array, lambda: self._alike_streams)

    def smallest_depths(self, at_least: Depths = None, *, max_runs: int = 2_000) -> Increase:
        """The smallest total increase of `at_least` (default: 1 everywhere) with which the design does not deadlock.

        Args:
            max_runs: how many depth vectors may be tried; see `Increase.proven`.

        Raises:
            TraceError: if no depths help.
        """
        array = self.data.stream_depth * 0 + 1 if at_least is None else depth_array(self.data, at_least)
        return smallest_depths(self.data, self.plan, array, max_runs)
