"""Transport plans: which tiles flow where, for mappings whose answer is known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.backends.npu.movement.movement import Transport
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.compiler.program.tensors import Tensor, TensorPort
from allo_dse.device.device import NpuDevice
from allo_dse.mapper.fold.fold import Pattern
from allo_dse.mapper.fold.fold_space import AxisFold, KernelFold, MeshFold
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.violation import Buffering
from tests.support.programs import (
    INT16,
    affine,
    attention_program,
    gemm_program,
    mesh_program,
    one_class_kernel,
    producer_consumer,
    sharded,
    systolic_program,
    vector_add_program,
)

NPU = NpuDevice.load("npu1_4col")


def gemm(
    program: CompiledProgram,
    k: int,
    m: int,
    n: int,
    pattern: Pattern = "cyclic",
    order: tuple[int, ...] = (),
) -> VMG:
    axes = (AxisFold(k, "block", "chain"), AxisFold(m, pattern), AxisFold(n, pattern))
    return VMG.of(program).fold(MeshFold((KernelFold("gemm", axes, order),)))


def flow_counts(transport: Transport) -> dict[tuple[str, str], tuple[int, int]]:
    """Per tensor and direction: flows and transfers."""
    keys = dict.fromkeys((f.tensor, f.direction) for f in transport.flows)
    return {
        key: (
            sum((f.tensor, f.direction) == key for f in transport.flows),
            sum((t.tensor, t.direction) == key for t in transport.transfers),
        )
        for key in keys
    }


class TestHandWrittenGemm:
    """Chain along k, bundle onto 4 x 4: facts about it are in the device files' sources [al] and [ar]."""

    transport = NpuMapping(gemm(gemm_program(), 1, 4, 4), NPU).transport

    def test_rows_and_columns_of_cores_share_tiles(self) -> None:
        assert flow_counts(self.transport) == {("A", "in"): (4, 4), ("B", "in"): (4, 4), ("C", "out"): (16, 4)}
        a, b = self.transport.flows[1], self.transport.flows[5]
        assert a.nodes == (4, 5, 6, 7)
        assert b.nodes == (1, 5, 9, 13)
        assert not self.transport.violations

    def test_channels_of_shims_and_memory_tiles(self) -> None:
        for column in range(4):
            ins = [t for t in self.transport.transfers if t.column == column and t.direction == "in"]
            outs = [t for t in self.transport.transfers if t.column == column and t.direction == "out"]
            assert (len(ins), len(outs)) == (2, 1)
            assert len(ins) + sum(len(t.flows) for t in outs) == 6
            assert sum(len(t.flows) for t in ins) + len(outs) == 3

    def test_tiles(self) -> None:
        a, c = self.transport.flows[0], self.transport.flows[-1]
        assert (a.tile_bytes, a.run_bytes, a.depth, a.moves) == (8192, 128, 2, 2048)
        assert (c.tile_bytes, c.run_bytes, c.depth, c.moves) == (8192, 128, 2, 64)

    def test_a_join_takes_neighbouring_tiles(self) -> None:
        joined = next(t for t in self.transport.transfers if t.direction == "out")
        assert [self.transport.flows[i].nodes[0] for i in joined.flows] == [0, 1, 2, 3]


def test_half_chains_share_shim_channels() -> None:
    """Two half-K chains per output on 4 x 2 pairs: 8 flows of A and 4 of B for 8 shim channels, so A shares."""
    mapping = NpuMapping(gemm(gemm_program(), 2, 4, 2), NPU)
    streams = mapping.view.links.between
    assert flow_counts(mapping.transport) == {("A", "in"): (8, 4), ("B", "in"): (4, 4), ("C", "out"): (8, 4)}
    assert {(s.source, s.target) for s in streams} == {(i, i + 8) for i in range(8)}
    assert {(s.depth, s.token_bytes) for s in streams} == {(2, 8192)}


def test_a_tile_that_stays_is_moved_once() -> None:
    """With n outside m, A's rows are fetched again for every n; with Pk = 1 and m outside n, they stay."""
    program = gemm_program(M=64, N=64, K=64, Pm=8, Pn=8, Pk=1)
    moves = {}
    for order in ((1, 2), (2, 1)):
        transport = NpuMapping(gemm(program, 1, 1, 1, order=order), NPU).transport
        moves[order] = {flow.tensor: flow.moves for flow in transport.flows}
    assert moves == {(1, 2): {"A": 8, "B": 64, "C": 64}, (2, 1): {"A": 64, "B": 8, "C": 64}}


def test_flows_are_in_the_order_of_tensors_inputs_first() -> None:
    transport = NpuMapping(gemm(gemm_program(M=64, N=64, K=64, Pm=4, Pn=4, Pk=4), 1, 2, 2), NPU).transport
    assert [f.tensor for f in transport.flows] == ["A", "A", "B", "B", "C", "C", "C", "C"]
    assert [f.index for f in transport.flows] == list(range(8))
    assert [t.index for t in transport.transfers] == list(range(len(transport.transfers)))


def test_independent_tasks_have_their_own_flows() -> None:
    mapping = NpuMapping(VMG.of(vector_add_program(P=8)), NPU)
    transport = mapping.transport
    assert flow_counts(transport) == {("A", "in"): (8, 8), ("B", "out"): (8, 4)}
    assert mapping.view.links.between == ()
    assert transport.host_rewrites == 0
    assert transport.dram_bytes == 2 * 4 * 1024


def test_a_tensor_that_every_task_needs_is_multicast() -> None:
    """The four loaders of a 2 x 2 systolic array read all of A or B; classes do not matter, tiles do."""
    mapping = NpuMapping(VMG.of(systolic_program(P=2)), NPU)
    inputs = [f for f in mapping.transport.flows if f.direction == "in"]
    assert [(f.tensor, len(f.nodes)) for f in inputs] == [("A", 2), ("B", 2)]
    assert {s.stream for s in mapping.view.links.between} == {"fifo_A", "fifo_B"}


def test_kernels_that_walk_alike_in_other_loops_are_multicast() -> None:
    """One loop over eight tiles of A, and a loop over two pairs of four."""
    a = Tensor("A", INT16, (64, 64))
    long = one_class_kernel("long", (8,), (a,), [sharded(0, a, (8,), (0, None), reads=True)])
    # The tile of task (i, j) is 4 * i + j.
    index = affine((8, 1), ((4, 1), (0, 0)))
    port = TensorPort(0, a, (0, None), (8, 64), index, reads=True, writes=False)
    pairs = one_class_kernel("pairs", (2, 4), (a,), [port])
    folds = (KernelFold("long", (AxisFold(1),), (0,)), KernelFold("pairs", (AxisFold(1), AxisFold(1)), (0, 1)))
    vmg = VMG.of(CompiledProgram("alike", (a,), (), (long, pairs))).fold(MeshFold(folds))
    (flow,) = NpuMapping(vmg, NPU).transport.flows
    assert (flow.nodes, flow.moves) == ((0, 1), 8)


def test_streams_between_kernels() -> None:
    (stream,) = NpuMapping(VMG.of(producer_consumer(n=4)), NPU).view.links.between
    assert (stream.stream, stream.source, stream.target) == ("pipe", 0, 1)
    assert (stream.depth, stream.token_bytes) == (4, 4)


def test_a_chain_has_no_streams_left() -> None:
    vmg = VMG.of(producer_consumer(n=4)).chain("producer_0", "consumer_0")
    mapping = NpuMapping(vmg, NPU)
    assert mapping.view.links.between == ()
    assert [(f.tensor, f.direction) for f in mapping.transport.flows] == [("A", "in"), ("B", "out")]


def normal_form(vmg: VMG) -> object:
    """A plan and its streams without node numbers: nodes by their first task."""
    mapping = NpuMapping(vmg, NPU)
    transport = mapping.transport
    first_task = [int(task) for group in vmg.groups for task in group.leaves.tasks(0, 1)[:, 0]]
    name = first_task.__getitem__
    flows = [
        (f.tensor, f.direction, sorted(map(name, f.nodes)), f.first_byte, f.moves, f.depth) for f in transport.flows
    ]
    transfers = [(t.tensor, t.flows, t.column, t.pattern) for t in transport.transfers]
    streams = sorted((s.stream, name(s.source), name(s.target), s.depth) for s in mapping.view.links.between)
    return flows, transfers, streams


@pytest.mark.parametrize("spatial", [(1, 2, 2), (1, 4, 1), (2, 2, 1), (4, 1, 2), (1, 1, 1)])
@pytest.mark.parametrize("pattern", ["cyclic", "block"])
def test_mesh_folds_and_the_primitives_they_stand_for_have_one_plan(
    spatial: tuple[int, int, int], pattern: Pattern
) -> None:
    """Loops are derived by arithmetic on the one side and found in the tasks' tiles on the other."""
    program = gemm_program(M=64, N=32, K=32, Pm=8, Pn=4, Pk=4)
    folded = gemm(program, *spatial, pattern)
    applied = VMG.of(program).apply(folded.mapping_primitives)
    assert normal_form(folded) == normal_form(applied)


@given(st.integers(1, 3), st.integers(2, 4), st.integers(1, 4), st.sampled_from([(1, 0), (0, 1), (1, 1), (1, -1)]))
def test_streams_agree_with_the_edges_of_the_graph(rows: int, columns: int, fold: int, delta: tuple[int, int]) -> None:
    vmg = VMG.of(mesh_program((rows, columns * fold), [delta]))
    if delta == (0, 1):
        axes = (AxisFold(rows, "block", "bundle"), AxisFold(columns, "block", "chain"))
        vmg = vmg.fold(MeshFold((KernelFold("cell", axes),)))
    found = {(s.source, s.target) for s in NpuMapping(vmg, NPU).view.links.between}
    assert found == set(zip(vmg.edges.source.tolist(), vmg.edges.target.tolist(), strict=True))


def test_attention_folds_keep_their_peers() -> None:
    """The pipeline of four kernels per query row, each bundled over its chunks."""
    program = attention_program(rows=2, chunks=4)
    folds = []
    for kernel in program.kernels:
        axes = tuple(AxisFold(n) if a == 0 else AxisFold(1, "block", "bundle") for a, n in enumerate(kernel.mesh))
        folds.append(KernelFold(kernel.name, axes))
    vmg = VMG.of(program).fold(MeshFold(tuple(folds)))
    streams = NpuMapping(vmg, NPU).view.links.between
    expected = set(zip(vmg.edges.source.tolist(), vmg.edges.target.tolist(), strict=True))
    assert {(s.source, s.target) for s in streams} == expected


def test_the_published_attention_mapping_fits() -> None:
    """[al]: scores and values bundled over chunks, send_q chained with the scores, then two rows per column."""
    vmg = VMG.of(attention_program(rows=8, chunks=4))
    rows = range(8)
    bundles = [
        ("bundle", [f"{kernel}_{row}_{c}" for c in range(4)]) for kernel in ("cal_attn_score", "attn") for row in rows
    ]
    chains = [("chain", [f"send_q_{row}", f"cal_attn_score_{row}_0x4"]) for row in rows]
    names = [(f"send_q_{r}-cal_attn_score_{r}_0x4", f"cal_softmax_{r}", f"attn_{r}_0x4", f"acc_{r}") for r in rows]
    vmg = vmg.apply([*bundles, *chains, *(("bundle", [names[row], names[row + 4]]) for row in range(4))])
    assert vmg.node_count == 16
    assert NpuMapping(vmg, NPU).violations == ()
    transport = NpuMapping(vmg, NPU).transport
    assert flow_counts(transport) == {
        ("Q", "in"): (4, 4),
        ("K", "in"): (1, 1),
        ("V", "in"): (1, 1),
        ("O", "out"): (4, 2),
    }
    assert transport.host_rewrites == 0


def test_a_mapping_of_another_buffering_has_a_plan_of_its_own() -> None:
    vmg = VMG.of(vector_add_program())
    assert NpuMapping(vmg, NPU).transport.flows[0].depth == 2
    assert NpuMapping(vmg, NPU, Buffering(input_depth=1)).transport.flows[0].depth == 1


def test_too_many_flows_leave_transfers_without_a_place() -> None:
    transport = NpuMapping(VMG.of(vector_add_program(P=16)), NpuDevice.load("npu1_1col")).transport
    assert {t.column for t in transport.transfers} == {-1}
    assert [v.constraint for v in transport.violations] == [
        "shim_dma_out",
        "shim_dma_in",
        "memory_tile_dma_in",
        "memory_tile_dma_out",
        "switch_ports",
    ]
