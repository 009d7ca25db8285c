"""Matrix times vector on a Ryzen AI NPU: y = A @ x, bfloat16, as in each layer of a model that makes one token.

    allo-tune studies/gemv_npu.py                                  # 2048 x 2048 on npu2
    allo-tune studies/gemv_npu.py --set rows=16384 --set width=1024

Every element of A is used once. A task multiplies a block of rows by the whole vector, which every core keeps.
"""

import allo
import allo.dataflow as df
from allo.ir.types import bfloat16
from allo.memory import Layout

import allo_dse as dse

S, R = Layout.Shard, Layout.Replicate


def gemv(M=2048, K=2048, P=256, Ty=bfloat16):
    @df.region()
    def top(A: Ty[M, K], x: Ty[K, 1], y: Ty[M, 1]):
        @df.kernel(mapping=[P], args=[A, x, y])
        def core(local_A: Ty[M, K] @ [S(0), R], local_x: Ty[K, 1] @ [R, R], local_y: Ty[M, 1] @ [S(0), R]):
            local_y[:, :] = allo.matmul(local_A, local_x)

    return top


def study(rows: int = 2048, width: int = 2048, device: str = "npu2") -> dse.Study:
    """The study `allo-tune` runs; its arguments can be set with `--set name=value`."""
    return dse.Study(
        "gemv_npu",
        program=gemv,
        params={"M": rows, "K": width, "P": dse.divisors(rows, at_least=rows // 32, at_most=rows // 2)},
        device=device,
        target="model",  # Allo drops dimensions of a single element, and so the vector's second one
        objectives=[dse.minimize("latency_us"), dse.minimize("pe_count")],
        reference=lambda A, x: A @ x,
        verify_with=lambda p: {"M": 2 * p["P"], "K": 16},
    )
