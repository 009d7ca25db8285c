"""Pipelined loops: operations in order of due time, freezing on a blocked one, against scripts in that order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allo_dse.common.errors import SimulationError
from allo_dse.simulator.codegen.signature import Body, Tiles
from allo_dse.simulator.engine.engine import compile_bodies, table_engine
from allo_dse.simulator.network.network import NetworkBuilder
from allo_dse.simulator.network.tables import Table
from allo_dse.simulator.run_time.fifo import Variant

from ..engine_bodies import compiled
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


def body_text(symbol: str, sequence: list[Loop], streams: int) -> tuple[str, list[int]]:
    """A task body of pipelined loops, and the cycles of its cost sites."""
    lines: list[str] = []
    costs: list[Any] = []
    number = 0
    for loop in sequence:
        ii, depth = len(costs), len(costs) + 1
        costs += [loop.ii, loop.depth]
        lines.append(f"affine.for %i{ii} = 0 to {loop.count} {{")
        lines.append(f"%v{ii} = arith.index_cast %i{ii} : index to i32")
        for stage, kind, stream in loop.ops:
            attributes = f"{{op = {number} : i64, stage = {len(costs)} : i64}}"
            costs.append(stage)
            if kind == "get":
                lines.append(f'%g{number} = "df.get"(%s{stream}) {attributes} : (index) -> i32')
            else:
                lines.append(f'"df.put"(%s{stream}, %v{ii}) {attributes} : (index, i32) -> ()')
            number += 1
        lines.append(f"}} {{df.ii = {ii} : i64, df.depth = {depth} : i64}}")
    arguments = ", ".join(f"%s{i}: index" for i in range(streams))
    return f"func.func @{symbol}({arguments}) {{\n" + "\n".join([*lines, "return }"]), costs


def gets_first(loop: Loop) -> Loop:
    """Gets at one stage each, so that none is due after an operation behind it; puts anywhere."""
    least = min((stage for stage, *_ in loop.ops), default=0)
    ops = [(least if kind == "get" else stage, kind, stream) for stage, kind, stream in loop.ops]
    return Loop(loop.count, loop.ii, loop.depth, ops)


@pytest.mark.parametrize("options", [{}, {"record": True}, {"payload": False}, {"payload": False, "extrapolate": True}])
def test_pipelined_bodies_equal_scripts_in_due_order(options: dict[str, Any]) -> None:
    @settings(max_examples=15, deadline=None)
    @given(networks())
    def check(case: tuple[list[list[Loop]], list[tuple[int, int, int]]]) -> None:
        sequences, streams = [[gets_first(loop) for loop in s] for s in case[0]], case[1]
        depth, latency, initial = (list(c) for c in zip(*streams, strict=True)) if streams else ([], [], [])
        scripts = [[op for loop in sequence for op in script(loop)] for sequence in sequences]
        expected = simulate(scripts, depth, latency, initial, 0)
        texts = [body_text(f"task{i}", sequence, len(streams)) for i, sequence in enumerate(sequences)]
        first = Variant(record=options.get("record", False), payload=options.get("payload", True))
        engine = compiled((Body(f"task{i}", text) for i, (text, _) in enumerate(texts)), first)
        b = NetworkBuilder()
        numbers = b.streams(depth, latency=latency, initial=initial, token_bytes=4)
        for i, (_, costs) in enumerate(texts):
            words = engine.signatures[f"task{i}"].words(1, numbers.tolist(), cost_site=b.costs([*costs, 0]))
            b.tasks(f"task{i}", words)
        result = engine.run(b.build(), **options)
        assert result.finished == all(p == len(s) for p, s in zip(expected.positions, scripts, strict=True))
        assert result.gets.tolist() == [len(g) for g in expected.gets]
        assert result.puts.tolist() == [len(p) - n for p, n in zip(expected.puts, initial, strict=True)]
        if result.finished:
            assert result.node_end.tolist() == expected.clocks
            assert result.stall_get.tolist() == expected.stall_get
            assert result.stall_put.tolist() == expected.stall_put
            if options.get("record"):
                path = result.explain().path
                assert path.start.tolist() == [0, *path.end[:-1].tolist()][: len(path)]
                assert path.end[-1:].tolist() == ([result.cycles] if result.cycles else [])

    check()


RELAY = """
func.func @relay(%in: index, %out: index) {
  %three = arith.constant 3 : i32
  affine.for %i = 0 to 20 {
    %v = "df.get"(%in) {op = 0} : (index) -> i32
    %w = arith.muli %v, %three : i32
    "df.put"(%out, %w) {op = 1, stage = 2 : i64} : (index, i32) -> ()
  } {df.ii = 0 : i64, df.depth = 1 : i64}
  return
}"""
FEED = """
func.func @feed(%out: index) {
  affine.for %i = 0 to 20 {
    %v = arith.index_cast %i : index to i32
    "df.put"(%out, %v) {op = 0} : (index, i32) -> ()
    "df.cost"() {site = 0} : () -> ()
  }
  return
}"""
CATCH = """
func.func @catch(%in: index, %y: memref<20xi32>) {
  affine.for %i = 0 to 20 {
    %v = "df.get"(%in) {op = 0} : (index) -> i32
    affine.store %v, %y[%i] : memref<20xi32>
    "df.cost"() {site = 0} : () -> ()
  }
  return
}"""


@pytest.mark.parametrize(("ii", "depth", "stage"), [(1, 1, 0), (1, 9, 9), (2, 40, 33), (5, 5, 3)])
@pytest.mark.parametrize("fifo", [1, 3])
def test_tokens_pass_through_registers_in_order(ii: int, depth: int, stage: int, fifo: int) -> None:
    engine = compile_bodies([Body("relay", RELAY), Body("feed", FEED), Body("catch", CATCH)])
    y = np.zeros(20, np.int32)
    b = NetworkBuilder()
    streams = b.streams([fifo, fifo], token_bytes=4).tolist()
    one, numbers = b.costs([1]), b.costs([ii, depth, stage])
    b.tasks("relay", engine.signatures["relay"].words(1, streams, cost_site=numbers))
    b.tasks("feed", engine.signatures["feed"].words(1, streams[:1], cost_site=one))
    b.tasks("catch", engine.signatures["catch"].words(1, [streams[1], Tiles(y, 0, (1,))], cost_site=one))
    result = engine.run(b.build())
    assert result.finished
    np.testing.assert_array_equal(y, 3 * np.arange(20))
    latency = 1 if fifo <= 2 else 2
    if fifo > 1:
        assert result.task_end[0] == latency + 19 * ii + depth


def test_numbers_of_pipelines_are_checked() -> None:
    engine = compile_bodies([Body("relay", RELAY)])
    for numbers in ([0, 3, 1], [1, 3, 4], [1, 3, -1]):
        b = NetworkBuilder()
        streams = b.streams([2, 2], token_bytes=4).tolist()
        b.tasks("relay", engine.signatures["relay"].words(1, streams, cost_site=b.costs(numbers)))
        with pytest.raises(SimulationError, match="stages from 0 to the depth"):
            engine.run(b.build())
    nested = RELAY.replace("%w =", 'affine.for %j = 0 to 2 { %n = "df.get"(%in) {op = 2} : (index) -> i32 }\n%w =')
    with pytest.raises(SimulationError, match="unroll the inner loop"):
        compile_bodies([Body("relay", nested)])


def test_a_put_that_only_some_rounds_do_keeps_its_place() -> None:
    text = """
    func.func @some(%in: index, %out: index) {
      %zero = arith.constant 0 : index
      %one = arith.constant 1 : index
      affine.for %i = 0 to 20 {
        %v = "df.get"(%in) {op = 0} : (index) -> i32
        %bit = arith.andi %i, %one : index
        %even = arith.cmpi eq, %bit, %zero : index
        scf.if %even { "df.put"(%out, %v) {op = 1, stage = 2 : i64} : (index, i32) -> () }
      } {df.ii = 0 : i64, df.depth = 1 : i64}
      return
    }"""
    engine = compile_bodies([Body("some", text)])
    b = NetworkBuilder()
    streams = b.streams([1, 2], token_bytes=4).tolist()
    b.tasks("some", engine.signatures["some"].words(1, streams, cost_site=b.costs([1, 7, 7])))
    source, sink = Table(), Table()
    with source.repeat(20):
        source.put(0)
        source.wait(3)
    with sink.repeat(10):
        sink.get(0, mark=True)
    b.process(source, streams[:1])
    b.process(sink, streams[1:], log=10)
    result = engine.run(b.build())
    assert result.finished
    # Round k begins when its token comes, at 1 + 3 * k. Its put is due a cycle after round k + 6 has begun.
    begin = 1 + 3 * np.arange(20)
    puts = [int(begin[min(k + 6, 19)]) + k + 7 - min(k + 6, 19) for k in range(0, 20, 2)]
    assert result.process_log(1).tolist() == [put + 1 for put in puts]


def late_get() -> tuple[list[Loop], list[Loop]]:
    """The get at stage 5 stands first in the program, that at stage 0 is due first, also of five later rounds (T7)."""
    late = Loop(30, 1, 6, [(5, "get", 0), (0, "get", 1)])
    return [late], [Loop(30, 3, 1, [(0, "put", 0)]), Loop(30, 1, 1, [(0, "put", 1)])]


def test_gets_due_out_of_order_are_done_when_they_are_due_or_refused() -> None:
    sequence, sources = late_get()
    expected = simulate([script(loop) for loop in (*sequence, *sources)], [2, 2], [1, 1], [0, 0], 0)
    text, costs = body_text("late", sequence, 2)
    engine = compile_bodies([Body("late", text)])
    b = NetworkBuilder()
    numbers = b.streams([2, 2], latency=[1, 1], token_bytes=4).tolist()
    b.tasks("late", engine.signatures["late"].words(1, numbers, cost_site=b.costs([*costs, 0])))
    for loop in sources:
        table = Table()
        write(table, loop)
        b.process(table, numbers)
    net = b.build()
    with pytest.raises(SimulationError, match="get at stage 5, which is due after"):
        engine.run(net)
    result = engine.run(net, payload=False, extrapolate=True)
    assert result.node_end.tolist() == expected.clocks
    assert result.stall_get.tolist() == expected.stall_get
    assert result.stall_put.tolist() == expected.stall_put
