"""Mappings as Allo takes them: golden texts, and the mappings that experts wrote by hand."""

import json
from typing import Any

import pytest
from hypothesis import given, settings

from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.mapper.fold.fold_space import AxisFold, KernelFold, MeshFold
from allo_dse.mapper.fold.vmg import VMG

from ...support.programs import gemm_program, mesh_program, vector_add_program
from ..laws import folded, gemm_mapping
from .test_fold_space import HALF_K, HAND, gemm_fold


def run(source: str) -> Any:
    scope: dict[str, Any] = {}
    exec(source, scope)
    return scope["mapping_primitives"]()


@settings(max_examples=80, deadline=None)
@given(folded())
def test_the_source_makes_the_list(case: tuple[CompiledProgram, MeshFold]) -> None:
    program, fold = case
    vmg = VMG.of(program).fold(fold)
    assert run(vmg.mapping_source()) == vmg.mapping_primitives


@settings(max_examples=20, deadline=None)
@given(folded())
def test_the_list_is_json(case: tuple[CompiledProgram, MeshFold]) -> None:
    program, fold = case
    vmg = VMG.of(program).fold(fold)
    loaded = [(kind, operands) for kind, operands in json.loads(json.dumps(vmg.mapping_primitives))]
    assert VMG.of(program).apply(loaded).key == vmg.key


def test_source_of_a_graph_folded_node_by_node() -> None:
    vmg = VMG.of(vector_add_program(4)).bundle(["core_0", "core_2"]).bundle(["core_1", "core_3"])
    assert vmg.mapping_source() == (
        "def mapping_primitives():\n"
        "    return [\n"
        "        ('bundle', ['core_0', 'core_2']),\n"
        "        ('bundle', ['core_1', 'core_3']),\n"
        "    ]\n"
    )
    assert run(vmg.mapping_source()) == vmg.mapping_primitives


def test_an_unfolded_graph_needs_no_primitives() -> None:
    vmg = VMG.of(gemm_program())
    assert vmg.mapping_primitives == []
    assert run(vmg.mapping_source()) == []


@pytest.mark.parametrize(("fold", "mapping"), [(HAND, (4, 4, 1)), (HALF_K, (4, 2, 2))])
def test_the_hand_written_gemm_mapping(fold: MeshFold, mapping: tuple[int, int, int]) -> None:
    rows, cols, chains = mapping
    by_hand = gemm_mapping(8, 8, 8, rows, cols, chains)
    unfolded = VMG.of(gemm_program(512, 512, 512, Pm=8, Pn=8, Pk=8))
    vmg = unfolded.fold(fold)
    assert vmg.node_count == 16
    assert vmg.mapping_primitives == by_hand
    assert unfolded.apply(by_hand).key == vmg.key


def test_golden_primitives() -> None:
    fold = gemm_fold(AxisFold(1, "block", "chain"), AxisFold(1), AxisFold(2, "cyclic"))
    vmg = VMG.of(gemm_program(64, 64, 64, Pm=1, Pn=4, Pk=3)).fold(fold)
    chain = "gemm_0_0_{0}-gemm_1_0_{0}-gemm_2_0_{0}"
    assert vmg.mapping_primitives == [
        *(
            ("chain", [names[0].format(j), names[1].format(j)])
            for j in range(4)
            for names in (("gemm_0_0_{0}", "gemm_1_0_{0}"), ("gemm_0_0_{0}-gemm_1_0_{0}", "gemm_2_0_{0}"))
        ),
        ("bundle", [chain.format(0), chain.format(2)]),
        ("bundle", [chain.format(1), chain.format(3)]),
    ]
    assert vmg.nodes == (f"{chain.format(0)}x2", f"{chain.format(1)}x2")


GOLDEN_SOURCE = '''\
def mapping_primitives():
    """Fold gemm onto 16 nodes."""
    primitives = []
    # gemm: 32 x 32 x 32 tasks, chained along axis 0
    gemm_nodes = {}
    for p1 in range(32):
        for p2 in range(32):
            for u0 in range(2):
                node, *tasks = [f"gemm_{16 * u0 + v0}_{p1}_{p2}" for v0 in range(16)]
                for task in tasks:
                    primitives.append(("chain", [node, task]))
                    node = f"{node}-{task}"
                gemm_nodes[u0, p1, p2] = node
    # gemm: bundled along axes 1, 2
    for u1 in range(4):
        for u2 in range(2):
            rows = [
                tuple(gemm_nodes[u0, u1 + 4 * v1, u2 + 2 * v2] for u0 in range(2))
                for v1 in range(8)
                for v2 in range(16)
            ]
            primitives.append(("bundle", rows))
    return primitives
'''


def test_golden_source() -> None:
    assert VMG.of(gemm_program()).fold(HALF_K).mapping_source() == GOLDEN_SOURCE


def test_golden_source_of_a_backward_chain_on_one_axis() -> None:
    fold = MeshFold((KernelFold("cell", (AxisFold(2, "block", "chain"),)),))
    assert VMG.of(mesh_program((6,), [(-1,)])).fold(fold).mapping_source() == (
        "def mapping_primitives():\n"
        '    """Fold mesh onto 2 nodes."""\n'
        "    primitives = []\n"
        "    # cell: 6 tasks, chained along axis 0\n"
        "    cell_nodes = {}\n"
        "    for u0 in range(2):\n"
        '        node, *tasks = [f"cell_{3 * u0 + 2 - v0}" for v0 in range(3)]\n'
        "        for task in tasks:\n"
        '            primitives.append(("chain", [node, task]))\n'
        '            node = f"{node}-{task}"\n'
        "        cell_nodes[u0,] = node\n"
        "    return primitives\n"
    )
