"""Extrapolation of regular loops: equal to the full replay, in a time that does not grow with trip counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from allo_dse.common.records import replace
from allo_dse.simulator.engine import steady
from allo_dse.simulator.replay import plan, replay
from allo_dse.simulator.replay import trace as trace_module
from allo_dse.simulator.replay.trace import Trace
from allo_dse.simulator.replay.trace_build import Frames, Get, Loop, Put
from allo_dse.simulator.replay.trace_data import TraceError

from ...support.values import present
from .support import irregular, multirate, regular, systolic, trace_of


@pytest.fixture(autouse=True, scope="module")
def _short_ones_too() -> Iterator[None]:
    """Short traces, which are replayed, are extrapolated as well."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("LOOK_TURNS", "LOOK_TURNS_PER_ENTRY"):
            patch.setattr(steady, name, 0)
        patch.setattr(trace_module, "LISTED", 0)
        yield


def check(trace: Trace) -> int:
    """Compares with the full replay; returns the operations that were computed one by one."""
    full, short = trace.replay(), trace.extrapolate()
    assert short.finished == full.finished
    if full.finished:
        assert short.process_end.tolist() == full.process_end.tolist()
        assert short.stall_get.tolist() == full.stall_get.tolist()
        assert short.stall_put.tolist() == full.stall_put.tolist()
        assert short.cycles == full.cycles
    else:
        assert (
            short.process_end[[b.task for b in present(short.deadlock).blocked]].tolist()
            == full.process_end[[b.task for b in present(full.deadlock).blocked]].tolist()
        )
        assert short.explanation == full.explain()
    return short.computed


@settings(max_examples=250, deadline=None)
@given(st.one_of(regular(), regular(700), multirate()))
def test_extrapolation_is_full_replay(network: Any) -> None:
    check(trace_of(network))


@settings(max_examples=300, deadline=None)
@given(st.one_of(regular(), regular(700), multirate(), irregular()))
def test_repeats_timed_together_are_timed_as_one_by_one(network: Any) -> None:
    """With blocks however small, against the replay of each operation."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "WORTH_REPEATING", 1 << 40)
        one_by_one = trace_of(network).replay()
        for module in (plan, replay):
            patch.setattr(module, "WORTH_REPEATING", 1)
        patch.setattr(replay, "_WORTH_A_TRY", 0)
        together = trace_of(network).replay()
    event("not together" if together.listed_times is not None else "together")
    if together.listed_times is None:
        assert together.finished
        assert together.process_end.tolist() == one_by_one.process_end.tolist()
        assert together.port_stall.tolist() == one_by_one.port_stall.tolist()
        assert together.times.put.tolist() == one_by_one.times.put.tolist()


def forward(trip: int, ii: tuple[int, int, int], depths: tuple[int, int]) -> Trace:
    return Trace.build(
        dict(zip("ab", depths, strict=True)),
        {
            "load": [Loop(trip, ii[0], 3, [Put("a")])],
            "work": [Loop(trip, ii[1], 20, [Get("a"), Put("b")])],
            "store": [Loop(trip, ii[2], 3, [Get("b")])],
        },
    )


@settings(max_examples=60, deadline=None)
@given(
    st.integers(3000, 6000),
    st.tuples(*[st.integers(1, 7)] * 3),
    st.tuples(*[st.integers(1, 40) | st.integers(900, 7000)] * 2),
)
def test_processes_of_different_speeds(trip: Any, ii: tuple[Any, ...], depths: tuple[Any, ...]) -> None:
    """Deep streams fill up slowly: several periodic stretches, one after the other."""
    check(forward(trip, ii, depths))


def test_most_operations_follow_from_the_period() -> None:
    trace = forward(200_000, (1, 3, 2), (4, 8))
    assert check(trace) < trace.event_count // 10
    assert check(forward(200_000, (2, 2, 2), (4, 8))) < trace.event_count // 10
    check(forward(20_000, (2, 1, 3), (100_000, 100_000)))
    trace = systolic(4, 20_000, depth=2)
    assert check(trace) < trace.event_count // 15


def test_a_loop_that_runs_a_thousand_million_times() -> None:
    trip = 10**9  # hours, were they executed
    result = forward(trip, (1, 2, 1), (4, 4)).extrapolate()
    short = forward(1000, (1, 2, 1), (4, 4)).replay()
    assert result.cycles == short.cycles + 2 * (trip - 1000)


@pytest.mark.parametrize("banks", [2, 3])
def test_arrays_that_do_not_say_their_latency_have_that_of_arrays(banks: int) -> None:
    writer, reader = Frames([Loop(7)], 5, writes=["t"]), Frames([Loop(9)], 5, reads=["t"])
    built = Trace.build({}, {"w": writer, "r": reader}, arrays={"t": banks})
    plain = Trace(replace(built.data, latency=None))
    assert plain.replay().process_end.tolist() == built.replay().process_end.tolist()
    check(plain)


def test_a_deadlock_is_named() -> None:
    trace = Trace.build({"s": 2}, {"p": [Loop(5000, ops=[Put("s")])], "q": [Loop(4000, ops=[Get("s")])]})
    result = trace.extrapolate()
    assert not result.finished
    assert result.explanation == trace.replay().explain()
    assert "p waits to put to s (full, 2 tokens; iteration 4002 of its loop 0" in result.explanation


def test_a_deadlock_in_a_pipelined_loop_is_in_the_iteration_that_is_due() -> None:
    """Gets of one stream in two stages: those of later iterations come before the late ones of earlier iterations."""
    late = [Get("s", stage=0), Get("s", stage=3), Get("s", stage=4)]
    trace = Trace.build({"s": 2}, {"p": [Loop(2004, ops=[Put("s")])], "q": [Loop(2000, depth=6, ops=late)]})
    result = trace.extrapolate()
    assert not result.finished
    assert result.explanation == trace.replay().explain()


def test_what_cannot_be_extrapolated_is_refused() -> None:
    listed = Trace.build({"s": 1}, {"p": [Loop(1, events=[("put", "s", 0)])]})
    with pytest.raises(TraceError, match="lists events one by one"):
        listed.extrapolate()
    with pytest.raises(TraceError, match="not a batch"):
        forward(10, (1, 1, 1), (1, 1)).extrapolate(np.ones((2, 2), int))
    with pytest.raises(TraceError, match="too much memory"):
        forward(1 << 34, (1, 1, 1), (1 << 33, 1)).extrapolate()
    late = Trace.build(
        {"a": 10**9, "b": 10**9},
        {
            "p": [Loop(10**9, ops=[Put("a"), Put("b")])],
            "q": [Loop(10**9, ops=[Get("a")]), Loop(10**9, ops=[Get("b")])],
        },
    )
    with pytest.raises(TraceError, match="stream b comes to hold more than"):
        late.extrapolate()


def test_a_short_trace_is_replayed_and_a_long_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(steady, "LOOK_TURNS", 1_000)
    short, long = (systolic(4, trip) for trip in (8, 4096))
    for trace, whole in ((short, True), (long, False)):
        result = trace.extrapolate()
        assert (result.computed == trace.event_count) is whole
        assert result.cycles == trace.replay().cycles
