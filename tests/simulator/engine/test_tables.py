"""Table processes on the run engine against the reference semantics, on random networks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from allo_dse.common.errors import SimulationError
from allo_dse.simulator.engine.engine import table_engine
from allo_dse.simulator.network.network import NetworkBuilder
from allo_dse.simulator.network.tables import Table

from ..engine_cases import Case, cases, columns, fill, flatten
from ..engine_reference import occupancy, simulate


@settings(max_examples=200, deadline=None)
@given(cases())
def test_engine_equals_reference(case: Case) -> None:
    scripts = [flatten(tree) for tree in case.trees]
    depth, latency, initial = columns(case)
    expected = simulate(scripts, depth, latency, initial, case.resources)
    b = NetworkBuilder()
    b.streams(depth, latency=latency, initial=initial)
    resources = [b.resource() for _ in range(case.resources)]
    for tree, script in zip(case.trees, scripts, strict=True):
        table = Table()
        fill(table, tree)
        b.process(table, range(len(depth)), resources, log=len(script))
    result = table_engine().run(b.build())
    assert result.node_end.tolist() == expected.clocks
    assert result.finished == all(p == len(s) for p, s in zip(expected.positions, scripts, strict=True))
    assert result.stall_get.tolist() == expected.stall_get
    assert result.stall_put.tolist() == expected.stall_put
    assert result.stall_request.tolist() == expected.stall_request
    assert [result.process_log(i).tolist() for i in range(len(scripts))] == expected.times
    assert result.occupancy.tolist() == [
        max(k, occupancy(p, g)) for k, p, g in zip(initial, expected.puts, expected.gets, strict=True)
    ]


@settings(max_examples=100, deadline=None)
@given(cases())
def test_deadlocks_are_named(case: Case) -> None:
    scripts = [flatten(tree) for tree in case.trees]
    depth, latency, initial = columns(case)
    expected = simulate(scripts, depth, latency, initial, case.resources)
    b = NetworkBuilder()
    b.streams(depth, latency=latency, initial=initial)
    for _ in range(case.resources):
        b.resource()
    for tree in case.trees:
        table = Table()
        fill(table, tree)
        b.process(table, range(len(depth)), range(case.resources))
    deadlock = table_engine().run(b.build()).deadlock
    stuck = [i for i, script in enumerate(scripts) if expected.positions[i] < len(script)]
    if not stuck:
        assert deadlock is None
        return
    assert deadlock is not None
    assert [x.task for x in deadlock.blocked] == stuck
    for x in deadlock.blocked:
        assert (x.direction, x.stream) == scripts[x.task][expected.positions[x.task]][:2]
        assert x.clock == expected.clocks[x.task]
        assert x.held == (0 if x.direction == "get" else depth[x.stream])
    for x, y in zip(deadlock.cycle, [*deadlock.cycle[1:], *deadlock.cycle[:1]], strict=True):
        assert x.peer == y.task
    if not deadlock.cycle:
        assert deadlock.starved is not None
        assert deadlock.starved.peer not in stuck


def test_folded_processes_run_in_turn_on_one_clock() -> None:
    b = NetworkBuilder()
    work = Table()
    work.wait(5)
    first, second, other = (b.process(work) for _ in range(3))
    b.node([second, first])
    b.node([other])
    result = table_engine().run(b.build())
    assert result.cycles == 10
    assert result.task_start.tolist() == [5, 0, 0]
    assert result.task_end.tolist() == [10, 5, 5]
    assert result.network.task_node.tolist() == [0, 0, 1]


def test_log_keeps_the_first_marked_clocks() -> None:
    b = NetworkBuilder()
    table = Table()
    with table.repeat(10):
        table.wait(2)
        table.wait(3, mark=True)
    b.process(table, log=4)
    result = table_engine().run(b.build())
    assert result.process_log(0).tolist() == [5, 10, 15, 20]
    assert result.cycles == 50


def test_time_limit_stops_an_endless_run() -> None:
    b = NetworkBuilder()
    ring = b.stream(1, initial=0), b.stream(1, initial=1)
    for a, z in (ring, ring[::-1]):
        table = Table()
        with table.repeat(10**12):
            table.get(1)
            table.put(0)
        b.process(table, [a, z])
    seen: list[int] = []
    with pytest.raises(SimulationError, match="time limit"):
        table_engine().run(b.build(), seconds=0.2, progress=seen.append)
    assert seen == [0] * len(seen)


def test_time_limit_stops_a_process_that_never_blocks() -> None:
    b = NetworkBuilder()
    table = Table()
    with table.repeat(10**12):
        table.wait(1)
    b.process(table)
    with pytest.raises(SimulationError, match="time limit"):
        table_engine().run(b.build(), seconds=0.1)


def test_pauses_change_nothing() -> None:
    b = NetworkBuilder()
    streams = b.streams([3, 2])
    ping, pong = Table(), Table()
    with ping.repeat(300):
        ping.put(0)
        with ping.repeat(7):
            ping.wait(2)
        ping.get(1)
    with pong.repeat(300):
        pong.get(0)
        with pong.repeat(70):
            pong.wait(1)
        pong.put(1)
    b.process(ping, streams.tolist())
    b.process(pong, streams.tolist())
    result = table_engine().run(b.build())
    assert result.finished
    assert result.cycles == 300 * (2 + 70 + 1)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda b, t: b.process(t, []), "1 stream and 0 resource ports"),
        (lambda b, t: b.process(t, [3]), "stream that does not exist"),
        (lambda b, t: b.streams([0]), "depth of at least 1"),
        (lambda b, t: b.stream(2, initial=3), "more tokens than its depth"),
        (lambda b, t: b.node([b.process(Table()), 0]), "exactly once"),
    ],
)
def test_wrong_networks_are_refused(build: object, message: str) -> None:
    table = Table()
    table.get(0)
    b = NetworkBuilder()
    with pytest.raises(SimulationError, match=message):  # noqa: PT012 (refused when added, or when built)
        build(b, table)  # type: ignore[operator]
        b.build()


def test_many_processes_are_cheap() -> None:
    b = NetworkBuilder()
    streams = b.streams(np.full(1001, 2))
    forward, source, sink = Table(), Table(), Table()
    with source.repeat(50):
        source.put(0)
        source.wait(1)
    with forward.repeat(50):
        forward.get(0)
        forward.put(1)
    with sink.repeat(50):
        sink.get(0)
    b.process(source, [0])
    for i in range(1000):
        b.process(forward, streams[i : i + 2].tolist())
    b.process(sink, [1000])
    result = table_engine().run(b.build())
    assert result.finished
    assert result.cycles == 1001 + 49
    assert result.operations == 2 * 1001 * 50
