"""Operators on elements, on rows (norms, softmax, rotary embedding) and on windows (pools, depthwise convolutions)."""

from __future__ import annotations

import allo.dataflow as df
import numpy as np
from allo.ir.types import bfloat16, float32, int8, int32
from allo.memory import Layout
from numpy.typing import NDArray

from .execute import Expr, Operand, Work, tile_counts
from .expressions import BINARY, UNARY, WIDTH, expression_work, number

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


# Rows, each by itself.


MOST_ROWS = 32  # rows of a task of `rope`


def rope(M=4096, D=64, P=4096, Ty=bfloat16):
    """Element j of a row turns with element j + D / 2; the table's rows have D / 2 cosines, then as many sines."""
    Mt, half = M // P, D // 2

    @df.region()
    def top(X: Ty[M, D], Table: Ty[M, D], Y: Ty[M, D]):
        @df.kernel(mapping=[P], args=[X, Table, Y])
        def core(x: Ty[M, D] @ [S(0), R], table: Ty[M, D] @ [S(0), R], y: Ty[M, D] @ [S(0), R]):
            for i in range(Mt):
                for j in range(half):
                    y[i, j] = x[i, j] * table[i, j] - x[i, j + half] * table[i, j + half]
                    y[i, j + half] = x[i, j] * table[i, j + half] + x[i, j + half] * table[i, j]

    return top


def rope_reference(X: Floats, table: Floats) -> Floats:
    (low, high), (cosine, sine) = np.split(X, 2, axis=1), np.split(table, 2, axis=1)
    return np.concatenate([low * cosine - high * sine, low * sine + high * cosine], axis=1)


def normed(x: Expr, epsilon: float) -> Expr:
    """x over the root of the mean square of its row."""
    return (
        "mul",
        x,
        ("div", number(1), ("sqrt", ("add", ("div", ("row_sum", ("mul", x, x)), WIDTH), number(epsilon)))),
    )


def rms_norm_work(rows: int, width: int, epsilon: float, element: object) -> Work:
    """x / sqrt(mean(x ** 2) + epsilon) * weight for every row."""
    expr = ("mul", normed(("in", 0), epsilon), ("in", 1))
    return expression_work("rms_norm", expr, [FULL, Operand("row")], (rows, width), element)


def softmax(x: Expr, *, log: bool = False) -> Expr:
    """The softmax of a row, or its logarithm."""
    below: Expr = ("sub", x, ("row_max", x))
    total: Expr = ("row_sum", ("exp", below))
    return ("sub", below, ("log", total)) if log else ("div", ("exp", below), total)


def rope_work(rows: int, width: int, element: object) -> Work:
    """Rows (positions times heads) turn by angles whose cosines and sines are a table of the same shape."""
    params = {"M": rows, "D": width, "P": tile_counts(rows, 1, MOST_ROWS), "Ty": element}
    return Work("rope", rope, params, rope_reference, lambda p: {"M": p["P"], "D": 8})


# Windows: the elements under a window are a row of a matrix, or a column where weights multiply them.


MOST_WINDOW_ELEMENTS = 8192  # read per task


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


def depthwise_work(taps: int, positions: int, channels: int, element: object) -> Work:
    """A convolution of every channel with its own [taps] weights."""
    most = max(1, MOST_WINDOW_ELEMENTS // ((taps + 1) * channels))

    def reference(X: Floats, W: Floats) -> Floats:
        whole = np.int32 if element == int8 else np.float32
        found: Floats = (X.reshape(taps, -1, channels).astype(whole) * W[:, None]).sum(axis=0).ravel()
        return found

    params = {"taps": taps, "M": positions, "C": channels, "P": tile_counts(positions, 1, most), "Ty": element}
    return Work("depthwise", depthwise, params, reference, lambda p: {"M": p["P"], "C": min(channels, 8)})
