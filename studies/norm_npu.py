"""Normalisation of the rows of a matrix on a Ryzen AI NPU, bfloat16.

    allo-tune studies/norm_npu.py                                  # RMSNorm with a weight row, 1024 x 768, on npu2
    allo-tune studies/norm_npu.py --set op=layer_norm              # with a weight and a bias row

Rows are shared out over tasks; every core keeps the weights, for LayerNorm with the bias as a second row, as a core has
two channels for what comes in. How many rows a task takes and how many cores there are is what the study searches. Allo
has no code for `allo.layernorm`; `--set target=model` takes the vendor's kernel, which was measured.
"""

import allo
import allo.dataflow as df
import numpy as np
from allo.ir.types import bfloat16, float32
from allo.memory import Layout

import allo_dse as dse

S, R = Layout.Shard, Layout.Replicate
EPSILON = 1e-5


def rms_norm(M=1024, N=768, P=1024, Ty=bfloat16):
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
                scale: float32 = 1.0 / allo.sqrt(squares / N + EPSILON)
                for j2 in range(N):
                    y[i, j2] = x[i, j2] * scale * weight[j2]

    return top


def layer_norm(M=1024, N=768, P=1024, Ty=bfloat16):
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
                scale: float32 = 1.0 / allo.sqrt(squares / N + EPSILON)
                for j3 in range(N):
                    y[i, j3] = (x[i, j3] - mean) * scale * weights[0, j3] + weights[1, j3]

    return top


def layer_norm_kernel(M=1024, N=768, P=1024, Ty=bfloat16):
    @df.region()
    def top(X: Ty[M, N], Weights: Ty[2, N], Y: Ty[M, N]):
        @df.kernel(mapping=[P], args=[X, Weights, Y])
        def core(x: Ty[M, N] @ [S(0), R], weights: Ty[2, N] @ [R, R], y: Ty[M, N] @ [S(0), R]):
            y[:, :] = allo.layernorm(x, weights[0, :], weights[1, :], eps=EPSILON)

    return top


def rms_norm_reference(X, weight):
    return X / np.sqrt((X**2).mean(axis=1, keepdims=True) + np.float32(EPSILON)) * weight


def layer_norm_reference(X, weights):
    centred = X - X.mean(axis=1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + np.float32(EPSILON)) * weights[0] + weights[1]


PROGRAMS = {"rms_norm": rms_norm, "layer_norm": layer_norm}
KERNELS = {**PROGRAMS, "layer_norm": layer_norm_kernel}
"""With kernels that the vendor has and Allo does not take."""
REFERENCES = {"rms_norm": rms_norm_reference, "layer_norm": layer_norm_reference}


def study(
    op: str = "rms_norm", rows: int = 1024, width: int = 768, device: str = "npu2", target: str = "allo"
) -> dse.Study:
    """The study `allo-tune` runs; its arguments can be set with `--set name=value`."""
    return dse.Study(
        f"{op}_npu",
        program=(PROGRAMS if target == "allo" else KERNELS)[op],
        params={"M": rows, "N": width, "P": dse.divisors(rows, at_least=max(1, rows // 8), at_most=rows)},
        device=device,
        target=target,
        objectives=[dse.minimize("latency_us"), dse.minimize("pe_count")],
        reference=REFERENCES[op],
        verify_with=lambda p: {"M": p["P"], "N": 16},
    )
