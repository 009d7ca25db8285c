"""Operators on the rows of a matrix, each by itself: RMSNorm, LayerNorm, softmax and rotary position embedding."""

from __future__ import annotations

import allo
import allo.dataflow as df
import numpy as np
from allo.ir.types import bfloat16, float32
from allo.memory import Layout
from numpy.typing import NDArray

from allo_dse.space.params import Parameter, divisors

from .execute import Work

S, R = Layout.Shard, Layout.Replicate
MOST_ROWS = 8  # rows of a task, which keeps them twice
Floats = NDArray[np.float32]


def rms_norm(M=1024, N=768, P=1024, epsilon=1e-5, Ty=bfloat16):
    Mt = M // P

    @df.region()
    def top(X: Ty[M, N], Weight: Ty[N], Y: Ty[M, N]):
        @df.kernel(mapping=[P], args=[X, Weight, Y])
        def core(x: Ty[M, N] @ [S(0), R], weight: Ty[N] @ [R], y: Ty[M, N] @ [S(0), R]):
            for i in range(Mt):
                squares: float32 = 0.0
                for j in range(N):
                    value: float32 = x[i, j]
                    squares += value * value
                scale: float32 = 1.0 / allo.sqrt(squares / N + epsilon)
                for j2 in range(N):
                    y[i, j2] = x[i, j2] * scale * weight[j2]

    return top


def layer_norm(M=1024, N=768, P=1024, epsilon=1e-5, Ty=bfloat16):
    Mt = M // P

    @df.region()
    def top(X: Ty[M, N], Weights: Ty[2, N], Y: Ty[M, N]):
        @df.kernel(mapping=[P], args=[X, Weights, Y])
        def core(x: Ty[M, N] @ [S(0), R], weights: Ty[2, N] @ [R, R], y: Ty[M, N] @ [S(0), R]):
            for i in range(Mt):
                total: float32 = 0.0
                for j in range(N):
                    total += x[i, j]
                mean: float32 = total / N
                squares: float32 = 0.0
                for j2 in range(N):
                    centred: float32 = x[i, j2] - mean
                    squares += centred * centred
                scale: float32 = 1.0 / allo.sqrt(squares / N + epsilon)
                for j3 in range(N):
                    y[i, j3] = (x[i, j3] - mean) * scale * weights[0, j3] + weights[1, j3]

    return top


def softmax(M=1024, N=768, P=1024, Ty=bfloat16):
    Mt = M // P

    @df.region()
    def top(X: Ty[M, N], Y: Ty[M, N]):
        @df.kernel(mapping=[P], args=[X, Y])
        def core(x: Ty[M, N] @ [S(0), R], y: Ty[M, N] @ [S(0), R]):
            weights: float32[N] = 0.0
            for i in range(Mt):
                largest: float32 = x[i, 0]
                for j in range(N):
                    value: float32 = x[i, j]
                    if value > largest:
                        largest = value
                total: float32 = 0.0
                for j2 in range(N):
                    weights[j2] = allo.exp(x[i, j2] - largest)
                    total += weights[j2]
                for j3 in range(N):
                    y[i, j3] = weights[j3] / total

    return top


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


def softmax_reference(X: Floats) -> Floats:
    weights: Floats = np.exp(X - X.max(axis=1, keepdims=True))
    found: Floats = weights / weights.sum(axis=1, keepdims=True)
    return found


def rope_reference(X: Floats, table: Floats) -> Floats:
    (low, high), (cosine, sine) = np.split(X, 2, axis=1), np.split(table, 2, axis=1)
    return np.concatenate([low * cosine - high * sine, low * sine + high * cosine], axis=1)


def _shares(rows: int, most: int = MOST_ROWS) -> Parameter:
    return divisors(rows, at_least=-(-rows // most), at_most=rows)


def rms_norm_work(rows: int, width: int, epsilon: float, element: object) -> Work:
    """x / sqrt(mean(x ** 2) + epsilon) * weight for every row."""

    def reference(X: Floats, weight: Floats) -> Floats:
        found: Floats = X / np.sqrt((X**2).mean(axis=1, keepdims=True) + np.float32(epsilon)) * weight
        return found

    params = {"M": rows, "N": width, "P": _shares(rows), "epsilon": epsilon, "Ty": element}
    return Work("rms_norm", rms_norm, params, reference, lambda p: {"M": p["P"], "N": 16})


def layer_norm_work(rows: int, width: int, epsilon: float, element: object) -> Work:
    """(x - mean) / sqrt(variance + epsilon) * weight + bias for every row; weight and bias are rows of one matrix."""

    def reference(X: Floats, weights: Floats) -> Floats:
        centred = X - X.mean(axis=1, keepdims=True)
        variance = (centred**2).mean(axis=1, keepdims=True)
        found: Floats = centred / np.sqrt(variance + np.float32(epsilon)) * weights[0] + weights[1]
        return found

    params = {"M": rows, "N": width, "P": _shares(rows), "epsilon": epsilon, "Ty": element}
    return Work("layer_norm", layer_norm, params, reference, lambda p: {"M": p["P"], "N": 16})


def softmax_work(rows: int, width: int, element: object) -> Work:
    """exp(x - largest) over its sum, for every row."""
    params = {"M": rows, "N": width, "P": _shares(rows), "Ty": element}
    return Work("softmax", softmax, params, softmax_reference, lambda p: {"M": p["P"], "N": 16})


def rope_work(rows: int, width: int, element: object) -> Work:
    """Rows (positions times heads) turn by angles whose cosines and sines are a table of the same shape."""
    params = {"M": rows, "D": width, "P": _shares(rows, 32), "Ty": element}
    return Work("rope", rope, params, rope_reference, lambda p: {"M": p["P"], "D": 8})
