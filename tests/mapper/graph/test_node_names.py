"""Node names, as Allo spells them."""

import pytest

from allo_dse.common.errors import AlloDseError, IllegalFold
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.graph.groups import task_names

from ...support.programs import gemm_program, graph_program, mesh_program, one_class_kernel, vector_add_program


def test_task_names_are_kernel_and_pid_in_task_order() -> None:
    program = gemm_program(Pm=2, Pn=3, Pk=2, N=3 * 64)
    names = task_names(program)
    assert names[:4] == ["gemm_0_0_0", "gemm_0_0_1", "gemm_0_0_2", "gemm_0_1_0"]
    assert names == [program.task_name(task) for task in range(program.task_count)]


def test_chain_and_bundle_names() -> None:
    vmg = VMG.of(gemm_program(Pm=2, Pn=2, Pk=2))
    chained = vmg.chain("gemm_0_0_0", "gemm_1_0_0").chain("gemm_0_0_1", "gemm_1_0_1")
    assert "gemm_0_0_0-gemm_1_0_0" in chained.nodes
    bundled = chained.bundle(["gemm_0_0_0-gemm_1_0_0", "gemm_0_0_1-gemm_1_0_1"])
    assert "gemm_0_0_0-gemm_1_0_0x2" in bundled.nodes
    assert [bundled.node_name(i) for i in range(bundled.node_count)] == list(bundled.nodes)


def test_bundle_of_bundles_keeps_the_name_allo_gives_it() -> None:
    vmg = VMG.of(vector_add_program(4))
    pairs = vmg.bundle(["core_0", "core_1"]).bundle(["core_2", "core_3"])
    assert pairs.bundle(["core_0x2", "core_2x2"]).nodes == ("core_0x2x2",)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("gem_0_1_0", r"did you mean gemm_0_1_0\?"),
        ("gemm_9_0_0", r"mesh \[4, 2, 2\]: its tasks are gemm_0_0_0 to gemm_3_1_1"),
        ("gemm_1_0_0", "part of gemm_0_0_0-gemm_1_0_0"),
        ("§", r"vmg\.nodes"),
    ],
)
def test_unknown_names_come_with_a_hint(name: str, hint: str) -> None:
    vmg = VMG.of(gemm_program(Pm=2, Pn=2, Pk=4)).chain("gemm_0_0_0", "gemm_1_0_0")
    with pytest.raises(IllegalFold, match=hint):
        vmg.chain(name, "gemm_0_1_1")


def test_two_tasks_of_one_name_are_refused() -> None:
    kernels = (*mesh_program((2, 2)).kernels, one_class_kernel("cell_0", (2,)))
    program = graph_program([])
    clashing = type(program)("clash", (), (), kernels)
    with pytest.raises(AlloDseError, match="cell_0_0"):
        VMG.of(clashing).chain("cell_0_0", "cell_1_1")
