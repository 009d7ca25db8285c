"""C = A + B on a Ryzen AI NPU: nothing but data movement.

allo-tune studies/vector_add_npu.py                         # 2^20 elements of int32
allo-tune studies/vector_add_npu.py --set length=65536
"""

import allo
import allo.dataflow as df
from allo.ir.types import int32
from allo.memory import Layout

import allo_dse as dse

S = Layout.Shard


def vector_add(N=1048576, P=1024, Ty=int32):
    @df.region()
    def top(A: Ty[N], B: Ty[N], C: Ty[N]):
        @df.kernel(mapping=[P], args=[A, B, C])
        def core(local_A: Ty[N] @ [S(0)], local_B: Ty[N] @ [S(0)], local_C: Ty[N] @ [S(0)]):
            local_C[:] = allo.add(local_A, local_B)

    return top


def study(length: int = 1048576, device: str = "npu1_4col") -> dse.Study:
    """The study `allo-tune` runs; its arguments can be set with `--set name=value`."""
    return dse.Study(
        "vector_add_npu",
        program=vector_add,
        params={"N": length, "P": dse.divisors(length, at_least=max(1, length // 4096), at_most=length // 64)},
        device=device,
        objectives=[dse.minimize("latency_us"), dse.minimize("pe_count")],
        reference=lambda A, B: A + B,
        verify_with=lambda p: {"N": 4 * p["P"]},
    )
