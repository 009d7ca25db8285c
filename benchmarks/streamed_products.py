"""2mm of PolyBench with its two products running at once: blocks of rows stream from one to the other.

python -m benchmarks.polybench_search 300 "2mm streamed"
"""

from __future__ import annotations

from typing import Any

import allo_dse.lang

allo_dse.lang.install()

import allo
import allo.dataflow as df
from allo.ir.types import Stream, float32
from allo.memory import Layout

import allo_dse as dse
from studies.polybench_fpga import ALPHA, BETA

S, R = Layout.Shard, Layout.Replicate


def two_mm(H: int = 180, J: int = 190, K: int = 210, L: int = 220, P: int = 10, U: int = 6, W: int = 10) -> Any:
    """P pairs of tasks with T rows each, of which U are handed over at a time, over W streams."""
    T = H // P

    @df.region()
    def top(A: float32[H, K], B: float32[K, J], C: float32[J, L], D: float32[H, L], E: float32[H, L]):
        rows: Stream[float32, U * (J // W)][P, W]

        @df.kernel(mapping=[P], args=[A, B])
        def first(a: float32[H, K] @ [S(0), R], b: float32[K, J]):
            p = df.get_pid()
            mid: float32[U, J]
            for n in range(T // U):
                for i0 in range(U):
                    for j0 in range(J):
                        mid[i0, j0] = 0.0
                for k in range(K):
                    for i in range(U):
                        for j in range(J):
                            mid[i, j] += a[n * U + i, k] * b[k, j]
                for i1 in range(U):
                    for j1 in range(J // W):
                        with allo.meta_for(W) as w:
                            rows[p, w].put(mid[i1, j1 * W + w])

        @df.kernel(mapping=[P], args=[C, D, E])
        def second(c: float32[J, L], d: float32[H, L] @ [S(0), R], e: float32[H, L] @ [S(0), R]):
            p = df.get_pid()
            mid: float32[U, J]
            acc: float32[U, L]
            for n in range(T // U):
                for i0 in range(U):
                    for j0 in range(J // W):
                        with allo.meta_for(W) as w:
                            mid[i0, j0 * W + w] = rows[p, w].get()
                for i1 in range(U):
                    for l1 in range(L):
                        acc[i1, l1] = 0.0
                for j in range(J):
                    for i in range(U):
                        for l2 in range(L):
                            acc[i, l2] += mid[i, j] * c[j, l2]
                for i3 in range(U):
                    for l3 in range(L):
                        e[n * U + i3, l3] = ALPHA * acc[i3, l3] + BETA * d[n * U + i3, l3]

    return top


def study(dsp: int) -> dse.Study:
    """As `polybench_fpga` searches 2mm."""
    return dse.Study(
        "polybench_2mm_streamed",
        program=two_mm,
        params={
            "P": dse.divisors(180),
            "U": dse.divisors(180),
            "W": dse.choices([5, 10, 19, 38], ordered=True),
        },
        where=[lambda p: p["P"] <= dsp // 3, lambda p: 180 % (p["P"] * p["U"]) == 0],
        device=dse.Device.load("u280").with_options(dsp=dsp),
        objectives=[dse.minimize("latency_cycles"), dse.minimize("dsp")],
        schedules=["auto", *(dse.memory(tensor, ["onchip"]) for tensor in "ABCDE")],
        reference=lambda A, B, C, D: ALPHA * (A @ B @ C) + BETA * D,
    )
