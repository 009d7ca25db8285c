"""The order in which Allo makes nodes: by the mesh, as the list of primitives has it."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from allo_dse.backends.npu.allo.placer import by_position, creation_order
from allo_dse.backends.npu.allo.rule import Subject
from allo_dse.backends.npu.allo.stream_rules import crowded_memory_tile, turned_streams
from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.backends.npu.movement.movement import StreamFlow
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.device.device import NpuDevice
from allo_dse.lang import install
from allo_dse.mapper.fold.fold_space import FoldSpace, MeshFold
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.program import load_program
from tests.support.programs import gemm_program, vector_add_program

install()

from studies.attention_npu import attention
from studies.ffn_npu import feed_forward
from studies.resnet_npu import bottleneck

PROGRAMS = [
    gemm_program(16, 16, 16, 4, 2, 4),
    gemm_program(12, 12, 12, 1, 6, 2),
    vector_add_program(12, 240),
    load_program(attention, L=128, D=64, Tq=32, Tk=32),
    load_program(feed_forward, M=32, D=32, H=32, Pm=2, Ph=2),
]


@cache
def folds_of(program: CompiledProgram) -> tuple[VMG, list[MeshFold]]:
    graph = VMG.of(program)
    return graph, list(FoldSpace.of(graph.graph))


@given(st.sampled_from(PROGRAMS), st.data())
def test_folds_of_meshes_are_ordered_without_the_list_of_tasks(program: CompiledProgram, data: st.DataObject) -> None:
    graph, folds = folds_of(program)
    folded = graph.fold(data.draw(st.sampled_from(folds)))
    spelled: Any = SimpleNamespace(
        mesh_fold=None,
        joint=None,
        groups=folded.groups,
        nodes=folded.nodes,
        node_count=folded.node_count,
        mapping_primitives=folded.mapping_primitives,
    )
    assert creation_order(folded) == creation_order(cast(VMG, spelled))


def test_streams_of_the_first_task_of_a_class_come_first() -> None:
    """What Allo made of the program: hidden and parts of the first tasks, then each kernel's others."""
    vmg = load_program(feed_forward, M=32, D=32, H=32, Pm=2, Ph=2).vmg
    subject = Subject(NpuMapping(vmg, NpuDevice.load("npu1_4col")))
    ends = [(flow.stream, vmg.nodes[flow.source]) for flow in by_position(vmg, subject.fifos)]
    assert [f"{stream} {node}" for stream, node in ends] == [
        "hidden up_0_0",
        "parts down_0_0",
        "parts down_0_1",
        "hidden up_0_1",
        "hidden up_1_0",
        "hidden up_1_1",
        "parts down_1_0",
        "parts down_1_1",
    ]


def stream(source: int) -> StreamFlow:
    return StreamFlow("parts", source, 9, 64, 2)


def test_memory_tiles_that_send_by_all_channels_still_receive_in_allo() -> None:
    """A stream that finds its column's tile full goes to the first that can receive: one channel too many, if it sends
    by all of its own."""
    cores = {0: (0, 0), 1: (1, 0), 9: (0, 1)}
    assert crowded_memory_tile([stream(0)], cores, [(5, 5), (0, 0)]) is None
    assert crowded_memory_tile([stream(0)], cores, [(6, 6), (0, 0)]) is None
    assert crowded_memory_tile([stream(0)], cores, [(6, 5), (0, 0)]) == stream(0)
    assert crowded_memory_tile([stream(1)], cores, [(6, 5), (0, 0)]) is None
    assert crowded_memory_tile([stream(1)], cores, [(6, 6), (6, 6)]) == stream(1)


def test_tokens_that_are_copied_into_a_window_keep_their_layout() -> None:
    """The 3x3 convolution multiplies parts of its window; attention multiplies the queries that it gets."""
    convolution = load_program(bottleneck, B=1, H=4, P=2, Q=1)
    assert "rows" not in turned_streams(convolution.vmg.program, "xdna1")
    scores = load_program(attention, L=128, D=64, Tq=32, Tk=32)
    assert turned_streams(scores.vmg.program, "xdna1")["queries"] is False
