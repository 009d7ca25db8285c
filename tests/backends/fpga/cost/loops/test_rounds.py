"""Static control: affine bounds and conditions are counted exactly, and what depends on data is refused by name."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allo_dse as dse
from allo_dse.backends.fpga.cost.loops.events import Again, Part, Pipe, Wait, cycles_of, in_turn, uses_streams
from allo_dse.backends.fpga.cost.loops.loop_round import KnownRounds
from allo_dse.backends.fpga.cost.plan import LoopPlan, Plan, Planned, planned
from allo_dse.backends.fpga.cost.task_cost import _Task, task_cost
from allo_dse.common.errors import StaticControlError
from allo_dse.common.records import replace
from allo_dse.compiler.ir.affine import DERIVE, Choice, Compare, Derived, Linear, Test, decided, everywhere
from allo_dse.compiler.ir.nest import Access, Branch, Loop, Node, Op
from allo_dse.compiler.program.compiled import TaskClass
from allo_dse.compiler.program.tensors import SourceLocation, SourceLoop
from allo_dse.device.device import FpgaDevice
from allo_dse.eval.execute.observed_control import Observed, data_sites
from tests.support.strategies import of

from .. import programs

U280 = FpgaDevice.load("u280")
PID = 0


def affine(draw: st.DrawFn, variables: list[int], most: int) -> Linear:
    """A sum of variables, sometimes with a quotient, minimum or maximum of such sums."""
    terms = {v: draw(of(-1, 0, 0, 1, 1, 2)) for v in variables}
    form = Linear(tuple((v, f) for v, f in sorted(terms.items()) if f), draw(st.integers(-2, most)))
    name = draw(of("", "", "", *DERIVE))
    if not name:
        return form
    right = Linear((), draw(st.integers(1, 4)))
    return Linear((), draw(st.integers(-1, 1)), ((Derived(name, form, right), draw(of(-2, -1, 1))),))


def condition(draw: st.DrawFn, variables: list[int], depth: int = 2) -> Test:
    if depth and draw(st.booleans()):
        parts = [condition(draw, variables, depth - 1) for _ in range(2)]
        kind = draw(of("and", "or", "not"))
        if kind == "not":
            return Choice(parts[0], False, True)
        return Choice(parts[0], parts[1], False) if kind == "and" else Choice(parts[0], True, parts[1])
    return Compare(draw(of("eq", "ne", "slt", "sle", "sgt", "sge")), affine(draw, variables, 4))


@st.composite
def nests(draw: st.DrawFn) -> tuple[Node, ...]:
    """Nests of up to three loops whose bounds depend on the loops around them, with puts under conditions."""
    numbers = itertools.count(10)

    def block(variables: list[int], depth: int) -> tuple[Node, ...]:
        nodes: list[Node] = []
        for _ in range(draw(st.integers(1, 2))):
            kind = draw(of("loop", "loop", "put") if depth else of("put"))
            if kind == "loop":
                variable = next(numbers)
                body = block([*variables, variable], depth - 1)
                lower, upper = affine(draw, variables, 2), affine(draw, variables, 6)
                nodes.append(Loop(variable, None, lower, upper, draw(st.integers(1, 3)), body))
            else:
                put = Op("df.put", (PID,), (), "", 32, stream=draw(st.integers(0, 1)))
                test = condition(draw, variables)
                nodes.append(Branch(next(numbers), test, ((put,), ()), (), ((), ()), 0) if draw(st.booleans()) else put)
        return tuple(nodes)

    return block([PID], draw(st.integers(1, 3)))


def executed(nodes: Iterable[Any], variables: dict[int, int], rounds: dict[int, int]) -> Iterator[int]:
    """The streams of all puts in order, and how often each loop runs, by doing what the nest says."""
    for node in nodes:
        if isinstance(node, Loop):
            assert node.lower is not None
            assert node.upper is not None
            first, end = node.lower.value(variables), node.upper.value(variables)
            for value in range(first, end, node.step):  # type: ignore[arg-type]
                rounds[node.variable] = rounds.get(node.variable, 0) + 1
                yield from executed(node.body, {**variables, node.variable: value}, rounds)
        elif isinstance(node, Branch):
            yield from executed(node.sides[not decided(node.test, variables)], variables, rounds)
        else:
            yield node.stream


def puts(parts: Iterable[Part]) -> Iterator[int]:
    """The streams of all puts of a task's parts, round by round."""
    for part in parts:
        if isinstance(part, Pipe):
            for _ in range(part.rounds):
                yield from (stream for *_, stream in part.ops)
        elif isinstance(part, Again):
            for _ in range(part.count):
                yield from puts(part.parts)


@lru_cache
def some_class() -> TaskClass:
    """A class of tasks, which only errors look at."""
    return dse.load_program(programs.scale()).kernels[0].classes[0]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(nests(), st.integers(0, 3), st.sampled_from([0, 4]))
def test_counted_rounds_are_the_executed_ones(nest: tuple[Node, ...], pid: int, pipeline_loops: int) -> None:
    rounds: dict[int, int] = {}
    expected = list(executed(nest, {PID: pid}, rounds))
    items = planned(nest, Plan({}, {}), {PID: pid}, pipeline_loops)
    task = _Task(some_class(), KnownRounds(U280), Plan({}, {}), {}, None)
    parts = task.block(items, 1, {PID: pid}, outermost=True)
    found = list(puts(parts))
    for stream in (0, 1):
        assert found.count(stream) == expected.count(stream)
    counted = {variable: cost.rounds for variable, cost in task._loops.items() if variable in rounds}
    flattened = {v for v, cost in task._loops.items() if len(cost.names) > 1}
    assert {v: n for v, n in counted.items() if v not in flattened} == {
        v: rounds[v] for v in counted if v not in flattened
    }
    assert all(counted[v] == rounds[v] for v in flattened & set(counted))


def hidden(
    nodes: Iterable[Any], draw: st.DataObject, sites: Iterator[int]
) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """A nest with numbered sites, and the same where data decides at some of them."""
    plain: list[Node] = []
    unknown: list[Node] = []
    for node in nodes:
        if isinstance(node, Loop):
            site, hide = next(sites), draw.draw(st.booleans())
            body, other = hidden(node.body, draw, sites)
            plain.append(replace(node, site=site, body=body))
            bounds = (None, None) if hide else (node.lower, node.upper)
            unknown.append(replace(node, site=site, lower=bounds[0], upper=bounds[1], body=other))
        elif isinstance(node, Branch):
            site, hide = next(sites), draw.draw(st.booleans())
            plain.append(replace(node, site=site))
            unknown.append(replace(node, site=site, test=None if hide else node.test))
        else:
            plain.append(node)
            unknown.append(node)
    return tuple(plain), tuple(unknown)


def decisions(nodes: Iterable[Any], variables: dict[int, int], found: dict[int, list[tuple[int, int]]]) -> None:
    """What is decided at every site, by doing what the nest says."""
    for node in nodes:
        if isinstance(node, Loop):
            values = range(node.lower.value(variables), node.upper.value(variables), node.step)  # type: ignore[union-attr,arg-type]
            found.setdefault(node.site, []).append((len(values), values[-1] if values else 0))
            for value in values:
                decisions(node.body, {**variables, node.variable: value}, found)
        elif isinstance(node, Branch):
            holds = decided(node.test, variables)
            found.setdefault(node.site, []).append((int(bool(holds)), 0))
            decisions(node.sides[not holds], variables, found)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(nests(), st.integers(0, 3), st.sampled_from([0, 4]), st.data())
def test_what_data_decides_is_taken_from_a_run(
    nest: tuple[Node, ...], pid: int, pipeline_loops: int, data: st.DataObject
) -> None:
    """Bounds and conditions that are hidden from the model, and given as what they decided, move the same tokens."""
    plain, unknown = hidden(nest, data, itertools.count())
    found: dict[int, list[tuple[int, int]]] = {}
    decisions(plain, {PID: pid}, found)
    asked = {site: np.array(found.get(site, []), np.int64).reshape(-1, 2) for site in data_sites(unknown)}
    observed = Observed(asked)
    items = planned(unknown, Plan({}, {}), {PID: pid}, pipeline_loops, (), observed)
    task = _Task(some_class(), KnownRounds(U280), Plan({}, {}), {}, observed)
    got = list(puts(task.block(items, 1, {PID: pid}, outermost=True)))
    observed.require_used()
    expected = list(executed(nest, {PID: pid}, {}))
    assert sorted(got) == sorted(expected)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.data())
def test_conditions_mean_the_same_for_one_value_and_for_many(data: st.DataObject) -> None:
    test = data.draw(st.composite(lambda draw: condition(draw, [1, 2], 3))())
    grid: Mapping[int, Any] = {1: np.arange(-3, 4).repeat(7), 2: np.tile(np.arange(-3, 4), 7)}
    many = np.broadcast_to(everywhere(test, grid), 49)
    assert [decided(test, {1: int(a), 2: int(b)}) for a, b in zip(grid[1], grid[2], strict=True)] == many.tolist()


def test_a_condition_that_both_sides_decide_alike_needs_no_variable() -> None:
    unknown = Compare("eq", Linear.variable(5))
    assert decided(Choice(unknown, True, True), {}) is True
    assert decided(Choice(unknown, True, False), {}) is None


def test_rounds_in_turn_join_what_is_alike() -> None:
    put = Pipe(1, 1, 1, ((0, "put", 0),))
    assert in_turn([(Wait(3),), (Wait(4),)]) == (Wait(7),)
    assert in_turn([(put,), (put,), (Wait(1), put)]) == (Again(2, (put,)), Wait(1), put)
    assert uses_streams(in_turn([(put,)]))


PARTS: st.SearchStrategy[Part] = st.recursive(
    st.builds(Wait, st.integers(0, 9)) | st.builds(Pipe, *[st.integers(0, 4)] * 3, ops=st.just(())),
    lambda inner: st.builds(Again, st.integers(0, 3), st.lists(inner, max_size=3).map(tuple)),
)


def end(parts: Iterable[Part], now: int) -> int:
    """When parts that begin now have ended, followed round by round."""
    for part in parts:
        if isinstance(part, Wait):
            now += part.cycles
        elif isinstance(part, Again):
            for _ in range(part.count):
                now = end(part.parts, now)
        else:
            now = max([now, *(now + k * part.ii + part.depth for k in range(part.rounds))])
    return now


@given(st.lists(PARTS, max_size=4))
def test_the_time_of_parts_is_when_the_last_round_of_the_last_has_ended(parts: list[Part]) -> None:
    assert cycles_of(parts) == end(parts, 0)


@given(st.lists(st.lists(PARTS, max_size=2).map(tuple), max_size=4))
def test_rounds_in_turn_take_the_time_of_all(rounds: list[tuple[Part, ...]]) -> None:
    assert cycles_of(in_turn(rounds)) == sum(map(cycles_of, rounds))


def costs(program: Any, pid: tuple[int, ...] = ()) -> list[Any]:
    loaded = dse.load_program(program)
    return [task_cost(loaded, c, U280, (), pid) for kernel in loaded.kernels for c in kernel.classes]


def test_two_conditions_of_a_window() -> None:
    window, sink = costs(programs.window(70, 80, 3))
    assert len(list(puts(window.parts))) == 68 * 78
    assert (window.loops[0].names, window.loops[0].ii) == (("y", "x"), 1)
    assert sink.loops[0].rounds == 68 * 78


def test_a_range_of_the_process_id() -> None:
    loaded = dse.load_program(programs.shares())
    task_class = loaded.kernels[0].classes[0]
    assert [task_cost(loaded, task_class, U280, (), (p,)).loops[0].rounds for p in range(4)] == [16] * 4


def test_quotients_remainders_and_smaller_and_larger_bounds() -> None:
    (found,) = costs(programs.every_third(30))
    assert len(list(puts(found.parts))) == 10
    assert [(loop.names[-1], loop.rounds) for loop in found.loops] == [("i", 30), ("n", 17)]


def test_a_triangle_is_not_flattened_and_has_its_rounds() -> None:
    (found,) = costs(programs.triangle(96))
    (inner,) = found.loops
    assert (inner.names, inner.trips, inner.times, inner.rounds) == (("j",), 96, 96, 96 * 97 // 2)
    assert inner.rounds < found.cycles < inner.rounds + 96 * (inner.depth + 5) + 10


def test_what_depends_on_data_is_refused_by_line_and_expression() -> None:
    with pytest.raises(
        StaticControlError, match=r"programs\.py:\d+:\d+: `while x\[0\] > 0:`.*depends on data"
    ) as error:
        costs(programs.until())
    assert "bounds and conditions" in error.value.hint
    with pytest.raises(StaticControlError, match=r"`pipe\.put\(x\[i\]\)`: whether this stream operation happens"):
        costs(programs.chosen())
    with pytest.raises(StaticControlError, match=r"`for j in range\(x\[i\]\):`: the number of rounds"):
        costs(programs.ragged())


@given(st.integers(-3, 9), st.integers(-3, 9), st.integers(1, 4))
def test_a_loop_runs_once_for_each_of_its_values(lower: int, upper: int, step: int) -> None:
    trips = Loop(1, None, Linear((), lower), Linear((), upper), step, ()).trips
    assert trips == Linear((), len(range(lower, upper, step)))


def touched(items: Iterable[Any], variables: dict[int, int]) -> Iterator[int | None]:
    """The elements that accesses of a nest are to, by doing what it says."""
    for item in items:
        if isinstance(item, Planned):
            for number in range(item.trips):
                yield from touched(item.body, {**variables, item.variable: item.first + number * item.step})
        else:
            yield item.access.index[0].value(variables)


@given(st.integers(0, 5), st.integers(1, 6), st.integers(1, 3), st.sampled_from([2, 3, 4]), st.integers(-2, 3))
def test_an_unrolled_loop_touches_what_the_loop_does(
    first: int, rounds: int, step: int, factor: int, stride: int
) -> None:
    index = Linear(((1, stride),) if stride else (), 7)
    load = Op("memref.load", (), (), "", 32, access=Access("a", False, (index,)))
    trips = rounds * factor
    loop = Loop(1, 0, Linear((), first), Linear((), first + trips * step), step, (load,))
    source = SourceLoop("i", "", SourceLocation("p.py", 1, 1))
    found = planned((loop,), Plan({0: LoopPlan(unroll=factor)}, {}, [source]), {}, 0)
    assert list(touched(found, {})) == [7 + stride * value for value in range(first, first + trips * step, step)]
