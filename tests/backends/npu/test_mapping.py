"""Laws of a mapping: what it owns equals what a fresh computation gives, and is computed at most once."""

from __future__ import annotations

import importlib
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import allo_dse as dse
from allo_dse.backends.fpga import mapping, shared_costs
from allo_dse.backends.fpga.mapping import FpgaMapping
from allo_dse.backends.npu import mapping as mapping_module
from allo_dse.backends.npu.evaluator import NpuSimulator
from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.backends.npu.movement import periods
from allo_dse.common.errors import DeviceError
from allo_dse.common.records import replace
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.device.device import FpgaDevice, NpuDevice
from allo_dse.mapper.fold.fold_space import MeshFold, fold_choices
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.graph import program_graph
from allo_dse.mapper.violation import Buffering

from ...eval.designs import gemm_design, gemm_fold
from ...mapper.laws import programs
from ..fpga.cost.programs import dot

NPU = NpuDevice.load("npu1_4col")


@st.composite
def folds(draw: st.DrawFn) -> tuple[CompiledProgram, list[MeshFold]]:
    """A program and some of its folds, which share what its graph owns."""
    program = draw(programs())
    every = list(fold_choices(program, 16))
    return program, [draw(st.sampled_from(every)) for _ in range(3)] if every else []


@given(folds(), st.integers(1, 3), st.integers(1, 2))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_folds_of_a_program_share_changes_nothing(
    case: tuple[CompiledProgram, list[MeshFold]], into: int, out: int
) -> None:
    program, chosen = case
    unfolded, buffering = VMG.of(program), Buffering(into, out)
    for fold in (*chosen, *reversed(chosen)):
        shared = NpuMapping(unfolded.fold(fold), NPU, buffering)
        fresh = NpuMapping(VMG.of(program).fold(fold), NPU, buffering)
        assert shared.violations == fresh.violations
        assert shared.early_violations == fresh.early_violations
        assert {(v.constraint, v.where.split()[0]) for v in shared.early_violations} <= {
            (v.constraint, v.where.split()[0]) for v in shared.violations
        }
        assert shared.layouts == fresh.layouts
        if not any(v.constraint in ("compute_tiles", "shared_arrays") for v in fresh.violations):
            assert shared.transport.transfers == fresh.transport.transfers
            assert shared.view.links.between == fresh.view.links.between
            assert shared.memory == fresh.memory
            assert [text(p) for p in shared.view.periods] == [text(p) for p in fresh.view.periods]
            assert links(shared) == links(fresh)


def text(schedule: Any) -> tuple[Any, ...]:
    """A node group's schedule as plain values."""
    ports = [(port.key, *(flags.tolist() for flags in (port.first, port.steady, port.last_use)))
             for port in schedule.ports]  # fmt: skip
    return schedule.periods, [cls.name for cls in schedule.class_list], schedule.classes.tolist(), ports


def links(mapping: NpuMapping) -> Any:
    """The channels of a mapping as plain values."""
    found = mapping.view.channels
    return [(own.channels, own.uses.leaves, own.uses.by_leaf) for own in found.groups], list(found.depth.items())


OF_NPU = ("plan_transport", "group_memory", "MappingView", "core_violations", "movement_violations")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each thing that a mapping or a program's graph derives was computed."""
    found: Counter[str] = Counter()

    def count(module: Any, name: str) -> None:
        original = getattr(module, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            found[name] += 1
            return original(*arguments, **options)

        monkeypatch.setattr(module, name, counted)

    for name in OF_NPU:
        count(mapping_module, name)
    for name in ("kernel_feeds", "class_tasks"):
        count(program_graph, name)
    count(importlib.import_module("allo_dse.backends.npu.movement.layout_plan"), "layout_plan")
    count(periods, "PeriodTable")
    count(mapping, "fpga_violations")
    count(shared_costs, "ClassCosts")
    return found


def test_check_evaluation_placement_and_words_share_one_mapping(calls: Counter[str]) -> None:
    design = gemm_design((256, 256, 256), (4, 4, 4), gemm_fold(1, 4, 4), device=NPU, buffering=Buffering())
    for _ in range(2):
        assert dse.check(design) == []
        NpuSimulator().evaluate(design)
        assert isinstance(dse.place(design), dse.PlacedDesign)
        assert NpuMapping.of(design).layouts.choices == ()
    once = (*OF_NPU, "layout_plan", "PeriodTable")
    assert {name: calls[name] for name in once} == dict.fromkeys(once, 1)


def test_mappings_of_one_program_share_what_depends_on_it_only(calls: Counter[str]) -> None:
    design = gemm_design((256, 256, 256), (4, 4, 4), gemm_fold(1, 4, 4), device=NPU, buffering=Buffering())
    other = dse.Design(design.program, gemm_fold(1, 2, 4), Buffering(), NPU)
    for each in (design, other):
        assert each.mapping.violations == ()
        NpuSimulator().evaluate(each)
    assert calls["layout_plan"] == calls["PeriodTable"] == 1
    assert calls["plan_transport"] == 2


@pytest.mark.parametrize("other", [NPU.with_options(clock_ghz=2.0, dram_gb_s=9.0), NpuDevice.load("npu2")])
def test_on_another_board_the_transport_plan_is_the_same(other: NpuDevice) -> None:
    design = gemm_design((256, 256, 256), (4, 4, 4), gemm_fold(1, 4, 4), device=NPU, buffering=Buffering())
    moved, fresh = NpuMapping.of(design.on(other)), NpuMapping(design.vmg, other, design.buffering)
    assert moved.transport == fresh.transport
    assert moved.violations == fresh.violations
    assert (moved.transport is NpuMapping.of(design).transport) is (other.name == NPU.name)
    assert NpuSimulator().evaluate(design.on(other)) == NpuSimulator().evaluate(replace(design, device=other))


def test_a_mapping_on_an_fpga_has_no_array(calls: Counter[str]) -> None:
    vmg, u280 = dse.load_program(dot("f32")).vmg, FpgaDevice.load("u280")
    there = FpgaMapping(vmg, u280)
    assert there.violations == ()
    assert there.total.dsp > 0
    assert calls["fpga_violations"] == calls["ClassCosts"] == 1
    with pytest.raises(DeviceError):
        dse.place(vmg, u280)
    with pytest.raises(DeviceError):
        there.on(NPU)
    with pytest.raises(DeviceError):
        NpuMapping(vmg, NPU).on(u280)
