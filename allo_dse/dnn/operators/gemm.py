"""Products of matrices: C = A @ B, and of a matrix and a vector, with partial sums flowing along K."""

from __future__ import annotations

import allo
import allo.dataflow as df
import numpy as np
from allo.ir.types import Stream, bfloat16, float32
from allo.memory import Layout

from .work import Work, tile_counts

S = Layout.Shard


def gemm(M=2048, N=2048, K=2048, Pm=32, Pn=32, Pk=32, Ty=bfloat16):
    Mt, Nt = M // Pm, N // Pn
    LyA, LyB, LyC = [S(1), S(0)], [S(0), S(2)], [S(1), S(2)]

    @df.region()
    def top(A: Ty[M, K], B: Ty[K, N], C: Ty[M, N]):
        sums: Stream[Ty[Mt, Nt], 2][Pk - 1, Pm, Pn]

        @df.kernel(mapping=[Pk, Pm, Pn], args=[A, B, C])
        def gemm(local_A: Ty[M, K] @ LyA, local_B: Ty[K, N] @ LyB, local_C: Ty[M, N] @ LyC):
            pk, pm, pn = df.get_pid()
            before: Ty[Mt, Nt]
            with allo.meta_if(pk > 0):
                before[:, :] = sums[pk - 1, pm, pn].get()
            with allo.meta_else():
                before[:, :] = 0
            after: Ty[Mt, Nt] = allo.add(allo.matmul(local_A, local_B), before)
            with allo.meta_if(pk < Pk - 1):
                sums[pk, pm, pn].put(after)
            with allo.meta_elif(pk == Pk - 1):
                local_C[:, :] = after

    return top


def gemv(M=2048, K=2048, Pm=256, Pk=1, Ty=bfloat16):
    """y = A @ x. Allo drops dimensions of a single element, and with them its matrix product's: it gets loops."""
    Mt, Kt = M // Pm, K // Pk
    LyA, Lyx, Lyy = [S(1), S(0)], [S(0)], [S(1)]

    @df.region()
    def top(A: Ty[M, K], x: Ty[K], y: Ty[M]):
        sums: Stream[float32[Mt], 2][Pk - 1, Pm]

        @df.kernel(mapping=[Pk, Pm], args=[A, x, y])
        def gemv(local_A: Ty[M, K] @ LyA, local_x: Ty[K] @ Lyx, local_y: Ty[M] @ Lyy):
            pk, pm = df.get_pid()
            before: float32[Mt]
            with allo.meta_if(pk > 0):
                before[:] = sums[pk - 1, pm].get()
            with allo.meta_else():
                before[:] = 0.0
            for i in range(Mt):
                total: float32 = before[i]
                for k in range(Kt):
                    total += local_A[i, k] * local_x[k]
                before[i] = total
            with allo.meta_if(pk < Pk - 1):
                sums[pk, pm].put(before)
            with allo.meta_elif(pk == Pk - 1):
                for i1 in range(Mt):
                    local_y[i1] = before[i1]

    return top


def gemv_work(rows: int, depth: int, element: object) -> Work:
    """[rows, depth] times a vector. A task has 2 to 32 rows; no core keeps more than 2,048 elements of one, twice."""
    return Work(
        "gemv",
        gemv,
        {
            **{"M": rows, "K": depth, "Ty": element},
            **{"Pm": tile_counts(rows, 2, 32), "Pk": tile_counts(depth, 512, 2048)},
        },
        np.matmul,
        lambda p: {"M": 2 * p["Pm"], "K": 16 * p["Pk"]},
    )


def gemm_work(rows: int, columns: int, depth: int, element: object) -> Work:
    """[rows, depth] times [depth, columns]."""
    return Work(
        "gemm",
        gemm,
        {
            **{"M": rows, "N": columns, "K": depth},
            **{"Pm": tile_counts(rows), "Pn": tile_counts(columns), "Pk": tile_counts(depth), "Ty": element},
        },
        np.matmul,
        lambda p: {"M": 4 * p["Pm"], "N": 4 * p["Pn"], "K": 4 * p["Pk"]},
    )
