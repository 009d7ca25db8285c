"""Traces of dataflow designs: load, save, build, and replay with other stream depths."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, overload

import msgspec
import numpy as np
from msgspec import Struct, structs
from numpy.typing import ArrayLike

from allo_dse.common.files import whole_file
from allo_dse.common.records import Array

from ..deadlock import Blocked, Deadlock, Increase
from ..engine.engine import table_engine
from ..engine.run_result import RunResult
from ..engine.steady import looks_pay
from ..network.network import ArrayStreams, Network, NetworkBuilder, read_latency
from ..network.tables import Table
from .depth_tries import smallest_depths
from .plan import AlikeStreams, PlaceLabels, Plan, describe_place, make_plan
from .replay import Depths, depth_array, replay_batch, replay_one, require_replayable
from .replay_result import ReplayResult
from .trace_build import Process, build_trace, recorded_trace
from .trace_data import (
    GET,
    KINDS,
    PUT,
    Events,
    IntArray,
    LoopOp,
    TraceData,
    TraceError,
    TraceLoop,
    check_trace,
    trace_notes,
)

# Traces as files: compressed NumPy archives.
#
# Arrays `loop`, `kind`, `stream`, `iteration` (one entry per event), `stream_depth` (one per stream) and `meta` (UTF-8
# JSON with `name`, `clock_ns`, `processes`, `loops`). Optional: the arrays `stage` (per event; written where some
# differ from the default), `place` (per event, a position in `meta.places`) and `latency` (per stream, -1: by depth),
# and in `meta` the lists `streams` (names), `looks_at_occupancy` (names of processes) and `places`, `arrays` (pairs of
# streams), `start` (first base), and per loop `ops` (of every iteration: kind, stream, stage), `source` and `tail`.


COLUMNS = ("loop", "kind", "stream", "iteration")
MOST_WRITTEN = 1 << 24
"""Events of regular loops are written out, for other readers, unless there are more than this."""


Number = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]


class _Loop(Struct, frozen=True, omit_defaults=True):
    process: str
    ii: Number
    depth: Number
    trip: Number
    source: str = ""
    tail: Number | None = None
    ops: Sequence[tuple[Literal["get", "put"], Number, Number]] | None = None


class _Meta(Struct, frozen=True):
    processes: Sequence[str]
    loops: Sequence[_Loop]
    name: str | None = None
    clock_ns: int | float | None = None
    streams: Sequence[str] | None = None
    looks_at_occupancy: Sequence[str] = ()
    start: Number = 0
    places: Sequence[str] = ()
    arrays: Sequence[tuple[Number, Number]] = ()


def load_trace(path: str | Path) -> TraceData:
    """Read a trace.

    Raises:
        TraceError: if the file is missing, damaged, not a trace, or contradicts itself.
    """
    file = Path(path)
    arrays = _read_arrays(file)
    try:
        data = _from_arrays(arrays, file.stem)
        check_trace(data)
    except TraceError as error:
        raise TraceError(f"{file}: {error.message}", hint=error.hint) from None
    return data


def save_trace(data: TraceData, path: str | Path) -> None:
    """Write a trace; the file appears whole or not at all."""
    file = Path(path)
    events = data.events if data.event_count <= MOST_WRITTEN else data.listed
    arrays: dict[str, Array] = {
        "loop": _compact(events.loop),
        "kind": events.kind.astype(np.uint8),
        "stream": _compact(events.stream),
        "iteration": _compact(events.iteration),
        "stream_depth": _compact(data.stream_depth),
        "meta": np.frombuffer(_meta(data), np.uint8),
    }
    if data.latency is not None:
        arrays["latency"] = data.latency
    if data.place is not None:
        arrays["place"] = _compact(data.place)
    if len(events) and (events.stage != _default_stage(data.loops, events.loop, events.kind)).any():
        arrays["stage"] = _compact(events.stage)
    try:
        with whole_file(file) as scratch, scratch.open("wb") as out:
            np.savez_compressed(out, allow_pickle=False, **arrays)
    except OSError as error:
        raise TraceError(f"cannot write trace {file}: {error.strerror or error}") from error


def _compact(column: IntArray) -> Array:
    largest = int(column.max(initial=0))
    return column.astype(np.uint16 if largest < 1 << 16 else np.uint32 if largest < 1 << 32 else np.int64)


def _meta(data: TraceData) -> bytes:
    loops = [
        _Loop(
            data.processes[loop.process], loop.ii, loop.depth, loop.trip, loop.source, loop.tail,
            None if loop.ops is None else [(KINDS[op.kind], op.stream, op.stage) for op in loop.ops],
        )
        for loop in data.loops
    ]  # fmt: skip
    looks = [data.processes[p] for p in sorted(data.occupancy_dependent)]
    return msgspec.json.encode(
        _Meta(
            data.processes, loops, data.name, data.clock_ns, data.streams, looks, data.start, data.places, data.arrays
        )
    )


def _read_arrays(file: Path) -> dict[str, Array]:
    try:
        with file.open("rb") as stream:
            if stream.read(2) != b"PK":
                raise TraceError(f"{file} is not a trace: not a NumPy .npz archive")
        with zipfile.ZipFile(file) as archive:
            return {entry.filename.removesuffix(".npy"): _read_array(archive, entry) for entry in archive.infolist()}
    except FileNotFoundError:
        raise TraceError(f"there is no trace {file}") from None
    except OSError as error:
        raise TraceError(f"cannot read trace {file}: {error.strerror or error}") from error
    except TraceError:
        raise
    except Exception as error:  # zipfile, each decompressor and NumPy have their own
        raise TraceError(
            f"trace {file} is damaged: {error}", hint="write it again; traces hold plain arrays only, no Python objects"
        ) from error


def _read_array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Array:
    """An array of an archive; its header is not believed to have more elements than the archive has bytes for.

    Raises:
        ValueError: where it says so, or holds Python objects.
    """
    with archive.open(entry) as stream:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(stream)
        claimed, held = math.prod(shape) * dtype.itemsize, entry.file_size - stream.tell()
        # Deflate expands a byte to at most 1032.
        if dtype.hasobject or claimed != held or entry.file_size > 1032 * entry.compress_size + 1032:
            what = "Python objects" if dtype.hasobject else f"{claimed:,} bytes, of which {held:,} are there"
            raise ValueError(f"{entry.filename} claims to hold {what}")
    with archive.open(entry) as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)


def _from_arrays(arrays: dict[str, Array], stem: str) -> TraceData:
    missing = [name for name in (*COLUMNS, "stream_depth", "meta") if name not in arrays]
    if missing:
        raise TraceError(f"is not a trace: it has no array {', '.join(missing)}")
    meta = _parse_meta(arrays["meta"])
    numbers = {name: i for i, name in enumerate(meta.processes)}
    loops = tuple(
        TraceLoop(
            _known(numbers, loop.process, f"meta.loops[{i}]"), loop.ii, loop.depth, loop.trip,
            None if loop.ops is None else tuple(LoopOp(KINDS.index(kind), *at) for kind, *at in loop.ops),
            loop.source, loop.tail,
        )
        for i, loop in enumerate(meta.loops)
    )  # fmt: skip
    depth = _integers(arrays["stream_depth"], "stream_depth")
    return TraceData(
        name=stem if meta.name is None else meta.name,
        clock_ns=meta.clock_ns,
        processes=tuple(meta.processes),
        streams=tuple(f"stream_{i}" for i in range(len(depth))) if meta.streams is None else tuple(meta.streams),
        stream_depth=depth,
        loops=loops,
        listed=_events(arrays, loops),
        occupancy_dependent=frozenset(_known(numbers, name, "looks_at_occupancy") for name in meta.looks_at_occupancy),
        start=meta.start,
        latency=_integers(arrays["latency"], "latency") if "latency" in arrays else None,
        arrays=tuple(ArrayStreams(*pair) for pair in meta.arrays),
        places=tuple(meta.places),
        place=_integers(arrays["place"], "place") if "place" in arrays else None,
    )


def _events(arrays: dict[str, Array], loops: tuple[TraceLoop, ...]) -> Events:
    """The events of loops without `ops`."""
    columns = {name: _integers(arrays[name], name) for name in COLUMNS}
    lengths = {name: len(column) for name, column in columns.items()}
    if "stage" in arrays:
        columns["stage"] = _integers(arrays["stage"], "stage")
        lengths["stage"] = len(columns["stage"])
    if len(set(lengths.values())) > 1:
        raise TraceError(f"the event arrays differ in length: {lengths}")
    loop, kind = columns["loop"], columns["kind"]
    outside = np.flatnonzero((loop < 0) | (loop >= len(loops)))
    if len(outside):
        raise TraceError(f"event {outside[0]} has loop {loop[outside[0]]}, there are {len(loops)}")
    if "stage" not in columns:
        columns["stage"] = _default_stage(loops, loop, kind)
    events = Events(loop, kind, columns["stream"], columns["iteration"], columns["stage"])
    regular = np.array([entry.ops is not None for entry in loops], bool)
    return events.select(~regular[loop]) if regular.any() and len(events) else events


def _default_stage(loops: tuple[TraceLoop, ...], loop: IntArray, kind: IntArray) -> IntArray:
    stages = np.array([[entry.stage(GET), entry.stage(PUT)] for entry in loops], np.int64).reshape(-1, 2)
    return np.where(kind == PUT, stages[loop, PUT], stages[loop, GET]) if len(loop) else np.zeros(0, np.int64)


def _integers(array: Array, name: str) -> IntArray:
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise TraceError(f"array {name} must be one-dimensional integers, it is {array.dtype} of shape {array.shape}")
    return array.astype(np.int64)


def _parse_meta(array: Array) -> _Meta:
    try:
        text = str(array).encode() if array.dtype.kind == "U" else array.astype(np.uint8, casting="safe").tobytes()
        return msgspec.json.decode(text, type=_Meta)
    except (ValueError, TypeError) as error:
        raise TraceError(f"meta is not UTF-8 JSON of a trace: {error}") from error


def _known(numbers: dict[str, int], name: str, where: str) -> int:
    if name not in numbers:
        raise TraceError(f"{where} names process {name!r}, which is not in meta.processes")
    return numbers[name]


# The engine replays a regular trace in a time that does not depend on trip counts, because it skips repeated periods.
#
# A pipelined loop performs its operations in the order in which they are due, and a blocked one delays all later ones
# equally (docs/timing.md, T6 and T7). So the loop is an operation table: its operations by due time, with the waits
# between them.


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


def replay_regular(data: TraceData, depths: IntArray, alike: Callable[[], AlikeStreams]) -> RegularResult:
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
    room = _room(data, depths)
    if not looks_pay(sum(loop.trip for loop in data.loops), len(data.processes) + int(room.sum())):
        whole = replay_one(data, alike(), depths)
        done = int(sum(one.sum() for one in whole.done))
        return RegularResult(
            whole.process_end, whole.stall_get, whole.stall_put, whole.occupancy, whole.deadlock, whole.explain(), done
        )
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

    def extrapolate(self, depths: Depths = None) -> RegularResult:
        """The same times as `replay`, in a time that does not grow with trip counts; for traces of regular loops only.

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
