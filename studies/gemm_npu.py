"""Split-K GEMM on a Ryzen AI NPU: C = A @ B with M = N = K = 2048.

    allo-tune studies/gemm_npu.py                         # int16 on npu1_4col
    allo-tune studies/gemm_npu.py --set dtype=bf16        # or i8
    allo-tune studies/gemm_npu.py --set device=npu2 --set size=4096
    allo-tune studies/gemm_npu.py --set kernels=tuned     # let designs choose the vendor's kernels

The program is written as virtual tasks: one per (k, m, n) tile, with partial sums flowing along k. How many tiles,
which tasks share a core, in what order and with how many buffers is what the study searches.
"""

import allo
import allo.dataflow as df
from allo.ir.types import Stream, bfloat16, int8, int16
from allo.memory import Layout

import allo_dse as dse

S = Layout.Shard
ELEMENT_TYPES = {"i8": int8, "i16": int16, "bf16": bfloat16}


def gemm(M=2048, N=2048, K=2048, Pm=32, Pn=32, Pk=32, TyI=int16, TyO=int16):
    Mt, Nt = M // Pm, N // Pn
    LyA = [S(1), S(0)]
    LyB = [S(0), S(2)]
    LyC = [S(1), S(2)]

    @df.region()
    def top(A: TyI[M, K], B: TyI[K, N], C: TyO[M, N]):
        pipe: Stream[TyO[Mt, Nt], 2][Pk - 1, Pm, Pn]

        @df.kernel(mapping=[Pk, Pm, Pn], args=[A, B, C])
        def gemm(local_A: TyI[M, K] @ LyA, local_B: TyI[K, N] @ LyB, local_C: TyO[M, N] @ LyC):
            pk, pm, pn = df.get_pid()
            C_in: TyO[Mt, Nt]
            with allo.meta_if(pk > 0):
                C_in[:, :] = pipe[pk - 1, pm, pn].get()
            with allo.meta_else():
                C_in[:, :] = 0
            C_out: TyO[Mt, Nt] = allo.add(allo.matmul(local_A, local_B), C_in)
            with allo.meta_if(pk < Pk - 1):
                pipe[pk, pm, pn].put(C_out)
            with allo.meta_elif(pk == Pk - 1):
                local_C[:, :] = C_out

    return top


def study(dtype: str = "i16", size: int = 2048, device: str = "npu1_4col", kernels: str = "") -> dse.Study:
    """The study `allo-tune` runs; its arguments can be set with `--set name=value`."""
    element = ELEMENT_TYPES[dtype]
    tiles = dse.divisors(size, at_least=size // 256, at_most=size // 16)
    memory = "bram18" if dse.Device.of(device).family == "fpga" else "local_memory_bytes"
    return dse.Study(
        f"gemm_npu_{dtype}",
        program=gemm,
        params={"M": size, "N": size, "K": size, "Pm": tiles, "Pn": tiles, "Pk": tiles, "TyI": element, "TyO": element},
        device=device,
        kernels=kernels.split(",") if kernels else (),
        objectives=[dse.minimize("latency_us"), dse.minimize("pe_count"), dse.minimize(memory)],
        reference=lambda A, B: A @ B,
        verify_with=lambda p: {"M": 4 * p["Pm"], "N": 4 * p["Pn"], "K": 4 * p["Pk"]},
    )
