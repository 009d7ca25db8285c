"""Advice for programs without designs: the rewrite named in the message, applied, leads to a design."""

from __future__ import annotations

import pytest

import allo_dse as dse
from allo_dse.backends.npu.allo.target import ALLO
from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.device.device import NpuDevice
from allo_dse.eval.backend import Buildable
from allo_dse.lang import install
from allo_dse.lang.region import Region, as_region
from allo_dse.mapper.fold.fold import AxisFold, KernelFold, MeshFold
from allo_dse.mapper.program import load_program
from allo_dse.mapper.violation import Buffering
from allo_dse.tune.search.screening import Screen

install()

import allo
import allo.dataflow as df
from allo.ir.types import Stream, int16, int32
from allo.memory import Layout

S, R = Layout.Shard, Layout.Replicate
NPU = NpuDevice.load("npu2")


def region(made: object) -> Region:
    found = as_region(made)
    assert found is not None
    return found


def study(program: object) -> dse.Study:
    objectives = [dse.minimize("latency_us")]
    return dse.Study("advised", program=program, params={}, device="npu2", target="allo", objectives=objectives)


def advised(program: Region) -> str:
    """Return the advice on a program without designs."""
    one = study(program)
    builder = Buildable(one.target, NPU, Buffering())
    return "\n".join(builder.rewrites(load_program(program)))


def has_design(program: object) -> bool:
    one = study(program)
    return any(not one.check(candidate.design) for candidate in one.space.designs())


def rows(tasks: int) -> Region:
    """Sums of rows that need more memory than a core has, unless there are many tasks."""

    @df.region()
    def top(A: int16[256, 512], B: int16[256, 512]):
        @df.kernel(mapping=[tasks], args=[A, B])
        def scale(a: int16[256, 512] @ [S(0), R], b: int16[256, 512] @ [S(0), R]):
            b[:, :] = allo.mul(a, 3)

    return region(top)


def columns(parts: int) -> Region:
    """One task per row and part of it."""

    @df.region()
    def top(A: int16[256, 512], B: int16[256, 512]):
        @df.kernel(mapping=[8, parts], args=[A, B])
        def scale(a: int16[256, 512] @ [S(0), S(1)], b: int16[256, 512] @ [S(0), S(1)]):
            b[:, :] = allo.mul(a, 3)

    return region(top)


@df.region()
def fused(A: int16[64, 32], B: int16[32, 64], D: int16[64, 64], Y: int16[64, 64]):
    @df.kernel(mapping=[4, 4], args=[A, B, D, Y])
    def body(
        a: int16[64, 32] @ [S(0), R],
        b: int16[32, 64] @ [R, S(1)],
        d: int16[64, 64] @ [S(0), S(1)],
        y: int16[64, 64] @ [S(0), S(1)],
    ):
        y[:, :] = allo.add(allo.matmul(a, b), d)


@df.region()
def fused_by_stream(A: int16[64, 32], B: int16[32, 64], D: int16[64, 64], Y: int16[64, 64]):
    tiles: Stream[int16[16, 16], 2][4, 4]

    @df.kernel(mapping=[4, 4], args=[D])
    def load(d: int16[64, 64] @ [S(0), S(1)]):
        i, j = df.get_pid()
        tiles[i, j].put(d)

    @df.kernel(mapping=[4, 4], args=[A, B, Y])
    def body(a: int16[64, 32] @ [S(0), R], b: int16[32, 64] @ [R, S(1)], y: int16[64, 64] @ [S(0), S(1)]):
        i, j = df.get_pid()
        y[:, :] = allo.add(allo.matmul(a, b), tiles[i, j].get())


@df.region()
def cube(X: int16[8, 6, 10], Y: int16[8, 6, 10]):
    @df.kernel(mapping=[4], args=[X, Y])
    def double(x: int16[8, 6, 10] @ [S(0), R, R], y: int16[8, 6, 10] @ [S(0), R, R]):
        for c, i, j in allo.grid(2, 6, 10):
            y[c, i, j] = x[c, i, j] + x[c, i, j]


@df.region()
def matrix(X: int16[8, 60], Y: int16[8, 60]):
    @df.kernel(mapping=[4], args=[X, Y])
    def double(x: int16[8, 60] @ [S(0), R], y: int16[8, 60] @ [S(0), R]):
        for c, i, j in allo.grid(2, 6, 10):
            y[c, i * 10 + j] = x[c, i * 10 + j] + x[c, i * 10 + j]


def low_rank(pieces: int, rank: int = 16) -> Region:
    """A product of rank 16 whose first factor is made of `pieces` products."""

    @df.region()
    def top(X: int16[64, 64], A: int16[64, rank], B: int16[rank, 64], Y: int16[64, 64]):
        low: Stream[int16[32, rank], 2][2, 4]

        @df.kernel(mapping=[2], args=[X, A])
        def down(x: int16[64, 64] @ [S(0), R], a: int16[64, rank]):
            p = df.get_pid()
            t: int16[32, rank] = 0
            with allo.meta_if(pieces == 1):
                t[:, :] = allo.matmul(x, a)
            with allo.meta_else(), allo.meta_for(4) as k:
                t[:, :] = allo.add(t, allo.matmul(x[:, k * 16 : (k + 1) * 16], a[k * 16 : (k + 1) * 16, :]))
            with allo.meta_for(4) as q:
                low[p, q].put(t)

        @df.kernel(mapping=[2, 4], args=[B, Y])
        def up(b: int16[rank, 64] @ [R, S(1)], y: int16[64, 64] @ [S(0), S(1)]):
            p, q = df.get_pid()
            y[:, :] = allo.matmul(low[p, q].get(), b)

    return region(top)


def mixed(first: bool) -> Region:
    """Three vectors of a kind and one of another: the region's order decides."""
    if first:

        @df.region()
        def top(A: int16[64], B: int16[64], Y: int32[64]):
            @df.kernel(mapping=[4], args=[A, B, Y])
            def add(a: int16[64] @ [S(0)], b: int16[64] @ [S(0)], y: int32[64] @ [S(0)]):
                for i in range(16):
                    y[i] = a[i] + b[i]

        return region(top)

    @df.region()
    def turned(Y: int32[64], A: int16[64], B: int16[64]):
        @df.kernel(mapping=[4], args=[Y, A, B])
        def add(y: int32[64] @ [S(0)], a: int16[64] @ [S(0)], b: int16[64] @ [S(0)]):
            for i in range(16):
                y[i] = a[i] + b[i]

    return region(turned)


def padded(width: int) -> Region:
    """Columns of a matrix whose rows are `width` long, in four parts."""
    part = width // 4

    @df.region()
    def top(A: int16[8, width], B: int16[8, width]):
        @df.kernel(mapping=[4], args=[A, B])
        def copy(a: int16[8, width] @ [R, S(0)], b: int16[8, width] @ [R, S(0)]):
            for i, j in allo.grid(8, part):
                b[i, j] = a[i, j]

    return region(top)


CASES: dict[str, tuple[Region, str, Region]] = {
    "more tasks": (rows(8), "map scale to 32 tasks along axis 0 instead of 8", rows(32)),
    "shard": (rows(8), "shard the dimension of 512 of A and B over a mesh axis in 4 parts of 128", columns(4)),
    "by stream": (fused, "take D as an argument of a kernel of its own with mapping=[4, 4]", fused_by_stream),
    "as matrix": (cube, "pass X as a matrix of 8 x 60", matrix),
    "one shape": (low_rank(1), "cut each into pieces of 32x16x16", low_rank(4)),
    "reordered": (mixed(first=False), "declare the region's arguments in the order A, B, Y", mixed(first=True)),
    "padded": (padded(36), "pad the width of A from 36 to 40: tiles of 10 instead of 9", padded(40)),
}


@pytest.mark.parametrize("case", CASES)
def test_the_advised_rewrite_leads_to_a_design(case: str) -> None:
    program, advice, rewritten = CASES[case]
    assert advice in advised(program)
    assert not advised(rewritten)
    assert has_design(rewritten)


def chained(parts: int) -> Region:
    """Two products, one after the other; the second takes the result of the first as it is, or in parts."""
    piece = 16 // parts

    @df.region()
    def top(X: int16[64, 64], A: int16[64, 16], B: int16[16, 64], Y: int16[64, 64]):
        low: Stream[int16[32, 16], 2][2, 4]

        @df.kernel(mapping=[2], args=[X, A])
        def down(x: int16[64, 64] @ [S(0), R], a: int16[64, 16]):
            p = df.get_pid()
            t: int16[32, 16] = allo.matmul(x, a)
            with allo.meta_for(4) as q:
                low[p, q].put(t)

        @df.kernel(mapping=[2, 4], args=[B, Y])
        def up(b: int16[16, 64] @ [R, S(1)], y: int16[64, 64] @ [S(0), S(1)]):
            p, q = df.get_pid()
            t: int16[32, 16] = low[p, q].get()
            with allo.meta_if(parts == 1):
                y[:, :] = allo.matmul(t, b)
            with allo.meta_else():
                s: int16[32, 16] = 0
                with allo.meta_for(parts) as i:
                    left = t[:, i * piece : (i + 1) * piece]
                    s[:, :] = allo.add(s, allo.matmul(left, b[i * piece : (i + 1) * piece, :]))
                y[:, :] = s

    return region(top)


def screened(program: Region) -> Screen:
    """Screen all designs of a program on an XDNA1 device, whose matrix products may have several shapes."""
    objectives = [dse.minimize("latency_us")]
    one = dse.Study("screened", program=program, params={}, device="npu1_4col", target="allo", objectives=objectives)
    screen = Screen(one.space, one.check)
    for candidate in one.space.designs():
        screen.admit(candidate)
    return screen


def test_a_space_without_designs_names_the_operands_of_a_rewrite_that_leads_to_one() -> None:
    screen = screened(chained(1))
    assert screen.legal is None
    assert (
        "in up, get low into a tile of 32 x 16, and add up products of its parts [:, i] and parts [i, :] of B, where "
        "i is one of 2 slices of 8 in `with allo.meta_for(2)`"
    ) in screen.refusal().hint
    assert screened(chained(2)).legal is not None


def test_transfers_without_channels_name_tensors_numbers_and_the_mesh_that_needs_fewer() -> None:
    def added(tasks: int) -> list[str]:
        @df.region()
        def top(A: int16[1024], B: int16[1024], C: int16[1024]):
            @df.kernel(mapping=[tasks], args=[A, B, C])
            def add(a: int16[1024] @ [S(0)], b: int16[1024] @ [S(0)], c: int16[1024] @ [S(0)]):
                c[:] = allo.add(a, b)

        vmg = load_program(region(top)).vmg
        blocks = MeshFold((KernelFold("add", (AxisFold(8, "block"),), (0,)),)).normalised(vmg.graph)
        return [str(one) for one in ALLO.check(NpuMapping(vmg.fold(blocks), NpuDevice.load("npu1_4col")))]

    (found,) = added(64)
    assert "16 channels from DRAM are needed (A 8, B 8), and there are 8" in found
    assert "map add to 8 tasks along axis 0 instead of 64" in found
    assert added(8) == []
