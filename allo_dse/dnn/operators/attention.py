"""Attention with several heads in one program: grouped keys and values, causal masks, an online softmax."""

from __future__ import annotations

import math

import allo
import allo.dataflow as df
import numpy as np
from allo.ir.types import Stream, bfloat16, float32
from allo.memory import Layout
from numpy.typing import NDArray

from .work import Work

S = Layout.Shard
HIDDEN = -1.0e30
CHUNK = 16  # queries and keys of a task: arrays and FIFOs of 32 exceed a core's memory
Floats = NDArray[np.float32]


def attention(L=512, D=64, KV=8, G=1, T=16, causal=0, factor=0.125, Ty=bfloat16):
    """KV heads of keys and values, side by side in columns, each for G heads of queries below each other.

    Keys and values lie chunk by chunk in one tensor, T rows of keys and then T of values, as a core has two channels
    for what comes in. What passes from chunk to chunk is the result so far, and of every query the largest score and
    the sum of the weights.
    """
    rows, chunks = L // T, L // T
    LyQ, LyK = [S(1), S(0)], [S(2), S(0)]

    @df.region()
    def top(Q: Ty[G * L, KV * D], Pairs: Ty[2 * L, KV * D], Out: Ty[G * L, KV * D]):
        results: Stream[float32[T, D], 2][KV, G * rows, chunks]
        states: Stream[float32[2, T], 2][KV, G * rows, chunks]

        @df.kernel(mapping=[KV, G * rows, chunks], args=[Q, Pairs, Out])
        def attend(q: Ty[G * L, KV * D] @ LyQ, pair: Ty[2 * L, KV * D] @ LyK, out: Ty[G * L, KV * D] @ LyQ):
            head, row, chunk = df.get_pid()
            result: float32[T, D]
            state: float32[2, T]
            with allo.meta_if(chunk > 0):
                result[:, :] = results[head, row, chunk - 1].get()
                state[:, :] = states[head, row, chunk - 1].get()
            with allo.meta_else():
                result[:, :] = 0.0
                for i0 in range(T):
                    state[0, i0] = HIDDEN
                    state[1, i0] = 0.0
            score: Ty[T, T] = 0.0
            with allo.meta_for(D // T) as n:
                product: Ty[T, T] = allo.matmul(q[:, n * T : (n + 1) * T], pair[0:T, n * T : (n + 1) * T].T)
                score[:, :] = allo.add(score, product)
            weight: Ty[T, T] = 0.0
            for i in range(T):
                before: float32 = state[0, i]
                largest: float32 = before
                for j in range(T):
                    scaled: float32 = score[i, j] * factor
                    with allo.meta_if(causal == 1):
                        if chunk * T + j > row % rows * T + i:
                            scaled = HIDDEN
                            score[i, j] = HIDDEN
                    if scaled > largest:
                        largest = scaled
                scale: float32 = allo.exp(before - largest)
                total: float32 = state[1, i] * scale
                for j2 in range(T):
                    weight[i, j2] = allo.exp(score[i, j2] * factor - largest)
                    total += weight[i, j2]
                state[0, i] = largest
                state[1, i] = total
                for d in range(D):
                    result[i, d] = result[i, d] * scale
            with allo.meta_for(D // T) as m:
                part: Ty[T, T] = allo.matmul(weight, pair[T : 2 * T, m * T : (m + 1) * T])
                for i1, d1 in allo.grid(T, T):
                    result[i1, m * T + d1] = result[i1, m * T + d1] + part[i1, d1]
            with allo.meta_if(chunk == chunks - 1):
                for i2, d2 in allo.grid(T, D):
                    out[i2, d2] = result[i2, d2] / state[1, i2]
            with allo.meta_else():
                results[head, row, chunk].put(result)
                states[head, row, chunk].put(state)

    return top


def query_matrix(Q: Floats, kv_heads: int) -> Floats:
    """[heads, L, D] as the program takes it: [G * L, KV * D]."""
    heads, length, width = Q.shape
    grouped = Q.reshape(kv_heads, heads // kv_heads, length, width).transpose(1, 2, 0, 3)
    return grouped.reshape(-1, kv_heads * width)


def heads_of(matrix: Floats, kv_heads: int, length: int) -> Floats:
    """What the program writes, as [heads, L, D]: the inverse of `query_matrix`."""
    groups, width = matrix.shape[0] // length, matrix.shape[1] // kv_heads
    return matrix.reshape(groups, length, kv_heads, width).transpose(2, 0, 1, 3).reshape(-1, length, width)


def pair_matrix(K: Floats, V: Floats, chunk: int) -> Floats:
    """[KV, L, D] of keys and of values as the program takes them: [2 * L, KV * D], chunk by chunk."""
    heads, length, width = K.shape
    pairs = np.stack([K, V]).reshape(2, heads, length // chunk, chunk, width)
    return pairs.transpose(2, 0, 3, 1, 4).reshape(2 * length, heads * width)


def attend(Q: Floats, K: Floats, V: Floats, factor: float, causal: bool) -> Floats:
    """softmax(Q @ K.T * factor) @ V for [heads, L, D] of queries and [KV, L, D] of keys and values."""
    groups = Q.shape[0] // K.shape[0]
    K, V = np.repeat(K, groups, axis=0), np.repeat(V, groups, axis=0)
    scores = Q @ K.transpose(0, 2, 1) * np.float32(factor)
    if causal:
        scores = np.where(np.tri(K.shape[1], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    found: Floats = (weights / weights.sum(axis=-1, keepdims=True)) @ V
    return found


def chunk_of(length: int, width: int) -> int:
    """Queries and keys of a task: the largest that divides both, at most `CHUNK`."""
    return math.gcd(math.gcd(length, width), CHUNK)


def attention_work(
    heads: int, kv_heads: int, length: int, width: int, factor: float, causal: bool, element: object
) -> Work:
    """Queries of `query_matrix`, keys and values of `pair_matrix` with chunks of `chunk_of`."""
    chunk = chunk_of(length, width)

    def reference(queries: Floats, pairs: Floats) -> Floats:
        Q = heads_of(queries, kv_heads, length)
        K, V = (
            pairs.reshape(length // chunk, 2, chunk, kv_heads, width)
            .transpose(1, 3, 0, 2, 4)
            .reshape(2, kv_heads, length, width)
        )
        return query_matrix(attend(Q, K, V, factor, causal), kv_heads)

    params = {
        **{"L": length, "D": width, "KV": kv_heads, "G": heads // kv_heads, "T": chunk},
        **{"causal": int(causal), "factor": factor, "Ty": element},
    }
    return Work("attention", attention, params, reference)
