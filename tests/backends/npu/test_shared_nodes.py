"""Nodes that run tasks of several kernels: each port's tiles move when its own tasks come, wherever these stand."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from allo_dse.backends.npu.evaluator import NpuBounds, NpuSimulator
from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.compiler.program.compiled import CompiledProgram, Kernel, TileOp
from allo_dse.compiler.program.tensors import StreamArray, StreamPort, Tensor
from allo_dse.device.device import NpuDevice
from allo_dse.mapper.fold.fold_space import AxisFold, KernelFold, MeshFold
from allo_dse.mapper.fold.node_fold_search import NodeFold
from allo_dse.mapper.program import Program
from allo_dse.mapper.violation import Buffering
from allo_dse.space.design import Design

from ...support.programs import INT16, affine, get, mesh_program, one_class_kernel, put, sharded, unit
from .test_bounds import assert_bounded

N = 64
A, B, C, D = (Tensor(name, INT16, (N, N)) for name in "ABCD")
Layouts = Mapping[str, tuple[int | None, ...]]


def kernel(
    name: str, mesh: tuple[int, ...], reads: Layouts, writes: Layouts, *ports: StreamPort, loops: int = 1
) -> Kernel:
    """A kernel that loops for a while; a tensor with a prime is the same tensor once more."""
    tensors = {t.name: t for t in (A, B, C, D)}
    sides = [sharded(0, tensors[n[0]], mesh, layout, reads=True) for n, layout in reads.items()]
    sides += [sharded(0, tensors[n], mesh, layout, writes=True) for n, layout in writes.items()]
    work = (TileOp("loop", (), (), loops),)
    return one_class_kernel(name, mesh, tuple(dict.fromkeys(s.tensor for s in sides)), sides, ports, work)


def design(kernels: tuple[Kernel, ...], chains: tuple[tuple[str, ...], ...], buffering: Buffering, npu: str) -> Design:
    """All kernels on one node each, or on one together."""
    used = {p.tensor.name: p.tensor for k in kernels for c in k.classes for p in c.tensor_ports}
    streams = {p.stream.name: p.stream for k in kernels for c in k.classes for p in c.stream_ports}
    program = Program.of(CompiledProgram("shared", tuple(used.values()), tuple(streams.values()), kernels))
    folds = tuple(
        KernelFold(k.name, tuple(AxisFold(1) for _ in k.mesh), tuple(a for a, n in enumerate(k.mesh) if n > 1))
        for k in kernels
    )
    return Design(program, MeshFold(folds, chains), buffering, NpuDevice.load(npu))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_result_that_is_not_the_last_of_its_round(depth: int) -> None:
    """4x[a; b]: a gives away a tile of C and hands on a token, b gives away a tile of D, or nothing."""
    for writes in ({"D": (0, None)}, {}):
        pipe = StreamArray("pipe", INT16, (4,), 2, (4,))
        here = affine((4,), unit(1, 0))
        first = kernel("a", (4,), {"A": (0, None)}, {"C": (0, None)}, put(pipe, here))
        second = kernel("b", (4,), {"B": (0, None)}, writes, get(pipe, here))
        found = design((first, second), (("a", "b"),), Buffering(2, depth), "npu1_4col")
        assert not found.mapping.violations
        assert NpuSimulator().evaluate(found).dram_bytes == 2 * N * N * (3 + len(writes))
        assert_bounded(found, NpuBounds())


def test_flows_of_one_channel_lead_to_rounds_of_different_length() -> None:
    """2x[a] and then b on one node, 2x[c] on another, which takes the tile of A at two ports."""
    kernels = (
        kernel("a", (2,), {"A": (None, None)}, {}),
        kernel("b", (1,), {"B": (None, None)}, {}),
        kernel("c", (2, 1), {"A": (None, None), "A'": (1, None)}, {}),
    )
    found = design(kernels, (("a", "b"),), Buffering(1), "npu1_1col")
    assert not found.mapping.violations
    assert [len(transfer.flows) for transfer in NpuMapping.of(found).transport.transfers] == [2, 1]
    assert NpuSimulator().evaluate(found).dram_bytes == 2 * N * N * 3
    assert_bounded(found, NpuBounds())


def test_a_tile_is_waited_for_where_the_first_task_takes_it() -> None:
    """a and c take the same tile together; c's node has something to do before."""
    kernels = (
        kernel("a", (1,), {"A": (0, None)}, {}),
        kernel("b", (1,), {}, {}, loops=100_000),
        kernel("c", (1,), {"A": (0, None)}, {}),
    )
    found = design(kernels, (("b", "c"),), Buffering(), "npu1_4col")
    assert [flow.nodes for flow in NpuMapping.of(found).transport.flows] == [(0, 1)]
    assert_bounded(found, NpuBounds())


def test_what_the_host_interrupts_is_not_moved_again() -> None:
    """a keeps its tile of A for the whole run, b walks through B twice, in more loops than a descriptor has."""
    kernels = (
        kernel("a", (2, 4, 4), {"A": (None, None)}, {}),
        kernel("b", (2, 4, 4), {"B": (1, 2)}, {}),
    )
    found = design(kernels, (), Buffering(1), "npu1_4col")
    transport = NpuMapping.of(found).transport
    assert transport.host_rewrites > 0
    assert NpuSimulator().evaluate(found).dram_bytes == transport.dram_bytes == 2 * N * N * (1 + 2)


def node_fold(compiled: CompiledProgram, *nodes: tuple[int, ...]) -> Design:
    program = Program.of(compiled)
    fold = NodeFold.of(program.vmg.graph, nodes)
    return Design(program, fold, Buffering(), NpuDevice.load("npu1_4col"))


@pytest.mark.parametrize(
    ("nodes", "moves"),
    [
        (((0, 1), (2, 4), (3, 5)), (1, 2, 2)),  # the first keeps its tile of A
        (((0, 2, 3, 4),), (3,)),  # tiles 0, 1, 1, 2: two loops, of which the second begins where the first one ended
    ],
)
def test_nodes_with_one_tree_need_other_tiles_at_other_times(
    nodes: tuple[tuple[int, ...], ...], moves: tuple[int, ...]
) -> None:
    own = kernel("a", (4, 2), {"A": (0, None)}, {"C": (0, 1)})
    mapping = NpuMapping.of(node_fold(CompiledProgram("uneven", (A, C), (), (own,)), *nodes))
    flows = [flow for flow in mapping.transport.flows if flow.tensor == "A"]
    ports = [part.by_key for part in mapping.view.periods for _ in range(part.group.count)]
    names, found = list(mapping.vmg.nodes), []
    for own_tasks in nodes:
        node = next(n for n, name in enumerate(names) if name.startswith(mapping.vmg.program.task_name(own_tasks[0])))
        (flow,) = (flow for flow in flows if node in flow.nodes)
        assert ports[node][flow.ports[0]].cadence.over(mapping.view.periods[0].periods) == flow.moves
        found.append(flow.moves)
    assert tuple(found) == moves


def test_nodes_with_one_tree_exchange_tokens_with_other_nodes() -> None:
    """Tasks 1 and 2 hand a token on inside their node, 3 and 5 exchange all of theirs with others."""
    found = node_fold(mesh_program((8,), [(1,)]), (1, 2), (3, 5))
    assert not found.mapping.violations
    assert len(NpuMapping.of(found).view.channels.depth) == len(NpuMapping.of(found).view.links.between) == 6
    assert NpuSimulator().evaluate(found).latency_us > 0
