"""A tiled GEMM on a ZCU102: C = A @ B in int8 with 32-bit sums, tiles computed by a mesh of processing elements.

    allo-tune studies/gemm_zcu102.py
    allo-tune studies/gemm_zcu102.py --set size=512 --set device=z7020

Each task computes one tile of C from rows of A and columns of B. How many tiles there are, how many of them share a
processing element, and how each is scheduled is searched.
"""

import allo.dataflow as df
from allo.ir.types import int8, int32
from allo.memory import Layout

import allo_dse as dse

S, R = Layout.Shard, Layout.Replicate


def tiled(M=256, N=256, K=256, Pm=4, Pn=4):
    Tm, Tn = M // Pm, N // Pn

    @df.region()
    def top(A: int8[M, K], B: int8[K, N], C: int32[M, N]):
        @df.kernel(mapping=[Pm, Pn], args=[A, B, C])
        def tile(a: int8[M, K] @ [S(0), R], b: int8[K, N] @ [R, S(1)], c: int32[M, N] @ [S(0), S(1)]):
            acc: int32[Tm, Tn]
            for i0 in range(Tm):
                for j0 in range(Tn):
                    acc[i0, j0] = 0
            for k in range(K):
                for i in range(Tm):
                    for j in range(Tn):
                        acc[i, j] += a[i, k] * b[k, j]
            for i1 in range(Tm):
                for j1 in range(Tn):
                    c[i1, j1] = acc[i1, j1]

    return top


def study(size: int = 256, device: str = "zcu102") -> dse.Study:
    """The study `allo-tune` runs; its arguments can be set with `--set name=value`."""
    tiles = dse.powers_of_two(1, 8)
    return dse.Study(
        "gemm_zcu102",
        program=tiled,
        params={"M": size, "N": size, "K": size, "Pm": tiles, "Pn": tiles},
        device=device,
        objectives=[dse.minimize("latency_us"), dse.minimize("dsp"), dse.minimize("bram18")],
        schedules="auto",
        reference=lambda A, B: A.astype("int32") @ B.astype("int32"),
        verify_with=lambda p: {"M": 4 * p["Pm"], "N": 4 * p["Pn"], "K": 32},
        trials=300,
    )
