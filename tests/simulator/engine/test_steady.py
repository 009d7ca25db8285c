"""Extrapolated times of regular networks against full runs."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from allo_dse.simulator.codegen.signature import Body, Tiles
from allo_dse.simulator.engine import steady
from allo_dse.simulator.engine.engine import compile_bodies, table_engine
from allo_dse.simulator.engine.frames import repeated
from allo_dse.simulator.engine.run_result import RunResult
from allo_dse.simulator.network.network import Network, NetworkBuilder
from allo_dse.simulator.network.tables import Table

from ...support.strategies import of, shuffled
from ..engine_bodies import compiled, matrices, systolic_bodies, systolic_engine, systolic_network

SMALL_OR_LARGE = st.integers(1, 4) | st.integers(60, 200)
Parts = tuple[list[Any], list[Any], list[Any]]
"""Operations before, in and after a section that repeats."""

FIELDS = ("node_end", "stall_get", "stall_put", "stall_request", "puts", "gets", "occupancy")
RESOURCE_FIELDS = ("resource_busy", "resource_requests")
Made = tuple[Table, list[int]]
"""A process: its table and the streams at its ports."""


@pytest.fixture(autouse=True)
def _look_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short networks are looked at from the beginning."""
    for name in ("LOOK_TURNS", "LOOK_TURNS_PER_ENTRY", "FIRST_TURNS", "FIRST_GAP", "GAP_PER_ENTRY"):
        monkeypatch.setattr(steady, name, 0)


def extrapolated(net: Network) -> RunResult:
    return table_engine().run(net, extrapolate=True)


def check(times: RunResult, full: RunResult) -> None:
    assert times.finished == full.finished
    assert times.cycles == full.cycles
    for name in (*FIELDS, *RESOURCE_FIELDS):
        np.testing.assert_array_equal(getattr(times, name), getattr(full, name), err_msg=name)


@dataclass
class Regular:
    """Processes with operations before, in and after a section that repeats `rate * rounds + extra` times."""

    rounds: int
    rates: list[int]
    extra: list[int]
    parts: list[Parts]
    streams: list[tuple[int, int]]
    resources: int


@st.composite
def regular(draw: st.DrawFn) -> Regular:
    """Networks that mostly run to their end: each stream carries as many tokens per round in as out."""
    count, resources = draw(st.integers(2, 4)), draw(st.integers(0, 1))
    rates = [draw(of(1, 1, 1, 2)) for _ in range(count)]
    parts: list[Parts] = [([], [], []) for _ in range(count)]
    streams = []
    for stream in range(draw(st.integers(1, 5))):
        a, b = draw(st.integers(0, count - 1)), draw(st.integers(0, count - 1))
        tokens = draw(st.integers(1, 2))
        parts[a][1].extend([("put", stream)] * tokens * rates[b])
        parts[b][1].extend([("get", stream)] * tokens * rates[a])
        if draw(st.booleans()):
            parts[a][0].append(("put", stream))
            parts[b][draw(of(0, 2))].append(("get", stream))
        depth = draw(st.integers(2, 6)) + 2
        streams.append((depth, draw(st.integers(0, depth)) if a >= b else 0))
    for process, part in enumerate(parts):
        for section in part:
            section += [("wait", draw(st.integers(0, 9))) for _ in range(draw(st.integers(0, 2)))]
            section += [("request", draw(st.integers(0, 6)))] * (resources and draw(st.integers(0, 1)))
        parts[process] = (part[0], shuffled(draw, part[1]), part[2])
    return Regular(draw(st.integers(250, 330)), rates, [0] * count, parts, streams, resources)


def fill(table: Table, ops: list[Any]) -> None:
    for kind, value in ops:
        if kind == "request":
            table.request(0, value)
        else:
            getattr(table, kind)(value)


def network(case: Regular) -> Network:
    b = NetworkBuilder()
    depth, initial = zip(*case.streams, strict=True)
    b.streams(depth, initial=initial)
    resources = [b.resource() for _ in range(case.resources)]
    for rate, extra, (before, inside, after) in zip(case.rates, case.extra, case.parts, strict=True):
        table = Table()
        fill(table, before)
        with table.repeat(rate * case.rounds + extra):
            fill(table, inside)
        fill(table, after)
        b.process(table, range(len(depth)), resources)
    return b.build()


@settings(max_examples=200, deadline=None)
@given(regular(), st.sampled_from([1, 1, 2, 3]), st.sampled_from([1, steady.PATIENCE]))
def test_extrapolated_times_are_those_of_the_full_run(case: Regular, frames: int, patience: int) -> None:
    net = repeated(network(case), frames)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steady, "PATIENCE", patience)  # after so many looks, blocked nodes are left out of states
        times = extrapolated(net)
    event("extrapolated" if times.skipped else "simulated in full")
    check(times, table_engine().run(net))


def test_what_waits_for_a_resource_until_the_next_frame_hides_no_period() -> None:
    b = NetworkBuilder()
    b.streams([2, 2])
    bus = b.resource()
    load, work, store = Table(), Table(), Table()
    load.request(0, 90), load.put(0)
    work.get(0)
    with work.repeat(30_000):
        work.put(1), work.wait(2)
    with store.repeat(30_000):
        store.get(0)
    store.request(0, 90)
    b.process(load, [0], [bus]), b.process(work, [0, 1]), b.process(store, [1], [bus])
    net = repeated(b.build(), 2)
    times = extrapolated(net)
    check(times, table_engine().run(net))
    assert times.skipped > 0.8 * times.operations


def systolic(size: int, rounds: int, depth: int, order: Callable[[list[Made]], list[Made]] = list) -> Network:
    """A systolic array; `order` says in which order its processes are numbered."""
    b = NetworkBuilder()
    made: list[Made] = []
    across = b.streams(np.full(size * (size + 1), depth)).reshape(size, size + 1).tolist()
    down = b.streams(np.full(size * (size + 1), depth)).reshape(size + 1, size).tolist()
    cell, load, drain = Table(), Table(), Table()
    with cell.repeat(rounds):
        cell.get(0), cell.get(1), cell.put(2), cell.put(3), cell.wait(1)
    with load.repeat(rounds):
        load.put(0), load.wait(1)
    with drain.repeat(rounds):
        drain.get(0), drain.wait(1)
    for i in range(size):
        made += [(cell, [across[i][j], down[i][j], across[i][j + 1], down[i + 1][j]]) for j in range(size)]
        made += [(load, [stream]) for stream in (across[i][0], down[0][i])]
        made += [(drain, [stream]) for stream in (across[i][size], down[size][i])]
    for table, streams in order(made):
        b.process(table, streams)
    return b.build()


ORDERS: dict[str, Callable[[list[Made]], list[Made]]] = {
    "from the first": list,
    "from the last": lambda made: made[::-1],
    "any": lambda made: random.Random(1).sample(made, len(made)),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("size", [16, 32, 64, 128])
def test_the_work_of_an_array_grows_with_the_number_of_its_elements(size: int, order: str) -> None:
    net = systolic(size, 1 << 20, 2, ORDERS[order])
    times = extrapolated(net)
    assert times.cycles == (1 << 20) + 2 * size
    assert times.operations - times.skipped < 150 * net.node_count
    assert times.turns < 100 * net.node_count


@pytest.mark.parametrize("length", [100, 1_000, 10_000])
def test_the_work_of_a_chain_grows_with_its_length(length: int) -> None:
    b = NetworkBuilder()
    streams = b.streams(np.full(length + 1, 4)).tolist()
    first, link, last = Table(), Table(), Table()
    with first.repeat(1 << 20):
        first.put(0)
    with link.repeat(1 << 20):
        link.get(0), link.wait(2), link.put(1)
    with last.repeat(1 << 20):
        last.get(0)
    b.process(first, [0])
    for here, there in pairwise(streams):
        b.process(link, [here, there])
    b.process(last, [length])
    times = extrapolated(b.build())
    assert times.operations - times.skipped < 250 * length


@pytest.mark.parametrize("depth", [1, 2, 3, 8])
def test_a_systolic_array_is_extrapolated_exactly(depth: int) -> None:
    net = systolic(4, 7_777, depth)
    times = extrapolated(net)
    assert times.operations - times.skipped < times.operations / 5
    check(times, table_engine().run(net))


def test_a_million_rounds_take_no_longer_than_a_thousand() -> None:
    short, long = extrapolated(systolic(8, 1_000, 2)), extrapolated(systolic(8, 1_000_000, 2))
    executed = [times.operations - times.skipped for times in (short, long)]
    assert executed[1] < 1.5 * executed[0]
    assert long.cycles == 1_000_000 + 16
    assert short.cycles == 1_000 + 16
    assert long.gets.tolist() == [1_000_000] * 144


def test_a_period_of_several_rounds() -> None:
    b = NetworkBuilder()
    streams = b.streams([2, 2], initial=[0, 1])
    server = b.resource()
    slow, fast = Table(), Table()
    with slow.repeat(500):
        slow.request(0, 3), slow.put(0), slow.get(1)
    with fast.repeat(250):
        fast.get(0), fast.request(0, 5), fast.get(0), fast.put(1), fast.wait(2), fast.put(1)
    b.process(slow, streams.tolist(), [server])
    b.process(fast, streams.tolist(), [server])
    net = b.build()
    times = extrapolated(net)
    assert times.skipped
    check(times, table_engine().run(net))


def test_pipelined_tables_are_extrapolated() -> None:
    b = NetworkBuilder()
    streams = b.streams([2, 4, 3]).tolist()
    source, work, sink = Table(), Table(), Table()
    with source.pipeline(900, ii=2, depth=1) as p:
        p.put(0)
    with work.pipeline(900, ii=1, depth=12) as p:
        p.get(0), p.put(1, stage=11)
    with sink.pipeline(900, ii=3, depth=3) as p:
        p.get(0, stage=1)
    for table, ports in ((source, streams[:1]), (work, streams[:2]), (sink, streams[1:2])):
        b.process(table, ports)
    net = b.build()
    times = extrapolated(net)
    assert times.skipped
    check(times, table_engine().run(net))


def test_what_does_not_repeat_is_simulated_in_full() -> None:
    b = NetworkBuilder()
    stream = b.stream(1000)
    fast, slow = Table(), Table()
    with fast.repeat(900):
        fast.put(0)
        fast.wait(1)
    with slow.repeat(900):
        slow.get(0)
        slow.wait(2)
    b.process(fast, [stream])
    b.process(slow, [stream])
    net = b.build()
    times = extrapolated(net)
    assert times.skipped == 0
    check(times, table_engine().run(net))


def test_a_process_that_ends_last_for_its_own_reasons() -> None:
    b = NetworkBuilder()
    late, long = Table(), Table()
    late.wait(100_000)
    with long.repeat(1000):
        long.wait(10)
    with late.repeat(1000):
        late.wait(10)
    b.process(late)
    b.process(long)
    net = b.build()
    check(extrapolated(net), table_engine().run(net))


@dataclass
class Phases:
    """Phases, each a nest of loops (outer, inner count); per phase and process the operations before, in and after
    the inner loop; whether each phase is a task of its own, and of how many equal networks there are copies."""

    counts: list[tuple[int, int]]
    parts: list[list[Parts]]
    streams: list[tuple[int, int]]
    folded: bool
    copies: int
    resources: int


@st.composite
def phases(draw: st.DrawFn) -> Phases:
    processes, resources = draw(st.integers(2, 4)), draw(st.integers(0, 1))
    count = draw(st.integers(1, 4))
    ends = [tuple(sorted(shuffled(draw, range(processes))[:2])) for _ in range(count)]
    if draw(st.booleans()):
        ends.append(tuple(reversed(ends[0])))
    streams = [(depth := draw(st.integers(1, 6)), depth // 2 if a > b else 0) for a, b in ends]
    counts = [(draw(SMALL_OR_LARGE), draw(SMALL_OR_LARGE)) for _ in range(draw(st.integers(1, 3)))]
    counts = [(a, b if a * b < 3000 else 2) for a, b in counts]
    parts = []
    for _ in counts:
        row: list[Parts] = [([], [], []) for _ in range(processes)]
        for stream, (a, b) in enumerate(ends):
            where = draw(of(0, 1, 1, 1, 2))
            row[a][where].append(("put", stream))
            row[b][where].append(("get", stream))
        for ops in row:
            for section in ops:
                section += [("wait", draw(st.integers(0, 5))) for _ in range(draw(st.integers(0, 2)))]
                section += [("request", draw(st.integers(0, 4)))] * (resources and draw(st.integers(0, 1)))
        mixed = [[shuffled(draw, section) for section in ops] for ops in row]
        parts.append([(before, repeated, after) for before, repeated, after in mixed])
    return Phases(counts, parts, streams, draw(st.booleans()), draw(st.integers(1, 2)), resources)


def phased_network(case: Phases) -> Network:
    b = NetworkBuilder()
    for copy in range(case.copies):
        depth, initial = zip(*case.streams, strict=True)
        streams = b.streams(depth, initial=initial).tolist()
        resources = [b.resource() for _ in range(case.resources)]
        for process in range(len(case.parts[0])):
            tables: list[Table] = []
            for (outer, inner), row in zip(case.counts, case.parts, strict=True):
                if case.folded or not tables:
                    tables.append(Table())
                with tables[-1].repeat(outer):
                    fill(tables[-1], [*row[process][0], ("wait", copy)])
                    with tables[-1].repeat(inner):
                        fill(tables[-1], row[process][1])
                    fill(tables[-1], row[process][2])
            b.node([b.process(table, streams, resources) for table in tables])
    return b.build()


@settings(max_examples=300, deadline=None)
@given(phases())
def test_nested_loops_in_sequence_and_folded_tasks(case: Phases) -> None:
    net = phased_network(case)
    full = table_engine().run(net)
    times = extrapolated(net)
    event(f"finished: {full.finished}, skipped: {times.skipped > 0}")
    check(times, full)
    np.testing.assert_array_equal(times.task_start, full.task_start)
    np.testing.assert_array_equal(times.task_end, full.task_end)
    if not full.finished:
        assert times.deadlock == full.deadlock


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_compiled_bodies_are_extrapolated(depth: int) -> None:
    engine = systolic_engine(7_777)
    a, b, c = matrices(4, 7_777)
    net = systolic_network(engine, a, b, c, depth=depth)
    times = engine.run(net, payload=False, extrapolate=True)
    assert times.operations - times.skipped < times.operations / 5
    check(times, engine.run(net))
    np.testing.assert_array_equal(c, a @ b)


def test_a_million_rounds_of_a_program_cost_what_a_thousand_do() -> None:
    executed = []
    for rounds in (1 << 10, 1 << 20):
        engine = systolic_engine(rounds)
        a = np.zeros((16, rounds), np.float32)
        net = systolic_network(engine, a, np.zeros((rounds, 16), np.float32), np.zeros((16, 16), np.float32), depth=4)
        times = engine.run(net, payload=False, extrapolate=True)
        # Along the longest way a token passes 32 streams, with a latency of 2 each.
        assert times.cycles == rounds + 2 * 32
        executed.append(times.operations - times.skipped)
    assert executed[1] < 1.1 * executed[0]


BORDER = """
func.func @border(%in: index, %out: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %n = arith.constant 300 : index
  scf.for %i = %c0 to %n step %c1 {
    scf.for %j = %c0 to %c3 step %c1 {
      %first = arith.cmpi eq, %j, %c0 : index
      scf.if %first {
        %v = "df.get"(%in) {op = 0} : (index) -> f32
        "df.put"(%out, %v) {op = 1} : (index, f32) -> ()
      } else { "df.cost"() {site = 0} : () -> () }
    }
  }
  return
}"""


def test_branches_on_loop_indices_are_told() -> None:
    engine = compile_bodies([Body("border", BORDER), *systolic_bodies(300)])
    b = NetworkBuilder()
    streams, site = b.streams([2, 2], token_bytes=4).tolist(), b.costs([3])
    tokens = Tiles(b.tensor(np.zeros(300, np.float32)), 0, (1,))
    b.tasks("load", engine.signatures["load"].words(1, [tokens, streams[0]], cost_site=site))
    b.tasks("border", engine.signatures["border"].words(1, streams, cost_site=site))
    b.tasks("drain", engine.signatures["drain"].words(1, streams[1:], cost_site=site))
    net = b.build()
    times = engine.run(net, payload=False, extrapolate=True)
    assert times.skipped
    check(times, engine.run(net))


def phase_text(symbol: str, counts: list[tuple[int, int]], parts: list[Parts]) -> str:
    """A task body with a nest of loops per phase; waits are costs, whose site is their number of cycles."""
    lines: list[str] = []

    def write(ops: list[Any]) -> None:
        for kind, value in ops:
            if kind == "wait":
                lines.append(f'"df.cost"() {{site = {value}}} : () -> ()')
            elif kind == "put":
                lines.append(f'"df.put"(%s{value}, %v) {{op = 0}} : (index, i32) -> ()')
            else:
                lines.append(f'%g{len(lines)} = "df.get"(%s{value}) {{op = 1}} : (index) -> i32')

    for (outer, inner), (before, inside, after) in zip(counts, parts, strict=True):
        lines.append(f"affine.for %i{len(lines)} = 0 to {outer} {{")
        write(before)
        lines.append(f"affine.for %i{len(lines)} = 0 to {inner} {{")
        write(inside)
        lines.append("}")
        write(after)
        lines.append("}")
    arguments = ", ".join(f"%s{i}: index" for i in range(8))
    body = "\n".join(["%v = arith.constant 1 : i32", *lines])
    return f"func.func @{symbol}({arguments}) {{\n{body}\nreturn }}"


@settings(max_examples=10, deadline=None)
@given(phases())
def test_compiled_nests_in_sequence_and_folded_tasks(case: Phases) -> None:
    rows: list[list[Any]] = [
        [tuple([o for o in s if o[0] != "request"] for s in ops) for ops in row] for row in case.parts
    ]
    bodies: list[Body] = []
    nodes: list[list[str]] = []
    for process in range(len(rows[0])):
        own = list(zip(case.counts, (row[process] for row in rows), strict=True))
        groups = [[phase] for phase in own] if case.folded else [own]
        names = [f"task{process}_{number}" for number in range(len(groups))]
        nodes.append(names)
        for name, group in zip(names, groups, strict=True):
            bodies.append(Body(name, phase_text(name, [c for c, _ in group], [p for _, p in group])))
    engine = compiled(bodies)
    b = NetworkBuilder()
    depth, initial = zip(*case.streams, strict=True)
    streams = b.streams([*depth, *[1] * (8 - len(depth))], initial=[*initial, *[0] * (8 - len(depth))], token_bytes=4)
    site = b.costs(range(6))
    for names in nodes:
        tasks = [b.tasks(n, engine.signatures[n].words(1, streams.tolist(), cost_site=site))[0] for n in names]
        b.node(tasks)
    net = b.build()
    full, times = engine.run(net), engine.run(net, payload=False, extrapolate=True)
    event(f"finished: {full.finished}, skipped: {times.skipped > 0}")
    check(times, full)
    np.testing.assert_array_equal(times.task_end, full.task_end)


@st.composite
def nests(draw: st.DrawFn, depth: int = 3) -> list[tuple[int, Any]]:
    """Repeats, each of a count and what is inside."""
    inside = nests(depth=depth - 1) if depth > 1 else st.just([])
    return draw(st.lists(st.tuples(st.integers(1, 5), inside), max_size=2))


def _write(table: Table, nest: list[tuple[int, Any]]) -> int:
    """Write a nest; returns the rounds of those of its repeats that repeat anything."""
    table.wait(1)
    rounds = 0
    for count, inside in nest:
        with table.repeat(count):
            own = _write(table, inside)
        rounds += count * own + (count if count > 1 else 0)
    return rounds


@given(st.lists(nests(), min_size=1, max_size=3), st.lists(st.integers(0, 2), min_size=1, max_size=4))
def test_rounds_are_counted_without_running(written: list[list[tuple[int, Any]]], processes: list[int]) -> None:
    b, tables, rounds = NetworkBuilder(), [], []
    for nest in written:
        tables.append(Table())
        rounds.append(_write(tables[-1], nest))
    chosen = [number % len(tables) for number in processes]
    for number in chosen:
        b.process(tables[number], [])
    assert steady.rounds_of(b.build()) == pytest.approx(sum(rounds[number] for number in chosen))


def test_what_ends_before_a_look_would_pay_is_run_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    short, long = (systolic_network(systolic_engine(k), *matrices(8, k), depth=4) for k in (64, 8192))
    for net, looked_at in ((short, False), (long, True)):
        engine = systolic_engine(64 if net is short else 8192)
        full, times = engine.run(net, payload=False), engine.run(net, payload=False, extrapolate=True)
        check(times, full)
        assert (times.skipped > 0) is looked_at
        assert (times.turns == full.turns) is not looked_at
