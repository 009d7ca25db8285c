"""Traces: building, files, and what is refused."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any, cast

import numba
import numpy as np
import pytest
from hypothesis import given, settings

from allo_dse.common.errors import AlloDseError
from allo_dse.common.numba_kernels import compiled
from allo_dse.simulator.replay.trace import Trace
from allo_dse.simulator.replay.trace_build import Frames, Get, Loop, Put
from allo_dse.simulator.replay.trace_data import TraceError

from .support import networks, trace_of

META: dict[str, Any] = {
    "name": "small",
    "clock_ns": 3.33,
    "processes": ["p", "q"],
    "loops": [
        {"process": "p", "ii": 1, "depth": 4, "trip": 2},
        {"process": "q", "ii": 2, "depth": 3, "trip": 2},
    ],
}


def arrays(**changes: Any) -> dict[str, np.ndarray]:
    """A trace as other tools write it; `name=None` leaves an array out."""
    plain = {
        "loop": np.array([0, 0, 1, 1], np.uint16),
        "kind": np.array([1, 1, 0, 0], np.uint8),
        "stream": np.zeros(4, np.uint16),
        "iteration": np.array([0, 1, 0, 1], np.uint32),
        "stream_depth": np.array([2], np.uint32),
        "meta": np.frombuffer(json.dumps(changes.pop("meta_json", META)).encode(), np.uint8),
    }
    return {name: value for name, value in {**plain, **changes}.items() if value is not None}


def written(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "t.npz"
    np.savez_compressed(path, **cast(Any, arrays(**changes)))
    return path


def meta_with(**changes: Any) -> dict[str, object]:
    return {**META, **changes}


def loop_with(**changes: Any) -> dict[str, object]:
    return meta_with(loops=[{**META["loops"][0], **changes}, META["loops"][1]])


def test_a_trace_of_another_tool_loads(tmp_path: Path) -> None:
    trace = Trace.load(written(tmp_path))
    assert repr(trace) == "<Trace 'small': 2 processes, 1 streams, 4 events>"
    assert (trace.name, trace.processes, trace.streams) == ("small", ("p", "q"), ("stream_0",))
    assert (trace.stream_depth.tolist(), trace.data.clock_ns, trace.notes) == ([2], 3.33, ())
    # p: puts at stage 3, ends there; q: gets at stage 2, its last, and ends there after the two cycles it waits.
    result = trace.replay()
    assert (result.times.put.tolist(), result.times.get.tolist()) == ([3, 4], [4, 6])
    assert (result.process_end.tolist(), result.cycles) == ([4, 6], 6)


@settings(max_examples=40, deadline=None)
@given(networks())
def test_saving_and_loading_changes_nothing(tmp_path_factory: pytest.TempPathFactory, network: Any) -> None:
    path = tmp_path_factory.mktemp("trace") / "t.npz"
    trace = trace_of(network, name="x", clock_ns=2.5, looks_at_occupancy=["p0"])
    trace.save(path)
    back = Trace.load(path)
    assert back.data.loops == trace.data.loops
    for name in ("name", "clock_ns", "processes", "streams", "occupancy_dependent"):
        assert getattr(back.data, name) == getattr(trace.data, name)
    for name in ("loop", "kind", "stream", "iteration", "stage"):
        assert (getattr(back.data.listed, name) == getattr(trace.data.listed, name)).all()
    assert (back.stream_depth == trace.stream_depth).all()


def test_regular_loops_are_written_out_for_other_readers(tmp_path: Path) -> None:
    Trace.build({"s": 3}, {"p": [Loop(2, 1, 4, [Put("s")])], "q": [Loop(2, ops=[Get("s")])]}).save(tmp_path / "t.npz")
    with np.load(tmp_path / "t.npz") as archive:
        assert archive["kind"].tolist() == [1, 1, 0, 0]
        assert archive["iteration"].tolist() == [0, 1, 0, 1]
        assert "stage" not in archive.files


def test_huge_regular_traces_are_saved_without_events(tmp_path: Path) -> None:
    trip = 1 << 36
    trace = Trace.build({"s": 3}, {"p": [Loop(trip, ops=[Put("s")])], "q": [Loop(trip, ops=[Get("s")])]})
    trace.save(tmp_path / "t.npz")
    assert (tmp_path / "t.npz").stat().st_size < 4000
    assert Trace.load(tmp_path / "t.npz").event_count == 2 * trip
    with pytest.raises(TraceError, match="too many to list"):
        _ = trace.data.events


def test_a_failed_save_leaves_nothing(tmp_path: Path) -> None:
    trace = Trace.load(written(tmp_path))
    with pytest.raises(TraceError, match="cannot write trace"):
        trace.save(tmp_path / "missing" / "t.npz")


WRONG = [
    ({"loop": None}, "no array loop"),
    ({"meta": None, "kind": None}, "no array kind, meta"),
    ({"kind": np.array([1.0, 1, 0, 0])}, "kind must be one-dimensional integers, it is float64"),
    ({"stream": np.zeros((4, 1), int)}, r"of shape \(4, 1\)"),
    ({"iteration": np.zeros(3, int)}, "differ in length"),
    ({"kind": np.array([1, 1, 0, 2])}, "event 3 has kind 2"),
    ({"stream": np.array([0, 0, 0, 1])}, "event 3 has stream 1, there are 1"),
    ({"stream": np.array([0, 0, -1, 0])}, "event 2 has stream -1"),
    ({"loop": np.array([0, 0, 1, 7])}, "event 3 has loop 7"),
    (
        {"loop": np.array([0, 0, 1, 7]), "stage": np.zeros(4, int), "meta_json": loop_with(ops=[["put", 0, 3]])},
        "event 3 has loop 7, there are 2",
    ),
    ({"loop": np.array([0, 0, -1, 7])}, "event 2 has loop -1"),
    ({"iteration": np.array([0, 1, 0, 2])}, "event 3 is in iteration 2 of a loop of 2"),
    ({"iteration": np.array([1, 0, 0, 1])}, r"event 1 \(loop 0, iteration 0\) of process p comes after a later one"),
    ({"kind": np.array([1, 1, 1, 1])}, "p and q both put to stream stream_0"),
    ({"kind": np.array([0, 0, 0, 0])}, "p and q both get from stream stream_0"),
    ({"stage": np.array([0, 0, 0, 9])}, "event 3 is at stage 9 of a pipeline that is 3 deep"),
    ({"stage": np.zeros(3, int)}, "differ in length"),
    ({"stream_depth": np.array([0])}, "stream stream_0 has depth 0; depths are at least 1"),
    ({"stream_depth": np.array([-4])}, "depth -4"),
    ({"meta": np.frombuffer(b"{not json", np.uint8)}, "meta is not UTF-8 JSON"),
    ({"meta": np.frombuffer(b"\xff\xfe", np.uint8)}, "meta is not UTF-8 JSON"),
    ({"meta": np.array([1.5])}, "meta is not UTF-8 JSON"),
    ({"meta": np.frombuffer(b"[]", np.uint8)}, "Expected `object`, got `array`"),
]
WRONG_META = [
    ({}, "missing required field `processes`"),
    (meta_with(processes="pq"), r"Expected `array`, got `str` - at `\$.processes`"),
    (meta_with(processes=["p", 1]), r"Expected `str`, got `int` - at `\$.processes\[1\]`"),
    (meta_with(processes=["p", "p"]), "names process 'q'"),
    (meta_with(processes=["p", "q", "p"]), "two processes are called 'p'"),
    (meta_with(streams=["a", "b"]), "2 streams are named, but 1 have a depth"),
    (meta_with(clock_ns=-1), "clock_ns is -1"),
    (meta_with(looks_at_occupancy=["r"]), "looks_at_occupancy names process 'r'"),
    (meta_with(loops=[3]), r"Expected `object`, got `int` - at `\$.loops\[0\]`"),
    (loop_with(ii=0), "loop 0 of process p: ii is 0"),
    (loop_with(trip=-1), "trip is -1"),
    (loop_with(depth="4"), r"Expected `int`, got `str` - at `\$.loops\[0\].depth`"),
    (loop_with(trip=True), r"Expected `int`, got `bool` - at `\$.loops\[0\].trip`"),
    (loop_with(trip=1 << 41), "trip is 2199023255552"),
    (loop_with(trip=1 << 39, ii=1 << 39), "would end after"),
    (loop_with(depth=1 << 70), r"Expected `int` <= 4611686018427387904 - at `\$.loops\[0\].depth`"),
    (loop_with(tail=0), "event 0 is due after the tail of its loop, 0"),
    (loop_with(process="r"), "names process 'r'"),
    (loop_with(ops=[["push", 0, 0]]), r"Invalid enum value 'push' - at `\$.loops\[0\].ops\[0\]\[0\]`"),
    (loop_with(ops=[["put", 9, 0]]), "uses stream 9"),
    (loop_with(ops=[["put", 0, 9]]), "operation at stage 9"),
]


@pytest.mark.parametrize(("changes", "message"), [*WRONG, *(({"meta_json": m}, text) for m, text in WRONG_META)])
def test_wrong_files_are_refused(tmp_path: Path, changes: Any, message: Any) -> None:
    path = tmp_path / "t.npz"
    np.savez_compressed(path, **cast(Any, arrays(**changes)))
    with pytest.raises(TraceError, match=message) as error:
        Trace.load(path)
    assert str(path) in str(error.value)
    assert isinstance(error.value, AlloDseError)


def test_files_that_are_no_traces_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="there is no trace"):
        Trace.load(tmp_path / "none.npz")
    with pytest.raises(TraceError, match="cannot read trace"):
        Trace.load(tmp_path)
    for content in (b"", b"hello", pickle.dumps([1])):
        (tmp_path / "x.npz").write_bytes(content)
        with pytest.raises(TraceError, match=r"not a NumPy \.npz archive"):
            Trace.load(tmp_path / "x.npz")


def test_python_objects_in_a_file_are_not_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", **cast(Any, arrays(loop=np.array([print, None], object))))
    with pytest.raises(TraceError, match="is damaged"):
        Trace.load(tmp_path / "t.npz")


def header(shape: tuple[int, ...], dtype: str) -> bytes:
    """Of an array in a file, without its elements."""
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": dtype, "fortran_order": False, "shape": shape})
    return out.getvalue()


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (header((1 << 40,), "<i8") + bytes(8), "claims to hold 8,796,093,022,208 bytes but has 8"),
        (header((1 << 62, 1 << 62), "<i8"), "bytes but has 0"),
        (header((-1,), "<i8") + bytes(8), "claims to hold -8 bytes"),
        (header((3,), "|O") + pickle.dumps([1, 2, 3]), "claims to hold Python objects"),
        (header((3,), "<i8")[:40], "is damaged"),
        (b"", "is damaged"),
        (b"\x93NUMPY\x09\x00" + bytes(64), "is damaged"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{", "is damaged"),
    ],
)
def test_a_header_is_not_believed(tmp_path: Path, content: bytes, message: str, compression: int) -> None:
    path = written(tmp_path)
    with zipfile.ZipFile(path, "a", compression) as archive:
        archive.writestr("more.npy", content)
    tracemalloc.start()
    try:
        with pytest.raises(TraceError, match=message) as error:
            Trace.load(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()
    assert str(path) in error.value.message
    assert error.value.hint


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    whole = written(tmp_path).read_bytes()
    for length in range(0, len(whole), 37):
        (tmp_path / "cut.npz").write_bytes(whole[:length])
        with pytest.raises(TraceError):
            Trace.load(tmp_path / "cut.npz")


def test_flipped_bits_never_give_another_error(tmp_path: Path) -> None:
    whole = bytearray(written(tmp_path).read_bytes())
    for at in range(0, len(whole), 23):
        broken = whole.copy()
        broken[at] ^= 0x55
        (tmp_path / "bad.npz").write_bytes(broken)
        with contextlib.suppress(TraceError):
            Trace.load(tmp_path / "bad.npz")


@pytest.mark.parametrize(
    ("streams", "processes", "options", "message"),
    [
        ({"s": 0}, {}, {}, "stream s has depth 0"),
        ({"s": 2.5}, {}, {}, "depth of stream s is 2.5"),
        ({}, {"p": [Loop(1, ops=[Put("s")])]}, {}, "process p uses stream 's'"),
        ({"s": 1}, {"p": [Loop(1, ops=[Put("s")], events=[("put", "s", 0)])]}, {}, "both ops and events"),
        ({"s": 1}, {"p": [Loop(1, events=[cast(Any, ("push", "s", 0))])]}, {}, "kind 'push'"),
        ({"s": 1}, {"p": [Loop(1, events=[("put", "s", 1)])]}, {}, "iteration 1 of a loop of 1"),
        ({"s": 1}, {"p": [Loop(cast(Any, 2.0), ops=[Put("s")])]}, {}, "trip of a loop of process p is 2.0"),
        ({"s": 1}, {"p": [Loop(1, ops=[Put("s")])], "q": [Loop(1, ops=[Put("s")])]}, {}, "p and q both put to"),
        ({}, {}, {"looks_at_occupancy": ["p"]}, "'p', which is not a process"),
        ({}, {}, {"clock_ns": -3}, "clock_ns is -3, it must be a positive number"),
        ({"t": 2}, {}, {"arrays": {"t": 2}}, "'t' is a stream and belongs to an array"),
        ({}, {"p": Frames([], restart=cast(Any, 1.5))}, {}, "restart of process p is 1.5"),
        ({}, {"p": Frames([], -1)}, {}, "process p has -1 frames"),
        ({"s": 1}, {"p": [Loop(1, ops=[cast(Any, ("put", "s"))])]}, {}, "ops of a loop of process p are Get"),
        ({"s": 1}, {"p": [Loop(1, events=[cast(Any, ("put", "s"))])]}, {}, "events of a loop of process p are"),
    ],
)
def test_wrong_parts_are_refused(streams: Any, processes: Any, options: Any, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        Trace.build(streams, processes, **options)


def test_a_frame_is_done_with_the_last_loop_that_runs() -> None:
    frames = ([Loop(10, depth=5)], [Loop(10, depth=5), Loop(0)])
    assert len({trace_cycles(Frames(loops, 3)) for loops in frames}) == 1


def trace_cycles(process: Frames) -> int:
    return Trace.build({}, {"p": process}).replay().cycles


def test_traces_cannot_be_changed(tmp_path: Path) -> None:
    trace = Trace.load(written(tmp_path))
    for array in (trace.stream_depth, trace.data.listed.iteration):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7


def test_kernels_compile_without_a_cache_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = numba.njit

    def njit(*functions: Any, cache: bool = False, **options: Any) -> object:  # Numba's own functions are compiled, too
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return plain(*functions, **options)

    monkeypatch.setattr(numba, "njit", njit)
    assert compiled(lambda x: x + 1)(2) == 3


def test_a_trace_without_streams_takes_its_loops_time() -> None:
    trace = Trace.build({}, {"p": [Loop(10, 2, 5), Loop(0, 1, 100), Loop(1, 1, 3)], "idle": []})
    assert trace.replay().process_end.tolist() == [18 + 6 + 2, 0]
    assert Trace.build({}, {}).replay().cycles == 0
