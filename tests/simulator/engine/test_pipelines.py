"""Pipelined loops: operations in order of due time, freezing on a blocked one, against scripts in that order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allo_dse.common.errors import SimulationError
from allo_dse.simulator.engine.engine import table_engine
from allo_dse.simulator.network.network import NetworkBuilder
from allo_dse.simulator.network.tables import Table

from ..engine_reference import Script, simulate

PROCESSES = 3


@dataclass
class Loop:
    """A pipelined loop: operations (stage, kind, stream) in program order."""

    count: int
    ii: int
    depth: int
    ops: list[tuple[int, str, int]]


def script(loop: Loop) -> Script:
    """The loop's operations by due time, older rounds first, with the waits between them."""
    due = [(k * loop.ii + s, k, i) for k in range(loop.count) for i, (s, *_) in enumerate(loop.ops)]
    result: Script = []
    clock = 0
    for time, _, i in sorted(due):
        result += [("wait", 0, time - clock), (loop.ops[i][1], loop.ops[i][2], 0)]
        clock = time
    end = (loop.count - 1) * loop.ii + loop.depth if loop.count else 0
    return [*result, ("wait", 0, end - clock)]


@cache
def _operations(depth: int, kinds: tuple[tuple[str, int], ...]) -> st.SearchStrategy[list[tuple[int, tuple[str, int]]]]:
    return st.lists(st.tuples(st.integers(0, depth), st.sampled_from(kinds)), max_size=4)


@st.composite
def loops(draw: st.DrawFn, kinds: tuple[tuple[str, int], ...]) -> Loop:
    depth = draw(st.integers(0, 9))
    ops = draw(_operations(depth, kinds)) if kinds else []
    return Loop(draw(st.integers(0, 9)), draw(st.integers(1, 4)), depth, [(s, *kind) for s, kind in ops])


@cache
def _sequences(kinds: tuple[tuple[str, int], ...]) -> st.SearchStrategy[list[Loop]]:
    return st.lists(loops(kinds), max_size=3)


ENDS = st.lists(st.tuples(st.integers(0, PROCESSES - 1), st.integers(0, PROCESSES - 1)), max_size=4)


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[list[Loop]], list[tuple[int, int, int]]]:
    """Per process its loops in sequence; streams as (depth, latency, initial tokens)."""
    ends = draw(ENDS)
    sequences = []
    for process in range(PROCESSES):
        kinds = [("get", s) for s, (_, b) in enumerate(ends) if b == process]
        kinds += [("put", s) for s, (a, _) in enumerate(ends) if a == process]
        sequences.append(draw(_sequences(tuple(kinds))))
    streams = [(d := draw(st.integers(1, 4)), draw(st.integers(0, 2)), draw(st.integers(0, d))) for _ in ends]
    return sequences, streams


def write(table: Table, loop: Loop) -> None:
    with table.pipeline(loop.count, ii=loop.ii, depth=loop.depth) as pipeline:
        for stage, kind, stream in loop.ops:
            getattr(pipeline, kind)(stream, stage=stage)


@settings(max_examples=200, deadline=None)
@given(networks())
def test_pipelined_tables_equal_scripts_in_due_order(
    case: tuple[list[list[Loop]], list[tuple[int, int, int]]],
) -> None:
    sequences, streams = case
    depth, latency, initial = (list(c) for c in zip(*streams, strict=True)) if streams else ([], [], [])
    scripts = [[op for loop in sequence for op in script(loop)] for sequence in sequences]
    expected = simulate(scripts, depth, latency, initial, 0)
    b = NetworkBuilder()
    b.streams(depth, latency=latency, initial=initial)
    for sequence in sequences:
        table = Table()
        for loop in sequence:
            write(table, loop)
        b.process(table, range(len(depth)))
    result = table_engine().run(b.build())
    assert result.finished == all(p == len(s) for p, s in zip(expected.positions, scripts, strict=True))
    assert result.puts.tolist() == [len(p) - n for p, n in zip(expected.puts, initial, strict=True)]
    assert result.gets.tolist() == [len(g) for g in expected.gets]
    if result.finished:
        assert result.node_end.tolist() == expected.clocks
        assert result.stall_get.tolist() == expected.stall_get
        assert result.stall_put.tolist() == expected.stall_put


def test_a_long_pipeline_is_a_short_table() -> None:
    table = Table()
    write(table, Loop(1_000_000, 1, 20, [(0, "get", 0), (19, "put", 1)]))
    assert len(table) < 100
    b = NetworkBuilder()
    streams = b.streams([2, 2, 2]).tolist()
    source, sink = Table(), Table()
    with source.pipeline(1_000_000, ii=1, depth=1) as p:
        p.put(0)
    with sink.pipeline(1_000_000, ii=1, depth=1) as p:
        p.get(0)
    b.process(source, streams[:1])
    b.process(table, streams[:2])
    b.process(sink, streams[1:2])
    assert table_engine().run(b.build()).cycles == 1_000_000 + 1 + 19 + 1


def test_impossible_pipelines_are_refused() -> None:
    for loop in (Loop(2, 0, 3, []), Loop(2, 1, 3, [(4, "get", 0)])):
        with pytest.raises(SimulationError, match="stages from 0 to 3"):
            write(Table(), loop)


def late_get() -> tuple[list[Loop], list[Loop]]:
    """The get at stage 5 stands first in the program, that at stage 0 is due first, also of five later rounds (T7)."""
    late = Loop(30, 1, 6, [(5, "get", 0), (0, "get", 1)])
    return [late], [Loop(30, 3, 1, [(0, "put", 0)]), Loop(30, 1, 1, [(0, "put", 1)])]


def test_gets_due_out_of_order_are_done_when_they_are_due() -> None:
    sequence, sources = late_get()
    expected = simulate([script(loop) for loop in (*sequence, *sources)], [2, 2], [1, 1], [0, 0], 0)
    b = NetworkBuilder()
    numbers = b.streams([2, 2], latency=[1, 1]).tolist()
    for loop in (*sequence, *sources):
        table = Table()
        write(table, loop)
        b.process(table, numbers)
    result = table_engine().run(b.build())
    assert result.node_end.tolist() == expected.clocks
    assert result.stall_get.tolist() == expected.stall_get
    assert result.stall_put.tolist() == expected.stall_put
