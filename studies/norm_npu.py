"""Normalisation of the rows of a matrix on a Ryzen AI NPU, bfloat16.

    allo-tune studies/norm_npu.py                                  # RMSNorm with a weight row, 1024 x 768, on npu2
    allo-tune studies/norm_npu.py --set op=layer_norm              # with a weight and a bias row

The programs are those of networks, `rms_norm_work` and `layer_norm_work`. Rows are shared out over tasks; every core
keeps the weights, for LayerNorm with the bias as a second row, as a core has two channels for what comes in. How many
rows a task takes and how many cores there are is what the study searches. Allo has no code for `allo.layernorm`; `--set
target=model` takes the vendor's kernel, which was measured.
"""

import allo
import allo.dataflow as df
from allo.ir.types import bfloat16
from allo.memory import Layout

import allo_dse as dse
from allo_dse.networks.operators import layer_norm_work, rms_norm_work

S, R = Layout.Shard, Layout.Replicate
EPSILON = 1e-5


def layer_norm_kernel(M=1024, N=768, P=1024, Ty=bfloat16):
    @df.region()
    def top(X: Ty[M, N], Weights: Ty[2, N], Y: Ty[M, N]):
        @df.kernel(mapping=[P], args=[X, Weights, Y])
        def core(x: Ty[M, N] @ [S(0), R], weights: Ty[2, N] @ [R, R], y: Ty[M, N] @ [S(0), R]):
            y[:, :] = allo.layernorm(x, weights[0, :], weights[1, :], eps=EPSILON)

    return top


WORKS = {"rms_norm": rms_norm_work, "layer_norm": layer_norm_work}
KERNELS = {"rms_norm": rms_norm_work(8, 16, EPSILON, bfloat16).program, "layer_norm": layer_norm_kernel}
"""With kernels that the vendor has and Allo does not take; programs are for any size."""


def study(
    op: str = "rms_norm", rows: int = 1024, width: int = 768, device: str = "npu2", target: str = "allo"
) -> dse.Study:
    """The study `allo-tune` runs; its arguments can be set with `--set name=value`."""
    work = WORKS[op](rows, width, EPSILON, bfloat16)
    return dse.Study(
        f"{op}_npu",
        program=work.program if target == "allo" else KERNELS[op],
        params={"M": rows, "N": width, "P": dse.divisors(rows, at_least=max(1, rows // 8), at_most=rows)},
        device=device,
        target=target,
        objectives=[dse.minimize("latency_us"), dse.minimize("pe_count")],
        reference=work.reference,
        verify_with=lambda p: {"M": p["P"], "N": 16},
    )
