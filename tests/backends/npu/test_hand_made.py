"""Mappings that Allo's library writes by hand, beyond the studies: in the space, on the device, exported, and run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from allo_dse.backends.npu.fold_bounds import NpuFoldBounds
from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.device.device import NpuDevice
from allo_dse.eval.execute.run import run_graph
from allo_dse.lang import install
from allo_dse.mapper.fold.fold import Pattern
from allo_dse.mapper.fold.fold_space import AxisFold, KernelFold, MeshFold, fold_choices
from allo_dse.mapper.graph.groups import text
from allo_dse.mapper.graph.program_graph import ProgramGraph
from allo_dse.mapper.program import Program, load_program
from allo_dse.mapper.violation import Buffering

install()

import allo
import allo.dataflow as df
from allo.ir.types import Stream, int16, int32
from allo.memory import Layout

S, R = Layout.Shard, Layout.Replicate
NPU = NpuDevice.load("npu1_4col")
ALL, CHAINED = AxisFold(1), AxisFold(1, "block", "chain")


def four(pattern: Pattern = "cyclic", nodes: int = 4) -> AxisFold:
    return AxisFold(nodes, pattern)


def split_k(
    M: int = 64, N: int = 64, K: int = 32, Pm: int = 8, Pn: int = 8, Pk: int = 4, transposed: bool = True
) -> Any:
    """Split-K GEMM with B as it is or transposed: C = A @ B.T."""
    Mt, Nt = M // Pm, N // Pn
    shape, layout = ([N, K], [S(2), S(0)]) if transposed else ([K, N], [S(0), S(2)])

    @df.region()
    def top(A: int16[M, K], B: int16[shape[0], shape[1]], C: int16[M, N]):
        pipe: Stream[int16[Mt, Nt], 2][Pk - 1, Pm, Pn]

        @df.kernel(mapping=[Pk, Pm, Pn], args=[A, B, C])
        def gemm(
            local_A: int16[M, K] @ [S(1), S(0)],
            local_B: int16[shape[0], shape[1]] @ layout,
            local_C: int16[M, N] @ [S(1), S(2)],
        ):
            pk, pm, pn = df.get_pid()
            total: int16[Mt, Nt] = 0
            with allo.meta_if(pk > 0):
                total[:, :] = pipe[pk - 1, pm, pn].get()
            with allo.meta_if(transposed):
                total[:, :] = allo.add(allo.matmul(local_A, local_B.T), total)
            with allo.meta_else():
                total[:, :] = allo.add(allo.matmul(local_A, local_B), total)
            with allo.meta_if(pk < Pk - 1):
                pipe[pk, pm, pn].put(total)
            with allo.meta_else():
                local_C[:, :] = total

    return top


def producer_consumer(P: int = 4, N: int = 8) -> Any:
    """Puts in one nest of loops and branches, gets in another."""

    @df.region()
    def top(A: int32[P, N * N], B: int32[P, N * N]):
        pipe: Stream[int32, 4][P]

        @df.kernel(mapping=[P], args=[A])
        def producer(local_A: int32[P, N * N] @ [S(0), R]):
            p = df.get_pid()
            for i in range(N):
                for j in range(N):
                    if j < N // 2:
                        pipe[p].put(local_A[0, i * N + j])
                    else:
                        pipe[p].put(local_A[0, i * N + j] * 2)

        @df.kernel(mapping=[P], args=[B])
        def consumer(local_B: int32[P, N * N] @ [S(0), R]):
            p = df.get_pid()
            for k in range(N * N // 2):
                local_B[0, k] = pipe[p].get()
            for k2 in range(N * N // 2):
                local_B[0, N * N // 2 + k2] = pipe[p].get() + 1

    return top


def gather_scatter(P: int = 8, T: int = 16) -> Any:
    """One task deals out tiles, `P` tasks work on them, one collects them."""

    @df.region()
    def top(A: int32[P, T], B: int32[P, T]):
        there: Stream[int32[T], 2][P]
        back: Stream[int32[T], 2][P]

        @df.kernel(mapping=[1], args=[A])
        def scatter(local_A: int32[P, T]):
            df.scatter(local_A, there)

        @df.kernel(mapping=[P], args=[])
        def work():
            p = df.get_pid()
            tile: int32[T] = there[p].get()
            for t in range(T):
                tile[t] = tile[t] * tile[t]
            back[p].put(tile)

        @df.kernel(mapping=[1], args=[B])
        def gather(local_B: int32[P, T]):
            local_B[:, :] = df.gather(back)

    return top


def gemm_fold(k: AxisFold, m: AxisFold, n: AxisFold) -> MeshFold:
    return MeshFold((KernelFold("gemm", (k, m, n)),))


def fold_of(axes: dict[str, tuple[AxisFold, ...]], *chains: tuple[str, ...]) -> MeshFold:
    return MeshFold(tuple(KernelFold(name, own) for name, own in axes.items()), chains)


CASES: dict[str, Any] = {
    "A @ B.T, all k chained, 4x4": (split_k, {}, gemm_fold(CHAINED, four(), four()), ["4x[0.0; 2*0.1; 0.2]"]),
    "A @ B.T, half-K chains, 4x2 pairs": (
        split_k, {}, gemm_fold(AxisFold(2, "block", "chain"), four(), four(nodes=2)),
        ["8x[0.0; 0.1]", "8x[0.1; 0.2]"],
    ),
    "A @ B, blocks": (
        split_k, {"transposed": False}, gemm_fold(CHAINED, four("block"), four("block", 2)), ["8x[0.0; 2*0.1; 0.2]"],
    ),
    "producer and consumer on a core, two rounds each": (
        producer_consumer, {},
        fold_of({"producer": (four(nodes=2),), "consumer": (four(nodes=2),)}, ("producer", "consumer")),
        ["2x[0.0; 1.0]"],
    ),
    "producers and consumers in pairs": (
        producer_consumer, {}, fold_of({"producer": (four("block", 2),), "consumer": (four("block", 2),)}),
        ["2x[0.0]", "2x[1.0]"],
    ),
    "gather and scatter around four workers": (
        gather_scatter, {}, fold_of({"scatter": (ALL,), "work": (four(),), "gather": (ALL,)}),
        ["0.0", "2x[1.0]", "2.0"],
    ),
    "gather and scatter on one core": (
        gather_scatter, {},
        fold_of({"scatter": (ALL,), "work": (ALL,), "gather": (ALL,)}, ("scatter", "work", "gather")),
        ["[0.0; 8x[1.0]; 2.0]"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_mapped_by_hand(case: Any) -> None:
    source, params, fold, trees = CASES[case]
    program = load_program(source, **params)
    fold = fold.normalised(ProgramGraph(program))
    assert fold_choices(program, 16, NpuFoldBounds(ProgramGraph(program), NPU)).contains(fold)
    vmg = program.vmg.fold(fold)
    assert [text(group.tree) for group in vmg.groups] == trees
    assert NpuMapping(vmg, NPU, Buffering()).violations == ()
    assert program.vmg.apply(vmg.mapping_primitives).key == vmg.key
    inputs, results = arrays(program), []
    for graph in (program.vmg, vmg):
        own = [array.copy() for array in inputs]
        run_graph(graph, *own)
        results.append(own[-1])
    assert results[0].any()
    assert (results[0] == results[1]).all()


def arrays(program: Program) -> list[np.ndarray]:
    """Small random numbers; zeros for the last tensor, which every program here writes."""
    rng = np.random.default_rng(0)
    dtype = {"int16": np.int16, "int32": np.int32}
    values = [rng.integers(-9, 9, t.shape).astype(dtype[t.dtype.name]) for t in program.tensors]
    values[-1][...] = 0
    return values
