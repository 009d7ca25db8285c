"""Operators on every element by itself, and on the elements of a window: pools and depthwise convolutions."""

from __future__ import annotations

import allo
import allo.dataflow as df
import numpy as np
from allo.ir.types import bfloat16, float32, int8, int32
from allo.memory import Layout
from numpy.typing import NDArray

from allo_dse.space.params import divisors

from .execute import Operand, Work
from .expressions import BINARY, UNARY, expression_work

S, R = Layout.Shard, Layout.Replicate
Floats = NDArray[np.float32]
FULL = Operand("full")


def _title(op: str) -> str:
    return op.title().replace("_", "")


def unary_work(op: str, size: int, element: object) -> Work:
    """`op` on `size` elements, such as "relu", "gelu", "silu", "sigmoid" and "tanh"."""
    expr = UNARY[_title(op)](("in", 0), lambda _, default: default)
    return expression_work(op, expr, [FULL], (size, 1), element)


def binary_work(op: str, size: int, element: object) -> Work:
    """`op` on two tensors of `size` elements, such as "add", "sub", "mul" and "silu_mul"."""
    return expression_work(op, BINARY[_title(op)](("in", 0), ("in", 1)), [FULL, FULL], (size, 1), element)


def row_work(op: str, rows: int, width: int, element: object) -> Work:
    """ "add" or "mul" of every row of a matrix and the same row."""
    expr = BINARY[_title(op)](("in", 0), ("in", 1))
    return expression_work(f"{op}_row", expr, [FULL, Operand("row")], (rows, width), element)


# Windows: the elements under a window are a column of a [taps, N] matrix.


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


def depthwise(taps=9, M=3136, C=64, P=392, Ty=bfloat16):
    """Sums of the rows under each position, each times the weights of its tap."""
    Mt = M // P
    Sum, Out = (int32, int32) if Ty == int8 else (float32, Ty)

    @df.region()
    def top(X: Ty[taps, M * C], W: Ty[taps, C], Y: Out[M * C]):
        @df.kernel(mapping=[P], args=[X, W, Y])
        def core(x: Ty[taps, M * C] @ [R, S(0)], w: Ty[taps, C] @ [R, R], y: Out[M * C] @ [S(0)]):
            for i in range(Mt):
                for c in range(C):
                    total: Sum = 0
                    for t in range(taps):
                        total += x[t, i * C + c] * w[t, c]
                    y[i * C + c] = total

    return top


def pool_work(op: str, taps: int, size: int, element: object) -> Work:
    """ "max" or "mean" of `taps` rows of `size` elements."""
    most = max(1, MOST_WINDOW_ELEMENTS // taps)
    shares = divisors(size, at_least=-(-size // most), at_most=max(1, size // min(LEAST_WINDOWS, most)))

    def reference(X: Floats) -> Floats:
        found: Floats = X.max(axis=0) if op == "max" else X.mean(axis=0)
        return found

    params = {"taps": taps, "N": size, "P": shares, "op": op, "Ty": element}
    return Work(f"{op}_pool", pool, params, reference, lambda p: {"N": 4 * p["P"]})


def depthwise_work(taps: int, positions: int, channels: int, element: object) -> Work:
    """A convolution of every channel with its own [taps] weights."""
    most = max(1, MOST_WINDOW_ELEMENTS // ((taps + 1) * channels))

    def reference(X: Floats, W: Floats) -> Floats:
        whole = np.int32 if element == int8 else np.float32
        found: Floats = (X.reshape(taps, -1, channels).astype(whole) * W[:, None]).sum(axis=0).ravel()
        return found

    shares = divisors(positions, at_least=-(-positions // most), at_most=positions)
    params = {"taps": taps, "M": positions, "C": channels, "P": shares, "Ty": element}
    return Work("depthwise", depthwise, params, reference, lambda p: {"M": p["P"], "C": min(channels, 8)})
