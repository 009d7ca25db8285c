"""Two layers of a perceptron, distributed as tensor-parallel training does it: Z = relu(X @ W1) @ W2 on a Ryzen AI NPU.

    allo-tune studies/mlp_npu.py                                # 128 x 128 x 512 x 128, int16
    allo-tune studies/mlp_npu.py --set hidden=1024

Every task of the first layer has a slice of W1's columns, and the task of the second layer at its place the same slice
of W2's rows, so that nothing but partial sums of Z is ever exchanged. How many slices there are, and how many cores
each layer gets, is what the study searches.
"""

import allo
import allo.dataflow as df
import numpy as np
from allo.ir.types import Stream, int16
from allo.memory import Layout

import allo_dse as dse

S, R = Layout.Shard, Layout.Replicate


def perceptron(M=128, D=128, H=512, L=128, Pm=4, P=16, Ty=int16):
    Mt, Ht = M // Pm, H // P

    @df.region()
    def top(X: Ty[M, D], W1: Ty[D, H], W2: Ty[H, L], Z: Ty[M, L]):
        Y: Stream[Ty[Mt, Ht], 2][Pm, P]
        parts: Stream[Ty[Mt, L], 2][Pm, P]

        @df.kernel(mapping=[Pm, P], args=[X, W1])
        def gemm0(local_X: Ty[M, D] @ [S(0), R], local_W1: Ty[D, H] @ [R, S(1)]):
            pm, p = df.get_pid()
            activated: Ty[Mt, Ht] = allo.relu(allo.matmul(local_X, local_W1))
            Y[pm, p].put(activated)

        @df.kernel(mapping=[Pm, P], args=[W2])
        def gemm1(local_W2: Ty[H, L] @ [S(1), R]):
            pm, p = df.get_pid()
            part: Ty[Mt, L] = allo.matmul(Y[pm, p].get(), local_W2)
            parts[pm, p].put(part)

        @df.kernel(mapping=[Pm], args=[Z])
        def acc(local_Z: Ty[M, L] @ [S(0), R]):
            pm = df.get_pid()
            total: Ty[Mt, L] = 0
            with allo.meta_for(P) as p:
                total[:, :] = allo.add(total, parts[pm, p].get())
            local_Z[:, :] = total

    return top


def reference(X, W1, W2):
    return np.maximum(X @ W1, 0) @ W2


def study(rows: int = 128, width: int = 128, hidden: int = 512, out: int = 128, device: str = "npu1_4col") -> dse.Study:
    """The study `allo-tune` runs; its arguments can be set with `--set name=value`."""
    return dse.Study(
        "mlp_npu",
        program=perceptron,
        params={
            "M": rows,
            "D": width,
            "H": hidden,
            "L": out,
            "Pm": dse.divisors(rows, at_least=max(1, rows // 64), at_most=rows // 16),
            "P": dse.divisors(hidden, at_least=hidden // 64, at_most=hidden // 16),
        },
        device=device,
        objectives=[dse.minimize("latency_us"), dse.minimize("pe_count")],
        reference=reference,
        verify_with=lambda p: {"M": 4 * p["Pm"], "D": 8, "H": 4 * p["P"], "L": 8},
    )
