"""Parts of runs that are recorded alone are what the whole recording has of that time, however they are reached."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from allo_dse.simulator.engine import recording, steady
from allo_dse.simulator.engine.engine import table_engine
from allo_dse.simulator.engine.run_result import RunResult
from allo_dse.simulator.engine.timeline import Timeline
from allo_dse.simulator.network.network import Network, NetworkBuilder
from allo_dse.simulator.network.tables import Table
from allo_dse.simulator.replay.trace import Trace
from allo_dse.simulator.replay.trace_data import TraceError

from ...support.values import present
from ..engine_bodies import matrices, systolic_engine, systolic_network
from ..engine_cases import Case, cases, network
from .test_steady import Regular, regular
from .test_steady import network as regular_network


def within(whole: Timeline, start: int, end: int) -> pd.DataFrame:
    """What a whole timeline has of a part of its time."""
    table = whole.intervals.copy()
    table["start"] = table["start"].clip(lower=start)
    table["end"] = table["end"].clip(upper=end)
    return table[table["end"] > table["start"]].reset_index(drop=True)


def tokens_at(timeline: Timeline, stream: int, time: np.ndarray) -> list[int]:
    held = timeline.occupancy(stream)
    found: list[int] = held.tokens[np.searchsorted(held.time, time, side="right") - 1].tolist()
    return found


def check(part: RunResult, whole: RunResult, start: int, end: int) -> None:
    """A part of a run against the whole run."""
    line, full = part.timeline, whole.timeline
    assert (line.start, line.end) == (start, end)
    pd.testing.assert_frame_equal(line.intervals, within(full, start, end))
    times = np.arange(start, end + 1)
    for stream in range(whole.network.stream_count):
        assert tokens_at(line, stream, times) == tokens_at(full, stream, times)
    path = part.explain().path
    if len(path):
        assert path.start[0] == start
        assert (path.start[1:] == path.end[:-1]).all()
        assert path.end[-1] <= end


@settings(max_examples=100, deadline=None)
@given(cases(), st.data())
def test_a_part_of_a_run_is_that_part_of_the_whole(case: Case, data: st.DataObject) -> None:
    net = network(case)
    whole = table_engine().run(net, record=True)
    if not whole.finished:
        return
    start = data.draw(st.integers(0, whole.cycles))
    end = data.draw(st.integers(start, whole.cycles))
    part = table_engine().run(net, record=True, window=(start, end))
    check(part, whole, start, end)


@settings(max_examples=100, deadline=None)
@given(regular(), st.data())
def test_what_comes_before_a_part_need_not_be_executed(case: Regular, data: st.DataObject) -> None:
    net = regular_network(case)
    whole = table_engine().run(net, record=True)
    if not whole.finished:
        return
    start = data.draw(st.integers(0, whole.cycles))
    end = data.draw(st.integers(start, min(whole.cycles, start + 200)))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("LOOK_TURNS", "LOOK_TURNS_PER_ENTRY", "FIRST_TURNS", "FIRST_GAP", "GAP_PER_ENTRY"):
            patch.setattr(steady, name, 0)
        part = table_engine().run(net, record=True, window=(start, end), extrapolate=True)
    event(f"skipped: {part.skipped > 0}")
    check(part, whole, start, end)


@settings(max_examples=60, deadline=None)
@given(regular(), st.data())
def test_a_part_with_too_many_operations_ends_earlier(case: Regular, data: st.DataObject) -> None:
    net = regular_network(case)
    whole = table_engine().run(net, record=True)
    if not whole.finished:
        return
    start = data.draw(st.integers(0, whole.cycles // 2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording, "WINDOW_BUFFER_EVENTS", 16)
        part = table_engine().run(net, record=100, window=(start, whole.cycles))
    assert len(part.timeline.events) <= 100 + 2 * 16 + 60 * net.stream_count  # those of one cycle are kept together
    check(part, whole, start, part.timeline.end)


def chain(rounds: int) -> Network:
    """A process that computes, and a slower one that takes what it made."""
    net = NetworkBuilder()
    stream = net.stream(2)
    maker, user = Table(), Table()
    with maker.repeat(rounds):
        maker.wait(3)
        maker.put(0)
    with user.repeat(rounds):
        user.get(0)
        user.wait(5)
    net.process(maker, [stream])
    net.process(user, [stream])
    return net.build()


def test_any_part_of_a_very_long_run_comes_at_once() -> None:
    """Ten thousand million rounds: a part in the middle is reached by arithmetic."""
    net = chain(10_000_000_000)
    middle = 25_000_000_000
    part = table_engine().run(net, record=True, window=(middle, middle + 1_000), extrapolate=True)
    assert part.timeline.start == middle
    assert part.timeline.end == middle + 1_000
    assert part.timeline.node_cycles.sum(axis=1).tolist() == [1_000, 1_000]
    assert part.timeline.node_cycles[1].tolist()[0] == 1_000
    assert present(part.explain().bottleneck).name == "task 1"


def test_a_part_is_recorded_of_compiled_bodies_too() -> None:
    a, b, c = matrices(4, 32)
    engine = systolic_engine(32)
    net = systolic_network(engine, a, b, c, depth=2)
    whole = engine.run(net, record=True)
    middle = whole.cycles // 2
    check(engine.run(net, record=True, window=(middle, middle + 9)), whole, middle, middle + 9)


def test_a_part_is_no_trace() -> None:
    part = table_engine().run(chain(50), record=True, window=(20, 40))
    with pytest.raises(TraceError, match="only a part"):
        Trace.recorded(part)


@settings(max_examples=60, deadline=None)
@given(regular())
def test_samples_add_up_to_the_run(case: Regular) -> None:
    net = regular_network(case)
    whole = table_engine().run(net, record=True)
    sampled = table_engine().run(net, extrapolate=True, samples=64)
    if not whole.finished or not whole.cycles:
        return
    assert sampled.samples is not None
    edges = np.linspace(0, whole.cycles, 8)
    shares = sampled.samples.shares(edges)
    assert shares.min() >= -1e-9
    cycles = (shares * np.diff(edges)[:, None]).sum(axis=1)
    np.testing.assert_allclose(cycles[:, 1], whole.stall_get)
    np.testing.assert_allclose(cycles[:, 2], whole.stall_put)
    np.testing.assert_allclose(cycles.sum(axis=1), whole.node_end)


def test_tokens_that_a_part_begins_with_are_those_of_the_operation_before_it() -> None:
    net = NetworkBuilder()
    stream = net.stream(8)
    maker, user = Table(), Table()
    with maker.repeat(3):
        maker.put(0)
    maker.wait(40)
    maker.put(0)
    user.wait(50)
    with user.repeat(4):
        user.get(0)
    net.process(maker, [stream])
    net.process(user, [stream])
    held = table_engine().run(net.build(), record=True, window=(20, 30)).timeline.occupancy(0)
    assert (held.time.tolist(), held.tokens.tolist()) == ([20], [3])
