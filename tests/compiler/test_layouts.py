"""Layouts are inferred through operations: a sum over a sharded dimension must be completed before it is a result."""

# Programs are written as users write them:
# ruff: noqa: F841

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import allo_dse.lang

allo_dse.lang.install()

import allo
import allo.dataflow as df
from allo.ir.types import Stream, float32, int32
from allo.memory import Layout

from allo_dse.compiler import compile_region

from .execute import run, simulate
from .test_errors import check

S, R = Layout.Shard, Layout.Replicate
M, N, K, P = 8, 4, 16, 4
RNG = np.random.default_rng(0)


def test_a_partial_sum_that_nobody_completes() -> None:
    @df.region()
    def top(A: int32[M, K], B: int32[K, N], C: int32[M, N]):
        @df.kernel(mapping=[P, 2], args=[A, B, C])
        def core(a: int32[M, K] @ [S(1), S(0)], b: int32[K, N] @ [S(0), R], c: int32[M, N] @ [S(1), R]):
            c[:, :] = allo.matmul(a, b)  # here

    error = check(top, "`c` gets a partial sum: the sum runs along mesh axis 0 of size 4", "c[:, :]", __file__)
    assert "c[...] += ..." in error.hint


def test_it_stays_partial_through_linear_operations() -> None:
    @df.region()
    def top(A: int32[M, K], B: int32[K, N], C: int32[N, M]):
        @df.kernel(mapping=[P], args=[A, B, C])
        def core(a: int32[M, K] @ [R, S(0)], b: int32[K, N] @ [S(0), R], c: int32[N, M]):
            zero: int32[M, N] = 0
            part: int32[M, N] = allo.add(allo.matmul(a, b), zero)
            half: int32[M, N] = part * 2 - zero
            c[:, :] = half.T  # here

    check(top, "`c` gets a partial sum", "c[:, :]", __file__)


@pytest.mark.parametrize("name", ["relu", "softmax", "product"])
def test_what_does_not_distribute_over_sums(name: str) -> None:
    @df.region()
    def relu(A: float32[M, K], B: float32[K, N]):
        @df.kernel(mapping=[P], args=[A, B])
        def core(a: float32[M, K] @ [R, S(0)], b: float32[K, N] @ [S(0), R]):
            x: float32[M, N] = allo.relu(allo.matmul(a, b))  # here

    @df.region()
    def softmax(A: float32[M, K], B: float32[K, N]):
        @df.kernel(mapping=[P], args=[A, B])
        def core(a: float32[M, K] @ [R, S(0)], b: float32[K, N] @ [S(0), R]):
            x: float32[M, N] = a @ b
            y: float32[M, N] = allo.softmax(x)  # here

    @df.region()
    def product(A: float32[M, K], B: float32[K, N]):
        @df.kernel(mapping=[P], args=[A, B])
        def core(a: float32[M, K] @ [R, S(0)], b: float32[K, N] @ [S(0), R]):
            x: float32[M, N] = a @ b
            y: float32[M, N] = x * x  # here

    region = {"relu": relu, "softmax": softmax, "product": product}[name]
    what = {"relu": "relu", "softmax": "softmax", "product": "mul"}[name]
    at = {"relu": "allo.relu", "softmax": "allo.softmax", "product": "x * x"}[name]
    check(region, f"{what} of a partial sum: the sum runs along mesh axis 0 of size 4", at, __file__)


def test_ways_to_complete_a_sum() -> None:
    @df.region()
    def top(A: int32[M, K], B: int32[K, N], C: int32[M, N], D: int32[M, N], E: int32[P, M, N], F: int32[M, N]):
        pipe: Stream[int32[M, N], 2][P - 1]
        parts: Stream[int32[M, N], 2][P]

        @df.kernel(mapping=[P], args=[A, B, C, D, E])
        def core(
            a: int32[M, K] @ [R, S(0)],
            b: int32[K, N] @ [S(0), R],
            c: int32[M, N],
            d: int32[M, N],
            e: int32[P, M, N] @ [S(0), R, R],
        ):
            p = df.get_pid()
            part: int32[M, N] = allo.matmul(a, b)
            parts[p].put(part)
            e[0, :, :] = part  # each part in a place of its own
            with allo.meta_if(p > 0):
                part[:, :] = part + pipe[p - 1].get()
            with allo.meta_if(p < P - 1):
                pipe[p].put(part)
            with allo.meta_else():
                c[:, :] = allo.relu(part)
            d[:, :] += allo.matmul(a, b)  # in the argument itself

        @df.kernel(mapping=[1], args=[F])
        def reduce(f: int32[M, N]):
            total: int32[M, N] = 0
            with allo.meta_for(P) as p:
                total[:, :] = total + parts[p].get()
            f[:, :] = total

    a, b = RNG.integers(-9, 9, (M, K)).astype(np.int32), RNG.integers(-9, 9, (K, N)).astype(np.int32)
    c, d, f = (np.zeros((M, N), np.int32) for _ in range(3))
    e = np.zeros((P, M, N), np.int32)
    simulate(compile_region(top), a, b, c, d, e, f)
    np.testing.assert_array_equal(c, np.maximum(a @ b, 0))
    np.testing.assert_array_equal(d, a @ b)
    np.testing.assert_array_equal(e.sum(0), a @ b)
    np.testing.assert_array_equal(f, a @ b)


def test_dimensions_that_are_not_summed_are_free() -> None:
    @df.region()
    def top(A: int32[M, K], B: int32[K, N], C: int32[M, N]):
        @df.kernel(mapping=[2, 4], args=[A, B, C])
        def core(a: int32[M, K] @ [S(0), R], b: int32[K, N] @ [R, S(1)], c: int32[M, N] @ [S(0), S(1)]):
            c[:, :] = a @ b + 1

    a, b = RNG.integers(-9, 9, (M, K)).astype(np.int32), RNG.integers(-9, 9, (K, N)).astype(np.int32)
    c = np.zeros((M, N), np.int32)
    run(compile_region(top), a, b, c)
    np.testing.assert_array_equal(c, a @ b + 1)


# -- tiles passed on to regions --------------------------------------------------------------------------------------


def scaled(rows: int, columns: int, tasks: int, factor: int) -> Any:
    @df.region()
    def inner(A: int32[rows, columns], B: int32[rows, columns]):
        pipe: Stream[int32, 2][tasks]

        @df.kernel(mapping=[tasks], args=[A])
        def send(a: int32[rows, columns] @ [R, S(0)]):
            p = df.get_pid()
            for i in range(rows):
                for j in range(columns // tasks):
                    pipe[p].put(a[i, j])

        @df.kernel(mapping=[tasks], args=[B])
        def receive(b: int32[rows, columns] @ [R, S(0)]):
            p = df.get_pid()
            for i in range(rows):
                for j in range(columns // tasks):
                    b[i, j] = pipe[p].get() * factor + p

    return inner


def test_distributed_arguments_are_passed_on() -> None:
    inner = scaled(M // 2, N, 2, 3)

    @df.region()
    def top(A: int32[M, N], B: int32[M, N]):
        @df.kernel(mapping=[2], args=[A, B])
        def outer(a: int32[M, N] @ [S(0), R], b: int32[M, N] @ [S(0), R]):
            inner(a, b)

    program = compile_region(top)
    assert [k.name for k in program.kernels] == ["outer_0_send", "outer_0_receive", "outer_1_send", "outer_1_receive"]
    a, b = RNG.integers(-9, 9, (M, N)).astype(np.int32), np.zeros((M, N), np.int32)
    simulate(program, a, b)
    np.testing.assert_array_equal(b, a * 3 + np.array([0, 0, 1, 1]))


def test_a_single_statement_beside_a_call_is_not_lost() -> None:
    inner = scaled(M, N, 2, 3)

    @df.region()
    def top(A: int32[M, N], B: int32[M, N]):
        @df.kernel(mapping=[1], args=[A, B])
        def outer(a: int32[M, N], b: int32[M, N]):
            a[0, 0] = 7
            inner(a, b)

    a, b = np.ones((M, N), np.int32), np.zeros((M, N), np.int32)
    simulate(compile_region(top), a, b)
    assert (a[0, 0], b[0, 0], b[1, 3]) == (7, 21, 4)


def test_tiles_of_the_wrong_shape() -> None:
    inner = scaled(M, N, 2, 3)

    @df.region()
    def top(A: int32[M, N], B: int32[M, N]):
        @df.kernel(mapping=[2], args=[A, B])
        def outer(a: int32[M, N] @ [S(0), R], b: int32[M, N] @ [S(0), R]):
            inner(a, b)

    with pytest.raises(
        allo_dse.lang.ProgramError, match=r"declared as int32\[8, 4\], but the tile of `A` is int32\[4, 4\]"
    ):
        compile_region(top)


def test_a_task_calls_regions_between_other_work() -> None:
    inner = scaled(M // 2, N, 2, 3)
    nested = scaled(M // 2, N, 4, 2)

    @df.region()
    def middle(A: int32[M // 2, N], B: int32[M // 2, N]):
        @df.kernel(mapping=[1], args=[A, B])
        def through(a: int32[M // 2, N], b: int32[M // 2, N]):
            nested(a, b)

    @df.region()
    def top(A: int32[M, N], B: int32[M, N], C: int32[M, N]):
        sums: Stream[int32, 2][2]

        @df.kernel(mapping=[2], args=[A, B, C])
        def outer(a: int32[M, N] @ [S(0), R], b: int32[M, N] @ [S(0), R], c: int32[M, N] @ [S(0), R]):
            p = df.get_pid()
            for i, j in allo.grid(M // 2, N):
                a[i, j] += 1
            inner(a, b)
            total: int32 = 0
            for i, j in allo.grid(M // 2, N):
                total += b[i, j]
                b[i, j] *= 2
            sums[p].put(total)
            with allo.meta_if(p == 1):
                middle(b, c)
                c[0, 0] += 1000

        @df.kernel(mapping=[1], args=[A])
        def collect(a: int32[M, N]):
            x: int32 = sums[0].get()
            y: int32 = sums[1].get()
            a[0, 0] = x + y

    program = compile_region(top)
    a, b, c = RNG.integers(-9, 9, (M, N)).astype(np.int32), np.zeros((M, N), np.int32), np.zeros((M, N), np.int32)
    first = (a + 1) * 3 + np.array([0, 0, 1, 1])
    expected_a = a + 1
    expected_a[0, 0] = first.sum()
    simulate(program, a, b, c)
    np.testing.assert_array_equal(b, 2 * first)
    np.testing.assert_array_equal(a, expected_a)
    expected_c = np.zeros((M, N), np.int32)
    expected_c[M // 2 :] = 4 * first[M // 2 :] + np.arange(N)
    expected_c[M // 2, 0] += 1000
    np.testing.assert_array_equal(c, expected_c)


# -- names in annotations --------------------------------------------------------------------------------------------


def test_annotations_name_variables_of_all_enclosing_functions() -> None:
    """This file's annotations are strings: names in them are in no closure."""
    T, Q = int32, 2

    def middle() -> Any:
        L = 6

        def build() -> Any:
            W = [S(0)]

            def bump(x: T, y: T) -> T:
                return x + y

            @df.region()
            def top(A: T[L], B: T[L]):
                pipe: Stream[T[L // Q], Q][Q]

                @df.kernel(mapping=[Q], args=[A])
                def send(a: T[L] @ W):
                    p = df.get_pid()
                    pipe[p].put(a)

                @df.kernel(mapping=[Q], args=[B])
                def receive(b: T[L] @ W):
                    p = df.get_pid()
                    x: T[L // Q] = pipe[p].get()
                    for i in range(L // Q):
                        y: T = bump(x[i], p)
                        b[i] = y

            return top

        return build()

    a, b = np.arange(6, dtype=np.int32), np.zeros(6, np.int32)
    simulate(compile_region(middle()), a, b)
    np.testing.assert_array_equal(b, a + np.repeat([0, 1], 3))


def test_operands_that_are_split_differently_are_warned_about() -> None:
    @df.region()
    def top(A: int32[M, M], B: int32[M, M]):
        @df.kernel(mapping=[2, 2], args=[A, B])
        def core(a: int32[M, M] @ [S(0), R], b: int32[M, M] @ [S(1), R]):
            b[:, :] = allo.add(a, b)

    (warning,) = compile_region(top).warnings
    assert "dimension 0 of one runs along mesh axis 0 and of another along mesh axis 1" in warning
    assert warning.startswith(__file__)
