"""What data says may be wrong: an index out of range or a loop without end is an error, never a crash or a hang."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allo_dse.common.errors import SimulationError
from allo_dse.common.records import Array
from allo_dse.eval.execute.run import run_graph
from allo_dse.lang import install
from allo_dse.mapper.program import load_program

install()

import allo
import allo.dataflow as df
from allo.ir.types import Stream, index, int32

N = 8
HUGE = 2**31 - 1


def permuting() -> Any:
    @df.region()
    def top(A: int32[N], B: int32[N]):
        @df.kernel(mapping=[1], args=[A, B])
        def permute(a: int32[N], b: int32[N]):
            for i in range(N):
                at: int32 = a[i]
                b[at] += i

    return top


def looking_up() -> Any:
    table = np.arange(N, dtype=np.int32) ** 2

    @df.region()
    def top(A: int32[N], B: int32[N]):
        @df.kernel(mapping=[1], args=[A, B])
        def look_up(a: int32[N], b: int32[N]):
            for i in range(N):
                b[i] = table[a[i]]

    return top


def slicing() -> Any:
    @df.region()
    def top(A: int32[N], B: int32[N]):
        @df.kernel(mapping=[1], args=[A, B])
        def move(a: int32[N], b: int32[N]):
            at: index = a[0]
            b[at : at + 4] = a[0:4]

    return top


def routing() -> Any:
    """A token per task, sent where data says; the order is that of the receivers."""

    @df.region()
    def top(A: int32[N], B: int32[N]):
        pipes: Stream[int32, N][N]

        @df.kernel(mapping=[1], args=[A])
        def send(a: int32[N]):
            for i in range(N):
                at: int32 = a[i]
                pipes[at].put(i)

        @df.kernel(mapping=[N], args=[B])
        def receive(b: int32[N]):
            j = df.get_pid()
            b[j] = pipes[j].get()

    return top


def run(program: Any, a: Any) -> Array:
    a, b = np.array(a, np.int32), np.zeros(N, np.int32)
    run_graph(load_program(program).vmg, a, b)
    return b


@given(st.permutations(range(N)))
@settings(max_examples=20, deadline=None)
def test_what_is_in_range_is_as_in_numpy(order: Any) -> None:
    inverse = np.argsort(order)
    assert np.array_equal(run(permuting(), order), inverse)
    assert np.array_equal(run(routing(), order), inverse)
    assert np.array_equal(run(looking_up(), order), np.array(order) ** 2)


def test_a_slice_may_start_wherever_it_fits() -> None:
    for start in range(N - 3):
        expected = np.zeros(N, np.int32)
        expected[start : start + 4] = [start, 1, 2, 3]
        assert np.array_equal(run(slicing(), [start, 1, 2, 3, 0, 0, 0, 0]), expected)


@pytest.mark.parametrize("wrong", [-1, N, HUGE, -HUGE])
@pytest.mark.parametrize(
    ("program", "message"),
    [
        (permuting, "index `at` into dimension 0 of size 8 is {} in permute_0"),
        (looking_up, "index `a[i]` into dimension 0 of size 8 is {} in look_up_0"),
        (routing, "index `pipes[at]` into stream array `pipes` of 8 streams is {} in send_0"),
    ],
)
def test_what_is_out_of_range_is_named(program: Callable[..., Any], message: Any, wrong: int) -> None:
    with pytest.raises(SimulationError) as caught:
        run(program(), [0, 1, 2, wrong, 4, 5, 6, 7])
    assert message.format(wrong) in str(caught.value)
    assert "test_guards.py:" in str(caught.value)


@pytest.mark.parametrize("wrong", [-1, N - 3, HUGE])
def test_a_slice_out_of_range_is_named(wrong: int) -> None:
    with pytest.raises(SimulationError, match=rf"dimension 0 of size 8 is {wrong} in move_0"):
        run(slicing(), [wrong] + [0] * (N - 1))


def test_the_first_wrong_index_is_reported() -> None:
    with pytest.raises(SimulationError, match="is 77 in permute_0"):
        run(permuting(), [0, 77, 78, 79, 4, 5, 6, 7])


def test_indices_under_a_condition_are_checked_when_they_are_used() -> None:
    @df.region()
    def top(A: int32[N], B: int32[N]):
        @df.kernel(mapping=[1], args=[A, B])
        def shift(a: int32[N], b: int32[N]):
            for i in range(N):
                if i + a[0] < N:
                    b[i] = a[i + 1]

    program = load_program(top)
    assert len(program.kernels[0].classes[0].index_checks) == 1
    a, b = np.arange(1, N + 1, dtype=np.int32), np.zeros(N, np.int32)
    run_graph(program.vmg, a, b)
    assert b.tolist() == [2, 3, 4, 5, 6, 7, 8, 0]
    with pytest.raises(SimulationError, match=r"`i \+ 1` into dimension 0 of size 8 is 8"):
        run_graph(program.vmg, np.zeros(N, np.int32), b)


def test_indices_that_loops_bound_are_not_checked_again() -> None:
    @df.region()
    def top(A: int32[N, N], B: int32[N, N]):
        @df.kernel(mapping=[2], args=[A, B])
        def turn(a: int32[N, N], b: int32[N, N]):
            p = df.get_pid()
            for i, j in allo.grid(N // 2, N):
                b[p * (N // 2) + i, (j + 3) % N] = a[N - 1 - j, i]

    (task_class,) = load_program(top).kernels[0].classes
    assert task_class.index_checks == ()
    assert "df.check" not in task_class.body.mlir


@pytest.mark.parametrize("inside_loops", [False, True])
def test_a_loop_without_end_meets_the_time_limit(inside_loops: bool) -> None:
    @df.region()
    def top(A: int32[N], B: int32[N]):
        @df.kernel(mapping=[1], args=[A, B])
        def count(a: int32[N], b: int32[N]):
            with allo.meta_if(inside_loops):
                for _i, _j in allo.grid(2, 2):
                    while b[0] < N:
                        b[0] = b[0] + a[0]
            with allo.meta_else():
                while b[0] < N:
                    b[0] = b[0] + a[0]

    graph = load_program(top).vmg
    a, b = np.ones(N, np.int32), np.zeros(N, np.int32)
    run_graph(graph, a, b)
    assert b[0] == N
    with pytest.raises(SimulationError, match=r"time limit of 0\.2 s"):
        run_graph(graph, np.zeros(N, np.int32), np.zeros(N, np.int32), seconds=0.2)
