"""The feed-forward block of a transformer on a Ryzen AI NPU: Y = gelu(X @ W1) @ W2.

    allo-tune studies/ffn_npu.py                                # 512 tokens, width 128, 512 hidden, bfloat16
    allo-tune studies/ffn_npu.py --set tokens=1024 --set device=npu2

The hidden layer never reaches DRAM: blocks of it stream from the first product to the second, and the partial sums of
the second to an adder. Tile sizes, and how many cores each of the three kernels gets or shares, is what the study
searches.
"""

import math

import allo
import allo.dataflow as df
import numpy as np
from allo.ir.types import Stream, bfloat16
from allo.memory import Layout

import allo_dse as dse

S, R = Layout.Shard, Layout.Replicate
# gelu(x) = x / (1 + exp(SCALE * (x + CUBIC * x**3))), spelled out: Allo has no code for `allo.gelu` on the AI engine.
# The cubic is a loop over the elements: every operation on tiles has an array of its own in Allo. Its kernel for
# `allo.add` takes one shape per program, that of the partial sums: differences take any.
CUBIC, SCALE = 0.044715, -2 * math.sqrt(2 / math.pi)


def feed_forward(M=512, D=128, H=512, Pm=16, Ph=16, Ty=bfloat16):
    Mt, Ht = M // Pm, H // Ph

    @df.region()
    def top(X: Ty[M, D], W1: Ty[D, H], W2: Ty[H, D], Y: Ty[M, D]):
        hidden: Stream[Ty[Mt, Ht], 2][Pm, Ph]
        parts: Stream[Ty[Mt, D], 2][Pm, Ph]

        @df.kernel(mapping=[Pm, Ph], args=[X, W1])
        def up(local_X: Ty[M, D] @ [S(0), R], local_W1: Ty[D, H] @ [R, S(1)]):
            pm, ph = df.get_pid()
            product: Ty[Mt, Ht] = allo.matmul(local_X, local_W1)
            inner: Ty[Mt, Ht]
            for i, j in allo.grid(Mt, Ht):
                x: Ty = product[i, j]
                inner[i, j] = x * (x * x * (CUBIC * SCALE) + SCALE)
            activated: Ty[Mt, Ht] = allo.div(product, allo.sub(allo.exp(inner), -1.0))
            hidden[pm, ph].put(activated)

        @df.kernel(mapping=[Pm, Ph], args=[W2])
        def down(local_W2: Ty[H, D] @ [S(1), R]):
            pm, ph = df.get_pid()
            part: Ty[Mt, D] = allo.matmul(hidden[pm, ph].get(), local_W2)
            parts[pm, ph].put(part)

        @df.kernel(mapping=[Pm], args=[Y])
        def acc(local_Y: Ty[M, D] @ [S(0), R]):
            pm = df.get_pid()
            total: Ty[Mt, D] = 0
            with allo.meta_for(Ph) as h:
                total[:, :] = allo.add(total, parts[pm, h].get())
            local_Y[:, :] = total

    return top


def reference(X, W1, W2):
    hidden = X @ W1
    inner = np.sqrt(np.float32(2 / np.pi)) * (hidden + np.float32(0.044715) * hidden**3)
    return (0.5 * hidden * (1 + np.tanh(inner))) @ W2


def study(tokens: int = 512, width: int = 128, hidden: int = 512, device: str = "npu1_4col") -> dse.Study:
    """The study `allo-tune` runs; its arguments can be set with `--set name=value`."""
    return dse.Study(
        "ffn_npu",
        program=feed_forward,
        params={
            "M": tokens,
            "D": width,
            "H": hidden,
            "Pm": dse.divisors(tokens, at_least=tokens // 64, at_most=tokens // 16),
            "Ph": dse.divisors(hidden, at_least=hidden // 64, at_most=hidden // 16),
        },
        device=device,
        objectives=[dse.minimize("latency_us"), dse.minimize("pe_count")],
        reference=reference,
        verify_with=lambda p: {"M": 4 * p["Pm"], "D": 8, "H": 4 * p["Ph"]},
    )
