"""Pieces of tensors: every tile is made of whole ones, and what kernels cut in different ways is copied once."""

from __future__ import annotations

import math
from typing import Any

import pytest

import allo_dse as dse
from allo_dse.backends.fpga.evaluator import FpgaBounds, FpgaSimulator
from allo_dse.compiler.program.tensors import ends_of, piece_grids, pieces_of
from allo_dse.lang import install
from allo_dse.mapper.fold.fold import unfolded
from allo_dse.space.design import Design

install()

import allo.dataflow as df
from allo.ir.types import int32
from allo.memory import Layout

S, R = Layout.Shard, Layout.Replicate
N = 64


def whole_first() -> Any:
    @df.region()
    def top(A: int32[N, N], B: int32[N, N], C: int32[N, N]):
        @df.kernel(mapping=[1], args=[A, B])
        def whole(a: int32[N, N], b: int32[N, N]):
            for i in range(N):
                for j in range(N):
                    b[i, j] = a[i, j] + 1

        @df.kernel(mapping=[4, 2], args=[A, C])
        def parts(a: int32[N, N] @ [S(0), S(1)], c: int32[N, N] @ [S(0), S(1)]):
            for i in range(N // 4):
                for j in range(N // 2):
                    c[i, j] = a[i, j] + 2

    return top


def parts_first() -> Any:
    @df.region()
    def top(A: int32[N, N], B: int32[N, N], C: int32[N, N]):
        @df.kernel(mapping=[4, 2], args=[A, C])
        def parts(a: int32[N, N] @ [S(0), S(1)], c: int32[N, N] @ [S(0), S(1)]):
            for i in range(N // 4):
                for j in range(N // 2):
                    c[i, j] = a[i, j] + 2

        @df.kernel(mapping=[1], args=[A, B])
        def whole(a: int32[N, N], b: int32[N, N]):
            for i in range(N):
                for j in range(N):
                    b[i, j] = a[i, j] + 1

    return top


def design(make: Any) -> Design:
    program = dse.load_program(make)
    return Design(program, unfolded(program), dse.Buffering(), dse.Device.load("u280"))


def test_tiles_are_made_of_whole_pieces_each_of_which_is_in_some_tile() -> None:
    program = dse.load_program(whole_first)
    grids = piece_grids(program.tensor_ports)
    assert grids == {"A": (4, 2), "B": (1, 1), "C": (4, 2)}
    for own, _, pids in program.tasks_by_class:
        for port in own.tensor_ports:
            grid = grids[port.tensor.name]
            first, last = ends_of(port, pids, grid)
            every = [pieces_of(port, pids[at : at + 1], grid) for at in range(len(pids))]
            assert [(one[0], one[-1]) for one in every] == list(zip(first.tolist(), last.tolist(), strict=True))
            each = math.prod(grid) // math.prod(port.tile.grid or (1,))
            assert {len(one) for one in every} == {each}
            assert pieces_of(port, pids, grid).tolist() == list(range(math.prod(grid)))


@pytest.mark.parametrize("make", [whole_first, parts_first])
def test_the_order_of_kernels_does_not_decide_how_much_is_copied(make: Any) -> None:
    """4,096 elements of 4 bytes come once and two results go: whole and in parts, in either order of the kernels."""
    subject = design(make)
    found = FpgaSimulator().evaluate(subject)
    alone = FpgaSimulator().evaluate(design(whole_first))
    assert found.latency_cycles == alone.latency_cycles
    assert found.dram_bytes == 3 * N * N * 4
    # Were it to stay in DRAM, it would come as each kernel wants it.
    assert subject.vmg.uses.moved_words("A", "reads") == 2 * N * N
    other = design(whole_first).vmg.uses.deliveries("A", "reads")
    assert subject.vmg.uses.deliveries("A", "reads").words.tolist() == other.words.tolist()
    bounds = FpgaBounds(solves=True)
    assert max(bounds(subject, level)["latency_cycles"][0] for level in range(2)) <= found.latency_cycles


def test_a_scalar_is_one_piece() -> None:
    @df.region()
    def top(A: int32[8], k: int32, B: int32[8]):
        @df.kernel(mapping=[2], args=[A, k, B])
        def scale(a: int32[8] @ [S(0)], by: int32, b: int32[8] @ [S(0)]):
            for i in range(4):
                b[i] = a[i] * by

    subject = design(top)
    assert piece_grids(subject.program.tensor_ports) == {"A": (2,), "k": (), "B": (2,)}
    found, bounds = FpgaSimulator().evaluate(subject), FpgaBounds(solves=True)
    assert bounds(subject, 1)["latency_cycles"][0] <= found.latency_cycles
