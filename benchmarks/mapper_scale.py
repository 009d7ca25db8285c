"""What building, folding and exporting graphs costs: split-K GEMMs of 32,768 tasks, and twice and four times as many.

    python benchmarks/mapper_scale.py

Prints milliseconds (best of a few runs) and, for the larger graphs, ratios to the smallest: linear work has ratios of
2 and 4, work that does not depend on the number of tasks has ratios of 1.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from allo_dse.frontend.program import CompiledProgram
from allo_dse.mapper.folds import AxisFold, KernelFold, MeshFold, fold_choices
from allo_dse.mapper.vmg import VMG
from tests.support.programs import gemm_program

MESHES = {"32,768": (32, 32, 32), "65,536": (32, 32, 64), "131,072": (32, 64, 64)}
FOLD = MeshFold(
    (KernelFold("gemm", (AxisFold(1, "block", "chain"), AxisFold(4, "cyclic"), AxisFold(4, "cyclic")), (1, 2)),)
)
RUNS = 5
COLUMN = 12


def measure(program: CompiledProgram) -> dict[str, float]:
    """Milliseconds of each step, by its name."""
    unfolded = VMG.of(program)
    primitives = unfolded.fold(FOLD).mapping_primitives
    applied = unfolded.apply(primitives)
    space = fold_choices(program, 16)
    steps: dict[str, Callable[[], Any]] = {
        "build the graph": lambda: VMG.of(program),
        "fold it by axes": lambda: unfolded.fold(FOLD),
        "fold, streams between nodes": lambda: unfolded.fold(FOLD).edges,
        "fold, key": lambda: unfolded.fold(FOLD).key,
        "fold space (at most 16 nodes)": lambda: fold_choices(program, 16),
        "count the space": space.count,
        "export the primitives": lambda: unfolded.fold(FOLD).mapping_primitives,
        "export as source": lambda: unfolded.fold(FOLD).mapping_source(),
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
    results = {tasks: measure(gemm_program(Pk=k, Pm=m, Pn=n)) for tasks, (k, m, n) in MESHES.items()}
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
