"""GEMM with an operand that is stored by columns, as `npu_cases.py` times it: the DMA changes its layout on the way."""

import allo
import allo.dataflow as df
from allo.ir.types import Stream, bfloat16
from allo.memory import Layout

S = Layout.Shard


def gemm_a_by_columns(M=2048, N=2048, K=2048, Pm=32, Pn=32, Pk=32, TyI=bfloat16, TyO=bfloat16):
    Mt, Nt = M // Pm, N // Pn
    LyA, LyB, LyC = [S(0), S(1)], [S(0), S(2)], [S(1), S(2)]

    @df.region()
    def top(A: TyI[K, M], B: TyI[K, N], C: TyO[M, N]):
        pipe: Stream[TyO[Mt, Nt], 2][Pk - 1, Pm, Pn]

        @df.kernel(mapping=[Pk, Pm, Pn], args=[A, B, C])
        def gemm(local_A: TyI[K, M] @ LyA, local_B: TyI[K, N] @ LyB, local_C: TyO[M, N] @ LyC):
            pk, pm, pn = df.get_pid()
            before: TyO[Mt, Nt]
            with allo.meta_if(pk > 0):
                before[:, :] = pipe[pk - 1, pm, pn].get()
            with allo.meta_else():
                before[:, :] = 0
            after: TyO[Mt, Nt] = allo.add(allo.matmul(allo.transpose(local_A, (1, 0)), local_B), before)
            with allo.meta_if(pk < Pk - 1):
                pipe[pk, pm, pn].put(after)
            with allo.meta_else():
                local_C[:, :] = after

    return top


def gemm_b_by_columns(M=2048, N=2048, K=2048, Pm=32, Pn=32, Pk=32, TyI=bfloat16, TyO=bfloat16):
    Mt, Nt = M // Pm, N // Pn
    LyA, LyB, LyC = [S(1), S(0)], [S(2), S(0)], [S(1), S(2)]

    @df.region()
    def top(A: TyI[M, K], B: TyI[N, K], C: TyO[M, N]):
        pipe: Stream[TyO[Mt, Nt], 2][Pk - 1, Pm, Pn]

        @df.kernel(mapping=[Pk, Pm, Pn], args=[A, B, C])
        def gemm(local_A: TyI[M, K] @ LyA, local_B: TyI[N, K] @ LyB, local_C: TyO[M, N] @ LyC):
            pk, pm, pn = df.get_pid()
            before: TyO[Mt, Nt]
            with allo.meta_if(pk > 0):
                before[:, :] = pipe[pk - 1, pm, pn].get()
            with allo.meta_else():
                before[:, :] = 0
            after: TyO[Mt, Nt] = allo.add(allo.matmul(local_A, allo.transpose(local_B, (1, 0))), before)
            with allo.meta_if(pk < Pk - 1):
                pipe[pk, pm, pn].put(after)
            with allo.meta_else():
                local_C[:, :] = after

    return top
