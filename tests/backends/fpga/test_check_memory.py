"""Data memory of folded nodes: ports, streams, and what lives between the tasks of a chain."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.backends.npu.movement.node_memory import NodeMemory, group_memory, own_memory
from allo_dse.backends.npu.movement.view import MappingView
from allo_dse.common.errors import AlloDseError
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.compiler.program.tensors import StreamArray
from allo_dse.device.device import NpuDevice
from allo_dse.mapper.fold.fold_space import AxisFold, KernelFold, MeshFold
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.violation import Buffering

from ...support.programs import (
    INT32,
    affine,
    gemm_program,
    get,
    graph_program,
    mesh_program,
    one_class_kernel,
    producer_consumer,
    put,
    unit,
)

NPU = NpuDevice.load("npu1_4col")
RESERVED = 3328


def gemm(k: int, m: int, n: int, **program: Any) -> VMG:
    axes = (AxisFold(k, "block", "chain"), AxisFold(m), AxisFold(n))
    return VMG.of(gemm_program(**program)).fold(MeshFold((KernelFold("gemm", axes),)))


def memories(vmg: VMG, buffering: Buffering | None = None) -> list[NodeMemory]:
    view = MappingView(vmg)
    return group_memory(view.groups, view.links, NPU, buffering or Buffering())


@given(
    st.sampled_from([16, 32, 64]),
    st.sampled_from([16, 32, 64]),
    st.sampled_from([16, 32, 64]),
    st.sampled_from([1, 2, 5]),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_a_full_chain_is_the_published_fit(m: int, k: int, n: int, steps: int, depth_in: int, depth_out: int) -> None:
    """2*A + 2*B + c*C + 3328, however long the chain: the accumulator lives in the output's slot."""
    vmg = gemm(1, 2, 2, M=4 * m, K=steps * k, N=4 * n, Pm=4, Pn=4, Pk=steps)
    expected = RESERVED + depth_in * 2 * (m * k + k * n) + depth_out * 2 * m * n
    assert NpuMapping(vmg, NPU, Buffering(depth_in, depth_out)).local_memory_bytes == expected


@given(st.integers(1, 4), st.integers(1, 4), st.sampled_from([1, 2, 4]))
def test_memory_grows_with_depth(depth_in: int, depth_out: int, k: int) -> None:
    vmg = gemm(k, 2, 2, M=32, N=32, K=32, Pm=4, Pn=4, Pk=4)
    here = NpuMapping(vmg, NPU, Buffering(depth_in, depth_out)).local_memory_bytes
    assert here <= NpuMapping(vmg, NPU, Buffering(depth_in + 1, depth_out)).local_memory_bytes
    assert here <= NpuMapping(vmg, NPU, Buffering(depth_in, depth_out + 1)).local_memory_bytes


def test_half_chains() -> None:
    """The first half's accumulator lives in the FIFO to the second half, the second half's in its output."""
    first, second = memories(gemm(2, 4, 2))
    assert (first.inputs, first.outputs, first.streams, first.chain) == (32768, 0, 16384, 0)
    assert (second.inputs, second.outputs, second.streams, second.chain) == (32768, 16384, 0, 0)
    assert str(first) == "inputs 32,768, streams 16,384, reserved 3,328"


def test_a_local_stream_holds_all_its_tokens() -> None:
    program = producer_consumer(n=8)
    apart = memories(VMG.of(program))
    assert [m.streams for m in apart] == [4 * 4, 0]
    (chained,) = memories(VMG.of(program).chain("producer_0", "consumer_0"))
    assert (chained.streams, chained.chain) == (0, 8 * 8 * 4)


def test_two_puts_on_one_stream_are_two_tokens() -> None:
    wire = StreamArray("wire", INT32, (), 2, ())
    ends = affine((), ())
    source = one_class_kernel("a", (1,), streams=[put(wire, ends), put(wire, ends)])
    target = one_class_kernel("b", (1,), streams=[get(wire, ends), get(wire, ends)])
    vmg = VMG.of(CompiledProgram("twice", (), (wire,), (source, target)))
    assert [(s.source, s.target) for s in NpuMapping(vmg, NPU).view.links.between] == [(0, 1)]
    chained = vmg.chain("a_0", "b_0")
    assert NpuMapping(chained, NPU).view.links.between == ()
    assert memories(chained)[0].chain == 2 * 4


def test_blocks_that_are_alive_at_once_add_up() -> None:
    """a hands to b and to c, b hands to c: while b runs, all three values exist."""
    vmg = VMG.of(graph_program([("a", "b"), ("b", "c"), ("a", "c")])).chain("a_0", "b_0").chain("a_0-b_0", "c_0")
    assert memories(vmg)[0].chain == 3 * 4


def test_values_that_do_not_overlap_share_memory() -> None:
    """a to b and then, independently, c to d: one buffer after the other."""
    vmg = VMG.of(graph_program([("a", "b"), ("c", "d")]))
    vmg = vmg.chain("a_0", "b_0").chain("c_0", "d_0").chain("a_0-b_0", "c_0-d_0")
    assert memories(vmg)[0].chain == 4


def test_nodes_of_a_group_need_what_one_of_them_does() -> None:
    """Of two nodes with the same tree one has a buffer of 16 bytes inside, the other a FIFO of two such tokens."""
    wire, own = StreamArray("wire", INT32, (4,), 2, (3,)), affine((3,), unit(1, 0))
    kernels = (
        one_class_kernel("a", (3,), streams=[put(wire, own)]),
        one_class_kernel("b", (3,), streams=[get(wire, own)]),
    )
    vmg = VMG.of(CompiledProgram("wired", (), (wire,), kernels)).chain("a_0", "b_0").chain("a_1", "b_2")
    (both,) = (m for group, m in zip(MappingView(vmg).groups, memories(vmg), strict=True) if group.group.count == 2)
    assert (both.streams, both.chain) == (32, 0)
    assert vmg.nodes[both.node] == "a_1-b_2"
    view = MappingView(vmg)
    wherever = dict(zip(vmg.nodes, own_memory(view.groups, view.links, NPU, Buffering()), strict=True))
    assert (wherever["a_0-b_0"], wherever["a_1-b_2"]) == (RESERVED + 16, RESERVED)


def test_a_block_handed_on_is_updated_in_place() -> None:
    """Four tasks in a row hand on a block of 8 bytes; the last only takes it, so that it needs a buffer of its own."""
    vmg = VMG.of(mesh_program((4,), [(1,)])).fold(MeshFold((KernelFold("cell", (AxisFold(1, "block", "chain"),)),)))
    assert memories(vmg)[0].chain == 8


@pytest.mark.parametrize(("depth", "buffers"), [(1, 1), (2, 0), (3, 0)])
def test_more_accumulators_than_output_slots_need_buffers(depth: int, buffers: int) -> None:
    """Two outputs accumulate side by side: k of the outer loop, n of the inner one."""
    vmg = VMG.of(gemm_program(M=16, N=32, K=32, Pm=1, Pn=2, Pk=2))
    tasks = ["gemm_0_0_0", "gemm_0_0_1", "gemm_1_0_0", "gemm_1_0_1"]
    node = tasks[0]
    for task in tasks[1:]:
        vmg = vmg.chain(node, task)
        node = f"{node}-{task}"
    assert memories(vmg, Buffering(output_depth=depth))[0].chain == buffers * 16 * 16 * 2


@pytest.mark.parametrize("spatial", [(1, 2, 2), (2, 2, 1), (4, 1, 2)])
def test_mesh_folds_and_their_primitives_need_the_same(spatial: tuple[int, int, int]) -> None:
    folded = gemm(*spatial, M=64, N=32, K=32, Pm=4, Pn=4, Pk=4)
    applied = VMG.of(folded.program).apply(folded.mapping_primitives)
    assert sorted(m.total for m in memories(folded)) == sorted(m.total for m in memories(applied))


def test_the_library_decides_what_is_reserved() -> None:
    vmg = gemm(1, 2, 2, M=32, N=32, K=32, Pm=4, Pn=4, Pk=4)
    tuned = NPU.with_options(kernel_library="tuned")
    assert NpuMapping(vmg, NPU).local_memory_bytes - NpuMapping(vmg, tuned).local_memory_bytes == 3328 - 1024


@pytest.mark.parametrize("depth", [0, -1, 1.5, True, "2"])
def test_depths_are_whole_numbers(depth: Any) -> None:
    with pytest.raises(AlloDseError, match=r"Buffering\.input_depth is"):
        Buffering(input_depth=depth)


def test_buffering_round_trip() -> None:
    buffering = Buffering(1, 3, 4)
    assert Buffering(**buffering.to_dict()) == buffering
