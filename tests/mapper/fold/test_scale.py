"""Graphs of tens of thousands to millions of tasks: what must not grow with them. Times: benchmarks/mapper_scale.py."""

import numpy as np
import pytest

from allo_dse.common.errors import IllegalFold
from allo_dse.mapper.fold.fold_space import AxisFold, KernelFold, MeshFold, fold_choices
from allo_dse.mapper.fold.vmg import VMG

from ...support.programs import gemm_program, mesh_program
from ..laws import gemm_mapping
from .test_fold_space import HALF_K, HAND


@pytest.fixture(scope="module")
def unfolded() -> VMG:
    return VMG.of(gemm_program())


def test_the_hand_written_mapping_of_32768_tasks(unfolded: VMG) -> None:
    by_hand = gemm_mapping(32, 32, 32, 4, 4)
    assert len(by_hand) == 31744 + 16
    applied = unfolded.apply(by_hand)
    folded = unfolded.fold(HAND)
    assert applied.node_count == 16
    assert applied.key == folded.key
    assert applied.nodes == folded.nodes
    assert folded.mapping_primitives == by_hand


def test_two_chains_per_output_of_32768_tasks(unfolded: VMG) -> None:
    by_hand = gemm_mapping(32, 32, 32, 4, 2, chains=2)
    applied = unfolded.apply(by_hand)
    assert applied.node_count == 16
    assert applied.key == unfolded.fold(HALF_K).key
    assert applied.edges.count.tolist() == unfolded.fold(HALF_K).edges.count.tolist() == [128] * 8


def test_primitives_from_the_far_end(unfolded: VMG) -> None:
    forward = gemm_mapping(1, 1, 32, 1, 1)[:-1]
    backward, node = [], "gemm_31_0_0"
    for k in range(30, -1, -1):
        backward.append(("chain", [f"gemm_{k}_0_0", node]))
        node = f"gemm_{k}_0_0-{node}"
    assert unfolded.apply(forward).key == unfolded.apply(backward).key


def test_an_illegal_primitive_late_in_the_sequence(unfolded: VMG) -> None:
    with pytest.raises(IllegalFold, match="gemm_31_31_31 is not a node any more"):
        unfolded.apply([*gemm_mapping(32, 32, 32, 4, 4), ("chain", ["gemm_31_31_31", "gemm_0_0_0"])])


def test_two_million_tasks_cost_nothing_until_asked_for() -> None:
    unfolded = VMG.of(gemm_program(Pm=128, Pn=128, Pk=128))
    fold = MeshFold((KernelFold("gemm", (AxisFold(2, "block", "chain"), AxisFold(4, "cyclic"), AxisFold(2)), (1, 2)),))
    vmg = unfolded.fold(fold)
    assert vmg.task_count == 128**3
    assert (vmg.node_count, len(vmg.edges)) == (16, 8)
    assert "edges" not in vars(unfolded.graph)
    assert vmg.edges.count.tolist() == [32 * 64] * 8
    tasks = vmg.groups[0].leaves.tasks(64 * 64 * 32 - 2, 64 * 64 * 32)
    assert tasks.shape == (8, 2)
    assert unfolded.program.task_name(int(tasks[-1, -1])) == "gemm_63_127_127"
    assert fold_choices(unfolded.program, 16).contains(fold)


def test_a_long_chain_of_tasks() -> None:
    program = mesh_program((4000,), [(1,)])
    unfolded = VMG.of(program)
    vmg = unfolded.fold(MeshFold((KernelFold("cell", (AxisFold(4, "block", "chain"),)),)))
    assert vmg.schedulable
    assert vmg.edges.count.tolist() == [1, 1, 1]
    owner = vmg.node_of_task
    assert (np.diff(owner) != 0).sum() == 3
