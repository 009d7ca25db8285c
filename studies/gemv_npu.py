"""Matrix times vector on a Ryzen AI NPU: y = A @ x, bfloat16, as in each layer of a model that makes one token.

    allo-tune studies/gemv_npu.py                                  # 2048 x 2048 on npu2
    allo-tune studies/gemv_npu.py --set rows=16384 --set width=1024

Every element of A is used once. A task multiplies a block of rows by the whole vector, which every core keeps. Allo
drops dimensions of a single element, and with them its matrix product's: it gets loops. `--set target=model` takes the
vendor's kernel, which was measured.
"""

import allo
import allo.dataflow as df
from allo.ir.types import bfloat16, float32
from allo.memory import Layout

import allo_dse as dse

S, R = Layout.Shard, Layout.Replicate


def gemv(M=2048, K=2048, P=256, Ty=bfloat16):
    Mt = M // P

    @df.region()
    def top(A: Ty[M, K], x: Ty[K], y: Ty[M]):
        @df.kernel(mapping=[P], args=[A, x, y])
        def core(local_A: Ty[M, K] @ [S(0), R], local_x: Ty[K] @ [R], local_y: Ty[M] @ [S(0)]):
            for i in range(Mt):
                total: float32 = 0.0
                for k in range(K):
                    total += local_A[i, k] * local_x[k]
                local_y[i] = total

    return top


def gemv_kernel(M=2048, K=2048, P=256, Ty=bfloat16):
    @df.region()
    def top(A: Ty[M, K], x: Ty[K, 1], y: Ty[M, 1]):
        @df.kernel(mapping=[P], args=[A, x, y])
        def core(local_A: Ty[M, K] @ [S(0), R], local_x: Ty[K, 1] @ [R, R], local_y: Ty[M, 1] @ [S(0), R]):
            local_y[:, :] = allo.matmul(local_A, local_x)

    return top


def study(rows: int = 2048, width: int = 2048, device: str = "npu2", target: str = "allo") -> dse.Study:
    """The study `allo-tune` runs; its arguments can be set with `--set name=value`."""
    return dse.Study(
        "gemv_npu",
        program=gemv if target == "allo" else gemv_kernel,
        params={"M": rows, "K": width, "P": dse.divisors(rows, at_least=rows // 32, at_most=rows // 2)},
        device=device,
        target=target,
        objectives=[dse.minimize("latency_us"), dse.minimize("pe_count")],
        reference=lambda A, x: A @ x,
        verify_with=lambda p: {"M": 2 * p["P"], "K": 16},
    )
