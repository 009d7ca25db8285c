"""What the language means: each construct runs, and its numbers are NumPy's or Python's."""

# Programs are written as users write them:
# ruff: noqa: E741

from __future__ import annotations

import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allo_dse.lang

allo_dse.lang.install()

import allo
import allo.dataflow as df
from allo.backend.aie import vliw
from allo.ir.types import (
    ConstExpr,
    Fixed,
    Int,
    Stream,
    UInt,
    bfloat16,
    float16,
    float32,
    float64,
    index,
    int8,
    int16,
    int32,
    uint8,
    uint32,
)
from allo.memory import Layout

from allo_dse.common.errors import ProgramError
from allo_dse.compiler import compile_region
from allo_dse.lang.region import Instance

from ..support.random_programs import random_program, wrap
from . import samples
from .execute import run, simulate, verify_bodies

S, R = Layout.Shard, Layout.Replicate
M, N = 8, 4
RNG = np.random.default_rng(0)


# -- streams, in the simulator ---------------------------------------------------------------------------------------


def test_producer_consumer() -> None:
    a, b = RNG.random((16, 16), dtype=np.float32), np.zeros((16, 16), np.float32)
    simulate(compile_region(samples.producer_consumer), a, b)
    np.testing.assert_array_equal(b, a + 1)


def test_systolic_array() -> None:
    a, b = RNG.random((4, 8), dtype=np.float32), RNG.random((8, 4), dtype=np.float32)
    c = np.zeros((4, 4), np.float32)
    simulate(compile_region(samples.systolic), a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


@pytest.mark.parametrize(
    ("inputs", "outputs", "element"), [(int16, int16, np.int16), (int8, int32, np.int32), (bfloat16, bfloat16, None)]
)
def test_split_k_gemm(inputs: Any, outputs: Any, element: Any) -> None:
    parameters = {"M": 32, "N": 32, "K": 48, "Pm": 2, "Pn": 4, "Pk": 3, "TyI": inputs, "TyO": outputs}
    program = compile_region(samples.gemm, parameters)
    kind = ml_dtypes.bfloat16 if element is None else np.dtype(inputs.name)
    a = (RNG.standard_normal((32, 48)) * 50).astype(kind)
    b = (RNG.standard_normal((48, 32)) * 50).astype(kind)
    c = np.zeros((32, 32), element or kind)
    simulate(program, a, b, c)
    if element is not None:
        np.testing.assert_array_equal(c, a.astype(element) @ b.astype(element))
    else:
        exact = a.astype(np.float32) @ b.astype(np.float32)
        assert np.abs(c.astype(np.float32) - exact).max() <= np.abs(exact).max() / 64


def test_streams_indexed_by_loop_variables() -> None:
    @df.region()
    def top(A: int32[M, N], B: int32[M, N]):
        lanes: Stream[int32, 4][N]

        @df.kernel(mapping=[1], args=[A])
        def load(a: int32[M, N]):
            for i in range(M):
                for j in range(N):
                    lanes[j].put(a[i, j])

        @df.kernel(mapping=[N], args=[B])
        def lane(b: int32[M, N]):
            p = df.get_pid()
            for i in range(M):
                b[i, p] = lanes[p].get() * (p + 1)

    program = compile_region(top)
    ports = program.kernels[0].classes[0].stream_ports
    assert [(p.index.offset, p.tokens) for p in ports] == [((0,), 8), ((1,), 8), ((2,), 8), ((3,), 8)]
    a, b = RNG.integers(-9, 9, (M, N)).astype(np.int32), np.zeros((M, N), np.int32)
    simulate(program, a, b)
    np.testing.assert_array_equal(b, a * np.arange(1, N + 1))


def test_blocks_and_rows_through_streams() -> None:
    @df.region()
    def top(A: int16[M, N], B: int16[M, N]):
        rows: Stream[int16[N], 2]
        whole: Stream[int32[M, N], 2]

        @df.kernel(mapping=[1], args=[A])
        def send(a: int16[M, N]):
            for i in range(M):
                rows.put(a[i, :])
            whole.put(a + 1)

        @df.kernel(mapping=[1], args=[B])
        def receive(b: int16[M, N]):
            for i in range(M):
                b[i, :] = rows.get()
            more = whole.get()
            b[:, :] = b + more

    program = compile_region(top)
    assert [p.tokens for p in program.kernels[0].classes[0].stream_ports] == [8, 1]
    a, b = RNG.integers(-99, 99, (M, N)).astype(np.int16), np.zeros((M, N), np.int16)
    simulate(program, a, b)
    np.testing.assert_array_equal(b, 2 * a + 1)


def test_feedback_and_data_dependent_streams() -> None:
    @df.region()
    def top(A: int32[M], B: int32[M]):
        forth: Stream[int32, 2]
        back: Stream[int32, 2]

        @df.kernel(mapping=[1], args=[A, B])
        def master(a: int32[M], b: int32[M]):
            for i in range(M):
                if a[i] > 0:
                    forth.put(a[i])
                    b[i] = back.get()
            forth.put(-1)

        @df.kernel(mapping=[1])
        def worker():
            x: int32 = forth.get()
            while x >= 0:
                back.put(x * x)
                x = forth.get()

    program = compile_region(top)
    assert {p.tokens for k in program.kernels for p in k.classes[0].stream_ports} == {None}
    a, b = np.array([3, -1, 5, 0, 2, -7, 1, 4], np.int32), np.zeros(M, np.int32)
    simulate(program, a, b)
    np.testing.assert_array_equal(b, np.where(a > 0, a * a, 0))


def test_meta_for_and_constant_tables() -> None:
    order = [2, 0, 3, 1]

    @df.region()
    def top(A: int32[N], B: int32[N]):
        lanes: Stream[int32, 2][N]

        @df.kernel(mapping=[1], args=[A])
        def send(a: int32[N]):
            with allo.meta_for(N) as i:
                lanes[i].put(a[i])

        @df.kernel(mapping=[N], args=[B])
        def receive(b: int32[N]):
            p = df.get_pid()
            b[p] = lanes[order[p]].get() + order[p]

    a, b = np.array([10, 20, 30, 40], np.int32), np.zeros(N, np.int32)
    simulate(compile_region(top), a, b)
    np.testing.assert_array_equal(b, a[order] + np.array(order))


def test_called_regions_have_streams_of_their_own() -> None:
    inner = samples.producer_consumer(M, N)

    @df.region()
    def top(A: float32[M, N], B: float32[M, N], C: float32[M, N]):
        @df.kernel(mapping=[2], args=[A, B, C])
        def wrapper(a: float32[M, N], b: float32[M, N], c: float32[M, N]):
            i = df.get_pid()
            with allo.meta_if(i == 0):
                inner(a, b)
            with allo.meta_else():
                inner(a, c)

    program = compile_region(top)
    assert [s.name for s in program.streams] == ["wrapper_0_values", "wrapper_1_values"]
    a, b, c = RNG.random((M, N), dtype=np.float32), np.zeros((M, N), np.float32), np.zeros((M, N), np.float32)
    simulate(program, a, b, c)
    np.testing.assert_array_equal(b, a + 1)
    np.testing.assert_array_equal(c, a + 1)


def test_older_spelling() -> None:
    @df.region()
    def top():
        fifo = df.array(df.pipe(dtype=int32, shape=(), depth=4), shape=[N])

        @df.kernel(mapping=[N])
        def send(A: int32[N]):
            i = df.get_pid()
            fifo[i].put(A[i])

        @df.kernel(mapping=[N])
        def receive(B: int32[N]):
            i = df.get_pid()
            B[i] = fifo[i].get() + 1

    program = compile_region(top)
    assert [t.name for t in program.tensors] == ["A", "B"]
    a, b = np.arange(N, dtype=np.int32), np.zeros(N, np.int32)
    simulate(program, a, b)
    np.testing.assert_array_equal(b, a + 1)


# -- kernels ---------------------------------------------------------------------------------------------------------


def test_layouts_distribute_tiles() -> None:
    @df.region()
    def top(A: int32[M, N], B: int32[M, N]):
        @df.kernel(mapping=[2, 4], args=[A, B])
        def core(a: int32[M, N] @ [S(1), S(0)], b: int32[M, N] @ [S(1), S(0)]):
            i, j = allo.get_pid()
            b[:, :] = allo.add(a, 1)
            b[0, 0] += 10 * i + j

    a, b = RNG.integers(0, 9, (M, N)).astype(np.int32), np.zeros((M, N), np.int32)
    run(compile_region(top), a, b)
    expected = a + 1
    for i in range(2):
        for j in range(4):
            expected[2 * j, 2 * i] += 10 * i + j
    np.testing.assert_array_equal(b, expected)


def total(values: int32[N]) -> int32:
    """Sum of a row."""
    result: int32 = 0
    for k in allo.reduction(N):
        result += values[k]
    return result


def at_offset(values: int32[M, N], row: index, offset: int32) -> int32[N]:
    """A row, shifted."""
    shifted: int32[N] = 0
    for k in range(N):
        shifted[k] = values[row, k] + offset
    return shifted


def test_helper_functions() -> None:
    @df.region()
    def top(A: int32[M, N], B: int32[M]):
        @df.kernel(mapping=[2], args=[A, B])
        def core(a: int32[M, N], b: int32[M]):
            p = df.get_pid()
            for i in range(p * 4, (p + 1) * 4):
                b[i] = total(at_offset(a, i, p))

    a, b = RNG.integers(0, 9, (M, N)).astype(np.int32), np.zeros(M, np.int32)
    run(compile_region(top), a, b)
    np.testing.assert_array_equal(b, a.sum(1) + np.repeat([0, N], 4))


def sum_and_difference(x: int32, y: int32) -> (int32, int32):
    """Two results."""
    return x + y, x - y


def plain(A: int32[M], B: int32[M]) -> (int32[M], int32):
    """A program without a region."""
    C: int32[M] = [1, 2, 3, 4, 5, 6, 7, 8]
    t: int32 = 0
    for i in range(M - 1, -1, -2):
        s, d = sum_and_difference(A[i], B[i])
        C[i] = s * d
        t += C[i]
    return C, t


def test_plain_function_is_a_program() -> None:
    program = compile_region(plain)
    assert [t.name for t in program.tensors] == ["A", "B", "return_0", "return_1"]
    a, b = RNG.integers(-9, 9, (2, M)).astype(np.int32)
    c, t = np.zeros(M, np.int32), np.zeros((), np.int32)
    run(program, a, b, c, t)
    expected = np.arange(1, M + 1)
    expected[1::2] = (a * a - b * b)[1::2]
    np.testing.assert_array_equal(c, expected)
    assert t == expected[1::2].sum()


def test_slices_and_subviews() -> None:
    @df.region()
    def top(A: int32[M, N], B: int32[N, M]):
        @df.kernel(mapping=[2], args=[A, B])
        def core(a: int32[M, N], b: int32[N, M]):
            p = df.get_pid()
            for i in range(2):
                b[p * 2 : (p + 1) * 2, i * 4 : (i + 1) * 4] = a[i * 4 : i * 4 + 4, p * 2 : p * 2 + 2].T
            b[p * 2, ::2] = a[1, 2]

    a, b = RNG.integers(0, 99, (M, N)).astype(np.int32), np.zeros((N, M), np.int32)
    run(compile_region(top), a, b)
    expected = a.T.copy()
    expected[::2, ::2] = a[1, 2]
    np.testing.assert_array_equal(b, expected)


def test_compile_time_values() -> None:
    def width(pid: int) -> int:
        return [1, 2, 4, 8][pid]

    @df.region()
    def top(A: int32[4]):
        @df.kernel(mapping=[4], args=[A])
        def core(a: int32[4]):
            p = df.get_pid()
            w: ConstExpr[int32] = width(p)
            block: int32[8] = 0
            for i in range(w):
                block[i] = 1
            for i in range(8):
                a[p] += block[i]
            with allo.meta_if(0 < p < 3 and p not in {2}):
                a[p] += 100 if w == 2 else 200
            with allo.meta_elif(p == 3):
                a[p] += 1000

    a = np.zeros(4, np.int32)
    run(compile_region(top), a)
    assert a.tolist() == [1, 102, 4, 1008]


def test_classes_that_differ_in_a_size_have_their_own_names() -> None:
    @df.region()
    def top(A: int32[8], B: int32[8]):
        @df.kernel(mapping=[3], args=[A, B])
        def core(a: int32[8], b: int32[8]):
            p = df.get_pid()
            b[p : 2 * p + 1] = a[0 : p + 1]

    (kernel,) = compile_region(top, {}).kernels
    assert len(kernel.classes) == 3
    assert len({c.body.symbol for c in kernel.classes}) == 3


def test_run_time_values_that_depend_on_the_pid() -> None:
    @df.region()
    def top(A: float32[4, 4], B: int32[4, 4]):
        @df.kernel(mapping=[4, 4], args=[A, B])
        def core(a: float32[4, 4], b: int32[4, 4]):
            i, j = df.get_pid()
            a[i, j] = i / 4 + j * 0.5
            b[i, j] = i**2 + (i + j) % 3 - (j << 1) // 3 + [7, 5, 9, 1][j]

    program = compile_region(top)
    assert len(program.kernels[0].classes) == 1
    a, b = np.zeros((4, 4), np.float32), np.zeros((4, 4), np.int32)
    run(program, a, b)
    i, j = np.indices((4, 4))
    np.testing.assert_array_equal(a, i / 4 + j * 0.5)
    np.testing.assert_array_equal(b, i**2 + (i + j) % 3 - (j << 1) // 3 + np.array([7, 5, 9, 1])[j])


# -- numbers ---------------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(x=st.integers(-(2**31), 2**31 - 1), y=st.integers(-(2**31), 2**31 - 1), s=st.integers(0, 31))
def test_integer_arithmetic_is_pythons(x: int, y: int, s: int) -> None:
    def wrap(value: int) -> int:
        return (value + 2**31) % 2**32 - 2**31

    safe = y or 1
    expected = [
        x + y,
        x - y,
        x * y,
        x // safe,
        x % safe,
        x & y,
        x | y,
        x ^ y,
        ~x,
        x >> s,
        x << s,
        -x,
        abs(x),
        max(x, y),
    ]
    expected += [int(x < y), int(x + y < 0), int((x * y) // safe == x)]
    out = np.zeros(len(expected), np.int32)
    run(INTEGERS, *(np.array(v, np.int32) for v in (x, y, safe, s)), out)
    assert out.tolist() == [wrap(v) for v in expected]


@df.region()
def integers(X: int32, Y: int32, D: int32, K: int32, OUT: int32[17]):
    @df.kernel(mapping=[1], args=[X, Y, D, K, OUT])
    def core(x: int32, y: int32, d: int32, s: int32, out: int32[17]):
        out[0] = x + y
        out[1] = x - y
        out[2] = x * y
        out[3] = x // d
        out[4] = x % d
        out[5] = x & y
        out[6] = x | y
        out[7] = x ^ y
        out[8] = ~x
        out[9] = x >> s
        out[10] = x << s
        out[11] = -x
        out[12] = abs(x)
        out[13] = max(x, y)
        out[14] = x < y
        out[15] = (x + y) < 0
        out[16] = (x * y) // d == x


INTEGERS = compile_region(integers)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_arithmetic_of_any_widths_is_pythons(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    program = random_program(seed, widths_matter=False)
    arrays = program.arrays(np.random.default_rng(seed))
    expected = program.expected(arrays[:3])
    simulate(compile_region(program.region(tmp_path_factory.mktemp("random") / "program.py")), *arrays)
    assert [array.tolist() for array in arrays[3:]] == expected


@pytest.mark.parametrize("bits", [1, 2, 8, 13, 32, 64, 65, 130])
def test_what_is_shifted_out_is_lost(bits: int) -> None:
    """By any number, of any type: known, a loop's variable, data."""

    @df.region()
    def top(X: Int(bits)[8], U: UInt(bits)[8], B: Int(9)[8], A: Int(bits)[8, 6], V: UInt(bits)[8, 6]):
        @df.kernel(mapping=[1], args=[X, U, B, A, V])
        def core(x: Int(bits)[8], u: UInt(bits)[8], by: Int(9)[8], a: Int(bits)[8, 6], v: UInt(bits)[8, 6]):
            for i in range(8):
                a[i, 0] = x[i] << by[i]
                a[i, 1] = x[i] >> by[i]
                a[i, 2] = x[i] << i
                a[i, 3] = x[i] >> i
                a[i, 4] = x[i] << 200
                a[i, 5] = x[i] >> 200
                v[i, 0] = u[i] << by[i]
                v[i, 1] = u[i] >> by[i]
                v[i, 2] = u[i] << i
                v[i, 3] = u[i] >> i
                v[i, 4] = u[i] << 200
                v[i, 5] = u[i] >> 200

    amounts = [0, 1, bits - 1, bits, bits + 1, 255, -1, -256]
    rng = np.random.default_rng(bits)
    numbers = [int.from_bytes(rng.bytes(17), "little") for _ in range(8)]
    kind: Any = object if bits > 64 else np.dtype(f"int{max(8, 1 << (bits - 1).bit_length())}")
    signed, unsigned = ([wrap(n, t(bits)) for n in numbers] for t in (Int, UInt))
    x = np.array(signed, object).astype(kind)
    u = np.array(unsigned, object).astype(kind if kind is object else kind.str.replace("i", "u"))
    a, v = np.zeros((8, 6), x.dtype), np.zeros((8, 6), u.dtype)
    simulate(compile_region(top), x, u, np.array(amounts, np.int16), a, v)
    far = 1000
    for i, by in enumerate(amounts):
        places = [far if by < 0 else by, i, far]
        for of, to, type_ in ((signed, a, Int(bits)), (unsigned, v, UInt(bits))):
            expected = [wrap(of[i] << p if left else of[i] >> p, type_) for p in places for left in (True, False)]
            assert to[i].tolist() == expected, (bits, by)


def test_fixed_point_numbers_are_shifted_by_integers() -> None:
    @df.region()
    def top(X: Fixed(16, 8)[4], Y: Fixed(16, 8)[4], Z: Fixed(16, 8)[4]):
        @df.kernel(mapping=[1], args=[X, Y, Z])
        def core(x: Fixed(16, 8)[4], y: Fixed(16, 8)[4], z: Fixed(16, 8)[4]):
            for i in range(4):
                y[i] = x[i] << 2
                z[i] = x[i] >> i

    x = np.array([384, -100, 5, -32768], np.int16)  # 1.5, -0.39, ...
    y, z = np.zeros(4, np.int16), np.zeros(4, np.int16)
    simulate(compile_region(top), x, y, z)
    assert y.tolist() == [wrap(4 * v, Int(16)) for v in x.tolist()]
    assert z.tolist() == [v >> i for i, v in enumerate(x.tolist())]


def test_bits() -> None:
    @df.region()
    def top(A: uint32[M], B: uint32[M], C: UInt(64)[M]):
        @df.kernel(mapping=[1], args=[A, B, C])
        def core(a: uint32[M], b: uint32[M], c: UInt(64)[M]):
            for i in range(M):
                x: uint32 = a[i]
                y: uint32 = 0
                y[0:8] = x[24:32]
                y[8:16] = x[16:24]
                for j in range(4):
                    y[16 + j] = x[j]
                b[i] = y
                wide: UInt(256) = 0
                for w in range(8):
                    wide[w * 32 : (w + 1) * 32] = x + w
                c[i] = wide[200:256] >> 24
                c[i][60:64] = 5

    a = RNG.integers(0, 2**31, M).astype(np.uint32)
    b, c = np.zeros(M, np.uint32), np.zeros(M, np.uint64)
    run(compile_region(top), a, b, c)
    x = a.astype(object)
    swapped = [(v >> 24) | ((v >> 16 & 255) << 8) | ((v & 15) << 16) for v in x]
    assert b.tolist() == swapped
    wide = [sum(((v + w) % 2**32) << (32 * w) for w in range(8)) for v in x]
    assert c.tolist() == [((w >> 200) >> 24) | (5 << 60) for w in wide]


def test_odd_widths_wrap() -> None:
    @df.region()
    def top(A: int8[M], B: int32[M], C: int32[M]):
        @df.kernel(mapping=[1], args=[A, B, C])
        def core(a: int8[M], b: int32[M], c: int32[M]):
            for i in range(M):
                x: Int(5) = a[i]
                y: UInt(3) = a[i]
                b[i] = x * 3
                c[i] = y - 8

    a, b, c = np.array([15, 16, -17, 7, -1, 0, 31, 100], np.int8), np.zeros(M, np.int32), np.zeros(M, np.int32)
    run(compile_region(top), a, b, c)
    values = a.astype(np.int32)
    np.testing.assert_array_equal(b, ((values + 16) % 32 - 16) * 3)
    np.testing.assert_array_equal(c, values % 8 - 8)


def test_scalar_arguments_are_copies_and_bits_can_be_reinterpreted() -> None:
    @df.region()
    def top(n: int32, A: float32[M], B: uint32[M]):
        @df.kernel(mapping=[1], args=[n, A, B])
        def core(count: int32, a: float32[M], b: uint32[M]):
            while count > 0:
                count -= 1
                b[count] = a[count].bitcast()

    n, a, b = np.array(5, np.int32), RNG.random(M, dtype=np.float32), np.zeros(M, np.uint32)
    run(compile_region(top), n, a, b)
    assert n == 5
    np.testing.assert_array_equal(b, np.where(np.arange(M) < 5, a.view(np.uint32), 0))


def test_fixed_point() -> None:
    @df.region()
    def top(A: float32[M], B: float32[M]):
        @df.kernel(mapping=[1], args=[A, B])
        def core(a: float32[M], b: float32[M]):
            for i in range(M):
                x: Fixed(16, 8) = a[i]
                y: Fixed(12, 4) = x * x + x * i
                b[i] = y

    a, b = (RNG.random(M, dtype=np.float32) * 8 - 4), np.zeros(M, np.float32)
    run(compile_region(top), a, b)
    x = np.floor(a * 256) / 256
    np.testing.assert_array_equal(b, np.floor((x * x + x * np.arange(M)) * 16) / 16)


def test_fixed_point_quotients_and_remainders_round_down() -> None:
    T = Fixed(16, 8)

    @df.region()
    def top(A: T[6], B: T[6], Q: T[6], P: T[6]):
        @df.kernel(mapping=[1], args=[A, B, Q, P])
        def core(a: T[6], b: T[6], q: T[6], p: T[6]):
            for i in range(6):
                q[i] = a[i] // b[i]
                p[i] = a[i] % b[i]

    a, b, q, p = np.array([6, 7.5, -7.5, -1, 1, 6]), np.array([2, 2, 2, 3, -3, -4.25]), np.zeros(6), np.zeros(6)
    simulate(compile_region(top), a, b, q, p)
    np.testing.assert_array_equal(q, a // b)
    np.testing.assert_array_equal(p, a % b)


def test_raw_fixed_point_numbers_may_be_beyond_float16() -> None:
    @df.region()
    def top(A: float16[4], X: Fixed(40, 20)[4], B: float16[4]):
        @df.kernel(mapping=[1], args=[A, X, B])
        def core(a: float16[4], x: Fixed(40, 20)[4], b: float16[4]):
            for i in range(4):
                x[i] = a[i]
                b[i] = x[i] * 2

    a, x, b = np.array([0.5, -300, 1000, -0.125], np.float16), np.zeros(4), np.zeros(4, np.float16)
    simulate(compile_region(top), a, x, b)
    np.testing.assert_array_equal(x, a)
    np.testing.assert_array_equal(b, 2 * a)


@pytest.mark.parametrize(
    ("dtype", "element"),
    [(float16, np.float16), (bfloat16, ml_dtypes.bfloat16), (float64, np.float64), (uint8, np.uint8)],
)
def test_element_types(dtype: Any, element: Any) -> None:
    def build(dtype: Any) -> Any:
        @df.region()
        def top(A: dtype[M], B: dtype[M]):
            @df.kernel(mapping=[1], args=[A, B])
            def core(a: dtype[M], b: dtype[M]):
                for i in range(M):
                    b[i] = a[i] * a[M - 1 - i] + a[i] - a[0]

        return top

    a, program = (RNG.random(M) * 50).astype(element), compile_region(build, {"dtype": dtype})
    for execute in (run, simulate):
        b = np.zeros(M, element)
        execute(program, a, b)
        np.testing.assert_array_equal(b, a * a[::-1] + a - a[0])  # rounded after each operation


def test_minus_turns_the_sign_of_zero() -> None:
    @df.region()
    def top(A: float32[2], B: float32[2]):
        @df.kernel(mapping=[1], args=[A, B])
        def core(a: float32[2], b: float32[2]):
            for i in range(2):
                x: float32 = a[i]
                b[i] = -x

    b = np.ones(2, np.float32)
    run(compile_region(top), np.array([0.0, -0.0], np.float32), b)
    np.testing.assert_array_equal(np.signbit(b), [True, False])


def test_conversions_between_floating_point_types() -> None:
    @df.region()
    def top(A: float64[M], H: float16[M], B: bfloat16[M], F: float32[M], D: float64[2, M]):
        @df.kernel(mapping=[1], args=[A, H, B, F, D])
        def core(a: float64[M], h: float16[M], b: bfloat16[M], f: float32[M], d: float64[2, M]):
            for i in range(M):
                b[i] = a[i]
                h[i] = b[i]
                f[i] = h[i] - b[i]
                d[0, i] = b[i]
                d[1, i] = h[i]

    a, h = RNG.standard_normal(M) * 50, np.zeros(M, np.float16)
    b, f, d = np.zeros(M, ml_dtypes.bfloat16), np.ones(M, np.float32), np.zeros((2, M))
    simulate(compile_region(top), a, h, b, f, d)
    np.testing.assert_array_equal(b, a.astype(ml_dtypes.bfloat16))
    np.testing.assert_array_equal(h, b.astype(np.float16))
    np.testing.assert_array_equal(f, 0)
    np.testing.assert_array_equal(d, [b.astype(float), h.astype(float)])


# -- the library -----------------------------------------------------------------------------------------------------


def test_library_on_tiles() -> None:
    @df.region()
    def top(X: float32[4, 8], G: float32[8], W: float32[6, 8], Y: float32[9, 4, 8], L: float32[4, 6], V: float32[8, 4]):
        @df.kernel(mapping=[1], args=[X, G, W, Y, L, V])
        def core(
            x: float32[4, 8], g: float32[8], w: float32[6, 8], y: float32[9, 4, 8], l: float32[4, 6], v: float32[8, 4]
        ):
            y[0, :, :] = allo.softmax(x)
            y[1, :, :] = allo.layernorm(x, g, g)
            y[2, :, :] = allo.relu(x - 0.5) + allo.ones((4, 8), float32) * allo.exp(x)
            y[3, :, :] = allo.gelu(x)
            y[4, :, :] = x * g
            y[5, :, :] = allo.sub(1.0, x) / 2
            y[6, :, :] = allo.concat(x[0:2, :], x[2:4, :], axis=0)
            y[7, :, :] = allo.tanh(allo.sqrt(x * x))
            y[8, :, :] = allo.zeros((4, 8), float32)
            l[:, :] = allo.linear(x, w)
            v[:, :] = allo.view(x, (8, 4))
            v[0:4, :] = allo.tril(v[0:4, :])

    x = RNG.standard_normal((4, 8)).astype(np.float32)
    g, w = RNG.random(8, dtype=np.float32), RNG.random((6, 8), dtype=np.float32)
    y, linear, v = np.ones((9, 4, 8), np.float32), np.zeros((4, 6), np.float32), np.zeros((8, 4), np.float32)
    program = compile_region(top)
    verify_bodies(program)
    run(program, x, g, w, y, linear, v)
    exponent = np.exp(x - x.max(1, keepdims=True))
    normal = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    erf = np.vectorize(__import__("math").erf)(x / np.sqrt(2))
    expected = [
        exponent / exponent.sum(1, keepdims=True),
        normal * g + g,
        np.maximum(x - 0.5, 0) + np.exp(x),
        x / 2 * (1 + erf),
        x * g,
        (1 - x) / 2,
        x,
        np.tanh(abs(x)),
        np.zeros_like(x),
    ]
    np.testing.assert_allclose(y, np.stack(expected), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(linear, x @ w.T, rtol=1e-4, atol=1e-5)
    flat = x.reshape(8, 4).copy()
    flat[:4] = np.tril(flat[:4])
    np.testing.assert_array_equal(v, flat)


def test_convolution_and_pooling() -> None:
    @df.region()
    def top(
        X: int32[1, 2, 6, 6], F: int32[3, 2, 3, 3], Y: int32[1, 3, 4, 4], P: int32[2, 1, 2, 5, 5], B: int32[2, 6, 6]
    ):
        @df.kernel(mapping=[1], args=[X, F, Y, P, B])
        def core(
            x: int32[1, 2, 6, 6], f: int32[3, 2, 3, 3], y: int32[1, 3, 4, 4], p: int32[2, 1, 2, 5, 5], b: int32[2, 6, 6]
        ):
            window: int32[2, 2] = 0
            y[:, :, :, :] = allo.conv2d(x, f)
            p[0, :, :, :, :] = allo.maxpool(x, window)
            p[1, :, :, :, :] = allo.sumpool(x, window)
            b[:, :, :] = allo.bmm(x[0, :, :, :], x[0, :, :, :])

    x, f = RNG.integers(-9, 9, (1, 2, 6, 6)).astype(np.int32), RNG.integers(-9, 9, (3, 2, 3, 3)).astype(np.int32)
    y, p, b = np.zeros((1, 3, 4, 4), np.int32), np.zeros((2, 1, 2, 5, 5), np.int32), np.zeros((2, 6, 6), np.int32)
    run(compile_region(top), x, f, y, p, b)
    windows = np.lib.stride_tricks.sliding_window_view
    np.testing.assert_array_equal(y, np.einsum("ncyxpq,fcpq->nfyx", windows(x, (3, 3), (2, 3)), f))
    np.testing.assert_array_equal(p[0], windows(x, (2, 2), (2, 3)).max((-1, -2)))
    np.testing.assert_array_equal(p[1], windows(x, (2, 2), (2, 3)).sum((-1, -2)))
    np.testing.assert_array_equal(b, x[0] @ x[0])


def test_flags_of_one_bit_are_zero_or_one() -> None:
    @df.region()
    def top(A: int32[4], F: Int(1)[4]):
        @df.kernel(mapping=[1], args=[A, F])
        def core(a: int32[4], f: Int(1)[4]):
            on: Int(1) = 1
            for i in range(4):
                if f[i] == 1 and on == 1:
                    a[i] = f[i] + on
            f[0] = 1

    a, f = np.zeros(4, np.int32), np.array([0, 1, 0, 1], np.int8)
    simulate(compile_region(top), a, f)
    assert a.tolist() == [0, 2, 0, 2]
    assert f.tolist() == [1, 1, 0, 1]


def test_a_tile_that_polls_before_it_serves_gets_on_with_time() -> None:
    @df.region()
    def top(A: int32[N], B: int32[N]):
        request: Stream[Int(1), 2]
        data: Stream[int32, 2]

        @df.kernel(mapping=[1], args=[A])
        def client(a: int32[N]):
            total: int32 = 0
            for i in range(50):
                total += i
            request.put(1)
            for i in range(N):
                data.put(a[i] + total)

        @df.kernel(mapping=[1], args=[B])
        def server(b: int32[N]):
            served: int32 = 0
            while served == 0:
                asked: Int(1) = 0
                if not request.empty():
                    _, asked = request.try_get()
                if asked == 1:
                    for i in range(N):
                        b[i] = data.get()
                    served = 1

    a, b = np.arange(N, dtype=np.int32), np.zeros(N, np.int32)
    simulate(compile_region(top), a, b)
    assert b.tolist() == [i + 1225 for i in range(N)]


def test_what_a_compile_time_branch_declares_is_there_afterwards() -> None:
    @df.region()
    def top(A: int32[3]):
        @df.kernel(mapping=[3], args=[A])
        def core(a: int32[3]):
            i = df.get_pid()
            outer: int32 = 5
            with allo.meta_if(i == 0):
                x: int32 = 10
            with allo.meta_elif(i == 1):
                x: int32 = 20
            with allo.meta_else():
                x: int32 = 30
                outer: int32 = 6
            with allo.meta_if(i == 1):
                x: int32 = 21
            a[i] = x + outer

    a = np.zeros(3, np.int32)
    simulate(compile_region(top), a)
    assert a.tolist() == [15, 26, 35], "`outer` is shadowed in the branch only"


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**96 - 1), st.lists(st.tuples(st.integers(0, 95), st.integers(1, 96)), min_size=4, max_size=4))
def test_bits_whose_number_depends_on_data(value: int, ranges: list[tuple[int, int]]) -> None:
    ranges = [(low, min(low + width, 96)) for low, width in ranges]

    @df.region()
    def top(X: UInt(96)[1], R: int32[4, 2], Y: UInt(96)[4], Z: UInt(96)[4]):
        @df.kernel(mapping=[1], args=[X, R, Y, Z])
        def core(x: UInt(96)[1], r: int32[4, 2], y: UInt(96)[4], z: UInt(96)[4]):
            for i in range(4):
                low: index = r[i, 0]
                high: index = r[i, 1]
                y[i] = x[0][low:high]
                word: UInt(96) = 0
                word[low:high] = x[0]
                z[i] = word

    y, z = np.zeros(4, object), np.zeros(4, object)
    simulate(compile_region(top), np.array([value], object), np.array(ranges, np.int32), y, z)
    masks = [(1 << high - low) - 1 for low, high in ranges]
    assert y.tolist() == [value >> low & mask for (low, _), mask in zip(ranges, masks, strict=True)]
    assert z.tolist() == [(value & mask) << low for (low, _), mask in zip(ranges, masks, strict=True)]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type parameters are Python 3.12 syntax")
def test_type_parameters(tmp_path: Any) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        "import allo\nimport allo.dataflow as df\nfrom allo.ir.types import int32\n\n\n"
        "@df.region()\ndef inner[P0, P1](A: int32[8]):\n"
        "    @df.kernel(mapping=[P0, P1], args=[A])\n    def core(a: int32[8]):\n"
        "        i, j = df.get_pid()\n        a[i * P1 + j] += P0\n\n\n"
        "@df.region()\ndef top(A: int32[8], B: int32[8]):\n"
        "    @df.kernel(mapping=[2], args=[A, B])\n    def wrapper(a: int32[8], b: int32[8]):\n"
        "        i = df.get_pid()\n"
        "        with allo.meta_if(i == 0):\n            inner[2, 2](a)\n"
        "        with allo.meta_else():\n            inner[2, 4](b)\n"
    )
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    program = compile_region(names["top"])
    assert [(k.name, k.mesh) for k in program.kernels] == [("wrapper_0_core", (2, 2)), ("wrapper_1_core", (2, 4))]
    a, b = np.zeros((2, 8), np.int32)
    run(program, a, b)
    assert a.tolist() == [2] * 4 + [0] * 4
    assert b.tolist() == [2] * 8


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type parameters are Python 3.12 syntax")
def test_functions_with_type_parameters(tmp_path: Any) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        "from allo.ir.types import float32, int32\n\n\n"
        "def scaled[T, N](a: 'T[N]', by: int32) -> 'T[N]':\n"
        "    c: T[N]\n    for i in range(N):\n        c[i] = a[i] * by\n    return c\n\n\n"
        "def unquoted[N](a: int32[N]) -> int32[N]:\n    return scaled[int32, N](a, 2)\n\n\n"
        "def top(A: int32[4], B: float32[2], C: int32[4], D: float32[2]):\n"
        "    C[:] = unquoted[4](A)\n    D[:] = scaled[float32, 2](B, 3)\n"
    )
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    c, d = np.zeros(4, np.int32), np.zeros(2, np.float32)
    run(compile_region(names["top"]), np.arange(4, dtype=np.int32), np.array([1, 2], np.float32), c, d)
    assert (c.tolist(), d.tolist()) == ([0, 2, 4, 6], [3, 6])
    whole = compile_region(Instance(names["scaled"], (int32, 3)))
    assert [tensor.shape for tensor in whole.tensors] == [(3,), (), (3,)]
    with pytest.raises(ProgramError, match="has 2 type parameters, 1 are given"):
        compile_region(Instance(names["scaled"], (int32,)))


def test_what_runs_as_python_too() -> None:
    def block(x: float32[2, 3, 4], w: float32[5, 4], b: float32[5]) -> float32[2, 3, 5]:
        y = allo.gelu(allo.linear(x, w, b))
        return allo.softmax(allo.layernorm(y, b, b) - allo.abs(y))

    def product(x: float32[2, 3, 4], y: float32[2, 4, 3]) -> float32[2, 3, 3]:
        return allo.matmul(x, y)

    def count(n: int32[1]):
        for _i, _j in allo.grid(3, 2):
            n[0] += 1

    rng = np.random.default_rng(0)
    x, y, w, b = (rng.random(s, dtype=np.float32) for s in ((2, 3, 4), (2, 4, 3), (5, 4), 5))
    np.testing.assert_allclose(df.build(block)(x, w, b), block(x, w, b), rtol=1e-4)
    np.testing.assert_allclose(df.build(product)(x, y), product(x, y), rtol=1e-5)
    once, twice = np.zeros(1, np.int32), np.zeros(1, np.int32)
    count(once)
    df.build(count)(twice)
    assert once.tolist() == twice.tolist() == [6]


def test_bits_of_scalar_arguments() -> None:
    def bits(a: int32, b: int32[4]):
        for i in range(4, name="bits"):  # type: ignore[call-overload]
            b[i] = a[i]
        a[0:2] = 1
        b[3] += a

    b = np.zeros(4, np.int32)
    df.build(bits)(6, b)
    assert b.tolist() == [0, 1, 1, 5]


def test_fixed_point_numbers_as_indices_and_as_results() -> None:
    T = Fixed(16, 4)

    def half(a: T[4]) -> T[4]:
        c: T[4]
        for i in range(4):
            c[i] = a[i] / 2
        at: index = a[0]
        c[at] = 0
        return c

    assert df.build(half)(np.array([2.5, 1, -3, 0.5])).tolist() == [1.25, 0.5, 0, 0.25]


def test_functions_that_allo_compiles_for_one_core() -> None:
    @vliw.kernel(project="anywhere")
    def add(a: float32[4], b: float32[4]) -> float32[4]:
        c: float32[4] = 0.0
        for i in allo.grid(4):
            c[i] = a[i] + b[i]
        return c

    twice = vliw.create_vliw_module(add.function).get_external_module()

    @df.region()
    def top(A: float32[4], B: float32[4]):
        @df.kernel(mapping=[1], args=[A, B])
        def core(a: float32[4], b: float32[4]):
            c: float32[4]
            add(a, a, c)
            twice(c, c, b)

    a, b = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    run(compile_region(top), a, b)
    assert b.tolist() == [0, 4, 8, 12]


def test_parts_of_constant_arrays_at_positions_of_tasks_and_data() -> None:
    table = np.arange(24, dtype=np.int32).reshape(4, 6)

    @df.region()
    def top(A: int32[2, 6], B: int32[2, 2]):
        @df.kernel(mapping=[2], args=[A, B])
        def core(a: int32[2, 6], b: int32[2, 2]):
            p = df.get_pid()
            row: int32[6] = table[p + 1]
            a[p, :] = row
            for i in range(2):
                part: int32[2] = table[3, 2 * i + p : 2 * i + p + 2]
                b[i, p] = part[1]

    a, b = np.zeros((2, 6), np.int32), np.zeros((2, 2), np.int32)
    run(compile_region(top), a, b)
    assert a.tolist() == table[1:3].tolist()
    assert b.tolist() == [[19, 20], [21, 22]]


def scaled_by_alpha(a: float32[4], b: float32[4]):
    add_alpha(a, b)
    for i in range(4):
        b[i] = b[i] * alpha


def add_alpha(a: float32[4], b: float32[4]):
    for i in range(4):
        b[i] = a[i] + alpha


def test_names_that_only_the_calling_function_of_the_file_knows() -> None:
    """As in Allo: `def study(alpha): s = allo.customize(kernel)`."""

    def study(alpha: float) -> list[float]:
        a, b = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
        allo.customize(scaled_by_alpha).build()(a, b)
        return b.tolist()

    assert study(2.0) == [4, 6, 8, 10]
    assert study(0.5) == [0.25, 0.75, 1.25, 1.75]
    with pytest.raises(ProgramError, match="unknown name `alpha`"):
        compile_region(scaled_by_alpha)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type parameters are Python 3.12 syntax")
def test_type_parameters_that_the_arguments_give(tmp_path: Any) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        "from allo.ir.types import float32\n\n\n"
        "def turned[T, M, N](a: 'T[M, N]', b: 'T[N, M]'):\n"
        "    for i in range(M):\n        for j in range(N):\n            b[j, i] = a[i, j]\n\n\n"
        "def count[N](b: float32[4]):\n    b[0] = N\n\n\n"
        "def top(A: float32[2, 3], B: float32[3, 2]):\n    turned(A, B)\n\n\n"
        "def wrong(A: float32[4]):\n    count(A)\n"
    )
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((3, 2), np.float32)
    run(compile_region(names["top"]), a, b)
    assert b.tolist() == a.T.tolist()
    with pytest.raises(ProgramError, match="`count` has 1 type parameters, 0 are given"):
        compile_region(names["wrong"])
