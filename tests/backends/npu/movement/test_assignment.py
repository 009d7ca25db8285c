"""Sharing flows out to columns: the result keeps the limits, and is found whenever there is one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allo_dse.backends.npu.movement import assignment
from allo_dse.backends.npu.movement.assignment import ColumnLimits, Share, assign_columns

NPU = ColumnLimits(columns=4, shim_in=2, shim_out=2, memory_in=6, memory_out=6, joins=4)
COUNTS = st.lists(st.integers(1, 20), max_size=3).map(tuple)


def loads(shares: tuple[Share, ...], columns: int) -> list[tuple[int, int, int, int]]:
    """Per column: shim channels out and in, memory-tile channels in and out."""
    result = []
    for column in range(columns):
        ins = [s.flows for s in shares if s.column == column and s.direction == "in"]
        outs = [s.flows for s in shares if s.column == column and s.direction == "out"]
        result.append((len(ins), len(outs), len(ins) + sum(outs), sum(ins) + len(outs)))
    return result


def assert_valid(shares: tuple[Share, ...], ins: tuple[int, ...], outs: tuple[int, ...], limits: ColumnLimits) -> None:
    for direction, counts in (("in", ins), ("out", outs)):
        for family, count in enumerate(counts):
            assert sum(s.flows for s in shares if (s.direction, s.family) == (direction, family)) == count
    most = (limits.shim_out, limits.shim_in, limits.memory_in, limits.memory_out)
    for column, load in enumerate(loads(shares, limits.columns)):
        assert all(used <= limit for used, limit in zip(load, most, strict=True))
        assert sum(s.flows for s in shares if s.column == column and s.direction == "out") <= limits.joins


def test_the_hand_written_gemm_fills_the_shims_and_memory_tiles() -> None:
    shares = assign_columns((4, 4), (16,), NPU)
    assert shares is not None
    assert loads(shares, 4) == [(2, 1, 6, 3)] * 4


@given(COUNTS, COUNTS, st.integers(1, 8), st.integers(2, 6))
def test_assignments_keep_the_limits(ins: tuple[int, ...], outs: tuple[int, ...], columns: int, joins: int) -> None:
    limits = ColumnLimits(columns, 2, 2, 6, 6, joins)
    shares = assign_columns(ins, outs, limits)
    if shares is not None:
        assert_valid(shares, ins, outs, limits)


@st.composite
def packings(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], int, int]:
    """Counts that can be assigned, because they are sums of columns within the limits."""
    columns, joins = draw(st.integers(1, 4)), draw(st.integers(2, 6))
    ins, outs = [0, 0, 0], [0, 0, 0]
    for _ in range(columns):
        in_families = draw(st.lists(st.integers(0, 2), max_size=2, unique=True))
        out_families = draw(st.lists(st.integers(0, 2), max_size=2, unique=True))
        for counts, families, room in (
            (ins, in_families, 6 - len(out_families)),
            (outs, out_families, min(joins, 6 - len(in_families))),
        ):
            for family in families:
                amount = draw(st.integers(0, max(0, room)))
                counts[family] += amount
                room -= amount
    return tuple(n for n in ins if n), tuple(n for n in outs if n), columns, joins


@settings(max_examples=300)
@given(packings())
def test_an_assignment_is_found_whenever_there_is_one(
    packing: tuple[tuple[int, ...], tuple[int, ...], int, int],
) -> None:
    ins, outs, columns, joins = packing
    limits = ColumnLimits(columns, 2, 2, 6, 6, joins)
    shares = assign_columns(ins, outs, limits)
    assert shares is not None
    assert_valid(shares, ins, outs, limits)


def test_the_search_finds_what_balancing_misses() -> None:
    ins, outs, limits = (9, 1), (5,), ColumnLimits(2, 2, 2, 6, 6)
    assert assignment._balanced(ins, outs, limits) is None
    shares = assign_columns(ins, outs, limits)
    assert shares is not None
    assert_valid(shares, ins, outs, limits)


@pytest.mark.parametrize(
    ("ins", "outs", "limits"),
    [
        ((1,) * 9, (), NPU),
        ((), (1,) * 9, NPU),
        ((24,), (1,), NPU),
        ((1,), (24,), NPU),
        ((6, 1), (), ColumnLimits(1, 2, 2, 6, 6)),
    ],
)
def test_no_assignment(ins: tuple[int, ...], outs: tuple[int, ...], limits: ColumnLimits) -> None:
    assert assign_columns(ins, outs, limits) is None


def test_inputs_get_a_channel_each_while_there_are_enough() -> None:
    shares = assign_columns((8,), (), NPU)
    assert shares is not None
    assert [s.flows for s in shares] == [1] * 8
    shares = assign_columns((8, 4), (), NPU)
    assert shares is not None
    assert [(s.family, s.flows) for s in shares] == [(0, 2)] * 4 + [(1, 1)] * 4


def test_outputs_are_spread_over_the_columns() -> None:
    shares = assign_columns((), (4,), NPU)
    assert shares is not None
    assert [(s.column, s.flows) for s in shares] == [(0, 1), (1, 1), (2, 1), (3, 1)]
