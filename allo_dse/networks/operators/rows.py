"""Operators on the rows of a matrix, each by itself: RMSNorm, LayerNorm, softmax and rotary position embedding."""

from __future__ import annotations

import allo.dataflow as df
import numpy as np
from allo.ir.types import bfloat16
from allo.memory import Layout
from numpy.typing import NDArray

from allo_dse.space.params import divisors

from .execute import Expr, Operand, Work
from .expressions import expression_work, number

S, R = Layout.Shard, Layout.Replicate
MOST_ROWS = 32  # rows of a task of `rope`
Floats = NDArray[np.float32]


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


def _mean(x: Expr, width: int) -> Expr:
    return ("mul", ("row_sum", x), number(1 / width))


def normed(x: Expr, width: int, epsilon: float) -> Expr:
    """x over the root of the mean square of its row."""
    return ("mul", x, ("div", number(1), ("sqrt", ("add", _mean(("mul", x, x), width), number(epsilon)))))


def centred(x: Expr, width: int) -> Expr:
    """x less the mean of its row."""
    return ("sub", x, _mean(x, width))


def rms_norm_work(rows: int, width: int, epsilon: float, element: object) -> Work:
    """x / sqrt(mean(x ** 2) + epsilon) * weight for every row."""
    expr = ("mul", normed(("in", 0), width, epsilon), ("in", 1))
    return expression_work("rms_norm", expr, [Operand("full"), Operand("row")], (rows, width), element)


def layer_norm_work(rows: int, width: int, epsilon: float, element: object) -> Work:
    """(x - mean) / sqrt(variance + epsilon) * weight + bias for every row; weight and bias are rows of one matrix."""
    expr = ("add", ("mul", normed(centred(("in", 0), width), width, epsilon), ("in", 1)), ("in", 2))
    return expression_work("layer_norm", expr, [Operand("full"), Operand("row", 2)], (rows, width), element)


def softmax_work(rows: int, width: int, element: object) -> Work:
    """exp(x - largest) over its sum, for every row."""
    return expression_work("softmax", softmax(("in", 0)), [Operand("full")], (rows, width), element)


def softmax(x: Expr, *, log: bool = False) -> Expr:
    """The softmax of a row, or its logarithm."""
    below: Expr = ("sub", x, ("row_max", x))
    total: Expr = ("row_sum", ("exp", below))
    return ("sub", below, ("log", total)) if log else ("div", ("exp", below), total)


def rope_work(rows: int, width: int, element: object) -> Work:
    """Rows (positions times heads) turn by angles whose cosines and sines are a table of the same shape."""
    params = {"M": rows, "D": width, "P": divisors(rows, at_least=-(-rows // MOST_ROWS), at_most=rows), "Ty": element}
    return Work("rope", rope, params, rope_reference, lambda p: {"M": p["P"], "D": 8})
