"""The order in which Allo makes nodes: by the mesh, as the list of primitives has it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.search.fold_space import FoldSpace
from allo_dse.mapper.target.creation_order import creation_order
from allo_dse.program.compiled import CompiledProgram
from tests.support.programs import gemm_program, vector_add_program

PROGRAMS = [gemm_program(16, 16, 16, 4, 2, 4), gemm_program(12, 12, 12, 1, 6, 2), vector_add_program(12, 240)]


@given(st.sampled_from(PROGRAMS), st.data())
def test_folds_of_meshes_are_ordered_without_the_list_of_tasks(program: CompiledProgram, data: st.DataObject) -> None:
    graph = VMG.of(program)
    folds = list(FoldSpace.of(graph.graph))
    folded = graph.fold(data.draw(st.sampled_from(folds)))
    spelled: Any = SimpleNamespace(
        mesh_fold=None,
        groups=folded.groups,
        nodes=folded.nodes,
        node_count=folded.node_count,
        mapping_primitives=folded.mapping_primitives,
    )
    assert creation_order(folded) == creation_order(cast(VMG, spelled))
