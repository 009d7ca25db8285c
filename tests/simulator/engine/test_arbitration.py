"""Shared resources: who is served when several wait, memory ports and AXI ports."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from allo_dse.common.errors import SimulationError
from allo_dse.simulator.engine import steady
from allo_dse.simulator.engine.engine import table_engine
from allo_dse.simulator.engine.run_result import RunResult
from allo_dse.simulator.network.network import NetworkBuilder
from allo_dse.simulator.network.static_tables import Axi, read_port, write_port
from allo_dse.simulator.network.tables import Table
from allo_dse.simulator.run_time.records import Arbitration

from .. import engine_cases

FIRST, ROUND, PRIORITY = Arbitration.FIRST_COME, Arbitration.ROUND_ROBIN, Arbitration.PRIORITY


def run(arbitration: Arbitration, requests: list[list[tuple[int, int]]]) -> RunResult:
    """One server; per process pairs (cycles before the request, cycles of service)."""
    b = NetworkBuilder()
    server = b.resource(arbitration)
    for of_process in requests:
        table = Table()
        for before, cycles in of_process:
            table.wait(before)
            table.request(0, cycles)
        b.process(table, [], [server])
    return table_engine().run(b.build(), record=True)


@pytest.mark.parametrize(
    ("arbitration", "begins"),
    [
        # Asked for at (process 0) 0, (1) 1, (2) 2 for 10 cycles each, and again 5 cycles after the service.
        (FIRST, [[0, 30], [10, 40], [20, 50]]),
        (ROUND, [[0, 30], [10, 40], [20, 50]]),
        # At 20 processes 0 (since 15) and 2 wait, at 30 processes 1 (since 25) and 2.
        (PRIORITY, [[0, 20], [10, 30], [40, 55]]),
    ],
)
def test_three_that_ask_twice(arbitration: Arbitration, begins: list[list[int]]) -> None:
    result = run(arbitration, [[(start, 10), (5, 10)] for start in range(3)])
    events = result.timeline.events
    for process in range(3):
        assert events.completed[events.slot == process].tolist() == begins[process]
    assert result.resource_busy.tolist() == [60]
    assert result.resource_requests.tolist() == [6]


def test_requesters_take_turns() -> None:
    """All ask again at once: by turns 0 1 2 0 1 2; who has just been served comes last, also if it asks first."""
    result = run(ROUND, [[(0, 4)] * 3, [(0, 4)] * 3, [(1, 4)] * 3])
    events = result.timeline.events
    assert events.slot[np.argsort(events.completed)].tolist() == [0, 1, 2] * 3
    result = run(PRIORITY, [[(0, 4)] * 3, [(0, 4)] * 3, [(1, 4)] * 3])
    events = result.timeline.events
    assert events.slot[np.argsort(events.completed)].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


@settings(max_examples=80, deadline=None)
@given(engine_cases.cases(), st.sampled_from([FIRST, ROUND, PRIORITY]))
def test_laws_of_service(case: engine_cases.Case, arbitration: Arbitration) -> None:
    """Never two services at once; never idle while somebody waits; of those that wait, the policy's choice."""
    depth, latency, initial = engine_cases.columns(case)
    b = NetworkBuilder()
    b.streams(depth, latency=latency, initial=initial)
    servers = [b.resource(arbitration) for _ in range(case.resources)]
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
        asked, begin, node = (a[order].tolist() for a in (events.requested, events.completed, events.slot))
        free, last = 0, -1
        for turn, start in enumerate(begin):
            assert start == max(free, min(asked[turn:]))
            waiting = [node[other] for other in range(turn, len(order)) if asked[other] <= start]
            if arbitration is FIRST:
                assert asked[turn] == min(asked[turn:])
            elif arbitration is PRIORITY:
                assert node[turn] == min(waiting)
            else:
                assert node[turn] == min(waiting, key=lambda n: (n - last - 1) % len(case.trees))
                last = node[turn]
            free = start + int(service[order[turn]])
        assert result.resource_busy[server] == service[order].sum()


def positive(tree: list[Any]) -> list[Any]:
    """The tree with requests of one cycle more."""
    return [
        (item[0], positive(item[1])) if len(item) == 2 else (*item[:2], item[2] + (item[0] == "request"))
        for item in tree
    ]


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from([ROUND, PRIORITY]))
def test_repeated_service_is_extrapolated(data: st.DataObject, arbitration: Arbitration) -> None:
    b = NetworkBuilder()
    servers = [b.resource(arbitration) for _ in range(2)]
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
    port = b.resource(ROUND)
    table = Table()
    with table.repeat(100):
        table.request(0, 1)
    for _ in range(3):
        b.process(table, [], [port])
    result = table_engine().run(b.build())
    assert result.cycles == 300
    assert result.node_end.tolist() == [298, 299, 300]


@pytest.mark.parametrize(
    ("outstanding", "cycles"),
    [
        # A burst: address, 10 cycles, 4 beats; the next address a cycle later.
        (1, 8 * 15 - 1),
        # Addresses a cycle after the data of both: at 0, 1; 15, 19; 30, 34; 45, 49. The last data come at 59 to 63.
        (2, 63),
        # The bus is never idle: 10 cycles, then 8 times 4 beats.
        (4, 42),
        (8, 42),
    ],
)
def test_reading_ahead_hides_latency(outstanding: int, cycles: int) -> None:
    b = NetworkBuilder()
    data, sink = b.stream(8, latency=0), Table()
    with sink.repeat(8):
        sink.get(0)
    read_port(b, b.resource(), Axi(10, outstanding, 4), 8, data)
    b.process(sink, [data])
    result = table_engine().run(b.build())
    assert result.cycles == cycles
    assert result.resource_busy.tolist() == [32]


def test_ports_share_the_bus() -> None:
    """Two read ports and a write port: with enough bursts on their way the bus alone decides."""
    b = NetworkBuilder()
    bus, axi = b.resource(ROUND), Axi(12, 8, 4)
    loads = [b.stream(2, latency=0) for _ in range(2)]
    store = b.stream(2, latency=0)
    add = Table()
    with add.repeat(50):
        add.get(0), add.get(1), add.put(2)
    for stream in loads:
        read_port(b, bus, axi, 50, stream)
    b.process(add, [*loads, store])
    send, receive = write_port(b, bus, axi, 50, store)
    result = table_engine().run(b.build())
    assert result.finished
    assert result.resource_busy.tolist() == [50 * 3 * 4]
    # The first burst comes after 12 cycles, the last response 12 after its data.
    assert result.task_end[send] == 12 + 50 * 3 * 4
    assert result.task_end[receive] == result.task_end[send] + 12


def test_impossible_ports_are_refused() -> None:
    with pytest.raises(SimulationError, match="at least one burst"):
        Axi(10, 0, 4)


def test_of_many_that_wait_the_first_to_ask_is_served_first() -> None:
    """While the first service lasts, sixty others ask, those with higher numbers earlier or in any order."""
    for factor in (-1, 7, 23):
        asked = [0, *(1 + factor * n % 61 for n in range(1, 61))]
        result = run(FIRST, [[(time, 100)] for time in asked])
        events = result.timeline.events
        served = events.slot[np.argsort(events.completed)]
        assert [asked[process] for process in served] == sorted(asked)
