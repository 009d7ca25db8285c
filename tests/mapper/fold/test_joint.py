"""Folds across kernels: linked axes, kernels that share nodes, and what prunes them before they are built."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allo_dse.backends.npu.fold_bounds import NpuFoldBounds
from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.common.errors import IllegalFold
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.compiler.program.tensors import StreamArray
from allo_dse.device.device import NpuDevice
from allo_dse.mapper.fold.fold_space import AxisFold, FoldSpace, KernelFold, MeshFold, fold_choices
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.graph.groups import text
from allo_dse.mapper.graph.program_graph import ProgramGraph
from allo_dse.mapper.violation import Buffering

from ...support.programs import (
    INT32,
    affine,
    attention_program,
    gemm_program,
    get,
    graph_program,
    one_class_kernel,
    producer_consumer,
    put,
    stages_program,
    unit,
)
from ..laws import programs, stages

SMALL = settings(max_examples=40, deadline=None)
NPU = NpuDevice.load("npu1_4col")


def attention_fold(
    row: AxisFold, chunk: AxisFold, chains: tuple[tuple[str, str]] = (("send_q", "cal_attn_score"),)
) -> MeshFold:
    axes = {
        "send_q": (row,),
        "cal_attn_score": (row, chunk),
        "cal_softmax": (row,),
        "attn": (row, chunk),
        "acc": (row,),
    }
    return MeshFold(tuple(KernelFold(name, own) for name, own in axes.items()), chains)


HAND = attention_fold(AxisFold(4, "cyclic"), AxisFold(1))


def test_attention_by_hand_is_one_fold() -> None:
    program = attention_program(8, 4)
    vmg = VMG.of(program).fold(HAND)
    assert [text(group.tree) for group in vmg.groups] == ["2x[0.0; 4x[1.0]]", "2x[2.0]", "8x[3.0]", "2x[4.0]"]
    assert vmg.nodes[0] == "send_q_0-cal_attn_score_0_0x4x2"
    assert VMG.of(program).apply(vmg.mapping_primitives).key == vmg.key
    assert NpuMapping(vmg, NPU, Buffering()).violations == ()
    assert FoldSpace.of(vmg.graph, 16, NpuFoldBounds(vmg.graph, NPU)).contains(HAND.normalised(vmg.graph))


def test_producer_and_consumer_share_a_node() -> None:
    program = producer_consumer()
    folds = list(fold_choices(program))
    assert [fold.chains for fold in folds] == [(), (("producer", "consumer"),)]
    assert text(VMG.of(program).fold(folds[1]).groups[0].tree) == "[0.0; 1.0]"


def test_kernels_between_gather_and_scatter_fold_by_themselves_or_onto_the_same_node() -> None:
    there, back = (StreamArray(name, INT32, (), 2, (4,)) for name in ("there", "back"))
    each, every = affine((4,), unit(1, 0)), [affine((4,), ((0,),), (i,)) for i in range(4)]
    scatter = one_class_kernel("scatter", (1,), streams=[put(there, i) for i in every])
    work = one_class_kernel("work", (4,), streams=[get(there, each), put(back, each)])
    gather = one_class_kernel("gather", (1,), streams=[get(back, i) for i in every])
    program = CompiledProgram("spread", (), (there, back), (scatter, work, gather))
    found = {tuple(text(g.tree) for g in VMG.of(program).fold(fold).groups) for fold in fold_choices(program)}
    assert ("0.0", "2x[1.0]", "2.0") in found
    assert ("[0.0; 4x[1.0]; 2.0]",) in found
    assert ("[0.0; 2.0]", "1.0") in found


def test_chains_of_kernels_per_task() -> None:
    program = stages_program((4, 2), ("row", "row", "grid"))
    row = AxisFold(2, "cyclic")
    fold = MeshFold(
        (KernelFold("s0", (row,)), KernelFold("s1", (row,)), KernelFold("s2", (row, AxisFold(2)))), (("s0", "s1"),)
    )
    assert not fold_choices(program).reasons
    vmg = VMG.of(program).fold(fold)
    assert sorted(text(group.tree) for group in vmg.groups) == ["2x[0.0; 1.0]", "2x[2.0]"]


def test_linked_axes_must_be_folded_alike() -> None:
    axes = (KernelFold("s0", (AxisFold(2), AxisFold(2))), KernelFold("s1", (AxisFold(1), AxisFold(2))))
    with pytest.raises(IllegalFold, match=r"s1, axis 0, exchanges tokens with s0, axis 0.*folded alike"):
        VMG.of(stages_program((2, 2), ("grid", "grid"))).fold(MeshFold(axes))


def test_shared_loops_must_run_in_one_order() -> None:
    one = (AxisFold(1), AxisFold(1))
    for second, legal in (((0, 1), True), ((1, 0), False)):
        fold = MeshFold((KernelFold("s0", one, (0, 1)), KernelFold("s1", one, second)))
        program = stages_program((2, 2), ("grid", "grid"))
        assert fold_choices(program).contains(fold) is legal
        if not legal:
            with pytest.raises(IllegalFold, match="outermost, and in the same order"):
                VMG.of(program).fold(fold)


def test_a_transposed_axis_is_linked_to_the_other_one() -> None:
    program = stages_program((2, 3), ("grid", "turned"))
    rules = VMG.of(program).graph.rules
    assert [[rule.link for rule in own] for own in rules] == [[0, 1], [1, 0]]


def test_an_axis_that_follows_a_chain() -> None:
    """Tensor-parallel layers: slices of the first, one after the other, feed the second's chain of partial sums."""
    program = stages_program((2, 4), ("grid", "sums"))
    rules = VMG.of(program).graph.rules
    assert [[(rule.how, rule.link, rule.follows) for rule in own] for own in rules] == [
        [("bundle", 0, False), ("bundle", 1, True)],
        [("bundle", 0, False), ("chain", 1, False)],
    ]
    two, chained = AxisFold(2), AxisFold(2, "block", "chain")
    fold = MeshFold((KernelFold("s0", (AxisFold(1), two), (0, 1)), KernelFold("s1", (AxisFold(1), chained))))
    vmg = VMG.of(program).fold(fold)
    assert [text(group.tree) for group in vmg.groups] == ["4x[0.0]", "2x[1.0; 1.1]", "2x[1.1; 1.2]"]
    assert VMG.of(program).apply(vmg.mapping_primitives).key == vmg.key
    shared = MeshFold(fold.kernels, (("s0", "s1"),))
    assert fold_choices(program).contains(shared)
    assert text(VMG.of(program).fold(shared).groups[0].tree) == "2x[2x[0.0]; 1.0; 1.1]"
    cyclic = MeshFold((KernelFold("s0", (AxisFold(1), AxisFold(2, "cyclic"))), fold.kernels[1]))
    with pytest.raises(IllegalFold, match="follows a chain of another kernel"):
        VMG.of(program).fold(cyclic)
    outer = MeshFold((KernelFold("s0", (AxisFold(1), two), (1, 0)), fold.kernels[1]))
    with pytest.raises(IllegalFold, match="must be the innermost loop"):
        VMG.of(program).fold(outer)


def test_nodes_that_do_not_correspond_cannot_be_shared() -> None:
    with pytest.raises(IllegalFold, match="nodes do not correspond one to one"):
        VMG.of(attention_program(8, 4)).fold(attention_fold(AxisFold(4), AxisFold(2)))


def test_chains_of_kernels_that_close_a_path_are_refused() -> None:
    program = graph_program([("a", "b"), ("b", "c")])
    fold = MeshFold(tuple(KernelFold(name, (AxisFold(1),)) for name in "abc"), (("a", "c"), ("b",)))
    assert fold.normalised(ProgramGraph(program)).chains == (("a", "c"),)
    assert VMG.of(program).fold(fold).node_count == 2
    diamond = graph_program([("a", "b"), ("c", "d"), ("d", "a"), ("b", "c")])
    assert all(not fold.chains for fold in fold_choices(diamond))


@pytest.mark.parametrize(
    ("chains", "message"),
    [((("send_q", "nobody"),), "nobody is not a kernel"), ((("acc", "acc"),), "acc is chained twice")],
)
def test_malformed_chains(chains: tuple[tuple[str, str]], message: str) -> None:
    with pytest.raises(IllegalFold, match=message):
        VMG.of(attention_program(2, 2)).fold(attention_fold(AxisFold(1), AxisFold(1), chains))


@SMALL
@given(stages(), st.sampled_from([2, 5, None]))
def test_the_space_of_joint_folds_is_counted_without_making_it(program: Any, max_nodes: Any) -> None:
    space = fold_choices(program, max_nodes)
    folds = list(space)
    assert space.count() == len(folds) == len(set(folds))
    assert len({VMG.of(program).fold(fold).key for fold in folds[:60]}) == len(folds[:60])
    assert min((fold.node_count for fold in folds), default=space.least_nodes) == space.least_nodes


@SMALL
@given(programs(), st.integers(2, 16), st.sampled_from(["npu1_1col", "npu1_4col"]))
def test_nothing_that_fits_is_pruned(program: Any, max_nodes: Any, name: Any) -> None:
    """Every fold that the bounds leave out violates a limit; those that are made are counted and contained."""
    device = NpuDevice.load(name)
    every = fold_choices(program, max_nodes)
    space = fold_choices(program, max_nodes, NpuFoldBounds(ProgramGraph(program), device))
    kept = set(space)
    assert space.count() == len(kept)
    for fold in list(every)[:80]:
        assert space.contains(fold) == (fold in kept)
        if fold not in kept:
            assert NpuMapping(VMG.of(program).fold(fold), device, Buffering(output_depth=1)).violations


def test_the_share_that_is_pruned() -> None:
    program = gemm_program()
    space = fold_choices(program, 16, NpuFoldBounds(ProgramGraph(program), NPU))
    every = fold_choices(program).count()
    assert space.pruned_share == 1 - space.count() / every
    assert 0.8 < space.pruned_share < 0.9
