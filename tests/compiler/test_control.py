"""`break`, `continue`, early `return` and functions inside kernels, against the same code run by Python."""

# Programs are written as users write them:

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
from allo.ir.types import Stream, int32
from allo.memory import Layout

from allo_dse.common.errors import ProgramError
from allo_dse.compiler import compile_region, compiler
from allo_dse.compiler.statements import statements

from .execute import simulate

M = 8
VALUES = st.lists(st.integers(-5, 5), min_size=M, max_size=M)


def run_on(program: Any, values: list[int], size: int = M) -> list[int]:
    a, b = np.array(values, np.int32), np.zeros(size, np.int32)
    simulate(program, a, b)
    return b.tolist()


# -- break and continue ----------------------------------------------------------------------------------------------


@df.region()
def loops(A: int32[M], B: int32[M]):
    @df.kernel(mapping=[1], args=[A, B])
    def core(a: int32[M], b: int32[M]):
        for i in range(M):
            if a[i] == 0:
                break
            if a[i] < 0:
                continue
            b[0] += a[i]
            for j in range(M - 1, -1, -1):
                if a[j] == a[i]:
                    b[1] += j
                    break
                elif a[j] > 3:
                    continue
                b[2] += 1
            b[3] += 1
        i: int32 = 0
        while i < M:
            i += 1
            if a[i - 1] == 2:
                continue
            if a[i - 1] == 3:
                if i > 4:
                    break
                b[4] += 10
            b[4] += 1
        while True:
            b[5] += 1
            if b[5] > a[1]:
                break
        for i, j in allo.grid(M, M):
            if i + j == a[2]:
                break
            b[6] += 1


def loops_reference(a: list[int]) -> list[int]:
    b = [0] * M
    for i in range(M):
        if a[i] == 0:
            break
        if a[i] < 0:
            continue
        b[0] += a[i]
        for j in range(M - 1, -1, -1):
            if a[j] == a[i]:
                b[1] += j
                break
            elif a[j] > 3:
                continue
            b[2] += 1
        b[3] += 1
    i = 0
    while i < M:
        i += 1
        if a[i - 1] == 2:
            continue
        if a[i - 1] == 3:
            if i > 4:
                break
            b[4] += 10
        b[4] += 1
    while True:
        b[5] += 1
        if b[5] > a[1]:
            break
    for i, j in ((i, j) for i in range(M) for j in range(M)):
        if i + j == a[2]:
            break
        b[6] += 1
    return b


LOOPS = compile_region(loops)


@settings(max_examples=40, deadline=None)
@given(VALUES)
def test_break_and_continue_are_pythons(values: list[int]) -> None:
    assert run_on(LOOPS, values) == loops_reference(values)


@df.region()
def others(A: int32[M], B: int32[M]):
    @df.kernel(mapping=[1], args=[A, B])
    def core(a: int32[M], b: int32[M]):
        last: int32 = 1
        for i in range(M):
            if a[i] != 0:
                b[0] += a[i]
            elif a[0] > 2:
                b[1] += 1
            else:
                break
        for i in range(M):
            if a[i] < 3:
                b[2] += 1
            else:
                b[3] += 1
                if a[i] == 3:
                    b[4] += 1
                else:
                    last = a[i]
        b[5] = last


def others_reference(a: list[int]) -> list[int]:
    first = next((i for i in range(M) if a[i] == 0), M) if a[0] <= 2 else M
    large = [value for value in a if value >= 3]
    last = [1, *(value for value in large if value != 3)][-1]
    return [sum(a[:first]), a.count(0) if a[0] > 2 else 0, M - len(large), len(large), a.count(3), last, 0, 0]


OTHERS = compile_region(others)


@settings(max_examples=40, deadline=None)
@given(VALUES)
def test_what_is_done_otherwise_only_is_pythons(values: list[int]) -> None:
    """A jump and an assignment that stand in no block but that of an `else`."""
    assert run_on(OTHERS, values) == others_reference(values)


def test_jumps_in_unrolled_loops() -> None:
    @df.region()
    def top(A: int32[M], B: int32[M]):
        @df.kernel(mapping=[2], args=[A, B])
        def core(a: int32[M], b: int32[M]):
            p = df.get_pid()
            for i in allo.meta_for(M):
                with allo.meta_if(i == 5 + p):
                    break
                with allo.meta_if(i % 2 == 1):
                    continue
                b[p] += a[i]
            for i in allo.meta_for(2, 8, 2):
                if a[i] < 0:
                    break
                if a[i] == 3:
                    continue
                b[2 + p] += a[i]
            for k in range(3):
                with allo.meta_for(M) as i:
                    if a[i] == 4 - k:
                        break
                    b[4 + p] += 1

    program = compile_region(top)
    a = [1, 2, 3, 4, 5, 6, -7, 8]
    assert run_on(program, a) == [1 + 3 + 5, 1 + 3 + 5, 5, 5, 3, 3, 0, 0]


def test_counts_of_a_loop_that_can_be_left_are_unknown() -> None:
    @df.region()
    def top(A: int32[M], B: int32[M]):
        pipe: Stream[int32, 2]

        @df.kernel(mapping=[1], args=[A])
        def send(a: int32[M]):
            for i in range(M):
                pipe.put(a[i])
                if a[i] < 0:
                    break

        @df.kernel(mapping=[1], args=[B])
        def receive(b: int32[M]):
            for i in range(M):
                x: int32 = pipe.get()
                if x < 0:
                    break
                b[i] = x

    program = compile_region(top)
    assert [c.stream_ports[0].tokens for k in program.kernels for c in k.classes] == [None, None]
    assert run_on(program, [3, 1, 4, -1, 5, 9, 2, 6]) == [3, 1, 4, 0, 0, 0, 0, 0]


# -- return ----------------------------------------------------------------------------------------------------------


def find(values: int32[M], wanted: int32) -> int32:
    """The first place of a value, or -1."""
    for i in range(M):
        if values[i] == wanted:
            return i
    return -1


def signs(values: int32[M], x: int32) -> (int32, int32):
    """Two results, on four paths."""
    if x > 2:
        return x, 1
    elif x < -2:
        if x < -4:
            return 100, 200
        return -x, -1
    k: int32 = 0
    while k < M:
        if values[k] == x:
            return k, 0
        k += 1
    return 7, 7


def clipped(values: int32[M], x: int32) -> int32[M]:
    """A tile, on two paths."""
    out: int32[M] = 1
    if x < 0:
        return out
    for i in range(M):
        out[i] = values[i] + x
    return out


def test_all_parts_of_a_chained_comparison_count_also_at_compile_time() -> None:
    @df.region()
    def top(X: int32[4], Y: int32[4, 4]):
        @df.kernel(mapping=[4], args=[X, Y])
        def core(x: int32[4], y: int32[4, 4] @ [Layout.Shard(0), Layout.Replicate]):
            p = df.get_pid()
            with allo.meta_for(4) as k:
                with allo.meta_if(0 < k < 3):
                    y[0, k] = 1
                y[0, k] += 2 if 0 < k <= p else 0
                y[0, k] += 4 if 1 < k < x[k] else 0
                y[0, k] += 8 if k in (2, x[k]) else 0

    x, y = np.array([0, 9, 1, 4], np.int32), np.zeros((4, 4), np.int32)
    simulate(compile_region(top), x, y)
    for p in range(4):
        expected = [(0 < k < 3) + 2 * (0 < k <= p) + 4 * (1 < k < x[k]) + 8 * (k in (2, x[k])) for k in range(4)]
        assert y[p].tolist() == expected


def test_return_under_conditions() -> None:
    @df.region()
    def top(A: int32[M], B: int32[M]):
        @df.kernel(mapping=[1], args=[A, B])
        def core(a: int32[M], b: int32[M]):
            for i in range(M):
                p, q = signs(a, a[i])
                c: int32[M] = clipped(a, a[i])
                b[i] = 10000 * find(a, a[i] + 1) + 1000 * p + 100 * q + c[i]
                if b[i] == -1:
                    return

    def expected(a: list[int]) -> list[int]:
        def pair(x: int) -> tuple[int, int]:
            if x > 2:
                return x, 1
            if x < -4:
                return 100, 200
            return (-x, -1) if x < -2 else (a.index(x), 0)

        first = [a.index(x + 1) if x + 1 in a else -1 for x in a]
        rest = [1000 * pair(x)[0] + 100 * pair(x)[1] + (1 if x < 0 else 2 * x) for x in a]
        return [10000 * f + r for f, r in zip(first, rest, strict=True)]

    for values in ([3, 1, 4, -1, 5, -5, 2, -3], [0, 0, 1, 1, 2, 2, 3, 3]):
        assert run_on(compile_region(top), values) == expected(values)


def test_a_kernel_returns_early() -> None:
    @df.region()
    def top(A: int32[M], B: int32[M]):
        @df.kernel(mapping=[M], args=[A, B])
        def core(a: int32[M], b: int32[M]):
            p = df.get_pid()
            with allo.meta_if(p == 3):
                return
            if a[p] < 0:
                return
            for i in range(M):
                if a[i] == 9:
                    return
                b[p] += a[i] * (p + 1)

    a = [3, 1, -4, 1, 5, 9, 2, 6]
    assert run_on(compile_region(top), a) == [6 * (p + 1) if p not in (2, 3) else 0 for p in range(M)]


# -- functions inside kernels ----------------------------------------------------------------------------------------


def test_functions_inside_kernels() -> None:
    @df.region()
    def top(A: int32[M], B: int32[M]):
        @df.kernel(mapping=[2], args=[A, B])
        def core(a: int32[M], b: int32[M]):
            p = df.get_pid()
            total: int32 = 0
            scale: int32 = 2

            def weigh(x: int32, by: int32) -> int32:
                scale: int32 = by  # its own, not the kernel's
                scale += p
                return x * scale

            def add(x):
                nonlocal total
                if x < 0:
                    return
                total += x

            for i in range(M):
                add(weigh(a[i], 3))
            b[p] = total
            b[2 + p] = scale

    a = np.array([3, 1, -4, 1, 5, -9, 2, 6])
    total = int(a[a > 0].sum())
    assert run_on(compile_region(top), a.tolist()) == [total * 3, total * 4, 2, 2, 0, 0, 0, 0]


@pytest.mark.parametrize("value", [0, 3])
def test_chains_of_calls(value: int) -> None:
    @df.region()
    def top(A: int32[M], B: int32[M]):
        @df.kernel(mapping=[1], args=[A, B])
        def core(a: int32[M], b: int32[M]):
            def twice(x: int32) -> int32:
                return 2 * x

            def outer(x: int32) -> int32:
                if x == 0:
                    return twice(x) + 1
                return twice(twice(x))

            b[0] = outer(a[0])

    assert run_on(compile_region(top), [value] * M)[0] == (1 if value == 0 else 12)


# -- sets of tasks ---------------------------------------------------------------------------------------------------


@df.region()
def staged(A: int32[M], B: int32[M]):
    @df.kernel(mapping=[M], args=[A, B])
    def core(a: int32[M], b: int32[M]):
        p = df.get_pid()
        total: int32 = a[p]
        with allo.meta_if(p > 0):
            total += 10
        with allo.meta_if(p < M - 1):
            total += 100
        with allo.meta_elif(p % 2 == 1):  # asked of the last task alone
            total += 1000
        late = p - 3
        with allo.meta_if(late > 1):  # not known before
            total += 10000
        b[p] = total


def test_conditions_that_come_later_tell_tasks_apart_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []
    compile_tasks = compiler._compile

    def noted(task: Any) -> None:
        compiled.append(task.mask)
        compile_tasks(task)

    monkeypatch.setattr(compiler, "_compile", noted)
    early = compile_region(staged)
    assert len(compiled) == 1 + 3 + 2  # all; the first, the last, and those between, which `late` tells apart later
    compiled.clear()
    monkeypatch.setattr(statements, "split_further", lambda task, masks, body, first: masks)
    late = compile_region(staged)
    assert len(compiled) > 6
    assert [cls.name for cls in early.kernels[0].classes] == [cls.name for cls in late.kernels[0].classes]
    assert early.kernels[0].class_table.tolist() == late.kernels[0].class_table.tolist()
    assert [cls.body.mlir for cls in early.kernels[0].classes] == [cls.body.mlir for cls in late.kernels[0].classes]
    assert run_on(early, [0] * M) == [100, 110, 110, 110, 110, 10110, 10110, 11010]


def test_what_is_wrong_first_is_said_first() -> None:
    @df.region()
    def top(A: int32[M], B: int32[M]):
        @df.kernel(mapping=[M], args=[A, B])
        def core(a: int32[M], b: int32[M]):
            p = df.get_pid()
            with allo.meta_if(p > 0):
                b[p] = a[p]
            b[p] = missing
            with unknown(p < 2):
                b[p] = 1

    with pytest.raises(ProgramError, match="missing"):
        compile_region(top)


def test_what_the_left_side_decides_needs_no_right_side() -> None:
    @df.region()
    def top(A: int32[4], B: int32[4]):
        @df.kernel(mapping=[4], args=[A, B])
        def core(a: int32[4], b: int32[4] @ [Layout.Shard(0)]):
            p = df.get_pid()
            if p > 0 and a[p - 1] > 3:
                b[0] = 1
            if p == 3 or a[p + 1] > 3:
                b[0] += 2

    b = np.zeros(4, np.int32)
    simulate(compile_region(top), np.array([5, 1, 7, 2], np.int32), b)
    np.testing.assert_array_equal(b, [0, 3, 0, 3])

    @df.region()
    def wrong(A: int32[4]):
        @df.kernel(mapping=[4], args=[A])
        def core(a: int32[4]):
            p = df.get_pid()
            if p > 0 and a[p + 1] > 3:
                a[0] = 1

    with pytest.raises(ProgramError, match="index 4 is out of range"):
        compile_region(wrong)
