"""Designs of all kinds of programs that fit their devices, one and more columns wide."""

from __future__ import annotations

from allo_dse.mapper.fold.fold_space import AxisFold, KernelFold, MeshFold
from allo_dse.mapper.fold.vmg import VMG
from tests.support.programs import (
    attention_program,
    gemm_program,
    mesh_program,
    producer_consumer,
    systolic_program,
    vector_add_program,
)


def gemm(k: int, m: int, n: int) -> VMG:
    axes = (AxisFold(k, "block", "chain"), AxisFold(m, "cyclic"), AxisFold(n, "cyclic"))
    return VMG.of(gemm_program()).fold(MeshFold((KernelFold("gemm", axes),)))


def attention(rows: int, columns: int) -> VMG:
    """The hand-written mapping: four nodes per column."""
    vmg = VMG.of(attention_program(rows=rows, chunks=4))
    bundles = [
        ("bundle", [f"{kernel}_{row}_{c}" for c in range(4)])
        for kernel in ("cal_attn_score", "attn")
        for row in range(rows)
    ]
    chains = [("chain", [f"send_q_{row}", f"cal_attn_score_{row}_0x4"]) for row in range(rows)]
    names = [
        (f"send_q_{r}-cal_attn_score_{r}_0x4", f"cal_softmax_{r}", f"attn_{r}_0x4", f"acc_{r}") for r in range(rows)
    ]
    rounds = range(0, rows, columns)
    return vmg.apply([*bundles, *chains, *(("bundle", [names[c + r] for r in rounds]) for c in range(columns))])


DESIGNS = {
    "gemm 4x4": (gemm(1, 4, 4), "npu1_4col"),
    "gemm in half chains": (gemm(2, 4, 2), "npu1_4col"),
    "gemm 4x8": (gemm(1, 4, 8), "npu2"),
    "gemm on one column": (gemm(1, 2, 2), "npu1_1col"),
    "attention": (attention(8, 4), "npu1_4col"),
    "attention on 32 cores": (attention(16, 8), "npu2"),
    "systolic array": (VMG.of(systolic_program(P=2)), "npu1_4col"),
    "vector add": (VMG.of(vector_add_program(P=8)), "npu1_4col"),
    "producer and consumer": (VMG.of(producer_consumer()), "npu1_1col"),
    "mesh": (VMG.of(mesh_program((4, 8), [(0, 1), (1, 0)])), "npu2"),
}
