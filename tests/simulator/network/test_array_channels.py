"""Channels that are whole arrays, and tasks that are started once per frame, in both engines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import allo_dse as dse
from allo_dse.common.errors import SimulationError
from allo_dse.simulator.codegen.signature import Body, Tiles
from allo_dse.simulator.engine.engine import compile_bodies, table_engine
from allo_dse.simulator.engine.frames import repeated
from allo_dse.simulator.network.network import Network, NetworkBuilder
from allo_dse.simulator.network.tables import Table
from allo_dse.simulator.replay.replay_result import ReplayResult
from allo_dse.simulator.replay.trace import Trace
from allo_dse.simulator.replay.trace_build import Frames, Get, Loop, Put
from allo_dse.simulator.replay.trace_data import TraceError

from ..replay.support import makespans, replayed


def ping_pong(write: int, read: int, banks: int) -> Network:
    b = NetworkBuilder()
    array = b.array(banks)
    writer, reader = Table(), Table()
    with writer.writing(0, 1):
        writer.wait(write)
    with reader.reading(0, 1):
        reader.wait(read)
    b.process(writer, array)
    b.process(reader, array)
    return b.build()


@pytest.mark.parametrize(
    ("write", "read", "banks", "cycles"),
    [
        # The writer starts at 0, 11, 22, 33; the reader a cycle after it is done: 11, 22, 33, 44.
        (10, 6, 2, 50),
        # One bank: the writer starts a cycle after the reader is done, 18 cycles after its last start.
        (10, 6, 1, 71),
        # The reader sets the pace: it starts at 11, 32, 53, 74. A third bank lets the writer run ahead, no more.
        (10, 20, 2, 94),
        (10, 20, 3, 94),
        (10, 20, 1, 4 * 32 - 1),
        (0, 0, 2, 3 + 1),
    ],
)
def test_four_frames_through_a_ping_pong_buffer(write: int, read: int, banks: int, cycles: int) -> None:
    result = table_engine().run(repeated(ping_pong(write, read, banks), 4))
    assert result.finished
    assert result.cycles == cycles
    assert result.occupancy[0] <= banks
    trace = Trace.build(
        {},
        {
            "writer": Frames([Loop(1, 1, write + 1)] if write else [], 4, writes=["buffer"]),
            "reader": Frames([Loop(1, 1, read + 1)] if read else [], 4, reads=["buffer"]),
        },
        arrays={"buffer": banks},
    )
    assert trace.replay().cycles == cycles
    assert trace.extrapolate().cycles == cycles


def test_the_number_of_banks_is_one_depth() -> None:
    network = ping_pong(10, 6, 2)
    deeper = network.with_depths(np.array([3, 1]))
    assert deeper.depth.tolist() == [3, 3]
    assert deeper.latency.tolist() == [1, 1]
    trace = Trace.recorded(table_engine().run(repeated(network, 4), record=True))
    for banks in (1, 2, 5):
        ran = table_engine().run(repeated(network.with_depths(np.array([banks, banks])), 4))
        assert replayed(trace, [banks, 1]).cycles == ran.cycles


FILL = """
func.func @fill(%x: memref<8xi32>, %free: index, %filled: index) {
  %buffer = memref.alloc() : memref<8xi32>
  %one = arith.constant 1 : i32
  "df.put"(%free, %one) {op = 0} : (index, i32) -> ()
  affine.for %i = 0 to 8 {
    %v = affine.load %x[%i] : memref<8xi32>
    %w = arith.addi %v, %one : i32
    affine.store %w, %buffer[%i] : memref<8xi32>
    affine.store %w, %x[%i] : memref<8xi32>
    "df.cost"() {site = 0} : () -> ()
  }
  "df.put_block"(%filled, %buffer) {op = 1} : (index, memref<8xi32>) -> ()
  memref.dealloc %buffer : memref<8xi32>
  return
}"""
SUM = """
func.func @sum(%y: memref<8xi32>, %free: index, %filled: index) {
  %buffer = memref.alloc() : memref<8xi32>
  "df.get_block"(%filled, %buffer) {op = 0} : (index, memref<8xi32>) -> ()
  affine.for %i = 0 to 8 {
    %v = affine.load %buffer[%i] : memref<8xi32>
    %s = affine.load %y[%i] : memref<8xi32>
    %t = arith.addi %v, %s : i32
    affine.store %t, %y[%i] : memref<8xi32>
    "df.cost"() {site = 0} : () -> ()
  }
  %n = "df.get"(%free) {op = 1} : (index) -> i32
  memref.dealloc %buffer : memref<8xi32>
  return
}"""


def test_task_bodies_hand_arrays_over() -> None:
    engine = compile_bodies([Body("fill", FILL), Body("sum", SUM)])
    b = NetworkBuilder()
    x, y = b.tensor(np.arange(8, dtype=np.int32)), b.tensor(np.zeros(8, np.int32))
    free, filled = b.stream(2, latency=1, token_bytes=4), b.stream(2, latency=1, token_bytes=32)
    for body, array, cost in (("fill", x, 2), ("sum", y, 3)):
        words = engine.signatures[body].words(1, [Tiles(array, 0, (1,)), free, filled], cost_site=b.costs([cost]))
        b.tasks(body, words)
    result = engine.run(repeated(b.build(), 3))
    # Filling takes 16 cycles, summing 24: starts at 0, 17, 42 and at 17, 42, 67.
    assert result.cycles == 91
    np.testing.assert_array_equal(y, 3 * np.arange(8) + 1 + 2 + 3)


@dataclass
class Region:
    """Per process its loops, and the arrays it reads and writes; streams and arrays lead to later processes."""

    loops: list[list[Loop]]
    reads: list[list[str]]
    writes: list[list[str]]
    streams: dict[str, int]
    arrays: dict[str, int]
    frames: int
    restart: int


@st.composite
def regions(draw: st.DrawFn) -> Region:
    count = draw(st.integers(2, 4))
    ends = st.lists(st.permutations(range(count)).map(lambda p: tuple(sorted(p[:2]))), max_size=3)
    streams, arrays = draw(ends), draw(ends)
    reads = [[f"a{i}" for i, (_, b) in enumerate(arrays) if b == process] for process in range(count)]
    writes = [[f"a{i}" for i, (a, _) in enumerate(arrays) if a == process] for process in range(count)]
    loops: list[Any] = []
    trips = draw(st.lists(st.integers(1, 5), min_size=1, max_size=2))
    for process in range(count):
        loops.append([])
        for trip in trips:
            depth = draw(st.integers(1, 6))
            ops: list[Get | Put] = [Get(f"s{i}", 0) for i, (_, b) in enumerate(streams) if b == process]
            ops += [Put(f"s{i}", draw(st.integers(0, depth))) for i, (a, _) in enumerate(streams) if a == process]
            loops[-1].append(Loop(trip, draw(st.integers(1, 3)), depth, ops=ops))
    depths = {f"s{i}": draw(st.integers(1, 4)) for i in range(len(streams))}
    banks = {f"a{i}": draw(st.integers(1, 3)) for i in range(len(arrays))}
    return Region(loops, reads, writes, depths, banks, draw(st.integers(1, 4)), draw(st.integers(0, 2)))


def as_network(region: Region, *, rounds: bool = True) -> Network:
    """The region as tables that repeat themselves, or as tasks that a node runs in turn."""
    b = NetworkBuilder()
    number = {name: b.stream(depth) for name, depth in region.streams.items()}
    arrays = {name: b.array(banks) for name, banks in region.arrays.items()}
    ports = [*number.values(), *(stream for array in arrays.values() for stream in array)]
    for loops, reads, writes in zip(region.loops, region.reads, region.writes, strict=True):
        table = Table()
        for name in reads:
            table.get(arrays[name].filled)
        for name in writes:
            table.put(arrays[name].banks)
        for position, loop in enumerate(loops):
            is_last = position == len(loops) - 1
            last_stage = max([loop.depth - 1, *(op.stage or 0 for op in loop.ops)])
            with table.pipeline(loop.trip, ii=loop.ii, depth=last_stage if is_last else loop.depth) as pipeline:
                for op in loop.ops:
                    getattr(pipeline, type(op).__name__.lower())(number[op.stream], stage=op.stage)
            if not is_last:
                table.wait(1)
        for name in writes:
            table.put(arrays[name].filled)
        for name in reads:
            table.get(arrays[name].banks)
        b.node([b.process(table, ports)] if rounds else [b.process(table, ports), b.process(Table())])
    return repeated(b.build(), region.frames, restart=region.restart)


@settings(max_examples=80, deadline=None)
@given(regions(), st.data())
def test_replay_of_a_dataflow_region_is_the_run_engine(region: Region, data: st.DataObject) -> None:
    processes = {
        f"p{i}": Frames(loops, region.frames, reads, writes, region.restart)
        for i, (loops, reads, writes) in enumerate(zip(region.loops, region.reads, region.writes, strict=True))
    }
    trace = Trace.build(region.streams, processes, arrays=region.arrays)
    network = as_network(region)
    names = [*region.streams, *region.arrays]
    for chosen in ({}, {name: data.draw(st.integers(1, 5)) for name in names}):
        depth = network.depth.copy()
        for position, name in enumerate(trace.streams):
            depth[position] = chosen.get(name.removesuffix(" (filled)"), depth[position])
        ran = table_engine().run(network.with_depths(depth))
        in_turn = table_engine().run(as_network(region, rounds=False).with_depths(depth))
        assert in_turn.node_end.tolist() == ran.node_end.tolist()
        event(f"finished: {ran.finished}")
        replayed = trace.replay(chosen)
        assert isinstance(replayed, ReplayResult)
        assert replayed.finished == ran.finished
        assert replayed.stall_get.tolist() == ran.stall_get.tolist()
        assert replayed.stall_put.tolist() == ran.stall_put.tolist()
        vector = [chosen.get(name, d) for name, d in zip(trace.streams, trace.stream_depth.tolist(), strict=True)]
        assert makespans(trace, [vector] * 8) == [ran.cycles if ran.finished else -1] * 8
        assert trace.extrapolate(chosen).finished == ran.finished
        if ran.finished:
            assert replayed.process_end.tolist() == ran.node_end.tolist()
            assert trace.extrapolate(chosen).process_end.tolist() == replayed.process_end.tolist()
            assert replayed.occupancy.tolist() == ran.occupancy.tolist()


def test_a_trace_with_arrays_is_saved_and_loaded(tmp_path: Path) -> None:
    trace = Trace.build(
        {}, {"w": Frames([Loop(4)], 3, writes=["a"]), "r": Frames([Loop(9)], 3, reads=["a"])}, arrays={"a": 2}
    )
    trace.save(tmp_path / "trace.npz")
    again = dse.Trace.load(tmp_path / "trace.npz")
    assert again.data.arrays == trace.data.arrays
    for banks in (1, 2, 4):
        assert again.replay({"a": banks}).cycles == trace.replay({"a": banks}).cycles


def test_mistakes_are_named() -> None:
    with pytest.raises(TraceError, match="uses array 'b', which has no banks"):
        Trace.build({}, {"w": Frames([], writes=["b"])}, arrays={"a": 2})
    with pytest.raises(SimulationError, match="for 0 frames"):
        repeated(ping_pong(1, 1, 2), 0)


def test_smallest_number_of_banks() -> None:
    """The reader keeps its first bank until the writer has begun its third frame."""
    trace = Trace.build(
        {"tick": 3, "go": 3},
        {
            "writer": Frames([Loop(1, ops=[Put("tick")])], 3, writes=["a"]),
            "gate": [Loop(3, ops=[Get("tick")]), Loop(3, ops=[Put("go")])],
            "reader": Frames([Loop(1, ops=[Get("go")])], 3, reads=["a"]),
        },
        arrays={"a": 1},
    )
    assert not trace.replay({"a": 2}).finished
    assert "writer waits to put to a (full, 2 tokens" in trace.replay({"a": 2}).explain()
    assert trace.smallest_depths({"tick": 3, "go": 3, "a": 1}).increase == {"a": 3}


def test_a_million_frames_cost_what_a_thousand_do() -> None:
    executed = []
    for frames in (100_000, 10_000_000):
        result = table_engine().run(repeated(ping_pong(10, 6, 2), frames), extrapolate=True)
        assert result.cycles == 11 * frames + 6
        executed.append(result.operations - result.skipped)
    assert executed[1] < 1.2 * executed[0]
