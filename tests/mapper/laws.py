"""Random meshes and folds, and hand-written mappings, for the laws of the mapper."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import strategies as st

from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.mapper.fold.fold_space import MeshFold, fold_choices

from ..support.programs import (
    attention_program,
    gemm_program,
    mesh_program,
    stages_program,
    systolic_program,
    vector_add_program,
)
from ..support.strategies import of


def gemm_mapping(Pm: int, Pn: int, Pk: int, rows: int, cols: int, chains: int = 1) -> list[Any]:
    """The mapping by hand: k in `chains` chains, then outputs (i + rows * p, j + cols * q) bundled onto rows x cols."""
    primitives: list[Any] = []
    base: dict[tuple[int, int, int], str] = {}
    part = Pk // chains
    for i in range(Pm):
        for j in range(Pn):
            for c in range(chains):
                node = f"gemm_{c * part}_{i}_{j}"
                for k in range(c * part + 1, (c + 1) * part):
                    task = f"gemm_{k}_{i}_{j}"
                    primitives.append(("chain", [node, task]))
                    node += "-" + task
                base[i, j, c] = node
    for i in range(rows):
        for j in range(cols):
            tasks = [(i + rows * p, j + cols * q) for p in range(Pm // rows) for q in range(Pn // cols)]
            if chains == 1:
                primitives.append(("bundle", [base[x, y, 0] for x, y in tasks]))
            else:
                primitives.append(("bundle", [tuple(base[x, y, c] for c in range(chains)) for x, y in tasks]))
    return primitives


@st.composite
def programs(draw: st.DrawFn) -> CompiledProgram:
    """Small programs of every regular kind: meshes with streams along some axes, forwards or backwards."""
    kind = draw(of("mesh", "mesh", "mesh", "gemm", "systolic", "vadd", "attention", "stages", "stages"))
    if kind == "stages":
        return draw(stages())
    if kind == "gemm":
        pk, pm, pn = (draw(of(1, 2, 4)) for _ in range(3))
        return gemm_program(64, 64, 64, Pm=pm, Pn=pn, Pk=pk)
    if kind == "systolic":
        return systolic_program(draw(st.integers(1, 2)), 4)
    if kind == "vadd":
        return vector_add_program(draw(of(1, 6, 8)))
    if kind == "attention":
        return attention_program(2, draw(of(2, 4)))
    mesh = draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=3))
    signs = [draw(of(-1, 0, 0, 1)) for _ in mesh]
    deltas = []
    for _ in range(draw(st.integers(0, 2))):
        delta = [draw(st.integers(0, 2)) * sign for sign in signs]
        if any(delta):
            deltas.append(delta)
    return mesh_program(mesh, deltas)


@st.composite
def stages(draw: st.DrawFn) -> CompiledProgram:
    """Kernels one after the other, each on the same mesh as the one before, transposed, or spread over another axis.

    grid[i, j] ──► grid[i, j]     each task to the one at its place
    row[i]     ──► grid[i, j]     each task to all of its row
    grid[i, j] ──► row[i]         and back
    """
    sizes = [draw(of(2, 3, 4)) for _ in range(2)]
    kinds = [draw(of("grid", "turned", "row", "sums")) for _ in range(draw(st.integers(2, 4)))]
    return stages_program(sizes, kinds)


@st.composite
def folded(draw: st.DrawFn) -> tuple[CompiledProgram, MeshFold]:
    """A program and one of its legal folds."""
    program = draw(programs())
    folds = list(itertools.islice(fold_choices(program), 3000))
    return program, folds[draw(st.integers(0, len(folds) - 1))]
