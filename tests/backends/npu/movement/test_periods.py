"""How many outer loops repeat one pattern of moves."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from allo_dse.backends.npu.movement.periods import _steady_levels
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.mapper.fold.fold_space import FoldSpace
from allo_dse.mapper.fold.vmg import VMG
from tests.support.programs import gemm_program, vector_add_program

PROGRAMS = [gemm_program(16, 16, 16, 4, 2, 4), gemm_program(12, 12, 12, 1, 6, 2), vector_add_program(12, 240)]


@pytest.mark.parametrize("program", PROGRAMS)
def test_leaves_side_by_side_say_as_much_as_whole_periods(
    program: CompiledProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = VMG.of(program)
    groups = [group for fold in list(FoldSpace.of(graph.graph))[:200] for group in graph.fold(fold).groups]
    nests = [(group, tuple(group.leaves.loops or (group.tree.leaf_count,))) for group in groups]
    near = [_steady_levels(program, *nest) for nest in nests]
    several = SimpleNamespace(classes=(1, 2))  # then all leaves of two periods are looked at
    monkeypatch.setattr("allo_dse.backends.npu.movement.periods.schedule_round", lambda _: several)
    assert near == [
        _steady_levels(program, group, tuple(group.leaves.loops or (group.tree.leaf_count,))) for group in groups
    ]
    assert any(near)
