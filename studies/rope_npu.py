"""Rotary position embedding on a Ryzen AI NPU, bfloat16: pairs of elements turn by angles that a table gives.

    allo-tune studies/rope_npu.py                              # 4096 rows (positions times heads) of 64, on npu2
    allo-tune studies/rope_npu.py --set rows=16384 --set width=128

Row r of the table has a cosine and a sine for each pair of elements, which becomes
(X[2j] cos - X[2j+1] sin, X[2j] sin + X[2j+1] cos).
"""

import allo.dataflow as df
import numpy as np
from allo.ir.types import bfloat16
from allo.memory import Layout

import allo_dse as dse

S, R = Layout.Shard, Layout.Replicate


def rope(M=4096, D=64, P=4096, Ty=bfloat16):
    Mt, pairs = M // P, D // 2

    @df.region()
    def top(X: Ty[M, D], Table: Ty[M, D], Y: Ty[M, D]):
        @df.kernel(mapping=[P], args=[X, Table, Y])
        def core(x: Ty[M, D] @ [S(0), R], table: Ty[M, D] @ [S(0), R], y: Ty[M, D] @ [S(0), R]):
            for i in range(Mt):
                for j in range(pairs):
                    y[i, 2 * j] = x[i, 2 * j] * table[i, 2 * j] - x[i, 2 * j + 1] * table[i, 2 * j + 1]
                    y[i, 2 * j + 1] = x[i, 2 * j] * table[i, 2 * j + 1] + x[i, 2 * j + 1] * table[i, 2 * j]

    return top


def reference(X, Table):
    even, odd, cosine, sine = X[:, 0::2], X[:, 1::2], Table[:, 0::2], Table[:, 1::2]
    return np.stack([even * cosine - odd * sine, even * sine + odd * cosine], axis=2).reshape(X.shape)


def study(rows: int = 4096, width: int = 64, device: str = "npu2") -> dse.Study:
    """The study `allo-tune` runs; its arguments can be set with `--set name=value`."""
    return dse.Study(
        "rope_npu",
        program=rope,
        params={"M": rows, "D": width, "P": dse.divisors(rows, at_least=max(1, rows // 32), at_most=rows)},
        device=device,
        objectives=[dse.minimize("latency_us"), dse.minimize("pe_count")],
        reference=reference,
        verify_with=lambda p: {"M": p["P"], "D": 8},
    )
