"""Indices: what loops prove right costs nothing, what they prove wrong is refused, the rest is checked as it runs."""

# Programs are written as users write them:

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allo_dse.lang

allo_dse.lang.install()

import allo
import allo.dataflow as df
from allo.ir.types import Stream, int32

from allo_dse.common.errors import ProgramError
from allo_dse.compiler import compile_region
from allo_dse.compiler.model import index_forms
from allo_dse.compiler.model.index_forms import Form

N = 8

Row = tuple[int, ...]
"""The factors of an affine function of outer variables, and its constant at the end."""


@st.composite
def nests(draw: st.DrawFn) -> tuple[list[tuple[Row, Row, int]], Row]:
    """Loops as (start, stop, step), outermost first, bounded by functions of the loops around them; an index."""
    depth = draw(st.integers(1, 3))

    def row(size: int) -> Row:
        return (*(draw(st.integers(-1, 1)) for _ in range(size)), draw(st.integers(-2, 5)))

    loops = [(row(at), row(at), draw(st.sampled_from([1, 1, 2, 3, -1, -2]))) for at in range(depth)]
    return loops, row(depth)


def iterations(loops: Sequence[tuple[Row, Row, int]], outer: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    if not loops:
        yield outer
        return
    start, stop, step = loops[0]
    for value in range(at(start, outer), at(stop, outer), step):
        yield from iterations(loops[1:], (*outer, value))


def at(row: Row, values: tuple[int, ...]) -> int:
    return sum(factor * value for factor, value in zip(row, values, strict=False)) + row[-1]


def form(row: Row, variables: Sequence[Form]) -> Form:
    result = Form(row[-1])
    for factor, variable in zip(row, variables, strict=False):
        result = result.plus(variable, factor)
    return result


@settings(max_examples=300, deadline=None)
@given(nests())
def test_bounds_hold_and_the_worst_iteration_is_one(nest: tuple[list[tuple[Row, Row, int]], Row]) -> None:
    loops, row = nest
    variables: list[Form] = []
    for position, (start, stop, step) in enumerate(loops):
        variables.append(index_forms.variable(f"i{position}", form(start, variables), form(stop, variables), step))
    index = form(row, variables)
    points = list(iterations(loops))
    values = {at(row, point) for point in points}
    assert index.low is not None
    assert index.high is not None
    assert all(index.low <= value <= index.high for value in values)
    for largest in (False, True):
        found = index_forms.worst(index, (0,), largest=largest)
        if found is not None:
            value, named = found
            assert any(
                at(row, p) == value and all(p[int(name[1:])] == v for name, v in named.items()) for p in points
            ) or not _reached(loops, named)


def _reached(loops: Sequence[tuple[Row, Row, int]], named: dict[str, int]) -> bool:
    """Whether the loops that the index does not follow run at all."""
    return all(f"i{position}" in named for position in range(len(loops)))


def test_numbers_may_differ_between_tasks() -> None:
    first = np.arange(4).reshape(4, 1) * 8
    inside = index_forms.variable("m", Form(first), Form(first + 8), 1).plus(Form(first), -1)
    assert np.all(np.asarray(inside.low) == 0)
    assert np.all(np.asarray(inside.high) == 7)
    assert index_forms.worst(inside, (2, 0), largest=True) == (7, {"m": 23})


def checks(program: Callable[..., Any]) -> int:
    """How many indices of a program are checked when it runs."""
    return sum(len(one.index_checks) for kernel in compile_region(program).kernels for one in kernel.classes)


def test_triangular_loops_cost_nothing() -> None:
    def product(a: int32[N], b: int32[N], c: int32[2 * N]):
        for n in range(2 * N - 1):
            for q in range(n + 1):
                if n - q < N and q < N:
                    c[n] += a[n - q] * b[q]

    def durbin(r: int32[N], y: int32[N]):
        for k in range(1, N):
            for i in range(k):
                y[i] += r[k - i - 1]

    def triangle(a: int32[N, N], b: int32[N, N]):
        for j in range(N):
            for i in range(j + 1):
                b[i, j - i] = a[i, j]

    def backwards(a: int32[N]):
        for i in range(N - 2, -1, -1):
            for j in range(i + 1, N):
                a[j - i - 1] += a[j]

    def tiled(a: int32[N]):
        for t in range(0, N, 3):
            for i in range(t, min(t + 3, N)):
                a[i] += a[max(i - 1, 0)]

    def guarded(a: int32[N], b: int32[N]):
        for i in range(N):
            b[i] = a[i - 1] if i != 0 else a[0]
            if i == N - 1 or a[i + 1] > 0:
                b[i] += 1

    assert [checks(one) for one in (product, durbin, triangle, backwards, tiled, guarded)] == [0] * 6


def test_a_task_that_works_on_its_part_costs_nothing() -> None:
    @df.region()
    def top(A: int32[N], B: int32[N]):
        @df.kernel(mapping=[2], args=[A, B])
        def core(a: int32[N], b: int32[N]):
            p = df.get_pid()
            part: int32[N // 2]
            for m in range(p * (N // 2), (p + 1) * (N // 2)):
                part[m - p * (N // 2)] = a[m]
            for m in range(N // 2):
                b[p * (N // 2) + m] = part[m]

    assert checks(top) == 0


def test_what_an_iteration_does_wrong_is_refused_with_it() -> None:
    def wrong(a: int32[N]):
        for n in range(N):
            for q in range(n):
                a[n - q - 2] = 0

    with pytest.raises(ProgramError, match="index -1 is out of range for dimension 0 of size 8") as caught:
        compile_region(wrong)
    assert caught.value.hint == "where n = 7 and q = 6"


def test_loops_that_do_not_run_make_nothing_wrong() -> None:
    def never(a: int32[4], n: int32):
        for i in range(5):
            for _j in range(2 * i, 4):  # only for i = 0 and 1
                a[3 * i] = 1
        for _t in range(n):
            for i in range(8):
                a[i] = 0

    assert checks(never) == 2


def test_what_may_be_right_is_checked_as_it_runs() -> None:
    def wide(a: int32[N], b: int32[N]):
        for i in range(N):
            for j in range(i * i):  # i * i is only known to be within 0 and 49
                b[(i + j) % N] += a[j // 7]

    def halves(a: int32[N]):
        for i, j in allo.grid(N, N):
            a[i // 2 * 2 - j // 2 * 2 + i % 2 + j] += 1  # within -7 and 15 as far as can be seen

    assert checks(wide) == 0
    assert checks(halves) == 1


def test_streams_know_their_indices_too() -> None:
    @df.region()
    def top(A: int32[4], B: int32[4]):
        pipes: Stream[int32, 4][4]

        @df.kernel(mapping=[1], args=[A])
        def send(a: int32[4]):
            for i in range(4):
                for j in range(i, i + 1):
                    pipes[3 - j].put(a[i])

        @df.kernel(mapping=[1], args=[B])
        def receive(b: int32[4]):
            for i in range(4):
                b[i] = pipes[i].get()

    assert checks(top) == 0


def test_conditions_say_what_is_not_negative() -> None:
    i = index_forms.variable("i", Form(0), Form(N), 1)
    j = index_forms.variable("j", Form(0), Form(N), 1)
    for op, (a, b) in itertools.product(["<", "<=", ">", ">=", "==", "!="], [(i, j), (i, Form(0)), (Form(0), i)]):
        for x, y in itertools.product(range(N), range(N)):
            values = {next(iter(i.terms)): x, next(iter(j.terms)): y}
            left, right = (sum(int(f) * values[s] for s, f in one.terms.items()) + int(one.constant) for one in (a, b))
            if eval(f"{left} {op} {right}"):
                for fact in index_forms.facts(op, a, b):
                    assert sum(int(f) * values[s] for s, f in fact.terms.items()) + int(fact.constant) >= 0
