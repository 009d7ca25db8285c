"""FlashAttention on a Ryzen AI NPU: Out = softmax(Q @ K.T / sqrt(D)) @ V for one head.

    allo-tune studies/attention_npu.py                          # sequence length 2048, bfloat16, on npu1_4col
    allo-tune studies/attention_npu.py --set length=512

A pipeline of five kernels for every block of query rows, in which keys and values pass chunk by chunk:

    send_q ──► scores ──► online softmax ──► weighted values ──► accumulation

The scores of a row never exist as a whole: the softmax keeps a running maximum and sum, and says by how much earlier
results have to be scaled down. Which of the stages share a core, and how many rows run side by side, is what the study
searches.
"""

import math

import allo
import allo.dataflow as df
import numpy as np
from allo.ir.types import Stream, bfloat16, float32
from allo.memory import Layout

import allo_dse as dse

S, R = Layout.Shard, Layout.Replicate


def attention(L=2048, D=64, Tq=32, Tk=32, TyIO=bfloat16):
    rows, chunks = L // Tq, L // Tk
    factor = 1.0 / math.sqrt(D)
    LyRow, LyChunk = [S(0), R], [S(1), R]

    @df.region()
    def top(Q: TyIO[L, D], K: TyIO[L, D], V: TyIO[L, D], Out: TyIO[L, D]):
        queries: Stream[TyIO[Tq, D], 2][rows, chunks]
        scores: Stream[TyIO[Tq, Tk], 2][rows, chunks]
        weights: Stream[TyIO[Tq, Tk], 2][rows, chunks]
        scales: Stream[float32[Tq], 2][rows]
        sums: Stream[float32[Tq], 2][rows]
        parts: Stream[TyIO[Tq, D], 2][rows, chunks]

        @df.kernel(mapping=[rows], args=[Q])
        def send_q(local_Q: TyIO[L, D] @ LyRow):
            r = df.get_pid()
            with allo.meta_for(chunks) as c:
                queries[r, c].put(local_Q)

        @df.kernel(mapping=[rows, chunks], args=[K])
        def cal_attn_score(local_K: TyIO[L, D] @ LyChunk):
            r, c = df.get_pid()
            q: TyIO[Tq, D] = queries[r, c].get()
            score: TyIO[Tq, Tk] = allo.matmul(q, local_K.T)
            scores[r, c].put(score)

        @df.kernel(mapping=[rows], args=[])
        def cal_softmax():
            r = df.get_pid()
            largest: float32[Tq] = -1.0e30
            total: float32[Tq] = 0.0
            with allo.meta_for(chunks) as c:
                score: TyIO[Tq, Tk] = scores[r, c].get()
                weight: TyIO[Tq, Tk] = 0.0
                scale: float32[Tq] = 0.0
                for i in range(Tq):
                    before: float32 = largest[i]
                    for j in range(Tk):
                        logit: float32 = score[i, j] * factor
                        if logit > largest[i]:
                            largest[i] = logit
                    scale[i] = allo.exp(before - largest[i])
                    total[i] = total[i] * scale[i]
                    for j2 in range(Tk):
                        weight[i, j2] = allo.exp(score[i, j2] * factor - largest[i])
                        total[i] += weight[i, j2]
                scales[r].put(scale)
                weights[r, c].put(weight)
            sums[r].put(total)

        @df.kernel(mapping=[rows, chunks], args=[V])
        def attn(local_V: TyIO[L, D] @ LyChunk):
            r, c = df.get_pid()
            part: TyIO[Tq, D] = allo.matmul(weights[r, c].get(), local_V)
            parts[r, c].put(part)

        @df.kernel(mapping=[rows], args=[Out])
        def acc(local_Out: TyIO[L, D] @ LyRow):
            r = df.get_pid()
            result: float32[Tq, D] = 0.0
            with allo.meta_for(chunks) as c:
                scale: float32[Tq] = scales[r].get()
                part: TyIO[Tq, D] = parts[r, c].get()
                for i, d in allo.grid(Tq, D):
                    result[i, d] = result[i, d] * scale[i] + part[i, d]
            total: float32[Tq] = sums[r].get()
            for i, d in allo.grid(Tq, D):
                local_Out[i, d] = result[i, d] / total[i]

    return top


def reference(Q, K, V):
    scores = (Q @ K.T) / np.sqrt(np.float32(Q.shape[1]))
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return (weights / weights.sum(axis=1, keepdims=True)) @ V


def study(length: int = 2048, head: int = 64, chunk: int = 32, device: str = "npu1_4col") -> dse.Study:
    """The study `allo-tune` runs; its arguments can be set with `--set name=value`."""
    return dse.Study(
        f"attention_npu_{length}",
        program=attention,
        params={"L": length, "D": head, "Tq": chunk, "Tk": chunk},
        device=device,
        objectives=[dse.minimize("latency_us"), dse.minimize("pe_count")],
        reference=reference,
        verify_with=lambda p: {"L": p["L"] // p["Tq"] * 4, "D": 8, "Tq": 4, "Tk": 4},
    )
