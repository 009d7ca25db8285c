"""The FPGA evaluator: cycles, depths and metrics of whole designs."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allo_dse as dse
from allo_dse.backends.fpga import shared_costs
from allo_dse.backends.fpga.cost.task_cost import TaskCost, planned_cost, task_cost
from allo_dse.backends.fpga.depths.solver import run
from allo_dse.backends.fpga.evaluator import FpgaSimulator
from allo_dse.backends.fpga.hls.retime import ReportTimes, retimed
from allo_dse.backends.fpga.mapping import FpgaMapping
from allo_dse.common.errors import SimulationError
from allo_dse.compiler.program.compiled import Directive, TaskClass
from allo_dse.device.device import FpgaDevice
from allo_dse.mapper.fold.fold import MeshFold, unfolded
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.networks.operators import element_type, gemm_work
from allo_dse.networks.operators.execute import loaded
from allo_dse.space.design import Design
from benchmarks import fpga_programs

from .cost import programs

U280 = FpgaDevice.load("u280")


def design(program: Any, *schedule: Directive, fold: MeshFold | None = None, **options: Any) -> Design:
    loaded = dse.load_program(program)
    return Design(loaded, fold or unfolded(loaded), dse.Buffering(), U280, schedule, **options)


def places(memory: str, *tensors: str) -> list[Directive]:
    return [Directive("place", "top", name, {"memory": memory}) for name in tensors]


def onchip(*tensors: str) -> list[Directive]:
    return places("onchip", *tensors)


def test_metrics_say_what_binds() -> None:
    metrics = FpgaSimulator().evaluate(design(fpga_programs.elements()))
    assert metrics.latency_us == pytest.approx(metrics.latency_cycles / 300)
    assert metrics.throughput_gops == pytest.approx(2 * 64**3 / metrics.latency_us / 1e3, rel=0.05)
    assert metrics.binding == "bram18"
    assert metrics.bram18_utilization == pytest.approx(metrics.bram18 / (4032 - 391), abs=1e-4)
    assert metrics.utilization == metrics.bram18_utilization
    assert set(metrics.bound) == {"compute", "DRAM"}
    assert metrics.bottleneck == "compute"
    assert metrics.dram_bytes == 3 * 64 * 64 * 4


def test_tensors_on_the_chip_save_their_copies() -> None:
    program = fpga_programs.elements()
    both = places("copied", "A", "B", "D"), onchip("A", "B", "D")
    copied, kept = (FpgaSimulator().evaluate(design(program, *d)).latency_cycles for d in both)
    assert copied - kept == pytest.approx(2 * (64 * 64 + 71), abs=8)


def test_packing_divides_the_time_of_copies() -> None:
    program = fpga_programs.single()
    names = ("A", "B", "D")
    pack = [Directive("pack", "top", name, {"bits": 64}) for name in names]
    banks = [Directive("partition", "top", name, {"dim": 2, "factor": 2, "partition_type": "cyclic"}) for name in names]
    banks += places("copied", *names)
    plain, packed = (FpgaSimulator().evaluate(design(program, *d)).latency_cycles for d in (banks, [*banks, *pack]))
    assert plain - packed == pytest.approx(64 * 64, abs=8)


def test_solved_depths_are_the_smallest_that_cost_no_time() -> None:
    first = design(fpga_programs.rows(), *onchip("A", "B", "D"))
    solved = FpgaSimulator().evaluate(first)
    assert set(solved.stream_depths) == {"pipe"}
    fixed = FpgaSimulator().evaluate(design(fpga_programs.rows(), *onchip("A", "B", "D"), depths=(("pipe", 64),)))
    assert solved.latency_cycles <= fixed.latency_cycles
    assert fixed.stream_depths == {"pipe": 64}
    assert solved.bram18 <= fixed.bram18


def test_operations_do_not_depend_on_the_schedule() -> None:
    program = dse.load_program(programs.scale())
    unroll = Directive("unroll", "k", "i", {"factor": 4})
    counts = {FpgaMapping(program.vmg, U280, s).operations for s in ((), (unroll,))}
    assert counts == {256}


def test_buffers_that_no_device_has_are_refused_before_they_are_simulated() -> None:
    """A column of processing elements on one: what the first leaves for the next does not fit on the chip."""
    from allo_dse.mapper.fold.fold import AxisFold, KernelFold
    from studies.systolic_fpga import plain

    program = dse.load_program(plain, M=4096, N=4096, K=4096, P=4)
    column = KernelFold("pe", (AxisFold(1, "block", "chain"), AxisFold(4)))
    fold = MeshFold((KernelFold("load_a", (AxisFold(1),)), KernelFold("load_b", (AxisFold(4),)), column))
    refused = Design(program, fold, dse.Buffering(), U280)
    with pytest.raises(SimulationError, match=r"buffers inside the nodes take .* MB, the device has .* tokens of down"):
        FpgaSimulator().evaluate(refused)


def test_a_fold_takes_the_time_of_its_tasks_in_turn() -> None:
    from allo_dse.mapper.fold.fold import AxisFold, KernelFold
    from studies.gemm_npu import gemm

    program = dse.load_program(gemm, M=64, N=64, K=64, Pm=4, Pn=4, Pk=1)
    cycles = {}
    for nodes in (4, 2, 1):
        fold = MeshFold((KernelFold("gemm", (AxisFold(1), AxisFold(nodes), AxisFold(4))),))
        schedule = tuple(onchip("A", "B", "C"))
        cycles[nodes] = FpgaSimulator().evaluate(Design(program, fold, dse.Buffering(), U280, schedule)).latency_cycles
    assert cycles[2] == pytest.approx(2 * cycles[4], rel=0.01)
    assert cycles[1] == pytest.approx(4 * cycles[4], rel=0.01)


def test_a_study_on_an_fpga_uses_this_evaluator() -> None:
    study = dse.Study("dot", program=programs.dot("f32"), device="u280", objectives=[dse.minimize("latency_us")])
    assert isinstance(study.spec.make_evaluator() if hasattr(study, "spec") else study.make_evaluator(), FpgaSimulator)


DIRECTIVES = [
    Directive("unroll", "gemm", "k", {"factor": 4}),
    Directive("pipeline", "gemm", "k", {"initiation_interval": 3}),
    Directive("pipeline", "gemm", "j", {"initiation_interval": 1}),
    Directive("partition", "top", "A", {"dim": 2, "factor": 4, "partition_type": "cyclic"}),
    Directive("partition", "top", "B", {"dim": 1, "factor": 2, "partition_type": "block"}),
    Directive("pack", "top", "D", {"bits": 64}),
    *onchip("A"),
]


@settings(max_examples=40)
@given(st.lists(st.lists(st.sampled_from(DIRECTIVES), unique_by=str), min_size=2, max_size=4))
def test_costs_that_designs_share_are_those_of_each(schedules: list[list[Directive]]) -> None:
    program = dse.load_program(fpga_programs.elements())
    for schedule in schedules:
        mapping = FpgaMapping(program.vmg, FpgaDevice.of(U280), tuple(schedule))
        for kernel in program.kernels:
            for task_class in kernel.classes:
                edged = mapping.scheduled.edged.program, mapping.scheduled.edged_class(task_class)
                alone = task_cost(*edged, mapping.device, mapping.schedule)
                assert mapping.cost(task_class) == alone
        assert mapping.tensors == FpgaMapping(VMG.of(program), mapping.device, mapping.schedule).tensors


def test_blocks_of_a_matrix_share_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks that read other blocks cost the same, unless directives tell the blocks apart."""
    program = loaded(gemm_work(1, 64, 64, element_type("bf16"), blocks=4))
    made: list[str] = []

    def counted(task_class: TaskClass, *given: Any, **named: Any) -> TaskCost:
        made.append(task_class.name)
        return planned_cost(task_class, *given, **named)

    monkeypatch.setattr(shared_costs, "planned_cost", counted)
    one_of_them = Directive("partition", "top", "B1", {"dim": 2, "factor": 4, "partition_type": "cyclic"})
    classes = [cls for cls, tasks, _ in program.tasks_by_class if len(tasks)]
    for schedule, fewer in (((), 4), ((one_of_them,), 2)):
        made.clear()
        mapping = FpgaMapping(VMG.of(program), FpgaDevice.of(U280), schedule)
        for task_class in classes:
            assert mapping.cost(task_class) == task_cost(program, task_class, mapping.device, schedule)
        assert len(made) * fewer == len(classes)


def test_an_explanation_speaks_of_processing_elements() -> None:
    from allo_dse.tune.results.explain import explain

    unroll = Directive("unroll", "gemm", "k", {"factor": 4})
    chosen = design(fpga_programs.elements(), unroll)
    text = explain(chosen, FpgaSimulator().evaluate(chosen))
    assert "bound by the processing elements: " in text or "bound by DRAM: " in text
    assert "core" not in text
    assert "2 processing elements; unrolled k by 4; uses 5 % of the BRAM18" in text


def test_streams_that_would_deadlock_get_the_depth_they_need() -> None:
    solved = FpgaSimulator().evaluate(design(programs.skewed())).stream_depths
    assert solved["right"] == 2
    assert 63 <= solved["left"] <= 64
    FpgaSimulator().evaluate(design(programs.skewed(), depths=(("left", 63),)))
    with pytest.raises(SimulationError, match="split_0 waits to put to left") as shallow:
        FpgaSimulator().evaluate(design(programs.skewed(), depths=(("left", 62),)))
    assert shallow.value.hint == "raise left from 62 to 63"
    assert re.search(r"programs\.py:\d+:\d+; cycle", str(shallow.value))
    with pytest.raises(SimulationError, match="wait for each other"):
        FpgaSimulator(depths="declared").evaluate(design(programs.skewed()))


def test_copies_take_as_long_as_a_report_says() -> None:
    mapping = FpgaMapping.of(design(fpga_programs.elements(), *places("copied", "A", "B", "D")))

    def cycles(copy: int) -> int:
        copies = {tensor.name: copy for tensor in mapping.vmg.program.tensors}
        return int(run(retimed(mapping, ReportTimes({}, copies)), {})[1].cycles)

    assert cycles(20_000) - cycles(5_000) == pytest.approx(2 * 15_000, abs=8)  # loads at once, the store after them
