"""Where changes of layout happen: which of them a program has, and what becomes of them on a device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import allo_dse as dse
from allo_dse.backends.npu.costs import class_cycles
from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.backends.npu.movement.layout_plan import layout_plan
from allo_dse.compiler.program.tensors import LayoutStep
from allo_dse.device.device import NpuDevice
from allo_dse.lang import install

install()

import allo
import allo.dataflow as df
from allo.ir.types import bfloat16, float32, int8, int16, int32

from .layout_programs import (
    K,
    M,
    N,
    P,
    R,
    S,
    a_bt,
    also_as_it_lies,
    there_and_back,
    turned_through,
    twice,
    two_readers,
    views_only,
    written_turned,
    written_twice,
)

NPU = NpuDevice.of(NpuDevice.load("npu1_4col"))


def classes(source: Callable[..., Any], **params: Any) -> Any:
    program = dse.load_program(source, **params)
    return program, [cls for kernel in program.kernels for cls in kernel.classes]


def test_the_front_end_notes_what_is_read_in_another_layout_only() -> None:
    _, (mm,) = classes(a_bt)
    (use,) = mm.layouts
    assert (use.arg, use.steps) == (1, (LayoutStep("transpose", (1, 0)),))
    assert [mm.work[site].kind for site in use.sites] == ["transpose"]


def test_steps_are_followed_as_far_as_they_go() -> None:
    _, (core,) = classes(twice)
    (use,) = core.layouts
    assert [step.kind for step in use.steps] == ["transpose", "view", "view"]
    assert len(use.sites) == 3


def test_a_tile_that_is_also_read_as_it_lies_has_no_other_layout() -> None:
    assert classes(also_as_it_lies)[1][0].layouts == ()


@pytest.mark.parametrize("dtype", [int32, float32, int16, bfloat16, int8])
def test_b_transposed_is_read_by_the_descriptor_where_elements_are_words(dtype: Any) -> None:
    place = "memory tile" if dtype.bits == 32 else "core"
    program, (mm,) = classes(a_bt, T=dtype)
    (choice,) = layout_plan(program.vmg.graph, NPU).choices
    assert (choice.tensor, choice.steps, choice.place) == ("B", "transposed", place)
    transposes = [site for site, op in enumerate(mm.work) if op.kind == "transpose"]
    free = layout_plan(program.vmg.graph, NPU).free_sites(mm)
    assert free == (set(transposes) if place == "memory tile" else set())
    if place == "memory tile":
        assert choice.dims == ((16, 16), (16, 1))
        assert str(choice) == "B transposed by the memory tile's DMA"
    else:
        assert str(choice).startswith("B transposed on the cores (it takes ")


def test_moved_layouts_cost_no_core_cycles() -> None:
    program, (mm,) = classes(a_bt)
    free = layout_plan(program.vmg.graph, NPU).free_sites(mm)
    (site,) = free
    op = mm.work[site]
    whole, moved = class_cycles(mm, NPU), class_cycles(mm, NPU, free)
    assert whole - moved == NPU.elementwise_cost("transpose").cycles(op.shape[0] * op.shape[1] * 4)
    assert NpuMapping(program.vmg, NPU).transport.layouts.free_sites(mm) == free


def test_the_simulator_counts_them_that_way() -> None:
    """The same product, B as it is needed and B to be transposed on the way: equal times for words, not for bytes."""

    def plain(T: Any = int32) -> Any:
        @df.region()
        def top(A: T[M, K], B: T[K, N], C: T[M, N]):
            @df.kernel(mapping=[P, P], args=[A, B, C])
            def mm(a: T[M, K] @ [S(0), R], b: T[K, N] @ [R, S(1)], c: T[M, N] @ [S(0), S(1)]):
                c[:, :] = allo.matmul(a, b)

        return top

    fold = dse.MeshFold((dse.KernelFold("mm", (dse.AxisFold(P), dse.AxisFold(P))),))
    device = NpuDevice.load("npu1_4col").with_options(dram_burst_half_bytes=0.0)

    def latency(source: Callable[..., Any], dtype: Any) -> Any:
        program = dse.load_program(source, T=dtype)
        return dse.NpuSimulator().evaluate(dse.Design(program, fold, dse.Buffering(), device)).latency_cycles

    assert latency(a_bt, int32) == latency(plain, int32)
    assert latency(a_bt, int8) > latency(plain, int8)


def test_a_view_moves_nothing() -> None:
    program, (core,) = classes(views_only)
    (choice,) = layout_plan(program.vmg.graph, NPU).choices
    assert (choice.place, choice.steps) == ("nowhere", "viewed as 16x32")
    assert len(layout_plan(program.vmg.graph, NPU).free_sites(core)) == 1


def test_inverse_steps_cancel() -> None:
    program, _ = classes(there_and_back)
    (choice,) = layout_plan(program.vmg.graph, NPU).choices
    assert (choice.place, choice.steps) == ("nowhere", "transposed, transposed")


@pytest.mark.parametrize(("dtype", "place"), [(int32, "core DMA"), (int16, "core")])
def test_outputs_leave_as_they_were_computed(dtype: Any, place: str) -> None:
    program, (core,) = classes(written_turned, T=dtype)
    (use,) = core.layouts
    assert (use.arg, use.direction, use.shape) == (1, "out", (M // P, N))
    (choice,) = layout_plan(program.vmg.graph, NPU).choices
    assert (choice.tensor, choice.direction, choice.place) == ("C", "out", place)
    assert [core.work[site].kind for site in use.sites] == ["transpose"]
    free = frozenset(use.sites) if place == "core DMA" else frozenset()
    assert layout_plan(program.vmg.graph, NPU).free_sites(core) == free


def test_outputs_that_are_needed_otherwise_are_left_to_the_cores() -> None:
    program, (core,) = classes(written_twice)
    assert core.layouts == ()
    assert layout_plan(program.vmg.graph, NPU).choices == ()


def test_a_task_that_only_turns_its_input_is_left_alone() -> None:
    """The task would have nothing to do: whether input or output is turned, one of the two slots would go unused."""
    assert classes(turned_through)[1][0].layouts == ()


def test_readers_that_disagree_leave_it_to_the_cores() -> None:
    program, _ = classes(two_readers)
    (choice,) = layout_plan(program.vmg.graph, NPU).choices
    assert (choice.place, choice.reason) == ("core", "other tasks use the tiles as they lie")


def test_the_programs_compute_what_they_say() -> None:
    rng = np.random.default_rng(0)
    b = rng.integers(-9, 9, (N, K)).astype(np.int32)
    c = np.zeros((K, N), np.int32)
    dse.simulate(dse.load_program(twice), b, c)
    assert np.array_equal(c, b.T + 1)


def test_the_table_of_the_documentation() -> None:
    """docs/layouts.md quotes what plans say."""
    text = (Path(__file__).parents[4] / "docs" / "layouts.md").read_text(encoding="utf-8")
    for dtype in (int32, int8):
        program, _ = classes(a_bt, T=dtype)
        assert str(layout_plan(program.vmg.graph, NPU).choices[0]) in text
