"""What building, folding and exporting graphs costs: split-K GEMMs of 32,768 tasks, and twice and four times as many.

Also attention of as many tasks, whose five kernels fold together.

    python -m benchmarks.mapper_scale

Prints milliseconds (best of a few runs) and, for the larger graphs, ratios to the smallest: linear work has ratios of
2 and 4, work that does not depend on the number of tasks has ratios of 1.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.device.device import NpuDevice
from allo_dse.mapper.fold.fold_space import AxisFold, KernelFold, MeshFold, fold_choices
from allo_dse.mapper.fold.vmg import VMG
from tests.support.programs import attention_program, gemm_program

MESHES = {"32,768": (32, 32, 32), "65,536": (32, 32, 64), "131,072": (32, 64, 64)}
FOLD = MeshFold(
    (KernelFold("gemm", (AxisFold(1, "block", "chain"), AxisFold(4, "cyclic"), AxisFold(4, "cyclic")), (1, 2)),)
)
ROW, ALL = AxisFold(4, "cyclic"), AxisFold(1)
PIPELINES = MeshFold(
    tuple(
        KernelFold(name, axes)
        for name, axes in {
            "send_q": (ROW,), "cal_attn_score": (ROW, ALL), "cal_softmax": (ROW,), "attn": (ROW, ALL), "acc": (ROW,)
        }.items()
    ),
    (("send_q", "cal_attn_score"),),
)  # fmt: skip
RUNS = 5
COLUMN = 12


def measure(program: CompiledProgram, fold: MeshFold) -> dict[str, float]:
    """Milliseconds of each step, by its name."""
    unfolded, device = VMG.of(program), NpuDevice.load("npu1_4col")
    primitives = unfolded.fold(fold).mapping_primitives
    applied = unfolded.apply(primitives)
    space = fold_choices(program, 16)
    steps: dict[str, Callable[[], Any]] = {
        "build the graph": lambda: VMG.of(program),
        "fold it by axes": lambda: unfolded.fold(fold),
        "fold, streams between nodes": lambda: unfolded.fold(fold).edges,
        "fold, key": lambda: unfolded.fold(fold).key,
        "fold, check": lambda: NpuMapping(unfolded.fold(fold), device).violations,
        "fold space (at most 16 nodes)": lambda: fold_choices(program, 16),
        "count the space": space.count,
        "export the primitives": lambda: unfolded.fold(fold).mapping_primitives,
        "export as source": lambda: unfolded.fold(fold).mapping_source(),
        "apply the primitives": lambda: unfolded.apply(primitives),
        "key of the applied graph": lambda: VMG(applied.graph, applied.groups, None).key,
        "order of tasks (unfolded)": lambda: VMG(unfolded.graph, unfolded.groups, None).schedulable,
    }
    return {name: min(_time(step) for _ in range(RUNS)) for name, step in steps.items()}


def _time(step: Callable[[], Any]) -> float:
    start = time.perf_counter()
    step()
    return (time.perf_counter() - start) * 1e3


def main() -> None:
    show({tasks: measure(gemm_program(Pk=k, Pm=m, Pn=n), FOLD) for tasks, (k, m, n) in MESHES.items()})
    print("\nattention:")
    sizes = {rows * (2 * chunks + 3): (rows, chunks) for rows, chunks in ((128, 127), (256, 127), (256, 254))}
    show({f"{tasks:,}": measure(attention_program(*size), PIPELINES) for tasks, size in sizes.items()})


def show(results: dict[str, dict[str, float]]) -> None:
    """A table of milliseconds, with ratios to the smallest graph."""
    smallest = next(iter(results.values()))
    print(f"{'tasks':<32}" + "".join(f"{tasks:>{COLUMN}}{'ratio' if i else '':>8}" for i, tasks in enumerate(results)))
    for name, base in smallest.items():
        cells = [
            f"{times[name]:>{COLUMN - 3}.2f} ms" + (f"{times[name] / base:>8.1f}" if i else " " * 8)
            for i, times in enumerate(results.values())
        ]
        print(f"{name:<32}" + "".join(cells))


if __name__ == "__main__":
    main()
