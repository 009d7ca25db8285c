"""Regions that tasks call in loops, under conditions of data, and with arrays of their own."""

# Programs are written as users write them:
# ruff: noqa: B007, F841

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allo_dse.lang

allo_dse.lang.install()

import allo
import allo.dataflow as df
from allo.ir.types import Stateful, Stream, float32, int32, stateful

import allo_dse as dse
from allo_dse.common.errors import ProgramError
from allo_dse.compiler import compile_region
from allo_dse.simulator.deadlock import DeadlockError

from .execute import simulate

N = 4


@df.region()
def scale(X: int32[N], Y: int32[N]):
    """Y = 3 X, through two tasks."""
    pipe: Stream[int32, 2]

    @df.kernel(mapping=[1], args=[X])
    def send(x: int32[N]):
        for i in range(N):
            pipe.put(x[i] * 3)

    @df.kernel(mapping=[1], args=[Y])
    def receive(y: int32[N]):
        for i in range(N):
            y[i] = pipe.get()


@df.region()
def bump(X: int32[N]):
    @df.kernel(mapping=[2, 2], args=[X])
    def one(x: int32[N]):
        i, j = df.get_pid()
        if x[2 * i + j] > 100:
            return
        x[2 * i + j] += 1


def interpreter() -> Any:
    """A program of instructions: 1 scales the accumulator, 2 bumps it, 0 does nothing."""

    @df.region()
    def top(Code: int32[6], A: int32[N]):
        words: Stream[int32, 2]

        @df.kernel(mapping=[1], args=[Code])
        def fetch(code: int32[6]):
            for i in range(6):
                words.put(code[i])

        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[N]):
            x: int32[N] = 0
            y: int32[N]
            x[:] = a
            for pc in range(6):
                word: int32 = words.get()
                if word == 1:
                    scale(x, y)
                    x[:] = y
                elif word == 2:
                    bump(x)
            a[:] = x

    return top


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=6, max_size=6), st.lists(st.integers(-5, 120), min_size=N, max_size=N))
def test_calls_that_data_decides_compute_what_python_would(code: list[int], start: list[int]) -> None:
    a, expected = np.array(start, np.int32), list(start)
    simulate(compile_region(interpreter), np.array(code, np.int32), a)
    for word in code:
        if word == 1:
            expected = [3 * v for v in expected]
        elif word == 2:
            expected = [v if v > 100 else v + 1 for v in expected]
    assert a.tolist() == expected


def test_calls_cost_what_the_region_costs() -> None:
    program = dse.load_program(interpreter)
    cycles = [
        dse.simulate(program, np.array(code, np.int32), np.zeros(N, np.int32)).cycles
        for code in ([0] * 6, [1] + [0] * 5, [1] * 6)
    ]
    once = cycles[1] - cycles[0]
    assert once > 0
    assert cycles[2] - cycles[0] >= 5 * once


def test_two_regions_on_one_array_run_one_after_the_other() -> None:
    @df.region()
    def top(A: int32[N], B: int32[N]):
        @df.kernel(mapping=[1], args=[A, B])
        def core(a: int32[N], b: int32[N]):
            scale(a, b)
            bump(b)
            scale(b, a)

    a, b = np.arange(N, dtype=np.int32), np.zeros(N, np.int32)
    simulate(compile_region(top), a, b)
    assert b.tolist() == [3 * i + 1 for i in range(N)]
    assert a.tolist() == [9 * i + 3 for i in range(N)]


def test_every_task_has_arrays_of_its_own() -> None:
    @df.region()
    def top(A: int32[2, 3, N]):
        @df.kernel(mapping=[2, 3], args=[A])
        def core(a: int32[2, 3, N]):
            i, j = df.get_pid()
            x: int32[N]
            y: int32[N]
            for k in range(N):
                x[k] = 10 * i + j + k
            scale(x, y)
            a[i, j, :] = y

    a = np.zeros((2, 3, N), np.int32)
    simulate(compile_region(top), a)
    i, j, k = np.indices((2, 3, N))
    np.testing.assert_array_equal(a, 3 * (10 * i + j + k))


@pytest.mark.parametrize("kind", [Stateful, stateful])
def test_arrays_that_live_from_call_to_call_can_be_shared(kind: Any) -> None:
    @df.region()
    def top(A: int32[N]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[N]):
            count: int32[N] @ kind = 7
            bump(count)
            a[:] = count

    module, a = df.build(top, target="simulator"), np.zeros(N, np.int32)
    for expected in (8, 9, 10):
        module(a)
        assert a.tolist() == [expected] * N
    again = np.zeros(N, np.int32)
    df.build(top, target="simulator")(again)
    assert again.tolist() == [8] * N, "another module begins anew"


def test_calls_in_unrolled_loops_and_helpers() -> None:
    def twice(v: int32[N]) -> None:
        bump(v)
        bump(v)

    @df.region()
    def top(A: int32[N]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[N]):
            with allo.meta_for(2) as t:
                twice(a)

    a = np.zeros(N, np.int32)
    simulate(compile_region(top), a)
    assert a.tolist() == [4] * N


def test_a_region_that_hangs_is_found() -> None:
    @df.region()
    def waits(X: int32[N]):
        left: Stream[int32, 2]
        right: Stream[int32, 2]

        @df.kernel(mapping=[1], args=[X])
        def a(x: int32[N]):
            x[0] = left.get()
            right.put(1)

        @df.kernel(mapping=[1])
        def b():
            v: int32 = right.get()
            left.put(v)

    @df.region()
    def top(A: int32[N]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[N]):
            for i in range(2):
                waits(a)

    with pytest.raises(DeadlockError, match="left"):
        simulate(compile_region(top), np.zeros(N, np.int32))


def test_what_a_region_cannot_take() -> None:
    @df.region()
    def top(A: float32[2, N]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: float32[2, N]):
            bump(a[0, :])

    with pytest.raises(ProgramError, match="whole arrays"):
        compile_region(top)
