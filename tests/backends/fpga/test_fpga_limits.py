"""Limits of FPGAs."""

from __future__ import annotations

from typing import Any

import pytest

import allo_dse as dse
from allo_dse.backends.fpga.mapping import FpgaMapping
from allo_dse.compiler.program.compiled import Directive
from allo_dse.device.device import FpgaDevice, NpuDevice
from allo_dse.mapper.fold.fold import AxisFold, KernelFold, MeshFold
from allo_dse.mapper.fold.node_edges import tokens_of
from benchmarks import fpga_programs

from .cost import programs  # makes `import allo` work

from studies.gemm_npu import gemm  # isort: skip

U280 = FpgaDevice.load("u280")


def found(program: Any, device: FpgaDevice, *schedule: Directive) -> dict[str, Any]:
    violations = FpgaMapping(dse.load_program(program).vmg, device, schedule=schedule).violations
    return {v.constraint: v for v in violations}


RESOURCES = ("lut", "ff", "dsp", "bram18")


def test_a_small_design_fits() -> None:
    assert found(programs.dot("f32"), U280) == {}
    assert dse.check(dse.load_program(programs.dot("i8")), "z7020") == []


@pytest.mark.parametrize("resource", RESOURCES)
def test_each_resource_is_a_limit(resource: str) -> None:
    tiny = U280.with_options(**{resource: 1})
    assert tiny.limit(resource) == 1
    violation = found(programs.dot("f32"), tiny)[resource]
    assert violation.needed > violation.limit == 1
    assert "logic" in violation.detail or "tensors" in violation.detail


def test_ultra_ram_is_a_limit() -> None:
    place = Directive("place", "k", "x", {"memory": "uram"})
    assert found(programs.dot("f32"), U280, place) == {}
    assert "uram" in found(programs.dot("f32"), FpgaDevice.load("z7020"), place)


def test_more_banks_than_elements() -> None:
    split = Directive("partition", "top", "X", {"dim": 1, "factor": 512, "partition_type": "cyclic"})
    violation = found(programs.dot("f32"), U280, split)["partition_factor"]
    assert str(violation) == "banks on dimension 1 of X: needs 512, has 256"


def test_control_on_data_is_said_to_be_so() -> None:
    assert "while" in found(programs.until(), U280)["static_control"].detail


def test_interfaces() -> None:
    few = U280.external.model_copy(update={"ports": 1})
    device = FpgaDevice.model_validate({**{f: getattr(U280, f) for f in FpgaDevice.model_fields}, "external": few})
    assert "axi_interfaces" not in found(programs.dot("f32"), device)
    program = dse.load_program(programs.dot("f32"))
    mapping = FpgaMapping(program.vmg, device)
    use = mapping.tensors[0]
    vars(mapping.scheduled)["tensors"] = (use,) * 17
    from allo_dse.backends.fpga.mapping import _interfaces

    assert [v.constraint for v in _interfaces(mapping)] == ["axi_interfaces"]


def test_tensors_that_stay_on_the_chip_need_no_interface() -> None:
    directives = [Directive("place", "top", name, {"memory": "onchip"}) for name in ("X", "Y", "Z")]
    program = dse.load_program(programs.dot("f32"))
    plain, onchip = (FpgaMapping(program.vmg, U280, tuple(d)) for d in ((), directives))
    assert plain.resources["tensors"].bram18 == 3 * 58  # as reports of 512-bit ports say
    assert onchip.resources["tensors"].lut == 0


def test_a_fold_multiplexes_processing_elements() -> None:
    """Tasks on one node share its hardware: a quarter of the nodes, a quarter of the operators."""
    program = dse.load_program(gemm, M=64, N=64, K=64, Pm=4, Pn=4, Pk=1)
    whole = FpgaMapping(program.vmg, U280)
    axes = (AxisFold(1), AxisFold(2), AxisFold(2))
    folded = FpgaMapping(program.vmg.fold(MeshFold((KernelFold("gemm", axes),))), U280)
    assert whole.resources["logic"].dsp == 4 * folded.resources["logic"].dsp
    assert whole.resources["logic"].lut == 4 * folded.resources["logic"].lut


def test_npu_devices_are_checked_as_before() -> None:
    program = dse.load_program(gemm)
    assert {v.constraint for v in dse.check(program.vmg, NpuDevice.load("npu1_1col"))} >= {"compute_tiles"}


def test_streams_inside_a_processing_element_are_buffers() -> None:
    """Four tasks in a row on one element: what one leaves for the next must be held."""
    from studies.systolic_fpga import plain

    program = dse.load_program(plain, M=16, N=16, K=1024, P=4)
    whole = FpgaMapping(program.vmg, U280)
    column = (AxisFold(1, "block", "chain"), AxisFold(4))
    axes = {"load_a": (AxisFold(1),), "load_b": (AxisFold(4),), "pe": column}
    folded = FpgaMapping(program.vmg.fold(MeshFold(tuple(KernelFold(k, a) for k, a in axes.items()))), U280)
    assert whole.vmg.uses.buffers == ()
    assert folded.vmg.uses.buffers == (("down", 16 * 1024, 4),)
    assert whole.resources["streams"].bram18 == 0
    assert folded.resources["streams"].bram18 == 4 * 16 * 1024 * 8 // (2048 * 8)


def test_a_buffer_holds_what_a_task_puts_however_deep_its_stream_is_declared() -> None:
    """Where the number of gets depends on data, the puts of the other end still say it."""
    program = dse.load_program(programs.searched())
    assert tokens_of(program).tolist() == [8]


def test_a_huge_mesh_is_refused_by_its_elements_without_a_look_at_its_streams() -> None:
    """A graph of 32,768 nodes: what its processing elements take is known from its three kinds of task."""
    program = dse.load_program(gemm(Pm=32, Pn=32, Pk=32))
    mapping = FpgaMapping(program.vmg, U280)
    from allo_dse.backends.fpga.mapping import fpga_violations

    violations = {v.constraint: v for v in fpga_violations(mapping)}
    assert program.vmg.node_count == 32_768
    assert violations["lut"].needed > U280.limit("lut")
    assert "streams" not in violations["lut"].detail
    assert not {"fifos", "_fifo_kinds"} & set(vars(mapping.vmg.uses))


def test_tiles_that_are_copied_in_while_tasks_run_are_held_twice_and_results_once() -> None:
    program = dse.load_program(fpga_programs.elements())

    def bram(*onchip: str) -> int:
        places = {**dict.fromkeys("ABD", "copied"), **dict.fromkeys(onchip, "onchip")}
        kept = tuple(Directive("place", "top", name, {"memory": place}) for name, place in places.items())
        arrays = FpgaMapping(program.vmg, U280, kept).resources["arrays"]
        return arrays.bram18 + arrays.uram

    inputs, results = bram("D"), bram("A", "B")
    assert inputs > 0
    assert results > 0
    assert inputs % 2 == 0
    assert bram() == inputs + results
    assert bram("A", "B", "D") == 0, "memories beside the design, with a port each"


def test_copies_fill_the_ports_of_all_banks() -> None:
    """A wide word is taken apart into as many elements a cycle as the banks along the split axes have ports."""
    program = dse.load_program(fpga_programs.elements())

    def rate(dim: int, factor: int) -> float:
        split = Directive("partition", "top", "A", {"dim": dim, "factor": factor, "partition_type": "cyclic"})
        pack = Directive("pack", "top", "A", {"bits": 512})
        costs = FpgaMapping(program.vmg, U280, (split, pack))
        return next(use.words_per_cycle for use in costs.tensors if use.tensor.name == "A")

    assert rate(1, 2) == rate(2, 2) == U280.arrays.ports * 2
    assert rate(0, 2) == U280.arrays.ports * 4


def test_words_have_elements_of_one_row_of_a_tile() -> None:
    program = dse.load_program(gemm, M=16, N=16, K=16, Pm=2, Pn=4, Pk=1)

    def rate(bits: int, *banks: int) -> tuple[float, int]:
        split = [Directive("partition", "top", "C", {"dim": 2, "factor": n, "partition_type": "cyclic"}) for n in banks]
        pack = Directive("pack", "top", "C", {"bits": bits})
        costs = FpgaMapping(program.vmg, U280, (*split, pack))
        return next((use.words_per_cycle, use.lanes) for use in costs.tensors if use.tensor.name == "C")

    assert rate(32, 4) == (2, 2)
    assert rate(512, 4) == (4, 4)
    assert rate(512, 4, 1) == (2, 4)  # of what is said twice of an axis the last counts


def two_users() -> Any:
    return programs.written_and_read(8, 8)


def split(target: str, factor: int, kind: str = "cyclic") -> Directive:
    scope, _, name = target.partition(":")
    return Directive("partition", scope, name, {"dim": 2, "factor": factor, "partition_type": kind})


def test_two_kernels_that_split_one_memory_in_different_ways_are_both_named() -> None:
    onchip = Directive("place", "top", "X", {"memory": "onchip"})
    assert found(two_users(), U280, onchip, split("fill:x", 4), split("use:a", 4)) == {}
    assert found(two_users(), U280, split("fill:x", 4), split("use:a", 8)) == {}  # copies of their own
    violation = str(found(two_users(), U280, onchip, split("fill:x", 4), split("use:a", 8))["partition_conflict"])
    assert violation.startswith("dimension 2 of X: fill (")
    for text in ("has its x in 4 banks (cyclic)", "use (", "has its a in 8 banks (cyclic)", "programs.py:"):
        assert text in violation


def test_a_memory_has_no_more_users_than_ports() -> None:
    onchip = Directive("place", "top", "X", {"memory": "onchip"})
    one = U280.model_copy(update={"arrays": U280.arrays.model_copy(update={"ports": 1})})
    assert "bank_ports" not in found(two_users(), U280, onchip)
    assert str(found(two_users(), one, onchip)["bank_ports"]) == (
        "tasks at one memory on the chip on X: needs 2, has 1 (fill, use)"
    )
