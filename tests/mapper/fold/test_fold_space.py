"""The space of mesh folds."""

import json
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from msgspec import convert

from allo_dse.common.errors import AlloDseError, IllegalFold
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.compiler.program.tensors import IndexMap, StreamArray, Tensor
from allo_dse.mapper.fold.fold_space import AxisFold, KernelFold, MeshFold, fold_choices, unfolded
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.graph.program_graph import ProgramGraph

from ...support.programs import (
    INT32,
    affine,
    attention_program,
    gemm_program,
    get,
    mesh_program,
    one_class_kernel,
    put,
    ring_program,
    sharded,
    systolic_program,
    unit,
    vector_add_program,
)
from ..laws import folded, programs

SMALL = settings(max_examples=60, deadline=None)


def gemm_fold(k: AxisFold, m: AxisFold, n: AxisFold, order: tuple[int, ...] = (1, 2)) -> MeshFold:
    return MeshFold((KernelFold("gemm", (k, m, n), order),))


HAND = gemm_fold(AxisFold(1, "block", "chain"), AxisFold(4, "cyclic"), AxisFold(4, "cyclic"))
HALF_K = gemm_fold(AxisFold(2, "block", "chain"), AxisFold(4, "cyclic"), AxisFold(2, "cyclic"))


@SMALL
@given(programs(), st.sampled_from([None, 1, 4, 16]))
def test_count_is_exact_and_every_fold_is_legal(program: CompiledProgram, max_nodes: Any) -> None:
    space = fold_choices(program, max_nodes)
    folds = list(space)
    assert space.count() == len(folds) == len(set(folds))
    for fold in folds[:20]:
        assert fold == fold.normalised(ProgramGraph(program))
        assert space.contains(fold)
        assert max_nodes is None or VMG.of(program).fold(fold).node_count <= max_nodes


@SMALL
@given(folded())
def test_plain_data_round_trip(case: tuple[CompiledProgram, MeshFold]) -> None:
    _, fold = case
    assert convert(json.loads(json.dumps(fold.to_dict())), MeshFold) == fold


@SMALL
@given(folded(), st.data())
def test_contains_says_what_fold_accepts(case: tuple[CompiledProgram, MeshFold], data: DataObject) -> None:
    program, fold = case
    number = data.draw(st.integers(0, len(fold.kernels) - 1))
    kernel = fold.kernels[number]
    axis = data.draw(st.integers(0, len(kernel.axes) - 1))
    extent = program.kernels[number].mesh[axis]
    spatial = data.draw(st.sampled_from([d for d in range(1, extent + 1) if extent % d == 0]))
    changed = AxisFold(
        spatial, data.draw(st.sampled_from(["block", "cyclic"])), data.draw(st.sampled_from(["bundle", "chain"]))
    )
    axes = (*kernel.axes[:axis], changed, *kernel.axes[axis + 1 :])
    kernels = (*fold.kernels[:number], KernelFold(kernel.kernel, axes, kernel.order), *fold.kernels[number + 1 :])
    mutated = MeshFold(kernels, fold.chains)
    if fold_choices(program).contains(mutated):
        assert VMG.of(program).fold(mutated).node_count == mutated.node_count
    else:
        with pytest.raises(IllegalFold):
            VMG.of(program).fold(mutated)


def test_the_hand_written_gemm_mappings_are_in_the_space() -> None:
    space = fold_choices(gemm_program(), 16)
    assert space.contains(HAND)
    assert space.contains(HALF_K)
    assert HAND in set(space)
    assert HALF_K in set(space)


def test_the_space_of_the_gemm() -> None:
    space = fold_choices(gemm_program(), 16)
    assert [(a.how, a.spatial) for a in space.kernels[0].axes] == [
        ("chain", (1, 2, 4, 8, 16, 32)),
        ("bundle", (1, 2, 4, 8, 16, 32)),
        ("bundle", (1, 2, 4, 8, 16, 32)),
    ]
    assert space.reasons == ()
    # Nodes along (k, m, n) with a product of at most 16; m and n have two patterns where they are cut; two loop orders.
    expected = sum(
        2 * (1 + (m > 1)) * (1 + (n > 1))
        for k in (1, 2, 4, 8, 16)
        for m in (1, 2, 4, 8, 16)
        for n in (1, 2, 4, 8, 16)
        if k * m * n <= 16
    )
    assert space.count() == expected == 170


def test_sizes_that_are_listed_once_are_those_made_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    space = fold_choices(gemm_program(16, 16, 16, 4, 4, 4), 16)
    listed = [list(space.layouts(nodes)) for nodes in (None, 4, 8, 4)]
    monkeypatch.setattr("allo_dse.mapper.fold.fold_space.MOST_LISTED", 1)
    again = fold_choices(gemm_program(16, 16, 16, 4, 4, 4), 16)
    made = [list(again.layouts(nodes)) for nodes in (None, 4, 8, 4)]
    assert [[layout.sizes for layout in own] for own in made] == [[layout.sizes for layout in own] for own in listed]
    assert len(listed[0]) > len(listed[1]) > 1


def test_a_budget_below_what_must_stay_spatial_leaves_nothing() -> None:
    space = fold_choices(ring_program(20, [(0, 1), (1, 3)]), 16)
    assert space.least_nodes == 20
    assert space.count() == 0
    assert list(space) == []


def test_kernels_share_the_budget() -> None:
    first, second = vector_add_program(4).kernels[0], vector_add_program(4).kernels[0]
    renamed = type(second)("other", second.mesh, second.args, second.classes, second.class_table)
    program = CompiledProgram("two", (), (), (first, renamed))
    pairs = {tuple(k.node_count for k in fold.kernels) for fold in fold_choices(program, 5)}
    assert pairs == {(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (4, 1)}


def test_normal_form() -> None:
    program = gemm_program(64, 64, 64, Pm=4, Pn=4, Pk=2)
    loose = gemm_fold(AxisFold(2, "cyclic", "chain"), AxisFold(1, "cyclic"), AxisFold(4, "block", "chain"), (2, 0, 1))
    assert loose.normalised(ProgramGraph(program)) == gemm_fold(AxisFold(2), AxisFold(1), AxisFold(4), (1,))
    assert unfolded(program).normalised(ProgramGraph(program)) == unfolded(program)


@pytest.mark.parametrize(
    ("fold", "message"),
    [
        (gemm_fold(AxisFold(1, "block", "bundle"), AxisFold(4), AxisFold(4)), "axis 0 can be folded by chain only"),
        (
            gemm_fold(AxisFold(2, "cyclic", "chain"), AxisFold(4), AxisFold(4)),
            "axis 0 is chained and cannot be .* cycl",
        ),
        (gemm_fold(AxisFold(4), AxisFold(2, "block", "chain"), AxisFold(4)), "axis 1 can be folded by bundle only"),
        (gemm_fold(AxisFold(3), AxisFold(4), AxisFold(4)), "3 nodes do not divide the 4 tasks of axis 0"),
        (gemm_fold(AxisFold(4), AxisFold(2, cast("Any", "blok")), AxisFold(4)), "axis 1 is folded as 'blok', 'bundle'"),
        (gemm_fold(AxisFold(4), AxisFold(4), AxisFold(2), (2, 2)), "does not name each mesh axis at most once"),
        (MeshFold((KernelFold("gemm", (AxisFold(4),)),)), "the fold has 1 axes, the mesh 3"),
        (MeshFold((KernelFold("gem", (AxisFold(4),) * 3),)), "for the kernels gem\n.*in this order: gemm"),
    ],
)
def test_illegal_folds_say_why(fold: MeshFold, message: str) -> None:
    with pytest.raises(IllegalFold, match=message):
        VMG.of(gemm_program(64, 64, 64, Pm=4, Pn=4, Pk=4)).fold(fold)


def hows(program: CompiledProgram) -> list[list[str | None]]:
    return [[axis.how for axis in kernel.axes] for kernel in fold_choices(program).kernels]


class TestAxisRules:
    def test_streams_along_both_axes_of_a_systolic_array(self) -> None:
        assert hows(systolic_program(2, 4)) == [["chain", "chain"]]

    def test_streams_both_ways(self) -> None:
        program = mesh_program((4, 4, 4), [(1, 0, 0), (0, 1, 0), (0, -1, 0)])
        assert hows(program) == [[None, None, "bundle"]]
        assert fold_choices(program).reasons[0] == "cell, axis 0: streams run both ways along axis 1"

    def test_diagonal_streams(self) -> None:
        assert hows(mesh_program((4, 4), [(1, -1)])) == [["chain", "chain"]]

    def test_irregular_streams(self) -> None:
        program = ring_program(4, [(0, 1), (1, 3)])
        assert hows(program) == [[None]]
        assert "not at one distance" in fold_choices(program).reasons[0]

    def test_table_index_maps(self) -> None:
        table = IndexMap((4,), table=np.array([2, 0, 3, 1]))
        wires = StreamArray("wires", INT32, (), 2, (4,))
        ports = [put(wires, affine((4,), unit(1, 0))), get(wires, table)]
        program = CompiledProgram("p", (), (wires,), (one_class_kernel("node", (4,), streams=ports),))
        assert hows(program) == [[None]]
        assert fold_choices(program).count() == 1

    def test_rows_of_attention_fold_together(self) -> None:
        program = attention_program(4, 4)
        assert hows(program) == [["bundle"], ["bundle"] * 2, ["bundle"], ["bundle"] * 2, ["bundle"]]
        links = [[rule.link for rule in rules] for rules in VMG.of(program).graph.rules]
        assert links == [[0], [0, None], [0], [0, None], [0]]

    def test_streams_to_another_kernel_and_back(self) -> None:
        there, back = (StreamArray(name, INT32, (), 2, (4,)) for name in ("there", "back"))
        each, constant = affine((4,), unit(1, 0)), [affine((4,), ((0,),), (i,)) for i in range(4)]
        master = one_class_kernel(
            "master", (1,), streams=[port for i in constant for port in (put(there, i), get(back, i))]
        )
        worker = one_class_kernel("worker", (4,), streams=[get(there, each), put(back, each)])
        program = CompiledProgram("p", (), (there, back), (master, worker))
        assert hows(program) == [[None], [None]]
        assert "another kernel and back" in fold_choices(program).reasons[0]

    def test_gather_from_one_task_is_no_obstacle(self) -> None:
        there = StreamArray("there", INT32, (), 2, (4,))
        each, constant = affine((4,), unit(1, 0)), [affine((4,), ((0,),), (i,)) for i in range(4)]
        master = one_class_kernel("master", (1,), streams=[get(there, i) for i in constant])
        worker = one_class_kernel("worker", (4,), streams=[put(there, each)])
        program = CompiledProgram("p", (), (there,), (worker, master))
        assert hows(program) == [["bundle"], [None]]
        vmg = VMG.of(program).fold(
            MeshFold((KernelFold("worker", (AxisFold(2),)), KernelFold("master", (AxisFold(1),))))
        )
        assert vmg.edges.count.tolist() == [2, 2]

    def test_different_peers_by_class_stay_spatial(self) -> None:
        there = StreamArray("there", INT32, (), 2, (2,))
        worker = one_class_kernel("worker", (2,), streams=[put(there, affine((2,), unit(1, 0)))])
        left = one_class_kernel("left", (1,), streams=[get(there, affine((2,), ((0,),), (0,)))])
        right = one_class_kernel("right", (1,), streams=[get(there, affine((2,), ((0,),), (1,)))])
        assert hows(CompiledProgram("p", (), (there,), (worker, left, right)))[0] == [None]

    def test_tasks_that_write_one_tile_are_chained_on_one_node(self) -> None:
        out = Tensor("O", INT32, (8,))
        kernel = one_class_kernel("k", (4, 2), (out,), [sharded(0, out, (4, 2), (1,), writes=True)])
        space = fold_choices(CompiledProgram("p", (out,), (), (kernel,)))
        assert [(a.how, a.spatial) for a in space.kernels[0].axes] == [("chain", (1, 4)), ("bundle", (1, 2))]
        with pytest.raises(IllegalFold, match=r"cannot be cut into 2 nodes: .* same tile of O"):
            VMG.of(space.program_graph.program).fold(
                MeshFold((KernelFold("k", (AxisFold(2, "block", "chain"), AxisFold(2))),))
            )


class TestComputedIndices:
    """Tasks that compute at run time which stream of an array they use: every stream they can reach counts."""

    @staticmethod
    def program(masters: int) -> CompiledProgram:
        there = StreamArray("there", INT32, (), 2, (4,))
        constant = [affine((4,), ((0,),), (i,)) for i in range(4)]
        master = one_class_kernel("master", (masters,), streams=[put(there, i, None) for i in constant], whole=(there,))
        worker = one_class_kernel("worker", (4,), streams=[get(there, affine((4,), unit(1, 0)))])
        return CompiledProgram("p", (), (there,), (master, worker))

    def test_one_master_is_everyones_peer(self) -> None:
        program = self.program(1)
        assert hows(program) == [[None], ["bundle"]]
        assert VMG.of(program).edges.count.tolist() == [1, 1, 1, 1]

    def test_of_several_masters_nobody_knows_which(self) -> None:
        program = self.program(2)
        assert hows(program) == [[None], [None]]
        assert VMG.of(program).edges.count.tolist() == [1] * 8

    def test_two_tasks_at_one_end_of_a_stream_are_refused(self) -> None:
        there = StreamArray("there", INT32, (), 2, (4,))
        first = affine((4,), ((0,),), (0,))
        master = one_class_kernel("master", (2,), streams=[put(there, first)])
        worker = one_class_kernel("worker", (1,), streams=[get(there, first)])
        with pytest.raises(AlloDseError, match="stream there: both master_0 and master_1 put tokens"):
            _ = VMG.of(CompiledProgram("p", (), (there,), (master, worker))).edges
