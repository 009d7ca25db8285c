"""Recorded traces: replayed at any depths they give the times of a run at these depths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import allo_dse as dse
from allo_dse.lang import install
from allo_dse.simulator.codegen.signature import Body
from allo_dse.simulator.engine.engine import Engine, compile_bodies, table_engine
from allo_dse.simulator.engine.run_result import RunResult
from allo_dse.simulator.network.network import Network, NetworkBuilder
from allo_dse.simulator.network.tables import Table
from allo_dse.simulator.replay.replay_result import ReplayResult
from allo_dse.simulator.replay.trace import Trace
from allo_dse.simulator.replay.trace_data import TraceError

from ..engine_bodies import compiled
from .support import makespans

install()

import allo.dataflow as df
from allo.ir.types import Stream, int32

from allo_dse.mapper.fold.fold_space import fold_choices
from studies.gemm_npu import gemm

from .. import engine_cases
from ..engine import test_polling as test_engine_polling
from ..engine import test_timing as test_engine_timing


def same(replayed: ReplayResult, ran: RunResult) -> None:
    assert replayed.finished == ran.finished
    if ran.finished:
        assert replayed.cycles == ran.cycles
        assert replayed.process_end.tolist() == ran.node_end.tolist()
    assert replayed.stall_get.tolist() == ran.stall_get.tolist()
    assert replayed.stall_put.tolist() == ran.stall_put.tolist()
    assert replayed.done[0].tolist() == ran.puts.tolist()
    assert replayed.occupancy.tolist() == ran.occupancy.tolist()


DEEP = 64


def check_law(engine: Engine, network: Network, data: st.DataObject, **options: Any) -> None:
    """Record at some depths, replay at others."""
    recorded = engine.run(network, record=True, **options)
    event(f"finished: {recorded.finished}")
    if not recorded.finished:
        with pytest.raises(TraceError, match="deadlocked"):
            Trace.recorded(recorded)
        recorded = engine.run(network.with_depths(np.full(network.stream_count, DEEP)), record=True, **options)
    if not recorded.finished:
        return  # at no depth
    trace = Trace.recorded(recorded)
    same(trace.replay(), recorded)
    for _ in range(3):
        count = network.stream_count
        depths = np.array(data.draw(st.lists(st.integers(1, 6), min_size=count, max_size=count)), np.int64)
        ran = engine.run(network.with_depths(depths), **options)
        replayed = trace.replay(depths)
        assert isinstance(replayed, ReplayResult)
        same(replayed, ran)
        assert makespans(trace, np.stack([depths] * 8)) == [ran.cycles if ran.finished else -1] * 8


@settings(max_examples=60, deadline=None)
@given(engine_cases.cases(), st.data(), st.booleans())
def test_tables_replay_as_they_run(case: engine_cases.Case, data: st.DataObject, own_latency: bool) -> None:
    case.resources = 0
    case.trees = [[op for op in tree if "request" not in str(op)] for tree in case.trees]
    depth, latency, _ = engine_cases.columns(case)
    b = NetworkBuilder()
    b.streams(depth, latency=latency if own_latency else None)
    for tree in case.trees:
        table = Table()
        engine_cases.fill(table, tree)
        b.process(table, range(len(depth)))
    check_law(table_engine(), b.build(), data)


@settings(max_examples=5, deadline=None)
@given(test_engine_timing.programs(), st.data())
def test_bodies_replay_as_they_run(program: tuple[Any, ...], data: st.DataObject) -> None:
    bodies, streams, costs = program
    engine = compiled(bodies, record=True)
    check_law(engine, test_engine_timing.network(engine, [(depth, 0) for depth, _ in streams], costs), data)


def feedback() -> Any:
    """A worker that needs a token back from a filter for every four it sends, and one that looks at its stream."""

    @df.region()
    def top(A: int32[16], B: int32[16]):
        out: Stream[int32, 2]
        back: Stream[int32, 2]

        @df.kernel(mapping=[1], args=[A])
        def split(local_A: int32[16]):
            for i in range(4):
                for k in range(4):
                    out.put(local_A[4 * i + k])
                local_A[i] = back.get()

        @df.kernel(mapping=[1], args=[B])
        def merge(local_B: int32[16]):
            for i in range(4):
                total: int32 = 0
                for k in range(4):
                    local_B[4 * i + k] = out.get()
                    total += local_B[4 * i + k]
                back.put(total)

    return top


def test_a_program_is_run_once_and_timed_for_all_depths(tmp_path: Path) -> None:
    program = dse.load_program(feedback)
    a, b = np.arange(16, dtype=np.int32), np.zeros(16, np.int32)
    trace = Trace.recorded(dse.simulate(program, a, b, record=True))
    assert trace.streams == ("out", "back")
    for out in range(1, 7):
        for back in range(1, 4):
            ran = dse.simulate(program, depths={"out": out, "back": back})
            same(trace.replay({"out": out, "back": back}), ran)
    trace.save(tmp_path / "trace.npz")
    again = dse.Trace.load(tmp_path / "trace.npz")
    assert again.replay({"out": 1}).process_end.tolist() == trace.replay({"out": 1}).process_end.tolist()
    assert again.data.places == trace.data.places


def crossed() -> Any:
    """Deadlocks at its depths: the writer puts eight tokens to one stream before the first to the other."""

    @df.region()
    def top(A: int32[8], B: int32[8]):
        left: Stream[int32, 2]
        right: Stream[int32, 2]

        @df.kernel(mapping=[1], args=[A])
        def writer(local_A: int32[8]):
            for i in range(8):
                left.put(local_A[i])
            for i in range(8):
                right.put(local_A[i])

        @df.kernel(mapping=[1], args=[B])
        def reader(local_B: int32[8]):
            for i in range(8):
                local_B[i] = right.get() + left.get()

    return top


def test_a_program_that_deadlocks_is_recorded_with_deeper_streams() -> None:
    program = dse.load_program(crossed)
    a, b = np.arange(8, dtype=np.int32), np.zeros(8, np.int32)
    trace = dse.record_trace(program, a, b)
    assert not b.any()
    assert trace.stream_depth.tolist() == [2, 2]
    stuck = trace.replay()
    assert not stuck.finished
    assert "writer_0 waits to put to left (full, 2 tokens; " in stuck.explain()
    assert f"{__file__}:" in stuck.explain()
    assert trace.smallest_depths({"left": 2, "right": 2}).increase == {"left": 8}
    assert trace.replay({"left": 8}).cycles == dse.simulate(program, a, b, depths={"left": 8}).cycles


def test_what_looks_at_streams_is_not_replayed() -> None:
    engine = compile_bodies(
        [Body("send", test_engine_polling.TRY_SEND), Body("receive", test_engine_polling.TRY_RECEIVE)]
    )
    result, _ = test_engine_polling.run_pair(engine, 2, reverse=False, record=True)
    trace = Trace.recorded(result)
    with pytest.raises(TraceError, match=r"task 0, task 1 looks at empty\(\) or full\(\)"):
        trace.replay()


def test_what_cannot_be_recorded_says_why() -> None:
    b = NetworkBuilder()
    server, table = b.resource(), Table()
    table.request(0, 3)
    b.process(table, [], [server])
    with pytest.raises(TraceError, match="shared resources"):
        Trace.recorded(table_engine().run(b.build(), record=True))
    b = NetworkBuilder()
    b.process(Table(), [b.stream(2, initial=1)])
    with pytest.raises(TraceError, match="started with tokens"):
        Trace.recorded(table_engine().run(b.build(), record=True))
    b, put = NetworkBuilder(), Table()
    with put.repeat(3):
        put.put(0)
    b.process(put, [b.stream(4)])
    with pytest.raises(TraceError, match="more events than were kept"):
        Trace.recorded(table_engine().run(b.build(), record=2))


def test_both_engines_tell_the_same_things() -> None:
    program = dse.load_program(feedback)
    ran = dse.simulate(program, record=True)
    for result in (ran, Trace.recorded(ran).replay()):
        assert isinstance(result, dse.SimResult)
        assert result.by_stream()[0]["stream"] == "out"
        assert result.by_stream()[0]["tokens"] == 16
        assert result.summary()["cycles"] == ran.cycles
        result.require_finished()


def test_frames_follow_each_other() -> None:
    program = dse.load_program(feedback)
    a, b = np.arange(16, dtype=np.int32), np.zeros(16, np.int32)
    once, thrice = dse.simulate(program, a.copy(), b, record=True), dse.simulate(program, a, b, frames=3, record=True)
    assert thrice.operations == 3 * once.operations
    # The splitting task waits for the merging one until its end, and begins its next frame a cycle later.
    assert thrice.cycles == 3 * once.cycles + 2
    for depth in (1, 8):
        ran = dse.simulate(program, depths={"out": depth}, frames=3)
        same(Trace.recorded(thrice).replay({"out": depth}), ran)
    assert dse.simulate(program, frames=3, values=False).cycles == thrice.cycles
    assert dse.simulate(program, frames=1_000_000, values=False).cycles == 25 * 1_000_000 - 1


def test_a_deadlock_names_the_source_also_in_later_frames() -> None:
    with pytest.raises(dse.SimulationError, match=r"writer_0 waits to put to left \(full, 2 tokens; .*test_record"):
        dse.simulate(dse.load_program(crossed), frames=4, values=False)


def test_folded_programs_by_every_way_of_timing() -> None:
    """Cycles do not depend on computing values; traces and frames of folded graphs agree with their runs."""
    program = dse.load_program(gemm, M=16, N=16, K=16, Pm=4, Pn=4, Pk=4)
    folds = [program.vmg.fold(fold) for fold in list(fold_choices(program, 16))[:6:2]]
    for vmg in (program.vmg, *folds):
        ran = dse.simulate(vmg, record=True)
        same(Trace.recorded(ran).replay(), ran)
        timed = dse.simulate(vmg, values=False)
        assert timed.node_end.tolist() == ran.node_end.tolist()
        assert timed.occupancy.tolist() == ran.occupancy.tolist()
        frames = [dse.simulate(vmg, frames=3, values=values).node_end.tolist() for values in (True, False)]
        assert frames[0] == frames[1]
