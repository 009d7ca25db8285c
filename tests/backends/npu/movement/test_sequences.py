"""Loop nests in sequences, and walks through DRAM against the addresses they stand for."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.backends.npu.movement.access import is_word_aligned, tile_loops
from allo_dse.backends.npu.movement.movement import AccessPattern, Transfer, Transport
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.compiler.program.tensors import IntArray
from allo_dse.device.device import NpuDevice
from allo_dse.device.npu_model import Descriptor
from allo_dse.lang.types import DType
from allo_dse.mapper.fold.fold import Pattern
from allo_dse.mapper.fold.fold_space import AxisFold, KernelFold, MeshFold
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.graph_algorithms import change_count, loop_nest, nest_moves, simplest_nest
from tests.support.programs import INT16, INT32, gemm_program, vector_add_program

NESTS = st.lists(st.tuples(st.integers(2, 4), st.integers(-3, 9)), max_size=4)


def expand(nest: list[tuple[int, int]]) -> IntArray:
    values = np.zeros(1, np.int64)
    for count, step in nest:
        values = (values[:, None] + np.arange(count) * step).reshape(-1)
    return values


@given(NESTS, st.integers(-5, 5))
def test_a_loop_nest_reproduces_its_sequence(nest: list[tuple[int, int]], start: int) -> None:
    found = loop_nest(expand(nest) + start)
    assert found is not None or len(nest) > 1  # loops that run into each other need not be separable
    if found is not None:
        np.testing.assert_array_equal(expand(list(found)), expand(nest))


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(-3, 9)), max_size=4))
def test_nests_of_equal_sequences_have_one_simplest_nest(nest: list[tuple[int, int]]) -> None:
    np.testing.assert_array_equal(expand(list(simplest_nest(tuple(nest)))), expand(nest))
    found = loop_nest(expand(nest))
    assert found is None or found == simplest_nest(tuple(nest))


@pytest.mark.parametrize("nest", [[(3, 10), (4, 1)], [(2, 100), (3, 0), (4, 7)], [(5, 0)], []])
def test_loops_that_stand_apart_are_found(nest: list[tuple[int, int]]) -> None:
    assert loop_nest(expand(nest)) == tuple(nest)


def test_no_nest_in_an_irregular_sequence() -> None:
    assert loop_nest(np.array([0, 1, 5, 2, 3])) is None
    assert loop_nest(np.array([0, 1, 2, 10, 11, 13])) is None


@given(NESTS.filter(lambda nest: all(step >= 0 for _, step in nest)))
def test_moves_count_the_changes_of_apart_loops(nest: list[tuple[int, int]]) -> None:
    apart: list[Any] = []
    reach = 1
    for count, step in reversed(nest):
        apart.insert(0, (count, step and reach))
        reach *= count + 1
    assert nest_moves(tuple(apart)) == change_count(expand(apart))


@pytest.mark.parametrize(
    ("tile", "shape", "loops"),
    [
        ((64, 64), (2048, 2048), ((128, 1), (64, 4096))),
        ((64, 2048), (2048, 2048), ((64 * 4096, 1),)),
        ((1, 64), (2048, 2048), ((128, 1),)),
        ((64, 1), (2048, 2048), ((2, 1), (64, 4096))),
        ((2, 4, 8), (4, 4, 8), ((128, 1),)),
        ((2, 2, 8), (4, 4, 8), ((32, 1), (2, 64))),
        ((16,), (1024,), ((32, 1),)),
        ((), (), ((2, 1),)),
    ],
)
def test_loops_over_a_tile(tile: tuple[int, ...], shape: tuple[int, ...], loops: tuple[tuple[int, int], ...]) -> None:
    assert tile_loops(tile, shape, 16) == loops


def walk(pattern: AccessPattern, words: int) -> IntArray:
    """First byte of every group of `words` words that a pattern visits, relative to the first."""
    outer = [*zip(pattern.host_loops, pattern.host_steps, strict=True)][::-1]
    loops = [*outer, (pattern.repeat, pattern.repeat_step), *reversed(pattern.dims)]
    return expand([(count, 4 * (step or 0)) for count, step in loops])[::words]


def reference(program: CompiledProgram, vmg: VMG, transport: Transport, transfer: Transfer) -> IntArray:
    """First byte of every row that a transfer must visit, from the tiles of the tasks one by one."""
    sequences, rows = [], []
    for flow in (transport.flows[i] for i in transfer.flows):
        first_bytes = []
        node, group = flow.nodes[0], 0
        while node >= vmg.groups[group].count:
            node, group = node - vmg.groups[group].count, group + 1
        tasks = vmg.groups[group].leaves.tasks()[node]
        kernel = next(k for k in range(len(program.kernels)) if tasks[0] < program.first_task[k + 1])
        for pid in program.pids(kernel, tasks):
            cls = program.kernels[kernel].classes[int(program.kernels[kernel].class_of(pid[None])[0])]
            for port in cls.tensor_ports:
                if port.tensor.name == flow.tensor and (port.reads if flow.direction == "in" else port.writes):
                    grid = np.unravel_index(int(port.tile.linear(pid[None])[0]), port.tile.grid)
                    corner = [int(g) * t for g, t in zip(grid, port.tile_shape, strict=True)]
                    first_bytes.append(byte_of(corner, port.tensor.shape, port.tensor.dtype.bits))
                    heads = itertools.product(*(range(n) for n in port.tile_shape[:-1]), [0])
                    rows = [byte_of(head, port.tensor.shape, port.tensor.dtype.bits) for head in heads]
        sequences.append([byte for byte, _ in itertools.groupby(first_bytes)])
    visits = [first + row for step in zip(*sequences, strict=True) for first in step for row in rows]
    return np.array([visit - visits[0] for visit in visits])


def byte_of(index: list[int] | tuple[int, ...], shape: tuple[int, ...], bits: int) -> int:
    return int(np.ravel_multi_index(tuple(index), shape)) * bits // 8 if index else 0


@pytest.mark.parametrize("spatial", [(1, 2, 2), (1, 4, 1), (2, 2, 2), (1, 1, 1), (4, 2, 1)])
@pytest.mark.parametrize("pattern", ["cyclic", "block"])
@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
@pytest.mark.parametrize("columns", [1, 4])
def test_patterns_visit_the_rows_in_the_order_of_the_tasks(
    spatial: tuple[int, int, int], pattern: Pattern, order: tuple[int, int], columns: int
) -> None:
    program = gemm_program(M=32, N=64, K=48, Pm=8, Pn=4, Pk=4)
    k, m, n = spatial
    axes = (AxisFold(k, "block", "chain"), AxisFold(m, pattern), AxisFold(n, pattern))
    vmg = VMG.of(program).fold(MeshFold((KernelFold("gemm", axes, order),)))
    transport = NpuMapping(vmg, NpuDevice.load(f"npu1_{columns}col")).transport
    for transfer in transport.transfers:
        row_words = program.kernels[0].classes[-1].tensor_ports["ABC".index(transfer.tensor)].tile_shape[-1] // 2
        np.testing.assert_array_equal(
            walk(transfer.pattern, row_words), reference(program, vmg, transport, transfer), err_msg=str(transfer)
        )


def moved_words(pattern: AccessPattern) -> int:
    return math.prod(count for count, _ in pattern.dims) * pattern.repeat * pattern.descriptors


@given(
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([16, 64, 512]),
    st.integers(1, 3),
    st.integers(3, 10),
    st.integers(0, 6),
)
def test_patterns_keep_the_descriptor_limits_and_move_everything(
    tiles: int, size: int, dims: int, wrap_bits: int, iteration_bits: int
) -> None:
    program = gemm_program(M=size, N=size, K=size, Pm=tiles, Pn=tiles, Pk=tiles)
    axes = (AxisFold(1, "block", "chain"), AxisFold(1), AxisFold(1))
    vmg = VMG.of(program).fold(MeshFold((KernelFold("gemm", axes),)))
    device = NpuDevice.load("npu1_1col")
    limits = Descriptor(dims=dims, length_bits=32, wrap_bits=wrap_bits, step_bits=20, iteration_bits=iteration_bits)
    shim = device.shim.model_copy(update={"descriptor": limits})
    device = NpuDevice.model_validate({**{f: getattr(device, f) for f in NpuDevice.model_fields}, "shim": shim})
    for transfer in NpuMapping(vmg, device).transport.transfers:
        pattern = transfer.pattern
        assert 4 * moved_words(pattern) == transfer.dram_bytes
        assert 1 <= len(pattern.dims) <= dims
        assert all(count <= limits.max_wrap for count, _ in pattern.dims[:-1])
        assert pattern.repeat <= limits.max_iterations


def test_a_run_longer_than_a_wrap_is_split() -> None:
    """8 KB rows (2048 words) are two dimensions of a descriptor that counts to 1023, unless the row is all there is."""
    vmg = VMG.of(vector_add_program(P=1, n=1 << 14))
    (a, _) = NpuMapping(vmg, NpuDevice.load("npu1_1col")).transport.transfers
    assert a.pattern.dims == ((1 << 14, 1),)
    program = gemm_program(M=8, N=8192, K=8, Pm=2, Pn=2, Pk=1)
    axes = (AxisFold(1, "block", "chain"), AxisFold(1), AxisFold(1))
    vmg = VMG.of(program).fold(MeshFold((KernelFold("gemm", axes),)))
    b = NpuMapping(vmg, NpuDevice.load("npu1_1col")).transport.transfers[1]
    assert b.pattern.dims[:2] == ((512, 1), (4, 512))


def test_host_loops_are_counted() -> None:
    """The hand-written 2048^3 GEMM: a descriptor holds rows, run, k and n; the host rewrites it for each of 8 rows."""
    program = gemm_program()
    axes = (AxisFold(1, "block", "chain"), AxisFold(4, "cyclic"), AxisFold(4, "cyclic"))
    vmg = VMG.of(program).fold(MeshFold((KernelFold("gemm", axes),)))
    transport = NpuMapping(vmg, NpuDevice.load("npu1_4col")).transport
    a = transport.transfers[0]
    assert a.pattern.dims == ((32, 1), (64, 1024), (32, 32))
    assert (a.pattern.repeat, a.pattern.host_loops) == (8, (8,))
    assert transport.host_rewrites == sum(t.pattern.descriptors - 1 for t in transport.transfers) == 8 * 7
    assert transport.dram_bytes == 2 * (8 * 2048 * 2048 + 8 * 2048 * 2048 + 2048 * 2048)


@pytest.mark.parametrize(("dtype", "tiles", "aligned"), [(INT16, 32, True), (INT16, 64, False), (INT32, 64, True)])
def test_word_alignment(dtype: DType, tiles: int, aligned: bool) -> None:
    program = gemm_program(M=64, N=64, K=64, Pm=8, Pn=tiles, Pk=1, dtype=dtype)
    assert is_word_aligned(program.kernels[0].classes[0].tensor_ports[2]) is aligned
