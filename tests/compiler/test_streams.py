"""Streams beyond plain puts and gets: groups of them, computed indices, whole tensors; in the simulator."""

# Programs are written as users write them:
# ruff: noqa: B007, F841

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import allo_dse.lang

allo_dse.lang.install()

import allo
import allo.dataflow as df
from allo.ir.types import Stream, float32, int16, int32

from allo_dse.compiler import compile_region

from .execute import simulate
from .test_errors import check

M, N, P = 8, 4, 4
RNG = np.random.default_rng(0)


# -- gather and scatter ----------------------------------------------------------------------------------------------


def test_scatter_and_gather_of_blocks() -> None:
    @df.region()
    def top(A: int16[M, N], B: int16[M, N]):
        there: Stream[int16[M // P, N], 2][P]
        back: Stream[int16[M // P, N], 2][P]

        @df.kernel(mapping=[1], args=[A, B])
        def host(a: int16[M, N], b: int16[M, N]):
            df.scatter(a, there)
            b[:, :] = df.gather(back)

        @df.kernel(mapping=[P])
        def work():
            p = df.get_pid()
            x: int16[M // P, N] = there[p].get()
            back[p].put(x * (p + 1))

    program = compile_region(top)
    assert [p.tokens for p in program.kernels[0].classes[0].stream_ports] == [1] * 2 * P
    a, b = RNG.integers(-99, 99, (M, N)).astype(np.int16), np.zeros((M, N), np.int16)
    simulate(program, a, b)
    np.testing.assert_array_equal(b, a * np.repeat(np.arange(1, P + 1), M // P)[:, None])


def test_gather_over_slices_and_lists() -> None:
    @df.region()
    def top(A: int32[2, P, N], B: int32[P, N], C: int32[2, N], D: int32[2, P, N], E: int32[P]):
        grid: Stream[int32[N], 2][2, P]
        numbers: Stream[int32, 2][P]

        @df.kernel(mapping=[2, P], args=[A])
        def send(a: int32[2, P, N]):
            i, j = df.get_pid()
            for k in range(3):
                grid[i, j].put(a[i, j, :] + k)
            with allo.meta_if(i == 0):
                numbers[j].put(a[0, j, 0])

        @df.kernel(mapping=[1], args=[B, C, D, E])
        def collect(b: int32[P, N], c: int32[2, N], d: int32[2, P, N], e: int32[P]):
            b[:, :] = df.gather(grid[0, :])
            column: int32[2, N] = df.gather([grid[i, 2] for i in range(2)])
            rest = df.gather(grid[1, :2])
            c[:, :] = column + rest
            d[:, :, :] = 0
            for k in range(1):
                d[0, 1:3, :] = df.gather([grid[0, 3], grid[0, 0]])
            d[1, :, :] = df.gather([grid[1, 3], grid[0, 1], grid[0, 0], grid[0, 3]])
            x: int32[N] = grid[0, 2].get()
            more = df.gather([grid[0, 1], grid[1, 0], grid[1, 0], grid[1, 1], grid[1, 1], grid[1, 2], grid[1, 2]])
            d[0, 3, :] = more[0, :] + x
            last: int32[2, N] = df.gather([grid[1, 3], grid[1, 3]])
            e[:] = df.gather(numbers)

    program = compile_region(top)
    a = RNG.integers(-99, 99, (2, P, N)).astype(np.int32)
    b, c, d, e = (np.zeros(s, np.int32) for s in ((P, N), (2, N), (2, P, N), P))
    simulate(program, a, b, c, d, e)
    np.testing.assert_array_equal(b, a[0])
    np.testing.assert_array_equal(c, np.stack([a[0, 2] + 1, a[1, 2]]) + np.stack([a[1, 0], a[1, 1]]))
    np.testing.assert_array_equal(d[0], [np.zeros(N), a[0, 3] + 1, a[0, 0] + 1, a[0, 1] + 2 + a[0, 2] + 2])
    np.testing.assert_array_equal(d[1], [a[1, 3], a[0, 1] + 1, a[0, 0] + 2, a[0, 3] + 2])
    np.testing.assert_array_equal(e, a[0, :, 0])


def test_scatter_of_scalars_and_of_one_block_per_row() -> None:
    @df.region()
    def top(A: float32[P], B: float32[P, N], C: float32[P, N]):
        numbers: Stream[float32, 2][P]
        rows: Stream[float32[N], 2][P]

        @df.kernel(mapping=[1], args=[A, B])
        def send(a: float32[P], b: float32[P, N]):
            df.scatter(a + 1, numbers)
            df.scatter(b, rows[:])

        @df.kernel(mapping=[P], args=[C])
        def receive(c: float32[P, N]):
            p = df.get_pid()
            scale: float32 = numbers[p].get()
            c[p, :] = rows[p].get() * scale

    a, b, c = RNG.random(P, dtype=np.float32), RNG.random((P, N), dtype=np.float32), np.zeros((P, N), np.float32)
    simulate(compile_region(top), a, b, c)
    np.testing.assert_allclose(c, b * (a + 1)[:, None], rtol=1e-6)


# -- computed indices ------------------------------------------------------------------------------------------------


def test_streams_indexed_by_arithmetic_on_loop_variables() -> None:
    @df.region()
    def top(A: int32[M, N], B: int32[M, N]):
        lanes: Stream[int32, 4][2 * N + 1]
        square: Stream[int32, 4][N + 1, N + 1]

        @df.kernel(mapping=[1], args=[A])
        def load(a: int32[M, N]):
            for i in range(M):
                for j in range(N):
                    lanes[2 * j + 1].put(a[i, j])
                for j in range(N - 1, -1, -1):
                    square[j + 1, N - j - 1].put(a[i, j])

        @df.kernel(mapping=[N], args=[B])
        def lane(b: int32[M, N]):
            p = df.get_pid()
            for i in range(M):
                x: int32 = lanes[2 * p + 1].get()
                b[i, p] = x * square[p + 1, N - 1 - p].get()

    program = compile_region(top)
    ports = program.kernels[0].classes[0].stream_ports
    assert {(p.stream.name, p.index.offset): p.tokens for p in ports} == {
        **{("lanes", (2 * j + 1,)): M for j in range(N)},
        **{("square", (j + 1, N - 1 - j)): M for j in range(N)},
    }
    a, b = RNG.integers(-9, 9, (M, N)).astype(np.int32), np.zeros((M, N), np.int32)
    simulate(program, a, b)
    np.testing.assert_array_equal(b, a * a)


def test_streams_indexed_by_the_pid_and_a_loop_variable() -> None:
    @df.region()
    def top(A: int32[M], B: int32[M]):
        lanes: Stream[int32, 2][M]

        @df.kernel(mapping=[2], args=[A])
        def send(a: int32[M]):
            p = df.get_pid()
            for k in range(4):
                lanes[4 * p + k].put(a[4 * p + k])

        @df.kernel(mapping=[4], args=[B])
        def receive(b: int32[M]):
            p = df.get_pid()
            for k in range(2 * p, 2 * (p + 1)):
                b[k] = lanes[k].get() + p

    program = compile_region(top)
    assert all(p.tokens == 1 for k in program.kernels for p in k.classes[0].stream_ports)
    a, b = RNG.integers(-9, 9, M).astype(np.int32), np.zeros(M, np.int32)
    simulate(program, a, b)
    np.testing.assert_array_equal(b, a + np.arange(M) // 2)


def test_whole_tensors_through_streams() -> None:
    @df.region()
    def top(A: float32[M, N], B: float32[M, N]):
        pipe: Stream[float32[M, N], 1]

        @df.kernel(mapping=[1], args=[A])
        def send(a: float32[M, N]):
            pipe.put(a)

        @df.kernel(mapping=[1], args=[B])
        def receive(b: float32[M, N]):
            b[:, :] = pipe.get()

    a, b = RNG.random((M, N), dtype=np.float32), np.zeros((M, N), np.float32)
    simulate(compile_region(top), a, b)
    np.testing.assert_array_equal(b, a)


# -- errors ----------------------------------------------------------------------------------------------------------


def test_imbalance_of_computed_indices() -> None:
    @df.region(strict=True)
    def top(A: int32[M]):
        lanes: Stream[int32, 4][N + 1]

        @df.kernel(mapping=[1], args=[A])
        def load(a: int32[M]):
            for i in range(M):
                for j in range(N):
                    lanes[j + 1].put(a[i])  # here

        @df.kernel(mapping=[N])
        def lane():
            p = df.get_pid()
            for i in range(M - 1):
                x: int32 = lanes[p + 1].get()

    check(top, "stream `lanes[1]`: 8 puts, 7 gets", "lanes[j + 1].put", __file__)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("b[:, :] = df.gather(pipe[0:7])", "slice 0:7 is out of range for stream array `pipe`, of size 4"),
        ("b[:, :] = df.gather(b)", "gather() needs streams"),
        ("b[:, :] = df.gather([pipe[0], b])", "gather() needs single streams in its list"),
        ("b[:, :] = df.gather([])", "gather() needs"),
        ("b[:, :] = df.gather(pipe, 1)", "gather() takes one list of streams, 2 arguments are given"),
        ("b[:, :] = df.gather(pipe[1:3])", "shapes do not match"),
        ("b[:, :] = df.gather([pipe[0], other])", "must carry the same type of token; other, pipe do not"),
        ("df.scatter(b[0, :], pipe)", "a tile of shape [4] does not divide into 4 tokens of shape [4]"),
        ("df.scatter(1, pipe)", "scatter() needs a tile"),
        ("df.scatter(b, pipe[b[0, 0]:])", "a bound of a slice of streams must be known at compile time"),
        ("b[:, :] = pipe + 1", "operator + does not apply here"),
        ("b[:, :] = pipe[:] + 1", "operator + does not apply here"),
        ("b[0, :] = pipe.get()", "`pipe` is an array of streams of shape [4]"),
    ],
)
def test_wrong_groups(tmp_path: Any, statement: str, message: str) -> None:
    text = f"""import allo.dataflow as df
from allo.ir.types import Stream, int32

@df.region()
def top(B: int32[4, 4]):
    pipe: Stream[int32[4], 2][4]
    other: Stream[int32[2], 2]

    @df.kernel(mapping=[1], args=[B])
    def core(b: int32[4, 4]):
        {statement}
"""
    path = tmp_path / "wrong.py"
    path.write_text(text)
    names: dict[str, Any] = {}
    exec(compile(text, str(path), "exec"), names)
    with pytest.raises(allo_dse.lang.ProgramError, match=re.escape(message)) as caught:
        compile_region(names["top"])
    assert caught.value.line == 11
