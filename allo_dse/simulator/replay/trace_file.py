"""Traces as files: compressed NumPy archives.

Arrays `loop`, `kind`, `stream`, `iteration` (one entry per event), `stream_depth` (one per stream) and `meta` (UTF-8
JSON with `name`, `clock_ns`, `processes`, `loops`). Optional: the arrays `stage` (per event; written where some differ
from the default), `place` (per event, a position in `meta.places`) and `latency` (per stream, -1: by depth), and in
`meta` the lists `streams` (names), `looks_at_occupancy` (names of processes) and `places`, `arrays`
(pairs of streams), `start` (first base), and
per loop `ops` (of every iteration: kind, stream, stage), `source` and `tail`.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np

from allo_dse.common.files import whole_file
from allo_dse.common.records import Array, Frozen

from ..network.network import ArrayStreams
from .trace_data import (
    GET,
    KINDS,
    PUT,
    IntArray,
    LoopOp,
    StreamOperations,
    TraceData,
    TraceError,
    TraceLoop,
    check_trace,
)

COLUMNS = ("loop", "kind", "stream", "iteration")
MOST_WRITTEN = 1 << 24
"""Events of regular loops are written out, for other readers, unless there are more than this."""


Number = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]


class _Loop(Frozen, omit_defaults=True):
    process: str
    ii: Number
    depth: Number
    trip: Number
    source: str = ""
    tail: Number | None = None
    ops: Sequence[tuple[Literal["get", "put"], Number, Number]] | None = None


class _Meta(Frozen):
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
            what = "Python objects" if dtype.hasobject else f"{claimed:,} bytes but has {held:,}"
            raise ValueError(f"{entry.filename} claims to hold {what}")
    with archive.open(entry) as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)


def _from_arrays(arrays: dict[str, Array], stem: str) -> TraceData:
    missing = [name for name in (*COLUMNS, "stream_depth", "meta") if name not in arrays]
    if missing:
        raise TraceError(f"is not a trace: it has no array {', '.join(missing)}")
    array = arrays["meta"]
    try:
        text = str(array).encode() if array.dtype.kind == "U" else array.astype(np.uint8, casting="safe").tobytes()
        meta = msgspec.json.decode(text, type=_Meta)
    except (ValueError, TypeError) as error:
        raise TraceError(f"meta is not UTF-8 JSON of a trace: {error}") from error
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


def _events(arrays: dict[str, Array], loops: tuple[TraceLoop, ...]) -> StreamOperations:
    """The events of loops without `ops`."""
    columns = {name: _integers(arrays[name], name) for name in (*COLUMNS, "stage") if name in arrays}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise TraceError(f"the event arrays differ in length: {lengths}")
    loop, kind = columns["loop"], columns["kind"]
    outside = np.flatnonzero((loop < 0) | (loop >= len(loops)))
    if len(outside):
        raise TraceError(f"event {outside[0]} has loop {loop[outside[0]]}, there are {len(loops)}")
    if "stage" not in columns:
        columns["stage"] = _default_stage(loops, loop, kind)
    events = StreamOperations(loop, kind, columns["stream"], columns["iteration"], columns["stage"])
    regular = np.array([entry.ops is not None for entry in loops], bool)
    return events.select(~regular[loop]) if regular.any() and len(events) else events


def _default_stage(loops: tuple[TraceLoop, ...], loop: IntArray, kind: IntArray) -> IntArray:
    stages = np.array([[entry.stage(GET), entry.stage(PUT)] for entry in loops], np.int64).reshape(-1, 2)
    return np.where(kind == PUT, stages[loop, PUT], stages[loop, GET]) if len(loop) else np.zeros(0, np.int64)


def _integers(array: Array, name: str) -> IntArray:
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise TraceError(f"array {name} must be one-dimensional integers, it is {array.dtype} of shape {array.shape}")
    return array.astype(np.int64)


def _known(numbers: dict[str, int], name: str, where: str) -> int:
    if name not in numbers:
        raise TraceError(f"{where} names process {name!r}, which is not in meta.processes")
    return numbers[name]
