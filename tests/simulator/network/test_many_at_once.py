"""Operations and processes that are added many at a time, against the same added one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allo_dse.common.errors import SimulationError
from allo_dse.simulator.network.network import Network, NetworkBuilder, Processes
from allo_dse.simulator.network.tables import Table
from allo_dse.simulator.run_time.records import Code

KINDS = {"get": Code.GET, "put": Code.PUT, "wait": Code.WAIT, "request": Code.REQUEST}
Operation = tuple[str, int, int, bool]

operations = st.lists(
    st.tuples(st.sampled_from(sorted(KINDS)), st.integers(0, 3), st.integers(0, 9), st.booleans()), max_size=6
)


def by_call(given_: list[Operation]) -> Table:
    table = Table()
    for kind, port, cycles, mark in given_:
        arguments = {"get": (port,), "put": (port,), "wait": (cycles,), "request": (port, cycles)}[kind]
        getattr(table, kind)(*arguments, mark=mark)
    return table


def by_row(given_: list[Operation]) -> Table:
    table = Table()
    rows = [
        (KINDS[kind], 0 if kind == "wait" else port, cycles if kind in ("wait", "request") else 0, mark)
        for kind, port, cycles, mark in given_
    ]
    table.add(np.array(rows, np.int64).reshape(-1, 4))
    return table


@given(operations)
def test_rows_are_what_calls_add(given_: list[Operation]) -> None:
    one, many = by_call(given_), by_row(given_)
    assert one.words == many.words
    assert (one.stream_ports, one.resource_ports) == (many.stream_ports, many.resource_ports)


@given(st.lists(operations, min_size=1, max_size=3), st.data())
def test_processes_are_what_each_is(of_tables: list[list[Operation]], data: st.DataObject) -> None:
    tables = [by_call([one for one in own if one[0] != "request"]) for own in of_tables]
    which = data.draw(st.lists(st.integers(0, len(tables) - 1), max_size=5))
    # Each has at least the ports that its table uses, wherever in its row they stand.
    ports = [
        data.draw(st.permutations([*range(tables[number].stream_ports), *([-1] * (5 - tables[number].stream_ports))]))
        for number in which
    ]
    single, batch = NetworkBuilder(), NetworkBuilder()
    for builder in (single, batch):
        builder.streams(np.ones(4))
        builder.process(Table())  # not the first
    for number, own in zip(which, ports, strict=True):
        single.process(tables[number], [port for port in own if port >= 0])
    numbers = batch.processes(tables, np.array(which, np.int64), np.array(ports, np.int64).reshape(-1, 5))
    assert numbers.tolist() == list(range(1, 1 + len(which)))
    one, many = single.build(), batch.build()
    assert (one.stream_ports == many.stream_ports).all()
    assert bound_from(one) == bound_from(many)
    assert [done(one, row) for row in one.first_row.tolist()] == [done(many, row) for row in many.first_row.tolist()]


def bound_from(network: Network) -> list[int]:
    """Where the bindings of each process begin."""
    groups = [group for group in network.groups if isinstance(group, Processes)]
    return [first for group in groups for first in group.first_stream.tolist()]


def done(network: Network, row: int) -> list[list[int]]:
    """The operations of the table that begins at a row."""
    rows: list[list[int]] = network.rows.reshape(-1, 4)[row:].tolist()
    return rows[: next(number for number, own in enumerate(rows) if own[0] == Code.HALT)]


def test_a_process_with_too_few_ports_among_many_is_refused() -> None:
    table, builder = Table(), NetworkBuilder()
    table.get(1)
    builder.streams(np.ones(2))
    with pytest.raises(SimulationError, match="uses 2 stream and 0 resource ports, bound are 1 and 0"):
        builder.processes([table], np.zeros(2, np.int64), np.array([[0, 1], [0, -1]]))
    with pytest.raises(SimulationError, match="cannot take -1 cycles"):
        table.add(np.array([[Code.WAIT, 0, -1, 0]]))
