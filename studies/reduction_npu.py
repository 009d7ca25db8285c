"""Sums of the columns of a matrix on a Ryzen AI NPU: y[n] = sum over m of A[m, n].

    allo-tune studies/reduction_npu.py                          # 1024 x 1024, int32
    allo-tune studies/reduction_npu.py --set rows=4096

Tasks hand running sums down the rows. How many rows a task adds up, whether the tasks of a column follow each other on
one core or form a pipeline, and how columns share cores is what the study searches.
"""

import allo
import allo.dataflow as df
from allo.ir.types import Stream, int32
from allo.memory import Layout

import allo_dse as dse

S = Layout.Shard


def column_sums(M=1024, N=1024, Pm=16, Pn=16, Ty=int32):
    Mt, Nt = M // Pm, N // Pn

    @df.region()
    def top(A: Ty[M, N], y: Ty[N]):
        running: Stream[Ty[Nt], 2][Pm, Pn]

        @df.kernel(mapping=[Pm, Pn], args=[A, y])
        def add_up(local_A: Ty[M, N] @ [S(0), S(1)], local_y: Ty[N] @ [S(1)]):
            pm, pn = df.get_pid()
            total: Ty[Nt] = 0
            with allo.meta_if(pm > 0):
                total[:] = running[pm - 1, pn].get()
            for i in range(Mt):
                total[:] = allo.add(total, local_A[i, :])
            with allo.meta_if(pm < Pm - 1):
                running[pm, pn].put(total)
            with allo.meta_else():
                local_y[:] = total

    return top


def study(rows: int = 1024, columns: int = 1024, device: str = "npu1_4col") -> dse.Study:
    """The study `allo-tune` runs; its arguments can be set with `--set name=value`."""
    return dse.Study(
        "reduction_npu",
        program=column_sums,
        params={
            "M": rows,
            "N": columns,
            "Pm": dse.divisors(rows, at_least=max(1, rows // 128), at_most=rows // 8),
            "Pn": dse.divisors(columns, at_least=max(1, columns // 128), at_most=columns // 8),
        },
        device=device,
        objectives=[dse.minimize("latency_us"), dse.minimize("pe_count")],
        reference=lambda A: A.sum(axis=0, dtype=A.dtype),
        verify_with=lambda p: {"M": 2 * p["Pm"], "N": 4 * p["Pn"]},
    )
