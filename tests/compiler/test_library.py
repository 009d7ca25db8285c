"""Operations on whole tiles are NumPy's: functions, broadcasting, types that differ, and parts of buffers."""

# Programs are written as users write them:
# ruff: noqa: E741

from __future__ import annotations

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
from allo.ir.types import Fixed, Int, UFixed, bfloat16, float16, float32, float64, int8, int16, int32, uint8, uint64

from allo_dse.compiler import compile_region

from .execute import run, simulate

M, N = 6, 4
RNG = np.random.default_rng(0)
NUMPY: dict[Any, Any] = {float16: np.float16, bfloat16: ml_dtypes.bfloat16, float32: np.float32, float64: np.float64}
NUMPY |= {int8: np.int8, int16: np.int16, int32: np.int32, uint8: np.uint8}


def unary(function: Any, dtype: Any) -> Any:
    @df.region()
    def top(X: dtype[M, N], Y: dtype[M, N], Z: dtype[M, N]):
        @df.kernel(mapping=[1], args=[X, Y, Z])
        def core(x: dtype[M, N], y: dtype[M, N], z: dtype[M, N]):
            y[:, :] = function(x)
            for i, j in allo.grid(M, N):
                z[i, j] = function(x[i, j])

    return top


@pytest.mark.parametrize("dtype", [float32, float64, float16], ids=str)
@pytest.mark.parametrize("name", ["exp", "log", "log2", "log10", "sqrt", "sin", "cos", "tan", "tanh", "abs", "relu"])
def test_functions_of_one_tile_and_of_scalars(name: str, dtype: Any) -> None:
    function = abs if name == "abs" else getattr(allo, name)
    kind = NUMPY[dtype]
    x = (RNG.random((M, N)) * 1.4 + 0.05).astype(kind)
    x = x if name.startswith(("log", "sqrt")) else x * np.array([1, -1, 1, -1], kind)
    y, z = np.zeros((2, M, N), kind)
    run(compile_region(unary, {"function": function, "dtype": dtype}), x, y, z)
    exact = np.maximum(x, 0) if name == "relu" else getattr(np, name)(x.astype(np.float64))
    tolerance = {float16: 2e-3, float32: 1e-6, float64: 1e-12}[dtype]
    np.testing.assert_allclose(y.astype(np.float64), exact, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(z, y)


def test_power_and_remainders() -> None:
    @df.region()
    def top(X: float32[M, N], Y: float32[M, N], P: float32[3, M, N], I: int32[N], J: int32[3, N]):
        @df.kernel(mapping=[1], args=[X, Y, P, I, J])
        def core(x: float32[M, N], y: float32[M, N], p: float32[3, M, N], i: int32[N], j: int32[3, N]):
            p[0, :, :] = allo.power(x, y)
            p[1, :, :] = x**2.0
            for a, b in allo.grid(M, N):
                p[2, a, b] = x[a, b] ** y[a, b] + (x[a, b] // 0.3) + x[a, b] % 0.3
            for k in range(N):
                j[0, k] = i[k] ** 3
                j[1, k] = i[k] // 3
                j[2, k] = i[k] % 3

    x, y = RNG.random((M, N), dtype=np.float32) + 0.5, RNG.random((M, N), dtype=np.float32) * 3 - 1
    p, i, j = np.zeros((3, M, N), np.float32), np.array([5, -5, 7, -8], np.int32), np.zeros((3, N), np.int32)
    run(compile_region(top), x, y, p, i, j)
    step = np.float32(0.3)
    np.testing.assert_allclose(p[0], x**y, rtol=1e-5)
    np.testing.assert_allclose(p[1], x**2, rtol=1e-6)
    np.testing.assert_allclose(p[2], x**y + x // step + x % step, rtol=1e-4)
    np.testing.assert_array_equal(j, [i**3, i // 3, i % 3])


SHAPES = [((M, N), (N,)), ((M, N), (1, N)), ((M, 1), (1, N)), ((2, M, N), (M, 1)), ((1,), (M, N)), ((M, N), ())]


@pytest.mark.parametrize(("first", "second"), SHAPES)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_broadcasting_is_numpys(name: str, first: tuple[int, ...], second: tuple[int, ...]) -> None:
    shape = np.broadcast_shapes(first, second)
    function = getattr(allo, name)

    def build() -> Any:
        @df.region()
        def top(X: float32[first], Y: float32[second], Z: float32[shape], W: float32[shape]):
            @df.kernel(mapping=[1], args=[X, Y, Z, W])
            def core(x: float32[first], y: float32[second], z: float32[shape], w: float32[shape]):
                z[:] = function(x, y)
                w[:] = function(y, x)

        return top

    x, y = (np.asarray(RNG.random(s) + 1, np.float32) for s in (first, second))
    z, w = np.zeros((2, *shape), np.float32)
    run(compile_region(build), x, y, z, w)
    numpy = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}[name]
    np.testing.assert_array_equal(z, numpy(x, y))
    np.testing.assert_array_equal(w, numpy(y, x))


MIXED = [(int8, int32, int32), (int8, float32, float32), (bfloat16, float32, float32), (float16, float64, float64)]
MIXED += [(int16, int8, int16), (uint8, int8, int16), (bfloat16, bfloat16, float32), (int8, int8, float32)]


@pytest.mark.parametrize(("a", "b", "c"), MIXED, ids=lambda t: t.name)
def test_mixed_precision(a: Any, b: Any, c: Any) -> None:
    def build(A: Any, B: Any, C: Any) -> Any:
        @df.region()
        def top(X: A[M, N], Y: B[M, N], Z: C[M, N], W: C[M, M]):
            @df.kernel(mapping=[1], args=[X, Y, Z, W])
            def core(x: A[M, N], y: B[M, N], z: C[M, N], w: C[M, M]):
                z[:, :] = allo.add(x, y) * 2
                w[:, :] = allo.matmul(x, y.T)

        return top

    x, y = ((RNG.random((M, N)) * 20).astype(NUMPY[t]) for t in (a, b))
    z, w = np.zeros((M, N), NUMPY[c]), np.zeros((M, M), NUMPY[c])
    run(compile_region(build, {"A": a, "B": b, "C": c}), x, y, z, w)
    wide = np.float64 if c.is_float else np.int64
    exact = (x.astype(wide) + y.astype(wide)) * 2, x.astype(wide) @ y.astype(wide).T
    if c.is_float:
        narrow = 2.0**-6 if bfloat16 in (a, b) and float32 not in (a, b) else 1e-6
        np.testing.assert_allclose(z.astype(wide), exact[0], rtol=narrow)
        np.testing.assert_allclose(w.astype(wide), exact[1], rtol=narrow)
    else:
        np.testing.assert_array_equal(z, exact[0].astype(NUMPY[c]))
        np.testing.assert_array_equal(w, exact[1].astype(NUMPY[c]))


def test_integers_of_64_bits_become_floats_as_the_numbers_they_are() -> None:
    """Operators grow; functions, and products of matrices, wrap as NumPy's do."""

    @df.region()
    def top(X: uint64[4, 4], Y: uint64[4, 4], Z: float32[5, 4, 4]):
        @df.kernel(mapping=[1], args=[X, Y, Z])
        def core(x: uint64[4, 4], y: uint64[4, 4], z: float32[5, 4, 4]):
            z[0, :, :] = x + y
            z[1, :, :] = x - y
            z[2, :, :] = x * y
            z[3, :, :] = allo.add(x, y)
            z[4, :, :] = allo.matmul(x, y)

    x, y = RNG.integers(1 << 63, 1 << 64, (2, 4, 4), np.uint64)
    z = np.zeros((5, 4, 4), np.float32)
    simulate(compile_region(top), x, y, z)
    a, b = x.astype(object), y.astype(object)
    np.testing.assert_allclose(z, np.array([a + b, a - b, a * b, x + y, x @ y], np.float32), rtol=1e-6)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_parts_of_buffers_are_operands_and_targets(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.integers(-9, 9, (2, 8, 8)).astype(np.int32)
    z, w = np.zeros((8, 8), np.int32), np.zeros((8, 8), np.int32)
    run(PARTS, x, y, z, w)
    expected, copied = np.zeros((8, 8), np.int32), x.copy()
    expected[0:4, 4:8] = x[0:4, 0:4] @ y[4:8, 0:4]
    expected[4:8, 0:4] = x[4:8, ::2] + y[1, 4:8]
    expected[1:3, 0:2] = np.maximum(expected[0:2, 4:6], 0)
    expected[7, :] = x[:, 3] - y[3, :]
    copied[1:8, :] = x[0:7, :]
    copied[:, 0:4] = copied[:, 4:8].copy()
    np.testing.assert_array_equal(z, expected)
    np.testing.assert_array_equal(w, copied)


@df.region()
def parts(X: int32[8, 8], Y: int32[8, 8], Z: int32[8, 8], W: int32[8, 8]):
    @df.kernel(mapping=[1], args=[X, Y, Z, W])
    def core(x: int32[8, 8], y: int32[8, 8], z: int32[8, 8], w: int32[8, 8]):
        z[0:4, 4:8] = allo.matmul(x[0:4, 0:4], y[4:8, 0:4])
        z[4:8, 0:4] = x[4:8, ::2] + y[1, 4:8]
        z[1:3, 0:2] = allo.relu(z[0:2, 4:6])
        z[7, :] = x[:, 3] - y[3, :]
        w[:, :] = x
        w[1:8, :] = w[0:7, :]
        w[:, 0:4] = w[:, 4:8]


PARTS = compile_region(parts)


def test_copies_have_values_of_their_own() -> None:
    @df.region()
    def top(X: int32[N], Y: int32[N], Z: int32[N]):
        @df.kernel(mapping=[1], args=[X, Y, Z])
        def core(x: int32[N], y: int32[N], z: int32[N]):
            a: int32[N] = x
            b = x.copy()
            c = allo.copy(x)
            x[:] = 0
            a[0] += 1
            y[:] = a + b
            z[:] = c

    x, y, z = np.arange(1, 5, dtype=np.int32), np.zeros(N, np.int32), np.zeros(N, np.int32)
    before = x.copy()
    simulate(compile_region(top), x, y, z)
    assert x.tolist() == [0] * N
    np.testing.assert_array_equal(y, 2 * before + np.array([1, 0, 0, 0]))
    np.testing.assert_array_equal(z, before)


@pytest.mark.parametrize("bits", [3, 7, 8])
def test_operators_on_tiles_of_integers_lose_no_bits_before_they_are_stored(bits: int) -> None:
    dtype, lowest = Int(bits), -(1 << bits - 1)

    @df.region()
    def top(X: dtype[8], Y: int32[8], Z: int32[8], W: int32[8]):
        @df.kernel(mapping=[1], args=[X, Y, Z, W])
        def core(x: dtype[8], y: int32[8], z: int32[8], w: int32[8]):
            moved = x + 3
            squared = x * x
            y[:] = moved - 5
            z[:] = squared
            w[:] = allo.relu(x + x)

    x = np.arange(lowest, lowest + 8).clip(lowest, -lowest - 1).astype(np.int8)
    y, z, w = np.zeros((3, 8), np.int32)
    run(compile_region(top), x, y, z, w)
    wide = x.astype(int)
    np.testing.assert_array_equal(y, wide - 2)
    np.testing.assert_array_equal(z, wide * wide)
    np.testing.assert_array_equal(w, np.maximum(wide + wide, 0))


def test_tiles_of_fixed_point_numbers() -> None:
    """Products are exact before they are stored, where their target has room."""
    T, U, W = Fixed(16, 8), UFixed(12, 4), Fixed(32, 16)

    @df.region()
    def top(A: T[4, 4], B: T[4, 4], V: U[4, 4], C: T[6, 4, 4], D: W[3, 4, 4], F: float32[2, 4, 4], G: int32[4, 4]):
        @df.kernel(mapping=[1], args=[A, B, V, C, D, F, G])
        def core(
            a: T[4, 4],
            b: T[4, 4],
            v: U[4, 4],
            c: T[6, 4, 4],
            d: W[3, 4, 4],
            f: float32[2, 4, 4],
            g: int32[4, 4],
        ):
            c[0] = a * b
            c[1] = a * 2 + b
            c[2] = a / b
            c[3] = allo.matmul(a, b)
            c[4] = max(abs(a), allo.relu(b))
            c[5] = -v
            d[0] = a * v
            d[1] = allo.mul(a, b)
            d[2] = allo.matmul(a, v)
            f[0] = a * b
            f[1] = allo.matmul(a, b)
            g[:, :] = allo.matmul(a * 64, b * 64)

    rng = np.random.default_rng(3)
    a, b = ((rng.integers(128, 900, (4, 4)) * rng.choice([-1, 1], (4, 4))) / 256 for _ in range(2))
    v = rng.integers(0, 200, (4, 4)) / 16
    c, d = np.zeros((6, 4, 4)), np.zeros((3, 4, 4))
    f, g = np.zeros((2, 4, 4), np.float32), np.zeros((4, 4), np.int32)
    simulate(compile_region(top), a, b, v, c, d, f, g)

    def down(x: Any) -> Any:
        return np.floor(x * 256) / 256

    np.testing.assert_array_equal(c[0], down(a * b))
    np.testing.assert_array_equal(c[1], a * 2 + b)
    np.testing.assert_array_equal(c[2], np.trunc(a / b * 256) / 256)
    np.testing.assert_array_equal(c[3], sum(down(np.outer(a[:, k], b[k])) for k in range(4)))
    np.testing.assert_array_equal(c[4], np.maximum(np.abs(a), np.maximum(b, 0)))
    np.testing.assert_array_equal(c[5], -v)
    np.testing.assert_array_equal(d, [a * v, a * b, a @ v])
    np.testing.assert_array_equal(f[0], (a * b).astype(np.float32))
    np.testing.assert_allclose(f[1], a @ b, atol=4 / 256)
    np.testing.assert_allclose(g, a @ b * 4096, atol=1)
