"""Laws of the folded graph."""

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from msgspec import structs

from allo_dse.common.errors import IllegalFold
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.mapper.fold.fold_space import AxisFold, KernelFold, MeshFold, fold_choices
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.graph.groups import leaf_tasks, text

from ...support.programs import gemm_program, systolic_program
from ...support.values import present
from ..laws import folded, gemm_mapping, programs

SMALL = settings(max_examples=60, deadline=None)


def reference_edges(vmg: VMG) -> dict[tuple[int, int, int], int]:
    """Edges between nodes, counted one stream at a time."""
    owner = {
        task: node
        for node, row in enumerate(row for g in vmg.groups for row in g.leaves.tasks().tolist())
        for task in row
    }
    puts: dict[Any, Any] = {}
    gets: dict[Any, Any] = {}
    program = vmg.program
    for number, kernel in enumerate(program.kernels):
        for task in range(program.first_task[number], program.first_task[number + 1]):
            pid = program.pids(number, np.array([task]))
            for port in kernel.classes[int(kernel.class_of(pid)[0])].stream_ports:
                side = puts if port.direction == "put" else gets
                side[port.stream.name, int(port.index.linear(pid)[0])] = owner[task]
    names = [array.name for array in program.streams]
    edges: dict[tuple[int, int, int], int] = {}
    for stream in puts.keys() & gets.keys():
        if puts[stream] != gets[stream]:
            key = (puts[stream], gets[stream], names.index(stream[0]))
            edges[key] = edges.get(key, 0) + 1
    return edges


@SMALL
@given(folded())
def test_every_task_is_on_exactly_one_node(case: tuple[CompiledProgram, MeshFold]) -> None:
    program, fold = case
    vmg = VMG.of(program).fold(fold)
    tasks = np.concatenate([group.leaves.tasks().ravel() for group in vmg.groups])
    assert sorted(tasks.tolist()) == list(range(program.task_count))
    assert vmg.node_count == fold.node_count == len(vmg.nodes) == len(set(vmg.nodes))


@SMALL
@given(folded())
def test_leaves_are_of_the_classes_the_tree_says(case: tuple[CompiledProgram, MeshFold]) -> None:
    program, fold = case
    for group in VMG.of(program).fold(fold).groups:
        tasks = group.leaves.tasks()
        assert tasks.shape == (group.count, group.tree.leaf_count)
        assert int(np.prod(present(group.leaves.loops))) == group.tree.leaf_count
        for leaf, task in enumerate(leaf_tasks(group.tree)):
            kernel = program.kernels[task.kernel]
            assert (kernel.class_of(program.pids(task.kernel, tasks[:, leaf])) == task.cls).all()


@SMALL
@given(folded(), st.data())
def test_leaves_can_be_asked_for_in_parts(case: tuple[CompiledProgram, MeshFold], data: DataObject) -> None:
    program, fold = case
    group = data.draw(st.sampled_from(VMG.of(program).fold(fold).groups))
    start = data.draw(st.integers(0, group.leaves.leaf_count))
    stop = data.draw(st.integers(start, group.leaves.leaf_count))
    assert np.array_equal(group.leaves.tasks(start, stop), group.leaves.tasks()[:, start:stop])


@SMALL
@given(folded())
def test_export_then_apply_is_the_same_graph(case: tuple[CompiledProgram, MeshFold]) -> None:
    program, fold = case
    vmg = VMG.of(program).fold(fold)
    applied = VMG.of(program).apply(vmg.mapping_primitives)
    assert applied.key == vmg.key
    assert sorted(applied.nodes) == sorted(vmg.nodes)
    assert applied.mapping_primitives == vmg.mapping_primitives


@SMALL
@given(folded())
def test_edges_are_the_streams_between_nodes(case: tuple[CompiledProgram, MeshFold]) -> None:
    program, fold = case
    vmg = VMG.of(program).fold(fold)
    edges = vmg.edges
    found = {(s, t, a): c for s, t, a, c in zip(*(x.tolist() for x in structs.asdict(edges).values()), strict=True)}
    assert found == reference_edges(vmg)
    explicit = VMG.of(program).apply(vmg.mapping_primitives)
    assert sum(explicit.edges.count.tolist()) == sum(edges.count.tolist())


@SMALL
@given(folded())
def test_legal_folds_can_be_scheduled(case: tuple[CompiledProgram, MeshFold]) -> None:
    program, fold = case
    assert VMG.of(program).fold(fold).schedulable


@SMALL
@given(programs(), st.data())
def test_different_folds_are_different_graphs(program: CompiledProgram, data: DataObject) -> None:
    folds = list(fold_choices(program, 12))[:40]
    keys = {VMG.of(program).fold(fold).key for fold in folds}
    assert len(set(folds)) == len(folds) == len(keys)


@SMALL
@given(folded(), st.randoms())
def test_independent_primitives_can_be_applied_in_any_order(
    case: tuple[CompiledProgram, MeshFold], random: Random
) -> None:
    program, fold = case
    primitives = VMG.of(program).fold(fold).mapping_primitives
    waiting, made, shuffled = list(primitives), set(VMG.of(program).nodes), []
    while waiting:
        ready = [p for p in waiting if taken(p) <= made]
        shuffled.append(random.choice(ready))
        waiting.remove(shuffled[-1])
        made |= given_names(shuffled[-1])
    unfolded = VMG.of(program)
    try:
        found = unfolded.apply(shuffled)
    except IllegalFold:
        return  # a chain that closes a path makes bundles along it illegal: the order counts after all
    assert found.key == unfolded.apply(primitives).key


def taken(primitive: Any) -> set[str]:
    """The nodes a primitive merges."""
    rows = [(row,) if isinstance(row, str) else row for row in primitive[1]]
    return {name for row in rows for name in row}


def given_names(primitive: Any) -> set[str]:
    """The nodes a primitive makes."""
    kind, operands = primitive
    if kind == "chain":
        return {"-".join(operands)}
    first = (operands[0],) if isinstance(operands[0], str) else operands[0]
    return {f"{name}x{len(operands)}" for name in first}


def test_one_by_one_and_at_once_are_the_same() -> None:
    program = gemm_program(64, 64, 64, Pm=2, Pn=4, Pk=2)
    primitives = gemm_mapping(2, 4, 2, 2, 2)
    vmg = VMG.of(program)
    for kind, operands in primitives:
        vmg = vmg.chain(*operands) if kind == "chain" else vmg.bundle(operands)
    assert vmg.key == VMG.of(program).apply(primitives).key
    assert vmg.mapping_primitives == primitives


def test_operators_leave_the_graph_they_start_from_alone() -> None:
    vmg = VMG.of(gemm_program(64, 64, 64, Pm=2, Pn=2, Pk=2))
    key, nodes = vmg.key, vmg.nodes
    vmg.chain("gemm_0_0_0", "gemm_1_0_0")
    assert (vmg.key, vmg.nodes, vmg.node_count) == (key, nodes, 8)


def test_bundles_in_another_order_are_another_schedule() -> None:
    vmg = VMG.of(gemm_program(64, 64, 64, Pm=2, Pn=1, Pk=1))
    assert vmg.bundle(["gemm_0_0_0", "gemm_0_1_0"]).key != vmg.bundle(["gemm_0_1_0", "gemm_0_0_0"]).key


def test_chain_and_bundle_of_the_same_tasks_differ() -> None:
    vmg = VMG.of(gemm_program(64, 64, 64, Pm=2, Pn=1, Pk=1))
    assert vmg.bundle(["gemm_0_0_0", "gemm_0_1_0"]).key != vmg.chain("gemm_0_0_0", "gemm_0_1_0").key


def test_bundling_twice_is_bundling_once() -> None:
    vmg = VMG.of(gemm_program(64, 64, 64, Pm=4, Pn=1, Pk=1))
    names = [f"gemm_0_{i}_0" for i in range(4)]
    twice = vmg.bundle(names[:2]).bundle(names[2:]).bundle([f"{names[0]}x2", f"{names[2]}x2"])
    assert twice.key == vmg.bundle(names).key


def test_the_unfolded_graph_has_a_group_per_class() -> None:
    vmg = VMG.of(gemm_program())
    assert [(text(g.tree), g.count) for g in vmg.groups] == [("0.0", 1024), ("0.1", 30720), ("0.2", 1024)]
    assert vmg.node_count == vmg.task_count == 32768


def test_a_node_runs_its_bundled_loops_outside_its_chain() -> None:
    fold = MeshFold((KernelFold("gemm", (AxisFold(1, "block", "chain"), AxisFold(2, "cyclic"), AxisFold(1)), (2, 1)),))
    vmg = VMG.of(gemm_program(64, 64, 64, Pm=4, Pn=2, Pk=2)).fold(fold)
    (group,) = vmg.groups
    assert group.leaves.loops == (2, 2, 2)
    assert text(group.tree) == "4x[0.0; 0.1]"
    assert vmg.node_name(1) == "gemm_0_1_0-gemm_1_1_0x4"
    names = [vmg.program.task_name(int(t)) for t in group.leaves.tasks()[1]]
    assert names == [f"gemm_{k}_{i}_{j}" for j in (0, 1) for i in (1, 3) for k in (0, 1)]


def test_a_chain_against_the_pid_runs_backwards() -> None:
    from ...support.programs import mesh_program

    vmg = VMG.of(mesh_program((4,), [(-1,)]))
    folded_graph = vmg.fold(MeshFold((KernelFold("cell", (AxisFold(2, "block", "chain"),)),)))
    assert set(folded_graph.nodes) == {"cell_3-cell_2", "cell_1-cell_0"}


def test_folds_start_from_the_unfolded_graph() -> None:
    vmg = VMG.of(gemm_program(64, 64, 64, Pm=2, Pn=2, Pk=2))
    fold = MeshFold((KernelFold("gemm", (AxisFold(1, "block", "chain"), AxisFold(2), AxisFold(2))),))
    with pytest.raises(IllegalFold, match="unfolded"):
        vmg.fold(fold).fold(fold)
    with pytest.raises(IllegalFold, match="unfolded"):
        vmg.chain("gemm_0_0_0", "gemm_1_0_0").fold(fold)


def test_node_numbers_of_tasks() -> None:
    vmg = VMG.of(systolic_program(2, 4))
    owner = vmg.node_of_task
    names = vmg.nodes
    assert [names[node] for node in owner.tolist()] == [vmg.program.task_name(t) for t in range(vmg.task_count)]
    with pytest.raises(IndexError, match="16 nodes"):
        vmg.node_name(16)
