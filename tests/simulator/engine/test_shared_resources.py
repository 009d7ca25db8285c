"""Shared resources: who is served when several wait."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from allo_dse.simulator.engine import steady
from allo_dse.simulator.engine.engine import table_engine
from allo_dse.simulator.engine.run_result import RunResult
from allo_dse.simulator.network.network import NetworkBuilder
from allo_dse.simulator.network.tables import Table

from .. import engine_cases


def run(requests: list[list[tuple[int, int]]]) -> RunResult:
    """One server; per process pairs (cycles before the request, cycles of service)."""
    b = NetworkBuilder()
    server = b.resource()
    for of_process in requests:
        table = Table()
        for before, cycles in of_process:
            table.wait(before)
            table.request(0, cycles)
        b.process(table, [], [server])
    return table_engine().run(b.build(), record=True)


def test_three_that_ask_twice() -> None:
    """Asked for at (process 0) 0, (1) 1, (2) 2 for 10 cycles each, and again 5 cycles after the service."""
    begins = [[0, 30], [10, 40], [20, 50]]
    result = run([[(start, 10), (5, 10)] for start in range(3)])
    events = result.timeline.events
    for process in range(3):
        assert events.completed[events.slot == process].tolist() == begins[process]
    assert result.resource_busy.tolist() == [60]
    assert result.resource_requests.tolist() == [6]


@settings(max_examples=80, deadline=None)
@given(engine_cases.cases())
def test_laws_of_service(case: engine_cases.Case) -> None:
    """Never two services at once; never idle while somebody waits; of those that wait, the first to ask."""
    depth, latency, initial = engine_cases.columns(case)
    b = NetworkBuilder()
    b.streams(depth, latency=latency, initial=initial)
    servers = [b.resource() for _ in range(case.resources)]
    for tree in case.trees:
        table = Table()
        # Requests of no cycles would leave open who asks first in a cycle.
        engine_cases.fill(table, positive(tree))
        b.process(table, range(len(depth)), servers)
    network = b.build()
    result = table_engine().run(network, record=True)
    events, service = result.timeline.events, result.timeline._service()
    for server in servers:
        of_server = np.flatnonzero((events.state == 3) & (events.on == server))
        event(f"requests: {min(len(of_server), 3)}")
        order = of_server[np.argsort(events.completed[of_server], kind="stable")]
        asked, begin = (a[order].tolist() for a in (events.requested, events.completed))
        free = 0
        for turn, start in enumerate(begin):
            assert start == max(free, min(asked[turn:]))
            assert asked[turn] == min(asked[turn:])
            free = start + int(service[order[turn]])
        assert result.resource_busy[server] == service[order].sum()


def positive(tree: list[Any]) -> list[Any]:
    """The tree with requests of one cycle more."""
    return [
        (item[0], positive(item[1])) if len(item) == 2 else (*item[:2], item[2] + (item[0] == "request"))
        for item in tree
    ]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_repeated_service_is_extrapolated(data: st.DataObject) -> None:
    b = NetworkBuilder()
    servers = [b.resource() for _ in range(2)]
    streams = b.streams([data.draw(st.integers(1, 3)) for _ in range(2)]).tolist()
    rounds = data.draw(st.integers(100, 400))
    tables = [Table() for _ in range(3)]
    for number, table in enumerate(tables):
        with table.repeat(rounds):
            if number:
                table.get(number - 1)
            for server in data.draw(st.lists(st.integers(0, 1), max_size=3)):
                table.request(server, data.draw(st.integers(1, 6)))
            table.wait(data.draw(st.integers(0, 4)))
            if number < 2:
                table.put(number)
        b.process(table, streams, servers)
    network = b.build()
    full = table_engine().run(network)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("LOOK_TURNS", "LOOK_TURNS_PER_ENTRY", "FIRST_TURNS", "FIRST_GAP"):
            patch.setattr(steady, name, 0)
        times = table_engine().run(network, extrapolate=True)
    event(f"skipped: {times.skipped > 0}")
    for name in ("node_end", "stall_get", "stall_put", "stall_request", "occupancy", "resource_busy"):
        np.testing.assert_array_equal(getattr(times, name), getattr(full, name), err_msg=name)


def test_a_memory_port_serves_one_access_a_cycle() -> None:
    b = NetworkBuilder()
    port = b.resource()
    table = Table()
    with table.repeat(100):
        table.request(0, 1)
    for _ in range(3):
        b.process(table, [], [port])
    result = table_engine().run(b.build())
    assert result.cycles == 300
    assert result.node_end.tolist() == [298, 299, 300]


def test_of_many_that_wait_the_first_to_ask_is_served_first() -> None:
    """While the first service lasts, sixty others ask, those with higher numbers earlier or in any order."""
    for factor in (-1, 7, 23):
        asked = [0, *(1 + factor * n % 61 for n in range(1, 61))]
        result = run([[(time, 100)] for time in asked])
        events = result.timeline.events
        served = events.slot[np.argsort(events.completed)]
        assert [asked[process] for process in served] == sorted(asked)
