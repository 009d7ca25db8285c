"""Memory of cores as Allo's program needs it; the sizes are those of the buffers that Allo (commit a098603) made."""

from __future__ import annotations

import pytest

from allo_dse.backends.npu.allo.rules import array_bytes, crowded_program, stream_bytes
from allo_dse.backends.npu.allo.target import ALLO
from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.backends.npu.movement.movement import StreamFlow
from allo_dse.device.device import NpuDevice
from allo_dse.lang import install
from allo_dse.mapper.fold.fold import AxisFold, KernelFold, MeshFold
from allo_dse.mapper.program import load_program

install()

from allo.ir.types import int16

from studies import elementwise_npu, ffn_npu, gemm_npu, reduction_npu, resnet_npu

DEVICE = NpuDevice.load("npu1_4col")

FLOW = StreamFlow(stream="s", source=0, target=1, depth=2, token_bytes=64, count=3)


@pytest.mark.parametrize(
    ("target", "expected"),
    [((0, 1), (384, 0)), ((1, 0), (384, 0)), ((0, 2), (384, 384)), ((2, 0), (384, 384))],
    ids=["above", "to the right", "out of reach", "two columns away"],
)
def test_neighbours_have_one_fifo_and_others_one_at_each_end(
    target: tuple[int, int], expected: tuple[int, int]
) -> None:
    found = stream_bytes([FLOW], {0: (0, 0), 1: target}, turned=())
    assert (found[0], found[1]) == expected


def test_a_consumer_to_the_left_has_the_fifo() -> None:
    assert stream_bytes([FLOW], {0: (1, 0), 1: (0, 0)}, turned=()) == {1: 384}


def test_what_a_memory_tile_turns_is_at_both_ends() -> None:
    assert stream_bytes([FLOW], {0: (0, 0), 1: (0, 1)}, turned={"s"}) == {0: 384, 1: 384}


def test_results_tokens_and_repeated_values_have_arrays() -> None:
    """GELU: a product, its other layout, and four tiles of 64 x 32; what is put has a FIFO, the sum the tensor's."""
    program = load_program(ffn_npu.feed_forward, Pm=8, Ph=16)
    up, down, acc = (kernel.classes for kernel in program.kernels)
    assert array_bytes(up, (), {"hidden": 1}, "xdna1") == 6 * 64 * 32 * 2
    assert array_bytes(down, {"hidden"}, {"parts": 1}, "xdna1") == 64 * 32 * 2
    assert array_bytes(acc, {"parts"}, {}, "xdna1") == 64 * 128 * 2


def test_arrays_do_not_shrink_with_what_is_put_into_several_fifos() -> None:
    program = load_program(ffn_npu.feed_forward, Pm=8, Ph=16)
    (up, _, _) = (kernel.classes for kernel in program.kernels)
    assert array_bytes(up, (), {"hidden": 2}, "xdna1") == 7 * 64 * 32 * 2


def test_tasks_of_a_chain_have_their_arrays_each() -> None:
    program = load_program(reduction_npu.column_sums, M=256, N=256, Pm=4, Pn=4)
    first, inner, last = sorted(program.kernels[0].classes, key=lambda cls: len(cls.work) * 10 + len(cls.stream_ports))
    row = 64 * 4
    assert array_bytes([first, inner, last], (), {}, "xdna1") == (2 + 2 + 1) * row


def test_loops_at_compile_time_have_their_arrays_once_unless_meta_if_looks_at_them() -> None:
    sizes = []
    for height in (4, 8):
        program = load_program(resnet_npu.bottleneck, B=1, H=height, P=4, Q=4)
        conv2 = program.kernels[1].classes
        sizes.append(array_bytes(conv2, {"rows"}, {"features": 1}, "xdna1"))
    assert sizes[1] - sizes[0] == pytest.approx(sizes[0], rel=0.5)


def test_a_design_with_too_large_arrays_is_refused_with_what_they_are() -> None:
    program = load_program(elementwise_npu.silu, P=256)
    fold = MeshFold((KernelFold("core", (AxisFold(4, "cyclic"),), (0,)),))
    (found,) = ALLO.check(NpuMapping(program.vmg.fold(fold), NpuDevice.load("npu2")))
    assert found.constraint == "core_memory"
    assert "tensors 32,768, arrays of tasks 40,960" in found.detail


@pytest.mark.parametrize(("length", "fits"), [(64, True), (128, None), (256, False)])
def test_tasks_of_a_chain_have_their_code_each_and_those_of_a_bundle_do_not(length: int, fits: bool | None) -> None:
    """Allo's authors say that 64 products can be chained (pull request 377). More tasks in a bundle change nothing.

    Between what surely fits and what surely does not, there is a warning.
    """
    found = []
    for rows in (4, 8):
        program = load_program(
            gemm_npu.gemm, M=16 * rows, K=16 * length, N=64, Pm=rows, Pk=length, Pn=4, TyI=int16, TyO=int16
        )
        axes = (AxisFold(1, "block", "chain"), AxisFold(4, "cyclic"), AxisFold(4, "cyclic"))
        fold = program.vmg.fold(MeshFold((KernelFold("gemm", axes),)))
        found.append([v for v in ALLO.check(NpuMapping(fold, DEVICE)) if v.constraint == "program_memory"])
        assert bool(crowded_program(fold, DEVICE)) == (not fits)
    assert [not violations for violations in found] == [fits is not False] * 2
    if fits is False:
        (few,), (many,) = found
        assert few.needed == many.needed > few.limit == 16384
        assert "256 tasks of a chain, each with code of its own" in str(few)
