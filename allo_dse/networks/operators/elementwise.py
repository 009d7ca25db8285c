"""Operators on every element by itself: of one tensor, of two, or of a matrix and a row that all rows share."""

from __future__ import annotations

import math
from collections.abc import Callable

import allo
import allo.dataflow as df
import numpy as np
from allo.ir.types import bfloat16, float32
from allo.memory import Layout
from numpy.typing import NDArray

from allo_dse.space.params import divisors

from .execute import Work

S, R = Layout.Shard, Layout.Replicate
GELU = -2 * math.sqrt(2 / math.pi)  # x / (1 + exp(GELU * u)) is x * (1 + tanh(-GELU / 2 * u)) / 2
LEAST_TILE, MOST_TILE = 128, 4096  # elements of a task: fewer are dominated by its start, of more no core holds three
MOST_ROWS = 8
Floats = NDArray[np.float32]


def unary(N=1048576, P=512, op="relu", by=1.0, plus=0.0, Ty=bfloat16):
    Nt = N // P

    @df.region()
    def top(X: Ty[N], Y: Ty[N]):
        @df.kernel(mapping=[P], args=[X, Y])
        def core(x: Ty[N] @ [S(0)], y: Ty[N] @ [S(0)]):
            with allo.meta_if(op == "relu"):
                y[:] = allo.relu(x)
            with allo.meta_if(op == "gelu"):  # as its tanh approximation: Allo has no code for the error function
                inner: Ty[Nt] = allo.mul(x, allo.add(allo.mul(allo.mul(x, x), 0.044715), 1.0))
                y[:] = allo.div(x, allo.add(allo.exp(allo.mul(inner, GELU)), 1.0))
            with allo.meta_if(op == "silu"):
                y[:] = allo.div(x, allo.add(allo.exp(allo.mul(x, -1.0)), 1.0))
            with allo.meta_if(op == "affine"):
                y[:] = allo.add(allo.mul(x, by), plus)
            with allo.meta_if(op == "sigmoid"):
                one: Ty[Nt] = 1.0
                y[:] = allo.div(one, allo.add(allo.exp(allo.mul(x, -1.0)), 1.0))
            with allo.meta_if(op == "tanh"):  # 2 * sigmoid(2 * x) - 1, which stays finite
                two: Ty[Nt] = 2.0
                y[:] = allo.add(allo.div(two, allo.add(allo.exp(allo.mul(x, -2.0)), 1.0)), -1.0)

    return top


def binary(N=1048576, P=512, op="add", Ty=bfloat16):
    @df.region()
    def top(A: Ty[N], B: Ty[N], C: Ty[N]):
        @df.kernel(mapping=[P], args=[A, B, C])
        def core(a: Ty[N] @ [S(0)], b: Ty[N] @ [S(0)], c: Ty[N] @ [S(0)]):
            with allo.meta_if(op == "add"):
                c[:] = allo.add(a, b)
            with allo.meta_if(op == "sub"):
                c[:] = allo.sub(a, b)
            with allo.meta_if(op == "mul"):
                c[:] = allo.mul(a, b)
            with allo.meta_if(op == "silu_mul"):
                c[:] = allo.mul(allo.div(a, allo.add(allo.exp(allo.mul(a, -1.0)), 1.0)), b)

    return top


def with_row(M=1024, N=768, P=1024, op="add", Ty=bfloat16):
    Mt = M // P

    @df.region()
    def top(X: Ty[M, N], Row: Ty[N], Y: Ty[M, N]):
        @df.kernel(mapping=[P], args=[X, Row, Y])
        def core(x: Ty[M, N] @ [S(0), R], row: Ty[N] @ [R], y: Ty[M, N] @ [S(0), R]):
            for i, j in allo.grid(Mt, N):
                with allo.meta_if(op == "add"):
                    y[i, j] = x[i, j] + row[j]
                with allo.meta_if(op == "mul"):
                    y[i, j] = x[i, j] * row[j]

    return top


def sigmoid(x: Floats) -> Floats:
    with np.errstate(over="ignore"):  # far below 0 the exponential overflows, and its reciprocal is 0, as intended
        found: Floats = np.reciprocal(1 + np.exp(-x))
    return found


def silu(x: Floats) -> Floats:
    return x * sigmoid(x)


def gelu(x: Floats) -> Floats:
    return x * sigmoid(np.float32(-GELU) * (x + np.float32(0.044715) * x**3))


UNARY: dict[str, Callable[[Floats], Floats]] = {"relu": lambda x: np.maximum(x, 0), "gelu": gelu, "silu": silu}
ALONE: dict[str, Callable[[Floats], Floats]] = {"sigmoid": sigmoid, "tanh": np.tanh}
"""Functions that no product is fused with."""

BINARY: dict[str, Callable[[Floats, Floats], Floats]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "silu_mul": lambda gate, up: silu(gate) * up,
}


def _shares(size: int) -> dict[str, object]:
    return {"N": size, "P": divisors(size, at_least=-(-size // MOST_TILE), at_most=max(1, size // LEAST_TILE))}


def unary_work(op: str, size: int, element: object) -> Work:
    """`op` of `UNARY` or `ALONE` on so many elements."""
    params, reference = {**_shares(size), "op": op, "Ty": element}, {**UNARY, **ALONE}[op]
    return Work(op, unary, params, reference, verify_with=lambda p: {"N": 4 * p["P"]})


def affine_work(by: float, plus: float, size: int, element: object) -> Work:
    """x * by + plus for so many elements."""
    params = {**_shares(size), "op": "affine", "by": by, "plus": plus, "Ty": element}
    return Work(
        "affine",
        unary,
        params,
        lambda x: x * np.float32(by) + np.float32(plus),
        verify_with=lambda p: {"N": 4 * p["P"]},
    )


def binary_work(op: str, size: int, element: object) -> Work:
    """`op` of `BINARY` on so many elements of each."""
    return Work(
        op, binary, {**_shares(size), "op": op, "Ty": element}, BINARY[op], verify_with=lambda p: {"N": 4 * p["P"]}
    )


def row_work(op: str, rows: int, width: int, element: object) -> Work:
    """ "add" or "mul" of every row of a matrix and the same row."""
    shares = divisors(rows, at_least=-(-rows // MOST_ROWS), at_most=rows)
    return Work(
        f"{op}_row",
        with_row,
        {"M": rows, "N": width, "P": shares, "op": op, "Ty": element},
        BINARY[op],
        lambda p: {"M": p["P"], "N": 16},
    )


# Pooling: the maximum or the mean of every column of a [taps, N] matrix. A column holds the elements of one window.


LEAST_WINDOWS, MOST_WINDOW_ELEMENTS = 16, 8192  # results per task, elements read per task


def pool(taps=9, N=200704, P=512, op="max", Ty=bfloat16):
    Nt = N // P

    @df.region()
    def top(X: Ty[taps, N], Y: Ty[N]):
        @df.kernel(mapping=[P], args=[X, Y])
        def core(x: Ty[taps, N] @ [R, S(0)], y: Ty[N] @ [S(0)]):
            for i in range(Nt):
                found: float32 = x[0, i]
                for t in range(1, taps):
                    value: float32 = x[t, i]
                    with allo.meta_if(op == "max"):
                        if value > found:
                            found = value
                    with allo.meta_if(op == "mean"):
                        found += value
                with allo.meta_if(op == "max"):
                    y[i] = found
                with allo.meta_if(op == "mean"):
                    y[i] = found / taps

    return top


def pool_work(op: str, taps: int, size: int, element: object) -> Work:
    """ "max" or "mean" of so many rows of `size` elements."""
    most = max(1, MOST_WINDOW_ELEMENTS // taps)
    shares = divisors(size, at_least=-(-size // most), at_most=max(1, size // min(LEAST_WINDOWS, most)))

    def reference(X: Floats) -> Floats:
        found: Floats = X.max(axis=0) if op == "max" else X.mean(axis=0)
        return found

    params = {"taps": taps, "N": size, "P": shares, "op": op, "Ty": element}
    return Work(f"{op}_pool", pool, params, reference, lambda p: {"N": 4 * p["P"]})
