"""Runs without payload take the same cycles as runs that compute."""

from __future__ import annotations

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

from allo_dse.simulator.codegen.signature import Body, Tiles
from allo_dse.simulator.engine.engine import Engine
from allo_dse.simulator.engine.run_result import RunResult
from allo_dse.simulator.network.network import Network, NetworkBuilder

from ..engine_bodies import compiled, matrices, systolic_engine, systolic_network
from ..engine_programs import Writer

TASKS = 3


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[Body], list[tuple[int, int]], list[list[int]]]:
    """Bodies, streams as (depth, initial tokens), and per task the sites' cycles; all get all streams."""
    count = draw(st.integers(1, 4))
    ends = [(draw(st.integers(0, TASKS - 1)), draw(st.integers(0, TASKS - 1))) for _ in range(count)]
    bodies, costs = [], []
    for task in range(TASKS):
        gets = [s for s, (_, b) in enumerate(ends) if b == task]
        puts = [s for s, (a, _) in enumerate(ends) if a == task]
        writer = Writer(draw, gets, puts, by_data=draw(st.booleans()))
        bodies.append(Body(f"task{task}", writer.text(f"task{task}", count)))
        costs.append(draw(st.lists(st.integers(0, 5), min_size=writer.sites, max_size=writer.sites)))
    streams = [(depth := draw(st.integers(1, 4)), draw(st.integers(0, depth))) for _ in range(count)]
    return bodies, streams, costs


def network(engine: Engine, streams: list[tuple[int, int]], costs: list[list[int]]) -> Network:
    b = NetworkBuilder()
    depth, initial = zip(*streams, strict=True)
    numbers = b.streams(depth, initial=initial, token_bytes=4)
    for task in range(TASKS):
        x = b.tensor(np.arange(8, dtype=np.int32))
        site = b.costs([*costs[task], 0])
        signature = engine.signatures[f"task{task}"]
        b.tasks(f"task{task}", signature.words(1, [Tiles(x, 0, (1,)), *numbers.tolist()], cost_site=site))
    return b.build()


def outcome(result: RunResult) -> list[list[int]]:
    columns = [result.node_end, result.stall_get, result.stall_put, result.puts, result.gets, result.occupancy]
    return [*(c.tolist() for c in columns), [result.finished]]


@settings(max_examples=40, deadline=None)
@given(programs())
def test_cycles_do_not_depend_on_computing(program: tuple[list[Body], list[tuple[int, int]], list[list[int]]]) -> None:
    bodies, streams, costs = program
    engine = compiled(bodies)
    with_values = engine.run(network(engine, streams, costs))
    without = engine.run(network(engine, streams, costs), payload=False)
    assert outcome(without) == outcome(with_values)
    by_tables = engine.run(network(engine, streams, costs), payload=False, extrapolate=True)
    event(f"as tables: {bool(by_tables.network.rows.size)}")
    assert outcome(by_tables) == outcome(with_values)
    if not without.finished:
        assert without.deadlock == with_values.deadlock


def test_a_systolic_array_without_payload_computes_nothing_and_takes_as_long() -> None:
    a, b, c = matrices(4, 32)
    engine = systolic_engine(32)
    network = systolic_network(engine, a, b, c, depth=2)
    result = engine.run(network, payload=False)
    assert not c.any()
    assert outcome(result) == outcome(engine.run(network))
    np.testing.assert_array_equal(c, a @ b)
