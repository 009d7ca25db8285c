"""Unrolled loops take what their copies take when they are written by hand."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allo_dse.backends.fpga.cost.loops.control import address_logic
from allo_dse.backends.fpga.cost.loops.events import Pipe
from allo_dse.backends.fpga.cost.loops.loop_round import KnownRounds
from allo_dse.backends.fpga.cost.loops.pipeline import Flat, build, carried
from allo_dse.backends.fpga.cost.memory import Memories, Split, Storage
from allo_dse.backends.fpga.cost.plan import Item, Planned, substituted
from allo_dse.common.records import replace
from allo_dse.compiler.ir.affine import Compare, Linear, decided, derive
from allo_dse.compiler.ir.nest import Access, Array, Branch, Op
from allo_dse.device.device import FpgaDevice
from tests.support.values import present

from .. import programs
from ..test_cost import cost, directive, loop, partition, pipeline

U280 = FpgaDevice.load("u280")
ROUND = 0
WORDS = 64


def index(draw: st.DrawFn, variables: list[int]) -> Linear:
    """Of a copy, of the round, of both, computed, or a number."""
    variable = Linear.variable(draw(st.sampled_from(variables)))
    moved = variable.scaled(draw(st.integers(0, 3))) + Linear((), draw(st.integers(0, 5)))
    kind = draw(st.sampled_from(["plain", "plain", "round", "quotient", "remainder"]))
    if kind == "round":
        return moved + Linear(((ROUND, draw(st.integers(1, 4))),))
    if kind == "plain":
        return moved
    quotient = derive("arith.floordivsi", moved, Linear((), 2))
    return quotient if kind == "quotient" else moved + quotient.scaled(-2)


@st.composite
def rounds(draw: st.DrawFn) -> tuple[Item, ...]:
    """Up to two unrolled loops inside each other and beside each other, with sums of elements and puts, some of them in
    some copies only."""
    numbers = itertools.count(100)

    def block(variables: list[int], depth: int) -> tuple[Item, ...]:
        items: list[Item] = []
        for _ in range(draw(st.integers(1, 2))):
            if depth and draw(st.booleans()):
                own = next(numbers)
                first, trips = draw(st.integers(0, 1)), draw(st.integers(1, 5))
                items.append(Planned(own, "", trips, first, 1, "unroll", 1, block([*variables, own], depth - 1)))
            elif len(variables) > 1 and draw(st.integers(0, 3)) == 0:
                copy = Linear.variable(draw(st.sampled_from(variables[1:]))) + Linear((), -draw(st.integers(0, 3)))
                test = Compare(draw(st.sampled_from(["eq", "sge"])), copy)
                sides = tuple(step(variables)), tuple(step(variables)) if draw(st.booleans()) else ()
                items.append(Branch(next(numbers), test, sides, (), ((), ()), 0))
            else:
                items += step(variables)
        return tuple(items)

    def element(variables: list[int], write: bool, value: int) -> Op:
        access = Access(draw(st.sampled_from("ab")), write, (index(draw, variables),))
        return Op(
            "store" if write else "load", (value,) if write else (), () if write else (value,), "", 32, (), access
        )

    def step(variables: list[int]) -> list[Op]:
        one, other, total = (next(numbers) for _ in range(3))
        loads = [element(variables, False, value) for value in (one, other)]
        if draw(st.integers(0, 3)) == 0:
            return [loads[0], Op("df.put", (one,), (), "", 32, stream=0)]
        result = element(variables, True, total)
        name, element_type = draw(st.sampled_from([("arith.addf", "f32"), ("arith.addi", "i32")]))
        return [*loads, Op(name, (one, other), (total,), element_type, 32, (32, 32)), result]

    return block([ROUND], 2)


def by_hand(items: Iterable[Item], numbers: Iterator[int]) -> Iterator[Item]:
    """The operations of all copies, one after the other, with values of their own."""
    known: dict[int, int] = {}
    for item in items:
        if isinstance(item, Planned):
            for value in range(item.first, item.first + item.trips):
                yield from by_hand((substituted(i, item.variable, Linear((), value)) for i in item.body), numbers)
        elif isinstance(item, Branch):
            yield from by_hand(item.sides[not decided(item.test, {})], numbers)  # type: ignore[arg-type]
        else:
            known.update((value, next(numbers)) for value in item.outputs)
            yield replace(
                item, inputs=tuple(known[v] for v in item.inputs), outputs=tuple(known[v] for v in item.outputs)
            )


def timed(items: Iterable[Item], banks: int) -> Any:
    """Interval, depth, operators, registers, multiplexers and addresses, and when what happens to streams."""
    body = tuple(items)
    flat = Flat((Planned(ROUND, "i", 8, 0, 1, "pipeline", 1, body),), KnownRounds(U280).of((ROUND,), (), body, ()))
    split = Split("cyclic", banks) if banks > 1 else None
    storages = {name: Storage(Array(name, (WORDS,), 32), (split,)) for name in "ab"}
    built = build(flat, storages)
    units = sorted((unit.kind, copies) for unit, copies in built.units if copies)
    addresses = address_logic(U280.hls, flat.round.accesses, storages)
    events = [(event.stage, event.kind) for event in built.events]
    return built.ii, built.depth, units, built.registers, built.muxes, addresses, events


@settings(max_examples=60, deadline=None, derandomize=True)
@given(rounds(), st.sampled_from([1, 4, WORDS]))
def test_copies_take_what_they_take_when_written_by_hand(items: tuple[Item, ...], banks: int) -> None:
    assert timed(items, banks) == timed(by_hand(items, itertools.count(10_000)), banks)


def executed(items: Iterable[Item]) -> dict[str, int]:
    """By array the fewest rounds from a store to the load that finds it, by doing what eight rounds do."""
    found: dict[str, int] = {}
    stored: dict[tuple[str, int | None], int] = {}
    for number in range(8):
        for op in by_hand(items, itertools.count()):
            if isinstance(op, Op) and op.access is not None:
                element = op.access.array, present(op.access.index[0]).value({ROUND: number})
                if op.access.write:
                    stored[element] = number
                elif (rounds_ago := number - stored.get(element, number)) > 0:
                    found[element[0]] = min(found.get(element[0], rounds_ago), rounds_ago)
    return found


@settings(max_examples=60, deadline=None, derandomize=True)
@given(rounds())
def test_no_round_uses_what_another_left_sooner_than_is_found(items: tuple[Item, ...]) -> None:
    flat = Planned(ROUND, "i", 8, 0, 1, "pipeline", 1, items)
    found = carried((flat,), KnownRounds(U280).of((ROUND,), (), items, ()).effects, Memories(frozenset(), ()))
    distances = {one.array: one.distance for one in found}
    assert all(distances.get(array, 9) <= rounds_ago for array, rounds_ago in executed(items).items())


@pytest.mark.parametrize("factor", [0, 8])
@pytest.mark.parametrize(("index", "interval"), [("half", 1), ("three of eight", 1), ("shifted", 1), ("same bank", 2)])
def test_computed_indices_of_copies_are_numbers(index: str, interval: int, factor: int) -> None:
    """Eight elements a round of four banks with two ports; or four of one bank."""
    unrolled = [directive("unroll", "k:i", factor=8)] if factor else []
    banks = [partition("k:x", 1, 4), partition("k:y", 1, kind="complete")]
    found = loop(programs.computed_banks(index, factor == 0), pipeline("k:i"), *unrolled, *banks)
    assert (found.trips, found.ii) == (8, interval)


def test_each_copy_of_a_load_whose_index_is_data_needs_a_port() -> None:
    found = loop(programs.computed_banks("data", True), *(partition(f"k:{name}", 1) for name in "yh"), pipeline("k:i"))
    assert (found.ii, found.limit) == (4, "ports of x")


@pytest.mark.parametrize(("kind", "sums"), [("chain", 8), ("later", 4), ("pairs", 2)])
def test_a_put_after_copies_waits_for_what_it_sends(kind: str, sums: int) -> None:
    """Eight float sums of which each adds to the one before, the last four of them, or two that add to one element."""
    found = cost(programs.put_after_copies(kind), pipeline("k:i"), *(partition(f"k:{name}", 0) for name in "xs"))
    (pipe,) = (part for part in found.parts if isinstance(part, Pipe))
    addition = present(U280.operator("f32", "add")).latency + 1  # and a register
    assert [stage for stage, _, _ in pipe.ops] == [addition * sums]
    assert (pipe.ii, pipe.depth) == (1, pipe.ops[0][0] + 1)


@pytest.mark.parametrize("spelling", ["loop", "statements", "expression"])
def test_sums_of_integers_are_trees_however_they_are_written(spelling: str) -> None:
    """Four levels of adders for nine operands, of which two fit a cycle; what the round before leaves comes last."""
    found = loop(programs.added_up(spelling), pipeline("k:i"), partition("k:x", 2))
    assert (found.ii, found.depth) == (1, 4)


def test_what_the_first_copy_does_alone_is_built_once() -> None:
    banks = [partition("k:x", 2), partition("k:z", 2)]
    copies, by_hand = (cost(programs.first_of_copies(hand), pipeline("k:i"), *banks) for hand in (False, True))
    assert (copies.loops[-1].depth, copies.logic) == (by_hand.loops[-1].depth, by_hand.logic)


def test_what_stands_behind_an_inner_loop_waits_for_the_copy_that_it_uses() -> None:
    """Sums of floats in eight copies, of which the sixth is sent when the inner loop has ended."""
    copies, by_hand = (cost(programs.sent_behind(hand), pipeline("k:j"), partition("k:s", 1)) for hand in (False, True))
    assert copies.loops[-1].depth == by_hand.loops[-1].depth
    assert copies.parts == by_hand.parts


def test_copies_use_an_element_that_is_the_same_in_all_of_them_once() -> None:
    """Four copies of a sum over elements that overlap: 7 loads, and `x[i]` for all; no store but the last one."""
    copies, by_hand = (cost(programs.overlapping(hand), pipeline("k:i"), partition("k:h", 1)) for hand in (False, True))
    assert (copies.loops, copies.logic) == (by_hand.loops, by_hand.logic)


def test_quotients_of_copy_and_round_are_those_of_each_copy() -> None:
    """Of `(3 * i + u + 1) // 2` the first and the last of three copies are neighbours; nobody knows of the other."""
    banks = [partition(f"k:{name}", 1, 4) for name in "xy"]
    found = loop(programs.quotient_of_both(), pipeline("k:i"), directive("unroll", "k:i", factor=3), *banks)
    assert (found.trips, found.ii, found.depth) == (16, 1, 2)


def test_copies_that_a_condition_leaves_out_are_not_there() -> None:
    """Too many to write each of them out."""
    whole, part = (cost(programs.later_copies(kind), pipeline("k:i")) for kind in (True, False))
    assert (whole.loops, whole.logic) == (part.loops, part.logic)
    assert whole.loops[-1].ii >= 500 * present(U280.operator("f32", "add_fabric")).latency
