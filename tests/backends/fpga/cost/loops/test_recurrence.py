"""Values that rounds hand on: what a condition may have stored, and where a sum is kept."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allo_dse.backends.fpga.cost.loops import pipeline as pipelines
from allo_dse.backends.fpga.cost.loops.effects import effects_of
from allo_dse.backends.fpga.cost.loops.loop_round import KnownRounds
from allo_dse.backends.fpga.cost.loops.pipeline import Flat, build
from allo_dse.backends.fpga.cost.memory import Split, Storage
from allo_dse.backends.fpga.cost.plan import Item, Planned
from allo_dse.compiler.ir.affine import Linear
from allo_dse.compiler.ir.nest import Access, Array, Branch, Op
from allo_dse.device.device import FpgaDevice
from tests.support.values import present

from .. import programs
from ..test_cost import cost, directive, loop, partition, pipeline

U280, VU11P = FpgaDevice.load("u280"), FpgaDevice.load("vu11p")
LOOP = 0


@pytest.mark.parametrize("kind", ["variable", "element"])
@pytest.mark.parametrize(("device", "interval"), [(U280, 4), (VU11P, 2)], ids=["u280", "vu11p"])
def test_a_sum_that_is_reset_under_a_condition_keeps_its_recurrence(
    kind: str, device: FpgaDevice, interval: int
) -> None:
    """Public reports have 4 at 300 MHz and 2 at 100 MHz for float sums in registers."""
    found = loop(programs.dot_products(kind), pipeline("k:j"), device=device)
    assert found.ii == interval
    assert found.limit.startswith("recurrence")


def test_a_sum_that_one_of_a_rounds_copies_resets_hands_nothing_on() -> None:
    """With the inner loop unrolled, `j == 0` holds in its first copy for sure: rounds only wait for ports."""
    found = loop(programs.dot_products("variable"), pipeline("k:i"))
    assert found.names == ("i",)
    assert not found.limit.startswith("recurrence")


def test_sums_that_copies_keep_in_memory_go_through_it_every_round() -> None:
    """Reports at 300 MHz have 7: a load, the sum in 4 cycles, a store."""
    found = loop(programs.dot_products("copies"), pipeline("k:j"), partition("k:y", 2))
    assert (found.names, found.ii) == (("i", "j"), 7)


def test_an_element_that_a_loop_keeps_in_a_register_is_loaded_and_stored_around_it() -> None:
    """So the loop around is not flattened: it takes its rows one after the other."""
    kept, flat = (cost(programs.dot_products(kind), pipeline("k:j"), device=VU11P) for kind in ("plain", "variable"))
    assert [found.names for found in kept.loops] == [("j",)]
    assert [found.names for found in flat.loops] == [("i", "j")]
    row = kept.loops[0]
    assert (row.trips, row.ii, row.times) == (64, 2, 64)
    assert kept.cycles > 64 * row.cycles


def test_a_memory_of_sums_is_read_and_written_before_the_next_round_begins() -> None:
    """64 loads and stores take 64 cycles of both ports; a load, a product, a sum and a store come to 6 more."""
    found = loop(programs.row_sums(), device=VU11P)
    assert (found.trips, found.ii, found.limit) == (64, 70, "recurrence of c")
    assert cost(programs.row_sums(), device=VU11P).logic.dsp == 10  # two elements a cycle


def test_rounds_that_do_not_overlap_hold_the_values_of_one_round() -> None:
    """However long values wait for the chain. More than with `y` in registers: its eight elements are loaded, and ports
    keep two operators of each kind busy."""
    old = U280.with_options(tool="2021.1")
    found = cost(programs.chain_in_memory(), pipeline("k:i"), device=old)
    assert found.loops[-1].ii == found.loops[-1].depth > 40
    apart = cost(programs.chain_in_memory(), pipeline("k:i"), partition("k:y", 1), device=old)
    operators = sum(present(old.operator("f32", name)).resources.ff for name in ("mul", "add_fabric"))
    assert found.logic.ff < apart.logic.ff + operators + 8 * 2 * 32
    assert loop(programs.chain_in_memory(), pipeline("k:i")).ii < found.loops[-1].ii


@pytest.mark.parametrize("copies", [1, 2, 8])
def test_what_goes_through_other_arrays_is_handed_on_from_copy_to_copy(copies: int) -> None:
    """A float sum takes 4 cycles, and a register."""
    parts = [partition(f"k:{name}", 0) for name in ("s", "n", "g")]
    schedule = (*parts, pipeline("k:t"), directive("unroll", "k:t", factor=copies))
    found = next(one for one in cost(programs.handed_on(), *schedule).loops if one.names == ("t",))
    assert (found.trips, found.ii, found.limit) == (8 // copies, 5 * copies, "recurrence of s")
    assert found.depth >= 4 * copies


@pytest.mark.parametrize(("kind", "sums", "array"), [("next", 1, "n"), ("other array", 1, "s"), ("histogram", 4, "s")])
def test_an_unknown_index_may_be_that_of_any_element(kind: str, sums: int, array: str) -> None:
    """Each sum may be of what the one before has stored, in this round or the last one: 4 cycles, and a register."""
    parts = [partition(f"k:{name}", 0) for name in ("h", "s", "n", "x")]
    found = next(one for one in cost(programs.computed_index(kind), *parts, pipeline("k:t")).loops if "t" in one.names)
    assert found.limit == f"recurrence of {array}"
    assert found.ii >= 4 * sums
    assert found.depth >= 4 * sums


@pytest.mark.parametrize("copies", [2, 4, 8, 16])
@pytest.mark.parametrize("distance", [1, 2, 3, 5])
def test_copies_of_an_unrolled_recurrence_wait_for_each_other(distance: int, copies: int) -> None:
    """Each sum takes 4 cycles, and a register; copies that are as far apart as the sums are one after the other."""
    whole = [partition("k:x", 1, kind="complete"), directive("unroll", "k:i", factor=copies)]
    found = loop(programs.recurrence(distance), pipeline("k:i"), *whole)
    assert found.limit == "recurrence of x"
    assert found.depth >= found.ii
    if copies > distance:
        assert found.ii == 5 * math.ceil(copies / distance) - 1
    else:
        assert found.ii == math.ceil(4 / (distance // copies))


def test_copies_of_an_unrolled_loop_reach_elements_of_other_rounds() -> None:
    """What a copy adds to, the one after it has added to in the round before."""
    parts = [partition(f"k:{name}", 1, kind="complete") for name in "xwy"]
    found = loop(programs.scattered_sums(), pipeline("k:t"), *parts)
    assert (found.names, found.ii, found.limit) == (("t",), 4, "recurrence of y")


def test_copies_with_elements_of_their_own_hand_nothing_on() -> None:
    copies = [directive("unroll", "k:j", factor=4), partition("k:z", 1, kind="complete"), partition("k:x", 2, 4)]
    assert loop(programs.rows(), pipeline("k:j"), *copies).ii == 1


def element(array: str, write: bool, offset: int, value: int) -> Op:
    access = Access(array, write, (Linear((), offset),))
    return Op("store" if write else "load", (value,) if write else (), () if write else (value,), "f32", 32, (), access)


ARRAYS = st.sampled_from("ab")
OPERANDS = st.lists(st.tuples(ARRAYS, st.integers(0, 1)), max_size=2)


@st.composite
def bodies(draw: st.DrawFn) -> list[tuple[list[Item], bool]]:
    """Steps that copy or add elements of two arrays; and whether each is under a condition."""
    steps: list[tuple[list[Item], bool]] = []
    numbers = iter(range(100, 1000))
    for _ in range(draw(st.integers(1, 5))):
        target, offset = draw(ARRAYS), draw(st.integers(0, 1))
        operands = draw(OPERANDS)
        ops: list[Item] = []
        values = []
        for array, at in operands:
            values.append(next(numbers))
            ops.append(element(array, False, at, values[-1]))
        result = next(numbers)
        if len(values) == 2:
            ops.append(Op("arith.addf", tuple(values), (result,), "f32", 32, (32, 32)))
        else:
            result = values[0] if values else result
        ops.append(element(target, True, offset, result))
        steps.append((ops, draw(st.booleans())))
    return steps


def pipelined(items: list[Item], storages: dict[str, Storage]) -> Any:
    body = tuple(items)
    loops = (Planned(LOOP, "i", 64, 0, 1, "pipeline", 1, body),)
    return build(Flat(loops, KnownRounds(U280).of((LOOP,), (), body, ())), storages)


def storages_of(place: str) -> dict[str, Storage]:
    split = Split("cyclic", 2) if place == "register" else None
    return {name: Storage(Array(name, (2,), 32), (split,)) for name in "ab"}


@settings(max_examples=200, deadline=None, derandomize=True)
@given(bodies(), st.sampled_from(["register", "memory"]))
def test_a_condition_never_lowers_the_interval(steps: list[tuple[list[Item], bool]], place: str) -> None:
    """What may be stored leaves more values to come from earlier rounds, and needs no fewer ports."""
    certain = [item for ops, _ in steps for item in ops]
    maybe: list[Item] = []
    for number, (ops, under) in enumerate(steps):
        stores, others = ([op for op in ops if (op.name == "store") is is_store] for is_store in (True, False))  # type: ignore[union-attr]
        maybe += others
        maybe += [Branch(number, None, (tuple(stores), ()), (), ((), ()), 0)] if under else stores  # type: ignore[arg-type]
    storages = storages_of(place)
    assert pipelined(maybe, storages).ii >= pipelined(certain, storages).ii
    assert len(effects_of(maybe).uses) >= len(effects_of(certain).uses)


def test_both_sides_of_a_condition_together_are_a_certain_store() -> None:
    sides = tuple((element("a", True, 0, value),) for value in (1, 2))
    both = Branch(9, None, sides, (), ((), ()), 0)  # type: ignore[arg-type]
    load = element("a", False, 0, 3)
    assert effects_of([both, load]).exposed == ()
    assert [op for op, _ in effects_of([Branch(9, None, (sides[0], ()), (), ((), ()), 0), load]).exposed] == [load]


def test_a_store_that_a_later_one_replaces_needs_no_port() -> None:
    first, second = element("a", True, 0, 1), element("a", True, 0, 2)
    maybe = Branch(9, None, ((first,), ()), (), ((), ()), 0)
    assert [op for op, _ in effects_of([maybe, second]).uses] == [second]
    assert [op for op, _ in effects_of([first, Branch(9, None, ((second,), ()), (), ((), ()), 0)]).uses] == [
        first,
        second,
    ]
    elsewhere = Op("load", (), (7,), "f32", 32, (), Access("a", False, (None,)))
    assert len(effects_of([first, elsewhere, second]).uses) == 3


def test_equal_stores_of_two_copies_are_two_stores() -> None:
    copies = [Branch(9, None, ((element("a", True, 0, 1),), ()), (), ((), ()), 0) for _ in range(2)]
    last = element("a", True, 0, 2)
    assert [op for op, _ in effects_of([*copies, last]).uses] == [last]


def put(value: int, stream: int = 0) -> Op:
    return Op("df.put", (value,), (), "", 32, stream=stream, op=value)


def under(condition: int, then: tuple[Op, ...], otherwise: tuple[Op, ...] = ()) -> Branch:
    return Branch(condition, None, (then, otherwise), (), ((), ()), 0)


@pytest.mark.parametrize(
    ("items", "interval"),
    [
        ([put(1), put(2)], 2),
        ([under(9, (put(1),), (put(2),))], 1),
        ([under(9, (put(1),)), under(9, (), (put(2),))], 1),
        ([under(8, (put(1),)), under(9, (), (put(2),))], 2),
        ([under(9, (put(1), put(2)), (put(3),)), put(4)], 3),
        ([put(1), put(2, 1)], 1),
    ],
    ids=["both", "either", "one condition twice", "two conditions", "sides of different length", "two streams"],
)
def test_tokens_that_a_round_may_move_through_one_stream(items: list[Item], interval: int) -> None:
    assert pipelined(items, {}).ii == interval


def test_a_token_on_either_side_of_a_condition_leaves_in_the_same_cycle() -> None:
    """Only one of them moves in a round; what both sides come before has to wait for the longer one."""
    stages = [e.stage for e in pipelined([under(9, (put(1), put(2)), (put(3),)), put(4)], {}).events]
    assert stages == [0, 1, 0, 2]


@pytest.mark.parametrize(
    ("kind", "interval"), [("swapped", 2), ("swapped twice", 4), ("handed on", 1), ("elements", 1)]
)
def test_values_that_go_round_over_several_variables_take_all_their_rounds(kind: str, interval: int) -> None:
    """Of two variables that hand their values on to each other a sum takes 4 cycles; they go round in two rounds."""
    found = loop(programs.swapped(kind), pipeline("k:i"), partition("k:s", 1))
    assert found.ii == interval


def test_what_stands_around_an_inner_loop_is_on_the_way_of_what_rounds_hand_on() -> None:
    """A product in the first round of each row, and a sum."""
    around, inside = (loop(programs.scaled_between_rows(kind)) for kind in (False, True))
    product, total = (present(U280.operator("f32", name)).latency for name in ("mul", "add_fabric"))
    assert around.trips == inside.trips == 8 * 128
    assert product + total <= around.ii == inside.ii


@settings(max_examples=50)
@given(st.data(), st.lists(st.integers(1, 4), min_size=2, max_size=4))
def test_the_interval_of_cycles_over_arrays_is_the_least(data: st.DataObject, rounds: list[int]) -> None:
    """It may be thousands, as of stencils whose loops are unrolled: it is not counted up to."""
    names = "abcd"[: len(rounds)]
    ways = data.draw(st.dictionaries(st.tuples(st.sampled_from(names), st.sampled_from(names)), st.integers(1, 60)))
    distances = dict(zip(names, rounds, strict=True))
    counted = 1
    while pipelines._late(ways, distances, set(names), counted):
        counted += 1
    assert pipelines.least_interval(ways, distances)[0] == counted


FORMS = st.one_of(
    st.none(),
    st.builds(
        lambda terms, constant: Linear(tuple((v, f) for v, f in enumerate(terms) if f), constant),
        st.tuples(*3 * [st.integers(-1, 2)]),
        st.integers(-3, 3),
    ),
)


@settings(max_examples=60)
@given(st.lists(st.tuples(FORMS, FORMS, st.booleans()), min_size=2, max_size=12))
def test_rounds_between_uses_follow_from_how_far_their_constants_are_apart(uses: list[tuple[Any, Any, bool]]) -> None:
    """Variables 0 and 1 are loops, the latter pipelined; 2 is unrolled around some uses."""
    made = [
        (Op("load", (), (n,), "f32", 32, (), Access("a", False, (one, other))), {2: range(3)} if copied else {})
        for n, (one, other, copied) in enumerate(uses)
    ]
    loops = tuple(Planned(v, "ij"[v], trips, 0, 1, "pipeline", 1, ()) for v, trips in enumerate((4, 6)))
    stores, loads = made[::2], made[1::2]
    known = [[pipelines._between(store, load, loops) or 0 for load in loads] for store in stores]
    assert pipelines._distances(stores, loads, loops).tolist() == known
