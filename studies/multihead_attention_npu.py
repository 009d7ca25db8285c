"""Attention with several heads on a Ryzen AI NPU in one launch: grouped keys and values, causal masks, bfloat16.

    allo-tune studies/multihead_attention_npu.py                                  # 8 heads of 64, 512 queries, on npu2
    allo-tune studies/multihead_attention_npu.py --set kv_heads=2 --set causal=1

Every block of queries of every head is a row of tasks, one per chunk of keys and values; query heads of a group follow
each other along the same axis, as they share their keys and values. What passes from chunk to chunk is the online
softmax's state: the result so far, the largest score and the sum of the weights of each query. Folding the last axis
onto several cores in blocks makes a cascade of them. A causal mask hides the keys after a query; all tasks do the same
work, so that they can share cores, also on chunks that are hidden altogether.

Keys and values lie chunk by chunk in one tensor, T rows of keys and then T rows of values, because a core has two
channels for what comes in. `--set target=model` takes mlir-air's kernels, which were measured: heads are a dimension of
the tensors there, and scores and results of products have 32 bits.
"""

import math
from pathlib import Path

import allo
import allo.dataflow as df
import numpy as np
from allo.ir.types import Stream, bfloat16, float32
from allo.memory import Layout

import allo_dse as dse

S, R = Layout.Shard, Layout.Replicate
HIDDEN = -1.0e30
DEVICE = Path(__file__).parent / "npu2_attention.toml"


def attention(L=512, D=64, KV=8, G=1, T=64, causal=0, Ty=bfloat16):
    """KV heads of keys and values, each for G heads of queries; blocks of T queries, chunks of T keys.

    Heads lie side by side in columns, so that every tensor is a matrix, as Allo moves them. Products are of T x T x T,
    as Allo has one kernel for matrix products per program on XDNA2.
    """
    rows, chunks = L // T, L // T
    factor = 1.0 / math.sqrt(D)
    LyQ, LyK = [S(1), S(0)], [S(2), S(0)]

    @df.region()
    def top(Q: Ty[G * L, KV * D], Pairs: Ty[2 * L, KV * D], Out: Ty[G * L, KV * D]):
        results: Stream[float32[T, D], 2][KV, G * rows, chunks]
        states: Stream[float32[2, T], 2][KV, G * rows, chunks]

        @df.kernel(mapping=[KV, G * rows, chunks], args=[Q, Pairs, Out])
        def attend(q: Ty[G * L, KV * D] @ LyQ, pair: Ty[2 * L, KV * D] @ LyK, out: Ty[G * L, KV * D] @ LyQ):
            head, row, chunk = df.get_pid()
            result: float32[T, D]
            state: float32[2, T]  # of every query the largest score and the sum of the weights
            with allo.meta_if(chunk > 0):
                result[:, :] = results[head, row, chunk - 1].get()
                state[:, :] = states[head, row, chunk - 1].get()
            with allo.meta_else():
                result[:, :] = 0.0
                for i0 in range(T):
                    state[0, i0] = -1.0e30
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
                            scaled = -1.0e30
                            score[i, j] = -1.0e30
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


def attention_kernel(L=512, D=64, KV=8, G=1, T=64, causal=0, Ty=bfloat16):
    """KV heads of keys and values, each for G heads of queries; blocks of T queries, chunks of T keys."""
    rows, chunks = L // T, L // T
    factor = 1.0 / math.sqrt(D)
    LyQ, LyK = [S(0), S(1), R], [S(0), S(2), R]

    @df.region()
    def top(Q: Ty[KV, G * L, D], Pairs: Ty[KV, 2 * L, D], Out: Ty[KV, G * L, D]):
        results: Stream[float32[T, D], 2][KV, G * rows, chunks]
        tops: Stream[float32[T], 2][KV, G * rows, chunks]
        sums: Stream[float32[T], 2][KV, G * rows, chunks]

        @df.kernel(mapping=[KV, G * rows, chunks], args=[Q, Pairs, Out])
        def attend(q: Ty[KV, G * L, D] @ LyQ, pair: Ty[KV, 2 * L, D] @ LyK, out: Ty[KV, G * L, D] @ LyQ):
            head, row, chunk = df.get_pid()
            result: float32[T, D]
            largest: float32[T]
            total: float32[T]
            with allo.meta_if(chunk > 0):
                result[:, :] = results[head, row, chunk - 1].get()
                largest[:] = tops[head, row, chunk - 1].get()
                total[:] = sums[head, row, chunk - 1].get()
            with allo.meta_else():
                result[:, :] = 0.0
                largest[:] = HIDDEN
                total[:] = 0.0
            score: float32[T, T] = allo.matmul(q[0, :, :], pair[0, 0:T, :].T)
            weight: Ty[T, T] = 0.0
            scale: float32[T, 1] = 0.0
            for i in range(T):
                before: float32 = largest[i]
                for j in range(T):
                    with allo.meta_if(causal == 1):
                        if chunk * T + j > row % rows * T + i:
                            score[i, j] = HIDDEN
                    largest[i] = max(largest[i], score[i, j] * factor)
                scale[i, 0] = allo.exp(before - largest[i])
                total[i] = total[i] * scale[i, 0]
                for j2 in range(T):
                    weight[i, j2] = allo.exp(score[i, j2] * factor - largest[i])
                    total[i] += weight[i, j2]
            result[:, :] = result * scale
            part: float32[T, D] = allo.matmul(weight, pair[0, T : 2 * T, :])
            result[:, :] = allo.add(result, part)
            with allo.meta_if(chunk == chunks - 1):
                for i2 in range(T):
                    for d2 in range(D):
                        out[0, i2, d2] = result[i2, d2] / total[i2]
            with allo.meta_else():
                results[head, row, chunk].put(result)
                tops[head, row, chunk].put(largest)
                sums[head, row, chunk].put(total)

    return top


def _attended(Q, K, V, causal):
    """Q: [pairs, group, length, width]; K, V: [pairs, length, width]."""
    length, width = K.shape[1:]
    scores = Q @ K[:, None].transpose(0, 1, 3, 2) / np.sqrt(np.float32(width))
    if causal:
        scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (weights / weights.sum(axis=-1, keepdims=True)) @ V[:, None]


def reference(Q, Pairs, heads, chunks, causal=False):
    """Q: [G * L, heads * D], a group's queries below each other; Pairs: [2 * L, heads * D] in so many chunks."""
    K, V = Pairs.reshape(chunks, 2, -1, heads, Pairs.shape[1] // heads).transpose(1, 3, 0, 2, 4)
    K, V = (one.reshape(heads, -1, one.shape[-1]) for one in (K, V))
    queries = Q.reshape(-1, K.shape[1], heads, K.shape[2]).transpose(2, 0, 1, 3)
    return _attended(queries, K, V, causal).transpose(1, 2, 0, 3).reshape(Q.shape)


def kernel_reference(Q, Pairs, heads, chunks, causal=False):
    """Q: [heads, G * L, D]; Pairs: [heads, 2 * L, D]."""
    K, V = Pairs.reshape(heads, chunks, 2, -1, Pairs.shape[2]).transpose(2, 0, 1, 3, 4)
    K, V = (one.reshape(heads, -1, one.shape[-1]) for one in (K, V))
    return _attended(Q.reshape(heads, -1, *K.shape[1:]), K, V, causal).reshape(Q.shape)


def study(
    length: int = 512,
    width: int = 64,
    heads: int = 8,
    kv_heads: int = 8,
    causal: int = 0,
    chunk: int = 0,
    device: str = "",
    target: str = "allo",
) -> dse.Study:
    """The study `allo-tune` runs; its arguments can be set with `--set name=value`."""
    chunk = chunk or (16 if target == "allo" else 32)  # Allo's arrays and FIFOs of chunks of 32 exceed a core's memory
    chunks = length // chunk
    expected = lambda Q, Pairs: reference(Q, Pairs, kv_heads, chunks, causal)  # noqa: E731
    expected_of_kernel = lambda Q, Pairs: kernel_reference(Q, Pairs, kv_heads, chunks, causal)  # noqa: E731
    return dse.Study(
        f"multihead_attention_npu_{length}{'_causal' if causal else ''}",
        program=attention if target == "allo" else attention_kernel,
        params={"L": length, "D": width, "KV": kv_heads, "G": heads // kv_heads, "T": chunk, "causal": causal},
        device=device or ("npu2" if target == "allo" else DEVICE),
        target=target,
        objectives=[dse.minimize("latency_us"), dse.minimize("pe_count")],
        reference=expected if target == "allo" else expected_of_kernel,
        verify_with=lambda p: {"L": p["L"] // p["T"] * 4, "D": 8, "T": 4},
    )
