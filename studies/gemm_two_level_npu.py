"""GEMM with two levels of K tiles on a Ryzen AI NPU: C = A @ B, bfloat16, sums in float32.

    allo-tune studies/gemm_two_level_npu.py                              # 512 x 512 x 512 on npu2
    allo-tune studies/gemm_two_level_npu.py --set size=2048 --set out=bf16

A task brings an outer tile of K from DRAM, in long rows, and multiplies it in inner tiles of `inner`, as the vector
unit's kernel takes them. The float32 sums pass from outer tile to outer tile and are converted once, when they leave.
"""

import allo
import allo.dataflow as df
from allo.ir.types import Stream, bfloat16, float32
from allo.memory import Layout

import allo_dse as dse

S = Layout.Shard
RESULTS = {"f32": float32, "bf16": bfloat16}


def gemm(M=512, N=512, K=512, Pm=16, Pn=16, Pk=8, inner=32, TyI=bfloat16, TyO=float32):
    Mt, Nt, Kt = M // Pm, N // Pn, K // Pk

    @df.region()
    def top(A: TyI[M, K], B: TyI[K, N], C: TyO[M, N]):
        sums: Stream[float32[Mt, Nt], 2][Pk - 1, Pm, Pn]

        @df.kernel(mapping=[Pk, Pm, Pn], args=[A, B, C])
        def gemm(
            local_A: TyI[M, K] @ [S(1), S(0)], local_B: TyI[K, N] @ [S(0), S(2)], local_C: TyO[M, N] @ [S(1), S(2)]
        ):
            pk, pm, pn = df.get_pid()
            total: float32[Mt, Nt]
            with allo.meta_if(pk > 0):
                total[:, :] = sums[pk - 1, pm, pn].get()
            with allo.meta_else():
                total[:, :] = 0
            for k in range(Kt // inner):
                part: float32[Mt, Nt] = allo.matmul(
                    local_A[:, k * inner : (k + 1) * inner], local_B[k * inner : (k + 1) * inner, :]
                )
                total[:, :] = allo.add(total, part)
            with allo.meta_if(pk < Pk - 1):
                sums[pk, pm, pn].put(total)
            with allo.meta_else():
                local_C[:, :] = total

    return top


def study(size: int = 512, inner: int = 32, out: str = "f32", device: str = "npu2") -> dse.Study:
    """The study `allo-tune` runs; its arguments can be set with `--set name=value`."""
    tiles = dse.divisors(size, at_least=size // 128, at_most=size // 16)
    return dse.Study(
        f"gemm_two_level_npu_{out}",
        program=gemm,
        params={
            "M": size,
            "N": size,
            "K": size,
            "Pm": tiles,
            "Pn": tiles,
            "Pk": dse.divisors(size // inner, at_least=max(1, size // 256), at_most=size // inner),
            "inner": inner,
            "TyO": RESULTS[out],
        },
        device=device,
        target="model",  # Allo takes no slices at positions that a loop gives
        objectives=[dse.minimize("latency_us"), dse.minimize("pe_count"), dse.minimize("local_memory_bytes")],
        reference=lambda A, B: A @ B,
        verify_with=lambda p: {"M": 4 * p["Pm"], "N": 4 * p["Pn"], "K": 8 * p["Pk"], "inner": 4},
    )
