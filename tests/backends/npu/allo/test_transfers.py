"""Transfers as Allo makes them: which tiles lie next to each other, and when ports run out."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allo_dse.backends.npu.allo.interfaces import PortShortage, one_iteration
from allo_dse.backends.npu.allo.rule import Subject
from allo_dse.backends.npu.allo.transfers import NoTransfer, adjacent_places, spread
from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.compiler.program.tensors import Tensor
from allo_dse.device.device import NpuDevice
from allo_dse.mapper.fold.fold import AxisFold, KernelFold, MeshFold
from allo_dse.mapper.fold.node_fold_search import NodeFold
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.graph.groups import Task, repeat, seq
from tests.support.programs import INT16, gemm_program, one_class_kernel, sharded

NPU = NpuDevice.of(NpuDevice.load("npu1_4col"))


def subject(m: AxisFold, n: AxisFold, pk: int = 4, mesh: int = 16) -> Subject:
    program = gemm_program(Pm=mesh, Pn=mesh, Pk=pk)
    fold = MeshFold((KernelFold("gemm", (AxisFold(1, "block", "chain"), m, n)),))
    return Subject(NpuMapping(VMG.of(program).fold(fold), NPU))


def test_tiles_by_turns_find_ports_and_tiles_in_blocks_do_not() -> None:
    runs = subject(AxisFold(4, "cyclic"), AxisFold(4, "cyclic")).transfers
    assert isinstance(runs, tuple)
    assert [run.sample.port.tensor.name for run in runs] == [*"AAAABBBBCCCC"]
    assert [len(run.streams) for run in runs] == [1] * 8 + [4] * 4
    assert {sum(map(len, run.streams)) for run in runs} == {4}
    assert isinstance(subject(AxisFold(4, "cyclic"), AxisFold(4, "block")).transfers, NoTransfer)


def test_few_blocks_find_ports() -> None:
    runs = subject(AxisFold(1, "block"), AxisFold(2, "block")).transfers
    assert isinstance(runs, tuple)
    assert len(runs) == 5  # A once for both; B and C for each


def test_a_wide_transfer_is_cut_until_it_fits_a_memory_tile() -> None:
    runs = subject(AxisFold(7, "cyclic"), AxisFold(1, "block"), mesh=14).transfers
    assert isinstance(runs, tuple)
    assert [len(run.streams) for run in runs if run.sample.port.tensor.name == "A"] == [6, 1]


def test_the_only_transfer_of_a_tensor_is_spread_over_the_columns() -> None:
    runs = subject(AxisFold(1, "block"), AxisFold(8, "cyclic")).transfers
    assert isinstance(runs, tuple)
    assert [len(run.streams) for run in runs if run.sample.port.tensor.name == "B"] == [2, 2, 2, 2]
    assert {run.size for run in runs if run.sample.port.tensor.name == "B"} == {(1, 2, 1, 1)}


def test_a_transfer_is_spread_into_whole_rows_or_refused() -> None:
    own = subject(AxisFold(4, "cyclic"), AxisFold(4, "cyclic")).interfaces[0]
    assert not isinstance(own, PortShortage)
    streams = ((own[0],),) * 18
    ((half, _),) = list(spread([[(streams, (1, 1, 6, 3))]], shims=8))
    assert (len(half[0]), half[1]) == (9, (1, 1, 3, 3))
    with pytest.raises(NoTransfer) as refusal:  # a half is four rows and a tile
        list(spread([[(streams, (1, 1, 9, 2))]], shims=8))
    assert refusal.value.parts == 2


def test_arguments_for_one_tensor_are_merged_only_when_there_are_too_many() -> None:
    merged = subject(AxisFold(1, "block"), AxisFold(1, "block")).interfaces[0]
    assert not isinstance(merged, PortShortage)
    assert [(one.port.tensor.name, one.tiles.shape[:2]) for one in merged] == [
        ("A", (256, 4)),
        ("B", (256, 4)),
        ("C", (256, 1)),
    ]


def test_a_body_holds_each_task_of_an_iteration_once() -> None:
    a, b = Task(0, 0), Task(0, 1)
    body = one_iteration(repeat(3, seq([a, repeat(2, b)])))
    assert [(task, leaves.tolist()) for task, leaves in body] == [(a, [0, 3, 6]), (b, [1, 2, 4, 5, 7, 8])]


@given(st.integers(1, 4), st.integers(1, 5))
def test_a_full_grid_is_one_run_in_row_major_order(rows: int, columns: int) -> None:
    grid = [(a, b, 0, 0) for a, b in itertools.product(range(rows), range(columns))]
    assert adjacent_places(grid) == [grid]


@given(st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1))
def test_every_place_is_in_exactly_one_run(places: set[tuple[int, int]]) -> None:
    grid = [(a, b, 0, 0) for a, b in places]
    runs = adjacent_places(grid)
    assert sorted(place for run in runs for place in run) == sorted(grid)


@pytest.mark.parametrize("columns", [1, 2])
def test_a_smaller_array_has_fewer_ports(columns: int) -> None:
    small = NpuDevice.of(NpuDevice.load(f"npu1_{columns}col"))
    whole = subject(AxisFold(4, "cyclic"), AxisFold(4, "cyclic"))
    assert isinstance(Subject(NpuMapping(whole.vmg, small)).transfers, NoTransfer)


def test_the_end_of_a_row_does_not_lie_next_to_the_beginning_of_the_next() -> None:
    """Tiles (0, 1) and (1, 0) follow each other by number; their transfer would be of 2 x 0 tiles."""
    a = Tensor("A", INT16, (48, 48))
    kernel = one_class_kernel("a", (3, 2), (a,), [sharded(0, a, (3, 2), (0, 1), reads=True)])
    vmg = VMG.of(CompiledProgram("rows", (a,), (), (kernel,)))
    rows = vmg.fold(NodeFold.of(vmg.graph, [(0, 1), (2, 3), (4, 5)]))
    for device in ("npu1_1col", "npu1_4col"):
        mapping = NpuMapping(rows, NpuDevice.of(NpuDevice.load(device)))
        assert isinstance(Subject(mapping).transfers, NoTransfer)
