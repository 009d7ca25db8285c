"""Replay: equal to the rules in plain Python, and the laws that follow from them."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from allo_dse.simulator.deadlock import DeadlockError
from allo_dse.simulator.replay import replay
from allo_dse.simulator.replay.trace import Trace
from allo_dse.simulator.replay.trace_build import Get, Loop, Put
from allo_dse.simulator.replay.trace_data import TraceError

from ...support.values import present
from .support import irregular, makespans, networks, reference, regular, replayed, systolic, token_times, trace_of

FEW = settings(max_examples=60, deadline=None)
MANY = settings(max_examples=250, deadline=None)


def chain(depth: int = 2, trip: int = 10, ii: int = 3) -> Trace:
    return Trace.build({"s": depth}, {"fast": [Loop(trip, 1, 1, [Put("s")])], "slow": [Loop(trip, ii, 1, [Get("s")])]})


@MANY
@given(networks())
def test_replay_follows_the_rules(network: Any) -> None:
    trace = trace_of(network)
    result = trace.replay()
    ends, finished, puts = reference(*network)
    assert result.finished == finished
    for p, name in enumerate(trace.processes):
        if ends[name] is not None:
            assert result.process_end[p] == ends[name]
    for s, name in enumerate(trace.streams):
        first = trace.plan.offset[s]
        assert result.times.put[first : first + len(puts[name])].tolist() == puts[name]
        assert (result.times.put[first + len(puts[name]) : trace.plan.offset[s + 1]] == -1).all()
    if finished:
        assert result.cycles == max(present(end) for end in ends.values())


@MANY
@given(networks())
def test_ports_take_turns_as_long_as_is_said(network: Any) -> None:
    plan = trace_of(network).plan
    for p, (first, end) in enumerate(itertools.pairwise(plan.first.tolist())):
        ports = plan.port[first:end].tolist()
        several = int(plan.operations.turns[p])
        if not several:
            continue
        # From each operation on, up to where the port is another one than as many operations before.
        changes = [len(ports)] * (len(ports) + several)
        for e in range(len(ports) - 1, several - 1, -1):
            changes[e] = changes[e + 1] if ports[e] == ports[e - several] else e
        for e, port in enumerate(ports):
            alone = several > 1 and port == ports[min(e + 1, len(ports) - 1)]
            assert plan.operations.until[first + e] - first == (e + 1 if alone else changes[e + several])


def test_what_is_worth_being_taken_in_turns() -> None:
    """A reader or writer alone, a stage between two streams, and what goes on in threes."""
    three: list[Get | Put] = [Get("b"), Put("c"), Put("d")]
    trace = Trace.build(
        {**dict.fromkeys("abc", 2), "d": 20},
        {"in": [Loop(20, 1, 1, [Put("a")])], "stage": [Loop(20, 1, 1, [Get("a"), Put("b")])],
         "fork": [Loop(20, 1, 1, three)], "out": [Loop(20, 1, 1, [Get("c")])], "none": []},
    )  # fmt: skip
    assert trace.plan.operations.turns[:4].tolist() == [1, 2, 0, 1]
    assert trace.replay().finished


@FEW
@given(networks(), st.data())
def test_a_batch_is_the_single_replays(network: Any, data: DataObject) -> None:
    trace = trace_of(network)
    vector = st.lists(st.integers(1, 9), min_size=len(trace.streams), max_size=len(trace.streams))
    batch = np.array(data.draw(st.lists(vector, min_size=1, max_size=40)))
    singles = [trace.replay(depths) for depths in batch]
    assert makespans(trace, batch) == [r.cycles if r.finished else -1 for r in singles]


@FEW
@given(networks(), st.data())
def test_deeper_streams_of_the_same_latency_never_cost_cycles(network: Any, data: DataObject) -> None:
    """A deeper stream is never slower, as long as it does not go from shift register (1, 2) to memory (3 and more)."""
    trace = trace_of(network)
    steps = data.draw(st.lists(st.integers(0, 5), min_size=len(trace.streams), max_size=len(trace.streams)))
    deeper = np.where(trace.stream_depth <= 2, np.minimum(trace.stream_depth + steps, 2), trace.stream_depth + steps)
    before, after = trace.replay(), replayed(trace, deeper)
    if before.finished:
        assert after.finished
        assert (after.process_end <= before.process_end).all()


@FEW
@given(networks())
def test_depths_of_the_occupancy_keep_all_times(network: Any) -> None:
    trace = trace_of(network)
    before = trace.replay()
    enough = np.where(trace.stream_depth > 2, np.maximum(before.occupancy, 3), np.maximum(before.occupancy, 1))
    assert (before.occupancy <= trace.stream_depth).all()
    after = replayed(trace, enough)
    assert after.finished == before.finished
    assert (token_times(after) == token_times(before)).all()


@FEW
@given(networks())
def test_one_slot_less_than_the_occupancy_changes_times(network: Any) -> None:
    trace = trace_of(network)
    before = trace.replay()
    for s, used in enumerate(before.occupancy):
        if used > 1 and used != 3:
            after = replayed(trace, np.where(np.arange(len(trace.streams)) == s, used - 1, trace.stream_depth))
            assert not (token_times(after) == token_times(before)).all()


@FEW
@given(networks())
def test_stalls_explain_process_ends(network: Any) -> None:
    result = trace_of(network).replay()
    if result.finished:
        stalls = result.stall_get + result.stall_put
        assert (result.process_end == result.plan.process_end + stalls).all()
        assert result.stream_stall_get.sum() == result.stall_get.sum()
        assert result.summary()["stall_put"] == result.stream_stall_put.sum()


def test_late_puts_do_not_delay_the_gets_of_later_iterations() -> None:
    """A pipeline 20 deep takes a token every cycle, at stage 2; its results come 17 cycles later."""
    trace = Trace.build(
        {"a": 2, "b": 2},
        {
            "source": [Loop(50, 1, 1, [Put("a")])],
            "pipeline": [Loop(50, 1, 20, [Get("a"), Put("b")])],
            "sink": [Loop(50, 1, 1, [Get("b")])],
        },
    )
    result = trace.replay()
    assert result.stream_stall_put.tolist() == [1, 0]  # until the first get
    gets = result.times.get[:50]
    assert (np.diff(gets) == 1).all()
    assert (result.times.put[50:] == gets + 17).all()


def test_a_slow_reader_fills_the_stream_and_holds_up_its_writer() -> None:
    result = chain(depth=4).replay()
    assert result.occupancy.tolist() == [4]
    assert result.stall_put.tolist() == [result.process_end[0] - 9, 0]
    assert result.by_stream()[0] == {
        "stream": "s", "producer": "fast", "consumer": "slow", "depth": 4, "tokens": 10, "occupancy": 4,
        "stall_get": int(result.stall_get[1]), "stall_put": int(result.stall_put[0]),
    }  # fmt: skip
    assert [row["process"] for row in result.by_process()] == ["fast", "slow"]


def test_read_latency_is_two_from_depth_three_on() -> None:
    assert chain(depth=3).replay().times.get[0] == chain(depth=2).replay().times.get[0] + 1


def test_depths_can_be_given_in_every_form() -> None:
    trace = chain(depth=2)
    cycles = {replayed(trace, d).cycles for d in ({"s": 1}, {0: 1}, [1], np.array([1], np.int8))}
    assert cycles == {makespans(trace, [[1]])[0]}
    assert makespans(trace, np.zeros((0, 1), int)) == []


@pytest.mark.parametrize(
    ("depths", "message"),
    [
        ({"t": 1}, "no stream 't'"),
        ({4: 1}, "no stream 4"),
        ([1, 2], "the trace has 1 streams"),
        ([[1], [0]], "depth 0 for stream s"),
        ([1.5], "must be integers"),
        ([[1], [1, 2]], "equally long"),
        ({"s": 1.5}, "must be integers"),
    ],
)
def test_wrong_depths_are_refused(depths: Any, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        chain().replay(depths)


def test_traces_that_look_at_occupancy_are_refused() -> None:
    trace = Trace.build({"s": 1}, {"p": [Loop(1, ops=[Put("s")])], "q": [Loop(1, ops=[Get("s")])]},
                        looks_at_occupancy=["q"])  # fmt: skip
    for action in (trace.replay, trace.smallest_depths):
        with pytest.raises(TraceError, match=r"q looks at empty\(\) or full\(\)"):
            action()


def test_long_times_use_64_bits() -> None:
    trace = chain(depth=1, trip=1000, ii=1 << 24)
    assert trace.plan.due.dtype == np.int64
    assert trace.replay().cycles == reference_cycles(chain_loops(1000, 1 << 24), {"s": 1})
    assert makespans(trace, [[1]] * 20)[0] == trace.replay().cycles


def chain_loops(trip: int, ii: int) -> dict[str, list[Loop]]:
    return {"fast": [Loop(trip, 1, 1, [Put("s")])], "slow": [Loop(trip, ii, 1, [Get("s")])]}


def reference_cycles(processes: dict[str, list[Loop]], depths: dict[str, int]) -> int:
    return max(present(end) for end in reference(processes, depths)[0].values())


def test_a_systolic_array_in_a_batch() -> None:
    trace = systolic(4, 16)
    assert trace.replay().cycles == makespans(trace, [trace.stream_depth] * 16)[0]
    rng = np.random.default_rng(0)
    batch = rng.integers(1, 8, (50, len(trace.streams)))
    assert makespans(trace, batch) == [replayed(trace, d).cycles for d in batch]


@pytest.mark.parametrize("lanes", [True, False])
def test_a_batch_on_any_number_of_cores(lanes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = systolic(4, 16)
    rng = np.random.default_rng(0)
    batch = rng.integers(1, 8, (37, len(trace.streams)))
    found = []
    for cores in (1, 2, 7):
        monkeypatch.setattr(replay, "_WORTH_A_THREAD", 1)
        monkeypatch.setattr(replay, "usable_cores", lambda cores=cores: cores)
        monkeypatch.setattr(replay, "fits_lanes", lambda plan: lanes)
        found.append(makespans(trace, batch))
    assert found[0] == found[1] == found[2] == [replayed(trace, d).cycles for d in batch]


def test_threads_share_a_trace() -> None:
    trace = systolic(4, 16)
    batch = np.random.default_rng(0).integers(1, 8, (40, len(trace.streams)))
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(partial(makespans, trace), np.split(batch, 4)))
    assert [cycles for part in parts for cycles in part] == makespans(trace, batch)


# Deadlock


def crossed(first: int, second: int) -> Trace:
    """The reader wants the 5 tokens of `b` before those of `a`, the writer puts `a` first."""
    return Trace.build(
        {"a": first, "b": second},
        {
            "writer": [Loop(5, 1, 1, [Put("a")]), Loop(5, 1, 1, [Put("b")])],
            "reader": [Loop(5, 1, 1, [Get("b")], source="top.cpp:7"), Loop(5, 1, 1, [Get("a")])],
        },
    )


def test_a_deadlock_names_processes_streams_and_places() -> None:
    result = crossed(2, 2).replay()
    assert not result.finished
    with pytest.raises(DeadlockError) as error:
        result.require_finished()
    text = str(error.value)
    assert "writer waits to put to a (full, 2 tokens; iteration 2 of its loop 0" in text
    assert "reader waits to get from b (empty; iteration 0 of its loop 0 at top.cpp:7" in text
    assert error.value.hint == "raise a to 5"
    assert [b.task for b in present(result.deadlock).cycle] in ([0, 1], [1, 0])
    assert result.times.put[:5].tolist()[2:] == [-1, -1, -1]


def test_the_smallest_depths_clear_the_deadlock() -> None:
    answer = crossed(2, 2).smallest_depths({"a": 2})
    assert (answer.increase, answer.added, answer.proven) == ({"a": 5}, 3, True)
    assert crossed(2, 2).smallest_depths().depths.tolist() == [5, 1]
    assert crossed(5, 1).smallest_depths({"a": 5}).increase == {}
    assert crossed(5, 1).smallest_depths({"a": 5}).advice == "nothing has to be deeper"
    assert crossed(5, 1).replay().advice() == ""


def test_no_depth_helps_against_a_cycle_of_gets() -> None:
    trace = Trace.build(
        {"a": 1, "b": 1},
        {"p": [Loop(1, 1, 3, [Get("a"), Put("b")])], "q": [Loop(1, 1, 3, [Get("b"), Put("a")])]},
    )
    with pytest.raises(TraceError, match=r"p -> q -> p|q -> p -> q"):
        trace.smallest_depths()
    assert "all wait for a token before they put one" in trace.replay().advice()


def test_unequal_puts_and_gets() -> None:
    short = Trace.build({"s": 1}, {"p": [Loop(2, ops=[Put("s")])], "q": [Loop(3, ops=[Get("s")])]})
    assert short.notes == ("stream s carries 2 tokens in and 3 out: its reader waits for ever",)
    assert "q waits to get from s (empty; iteration 2 of its loop 0" in short.replay().explain()
    assert "but p has ended" in short.replay().explain()
    with pytest.raises(TraceError, match="takes 3 tokens from s, into which only 2 are put"):
        short.smallest_depths()
    rest = Trace.build({"s": 1}, {"p": [Loop(5, ops=[Put("s")])], "q": [Loop(2, ops=[Get("s")])]})
    assert "holds only 1" in rest.notes[0]
    assert rest.smallest_depths().depths.tolist() == [3]
    assert replayed(rest, [3]).finished
    assert not replayed(rest, [2]).finished


@FEW
@given(st.one_of(irregular(), regular(4)))
def test_smallest_depths_are_the_smallest(network: Any) -> None:
    trace = trace_of(network)
    try:
        answer = trace.smallest_depths()
    except TraceError:
        assert not replayed(trace, np.full(len(trace.streams), 1000)).finished
        return
    assert answer.proven
    assert replayed(trace, answer.depths).finished
    streams = len(trace.streams)
    if answer.added and answer.added**streams < 3000:
        for extra in itertools.product(range(answer.added), repeat=streams):
            if sum(extra) < answer.added:
                assert not replayed(trace, 1 + np.array(extra)).finished


@FEW
@given(irregular())
def test_without_a_proof_no_stream_can_be_shallower(network: Any) -> None:
    trace = trace_of(network)
    try:
        answer = trace.smallest_depths(max_runs=1)
    except TraceError:
        return
    assert replayed(trace, answer.depths).finished
    assert answer.at_least <= trace.smallest_depths().added <= answer.added
    for s in np.flatnonzero(answer.depths > 1):
        assert not trace.replay(answer.depths - (np.arange(len(trace.streams)) == s)).finished
