"""Recorded runs: events against the reference semantics, timelines, occupancy, critical paths, and their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings

import allo_dse as dse
from allo_dse.common.errors import SimulationError
from allo_dse.simulator.engine import recording
from allo_dse.simulator.engine.engine import table_engine
from allo_dse.simulator.engine.explanation import KINDS
from allo_dse.simulator.engine.run_result import RunResult
from allo_dse.simulator.engine.timeline import Activity
from allo_dse.simulator.network.network import Labels, NetworkBuilder
from allo_dse.simulator.network.tables import Table
from allo_dse.simulator.run_time.records import State

from ..engine_bodies import matrices, systolic_engine, systolic_network
from ..engine_cases import Case, cases, columns, flatten, network
from ..engine_reference import simulate

STATES = {"get": State.GET, "put": State.PUT, "request": State.REQUEST}


@settings(max_examples=100, deadline=None)
@given(cases())
def test_recording_changes_nothing_and_notes_every_operation(case: Case) -> None:
    plain, recorded = table_engine().run(network(case)), table_engine().run(network(case), record=True)
    assert recorded.node_end.tolist() == plain.node_end.tolist()
    assert recorded.summary() == plain.summary()
    assert recorded.occupancy.tolist() == plain.occupancy.tolist()
    scripts = [flatten(tree) for tree in case.trees]
    expected = simulate(scripts, *columns(case), case.resources)
    events = recorded.timeline.events
    for task, script in enumerate(scripts):
        mine = events.slot == task
        done = [(op, t) for op, t in zip(script, expected.times[task], strict=False) if op[0] != "wait"]
        service = [op[2] if op[0] == "request" else 0 for op, _ in done]
        assert events.state[mine].tolist() == [STATES[op[0]] for op, _ in done]
        assert events.on[mine].tolist() == [op[1] for op, _ in done]
        assert (events.completed[mine] + service).tolist() == [t for _, t in done]


@settings(max_examples=100, deadline=None)
@given(cases())
def test_intervals_tile_every_node_and_add_up_to_its_stalls(case: Case) -> None:
    result = table_engine().run(network(case), record=True)
    timeline = result.timeline
    table = timeline.intervals
    for node in range(result.network.node_count):
        mine = table[table["node"] == node]
        edges = [0, *mine["end"].tolist()]
        assert mine["start"].tolist() == edges[:-1]
        if timeline.ended[node]:
            assert edges[-1] == result.node_end[node]
    cycles = timeline.node_cycles
    assert cycles[:, Activity.WAIT_GET].tolist() == result.stall_get.tolist()
    assert cycles[:, Activity.WAIT_PUT].tolist() == result.stall_put.tolist()
    assert cycles[:, Activity.WAIT_RESOURCE].tolist() == result.stall_request.tolist()
    assert cycles[:, Activity.SERVICE].sum() == result.resource_busy.sum()


@settings(max_examples=100, deadline=None)
@given(cases())
def test_occupancy_over_time_peaks_where_the_run_says(case: Case) -> None:
    result = table_engine().run(network(case), record=True)
    for stream in range(result.network.stream_count):
        held = result.timeline.occupancy(stream)
        assert held.time[0] == 0
        assert (np.diff(held.time) > 0).all()
        assert held.tokens.min() >= 0
        assert max(held.tokens.max(), result.network.initial[stream]) == result.occupancy[stream]
        left = result.network.initial[stream] + result.puts[stream] - result.gets[stream]
        assert held.tokens[-1] == left


def touches(part: object, operation: str, stream: int) -> bool:
    """Whether a script, or a part of one, contains an operation on a stream."""
    if isinstance(part, list):
        return any(touches(item, operation, stream) for item in part)
    assert isinstance(part, tuple)
    return touches(part[1], operation, stream) if isinstance(part[0], int) else part[:2] == (operation, stream)


@settings(max_examples=200, deadline=None)
@given(cases())
@example(Case([[("wait", 0, 1), ("request", 0, 0), ("get", 0, 0)]], [(1, 0, 0)], 1))  # and waits for ever
def test_the_critical_path_explains_every_cycle(case: Case) -> None:
    result = table_engine().run(network(case), record=True)
    path = result.explain().path
    net = result.network
    assert path.start.tolist() == [0, *path.end[:-1].tolist()][: len(path)]
    if result.finished:
        assert path.end[-1:].tolist() == ([result.cycles] if result.cycles else [])
    table = result.timeline.intervals
    for kind, task, on, start, end in path.frame.itertuples(index=False):
        if kind in ("token", "room"):
            step = net.latency[on] if kind == "token" else 1
            assert end > start
            assert (end - start) % step == 0
            # Consecutive steps are joined. One stream is waited for twice in a row by a process that feeds itself, and
            # where tokens take no time on their way, so that the steps between vanish.
            feeds_itself = any(touches(t, "put", on) and touches(t, "get", on) for t in case.trees)
            assert end - start == step or feeds_itself or net.latency[on] == 0
        else:
            activity = Activity.WORK if kind == "work" else Activity.SERVICE
            mine = table[(table["task"] == task) & (table["activity"] == activity)]
            inside = np.minimum(mine["end"], end) - np.maximum(mine["start"], start)
            assert inside.clip(lower=0).sum() == end - start
    shares = result.explain().shares
    assert set(shares) == set(KINDS)
    if result.finished and result.cycles:
        assert sum(shares.values()) == pytest.approx(1)


@pytest.mark.parametrize("buffer", [1, 7])
def test_a_log_buffer_of_any_size_gives_the_same_events(buffer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    size, k = 3, 8
    engine = systolic_engine(k)
    outcomes = []
    for _ in range(2):
        a, b, c = matrices(size, k)
        result = engine.run(systolic_network(engine, a, b, c, depth=2), record=True)
        np.testing.assert_array_equal(c, a @ b)
        rows = result.timeline.rows
        outcomes.append([rows.node, rows.kind, rows.op, rows.on, rows.requested, rows.completed])
        monkeypatch.setattr(recording, "BUFFER_EVENTS", buffer)
    one, two = outcomes
    np.testing.assert_array_equal(one, two)
    assert len(rows) == result.operations + 2 * result.network.task_count


def two_streams(depth: int = 4, *, source: int = 1, sink: int = 1, rounds: int = 50) -> RunResult:
    b = NetworkBuilder()
    stream = b.stream(depth)
    produce, consume = Table(), Table()
    with produce.repeat(rounds):
        produce.wait(source)
        produce.put(0)
    with consume.repeat(rounds):
        consume.get(0)
        consume.wait(sink)
    b.process(produce, [stream])
    b.process(consume, [stream])
    return table_engine().run(b.build(), record=True)


def test_the_bottleneck_is_named() -> None:
    slow_source = two_streams(source=9).explain()
    assert slow_source.sentence == "task 0 sets the pace: its work is 99.3% of the 453 cycles."
    slow_sink = two_streams(sink=9).explain()
    assert slow_sink.bottleneck is not None
    assert (slow_sink.bottleneck.where, slow_sink.bottleneck.number) == ("node", 1)
    shallow = two_streams(1, source=0, sink=0).explain()
    assert shallow.sentence.startswith("stream 0 (depth 1) sets the pace: waiting for its tokens and room is 100.0%")
    assert "a deeper FIFO may help" in shallow.sentence
    assert "full FIFOs" in str(shallow)


def test_a_shared_resource_is_named_as_bottleneck() -> None:
    b = NetworkBuilder()
    server = b.resource()
    table = Table()
    with table.repeat(10):
        table.request(0, 7)
        table.wait(1)
    for _ in range(3):
        b.process(table, [], [server])
    result = table_engine().run(b.build(), record=True)
    explanation = result.explain()
    assert explanation.bottleneck is not None
    assert explanation.bottleneck.where == "resource"
    assert explanation.bottleneck.cycles == 210 == result.resource_busy[0]
    assert explanation.path.end[-1] == result.cycles == 211


def test_folded_tasks_are_told_apart() -> None:
    b = NetworkBuilder()
    work = Table()
    work.wait(5)
    tasks = [b.process(work) for _ in range(3)]
    b.node(tasks)
    result = table_engine().run(b.build(), record=True)
    assert result.timeline.intervals[["task", "start", "end"]].to_numpy().tolist() == [
        [0, 0, 5],
        [1, 5, 10],
        [2, 10, 15],
    ]
    assert result.explain().path.frame["task"].tolist() == [0, 1, 2]
    assert result.explain().sentence.startswith("task 0 and 2 more sets the pace")


def test_a_run_that_was_not_recorded_says_so() -> None:
    b = NetworkBuilder()
    b.process(Table())
    result = table_engine().run(b.build())
    with pytest.raises(SimulationError, match="record=True"):
        _ = result.timeline
    assert table_engine().run(b.build(), record=True).explain().sentence == "The run takes no time."


def test_events_beyond_the_limit_are_dropped_and_no_critical_path_is_invented() -> None:
    b = NetworkBuilder()
    stream = b.stream(4)
    put, get = Table(), Table()
    with put.repeat(100):
        put.put(0)
    with get.repeat(100):
        get.get(0)
    b.process(put, [stream])
    b.process(get, [stream])
    full, cut = (table_engine().run(b.build(), record=n) for n in (200, 50))
    assert len(full.timeline.events) == 200
    assert full.timeline.events.is_complete
    assert len(cut.timeline.events) == 50
    assert cut.cycles == full.cycles
    with pytest.raises(SimulationError, match="first 50 events"):
        cut.explain()


def test_chrome_trace_is_well_formed(tmp_path: Path) -> None:
    result = two_streams(2, sink=3, rounds=5)
    path = tmp_path / "run.json"
    dse.save_perfetto(result, path, clock_ghz=0.5)
    trace = json.loads(path.read_text())
    events = trace["traceEvents"]
    check_chrome_trace(events)
    work = [e for e in events if e["ph"] == "X" and e["pid"] == 1]
    assert sum(e["dur"] for e in work if e["tid"] == 2) == pytest.approx(result.node_end[1] * 2e-3)
    tokens = [e["args"]["tokens"] for e in events if e["ph"] == "C"]
    assert max(tokens) == result.occupancy[0]
    chain = [e for e in events if e["ph"] == "X" and e["pid"] == 3]
    assert sum(e["dur"] for e in chain) == pytest.approx(result.cycles * 2e-3)


FIELDS = {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"}
"""Of an event, those of the Trace Event Format's that are used."""


def check_chrome_trace(events: list[dict[str, Any]]) -> None:
    """What the Trace Event Format asks of the three kinds of events used, and that no track's events overlap."""
    last: dict[tuple[int, int], float] = {}
    counted: dict[tuple[int, str], float] = {}
    named = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    groups = [e["pid"] for e in events if e["ph"] == "M" and e["name"] == "process_name"]
    assert len(groups) == len(set(groups))
    for event in events:
        assert {"name", "ph", "pid", "tid", "ts"} <= set(event) <= FIELDS
        assert isinstance(event["name"], str)
        assert event["name"]
        assert all(type(event[key]) is int and event[key] >= 0 for key in ("pid", "tid"))
        assert all(isinstance(event[key], int | float) and event[key] >= 0 for key in ("ts", "dur") if key in event)
        assert isinstance(event.get("cat", ""), str)
        assert event["pid"] in groups
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name")
            assert set(event["args"]) == {"name"}
            assert isinstance(event["args"]["name"], str)
        elif event["ph"] == "X":
            track = event["pid"], event["tid"]
            assert track in named
            assert event["dur"] > 0
            assert event["ts"] >= last.get(track, 0) - 1e-9
            last[track] = event["ts"] + event["dur"]
        else:
            assert event["ph"] == "C"
            assert "dur" not in event
            assert event["args"]
            assert all(type(v) is int for v in event["args"].values())
            counter = event["pid"], event["name"]
            assert event["ts"] > counted.get(counter, -1)
            counted[counter] = event["ts"]


class Strange(Labels):
    """Names that need care in JSON."""

    def task(self, task: int) -> str:
        return f'task "{task}" \\ \n\u2028 \u00fc'

    def stream(self, stream: int) -> str:
        return f"</script> {stream}\t"

    def operation(self, task: int, op: int) -> str:
        return "\x00"


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


@pytest.mark.parametrize("clock", [None, 0.3, 2.0])
def test_chrome_traces_keep_to_the_format(tmp_path: Path, clock: float | None) -> None:
    """An object with `traceEvents`, strict JSON, for long runs, runs with resources, and names of any kind."""
    b = NetworkBuilder()
    streams, server = b.streams([2, 5]).tolist(), b.resource()
    tables = [Table() for _ in range(3)]
    with tables[0].repeat(200):
        tables[0].put(0), tables[0].request(0, 2)
    with tables[1].repeat(200):
        tables[1].get(0), tables[1].wait(1), tables[1].put(1)
    with tables[2].repeat(200):
        tables[2].get(1), tables[2].request(0, 3)
    for table in tables:
        b.process(table, streams, [server])
    result = table_engine().run(b.build(), record=True)
    path = tmp_path / "run.json"
    dse.save_perfetto(result, path, Strange(), clock_ghz=clock)
    text = path.read_bytes().decode("utf-8")
    trace = json.loads(text, parse_constant=refuse)
    assert set(trace) == {"traceEvents", "displayTimeUnit"}
    assert trace["displayTimeUnit"] in ("ms", "ns")
    check_chrome_trace(trace["traceEvents"])
    end = max(e["ts"] + e["dur"] for e in trace["traceEvents"] if e["ph"] == "X")
    assert end == pytest.approx(result.cycles * (1.0 if clock is None else 1e-3 / clock))


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_no_more_is_recorded_than_was_asked_for(limit: int) -> None:
    b = NetworkBuilder()
    table = Table()
    with table.repeat(30):
        table.put(0)
    b.process(table, [b.stream(100)])
    assert len(table_engine().run(b.build(), record=limit).timeline.events) == min(limit, 30)
