"""What schedules print, say to hardware and find by name."""

import re
from typing import Any

import numpy as np
import pytest

from allo_dse.backends.fpga.cost.task_cost import task_cost
from allo_dse.common.errors import ProgramError, ProgramWarning, SimulationError
from allo_dse.common.mlir.bindings import ir
from allo_dse.common.mlir.dialect import new_context
from allo_dse.compiler.schedule.mlir_text import with_affine_loops
from allo_dse.device.device import FpgaDevice
from allo_dse.lang.schedule import customize, verify
from allo_dse.mapper.program import load_program

from . import programs


def cycles(schedule: Any) -> int:
    program = load_program(schedule)
    return task_cost(program, program.kernels[0].classes[0], FpgaDevice.load("u280")).cycles


def row_by_row() -> Any:
    schedule = customize(programs.product)
    schedule.reorder("k", "j")
    schedule.buffer_at(schedule.C, axis="i")
    return schedule


def test_what_hardware_is_told_changes_its_price() -> None:
    slow, fast = row_by_row(), row_by_row()
    slow.pipeline("k", initiation_interval=20)
    fast.pipeline("k")
    assert cycles(fast) < cycles(slow)
    split = row_by_row()
    split.partition("C_buffer", dim=1)
    assert "#pragma HLS array_partition variable=C_buffer dim=1 complete" in split.build("vhls").hls_code


def test_printed_modules_are_mlir_with_names_and_directives() -> None:
    schedule = row_by_row()
    schedule.split("j", 3)
    schedule.pipeline("j.inner", initiation_interval=2)
    text = str(schedule.build().module)
    with new_context(), ir.Location.unknown():
        assert ir.Module.parse(text).operation.verify()
    assert 'loop_name = "j.inner", pipeline_ii = 2 : ui32}' in text
    assert 'loop_name = "i", op_name = "S_i_j_k_0"}' in text
    assert re.search(r"affine.for %\w+ = 0 to 6 {", text)
    assert schedule.build().top_func_name == "product"


def test_buffers_of_what_is_read_are_not_written_back() -> None:
    schedule = row_by_row()
    schedule.buffer_at(schedule.B, axis="k")
    a, b = np.arange(60, dtype=np.int32).reshape(6, 10), np.arange(80, dtype=np.int32).reshape(10, 8)
    np.testing.assert_array_equal(schedule.build()(a, b), a @ b + 3)
    assert "B_buffer" in str(schedule.module)


def test_verify_compares_schedules(capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(row_by_row(), customize(programs.product))
    assert not verify(customize(programs.stencil), customize(programs.scaled))
    assert "same arguments" in capsys.readouterr().out


def test_a_program_that_does_not_compile_ends_as_with_allo() -> None:
    with pytest.raises(SystemExit, match="index 4 is out of range") as caught:
        customize(programs.past_its_end)
    assert isinstance(caught.value, ProgramError)
    assert not hasattr(row_by_row(), "nothing")
    with pytest.raises(RuntimeError, match="no function `nothing`"):
        row_by_row().get_loops("nothing")


def test_loops_are_found_in_their_nests() -> None:
    schedule = customize(programs.two_nests)
    loops = schedule.get_loops()
    assert [(band, [name for name, _ in inner]) for band, inner in loops] == [
        ("first", ["i", "j"]),
        ("second", ["i", "j"]),
    ]
    with pytest.raises(ProgramError, match="has a loop `i` in each of first, second"):
        schedule.pipeline("i")
    schedule.compute_at(loops.first.j, loops["second"]["j"])
    assert [band for band, _ in schedule.get_loops()] == ["second"]
    assert [name for name, _, _ in schedule.primitive_sequences] == ["compute_at"]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda s: s.split("l", 2), "`product` has no loop `l`"),
        (lambda s: s.split("i", 0), "the factor must be a positive integer"),
        (lambda s: s.partition(s.A, dim=3), "there is no dimension 3"),
        (lambda s: s.buffer_at("A", axis="i.inner"), "`product` has no loop `i.inner`"),
        (lambda s: s.compute_at("i", "j"), "both loops belong to one nest"),
        (lambda s: s.pipeline("other:i"), "there is no function `other` with loops here"),
    ],
)
def test_wrong_steps_are_errors_at_their_line(step: Any, message: str) -> None:
    schedule = customize(programs.product)
    with pytest.raises(ProgramError, match=message) as caught:
        step(schedule)
    assert caught.value.file == __file__


def test_loops_of_one_name_in_a_nest_are_told_together() -> None:
    schedule = customize(programs.solve)
    schedule.pipeline("j", initiation_interval=3)
    assert str(schedule.module).count("pipeline_ii = 3") == 2
    with pytest.raises(ProgramError, match="several loops `j`"):
        schedule.split("j", 2)


def test_names_of_running_functions_reach_what_they_schedule() -> None:
    def build(factor: int) -> Any:
        return customize(programs.scaled_by_caller).build()

    factor = 3
    a, b = np.arange(4, dtype=np.int32), np.zeros(4, np.int32)
    with pytest.raises(ProgramError, match="unknown name `factor`"):
        build(factor)  # it is another module's
    programs.build_scaled(factor)(a, b)
    np.testing.assert_array_equal(b, a * factor)


def test_arrays_may_have_more_rows_than_the_program_uses() -> None:
    a, b = np.arange(6, dtype=np.int32), np.zeros(6, np.int32)
    programs.build_scaled(2)(a, b)
    np.testing.assert_array_equal(b, [0, 2, 4, 6, 0, 0])


def test_arrays_are_kept_where_the_program_says() -> None:
    schedule = customize(programs.placed)
    code = schedule.build("vhls").hls_code
    assert "#pragma HLS bind_storage variable=A type=ram_2p impl=uram" in code
    assert "#pragma HLS bind_storage variable=B type=ram_1p impl=bram" in code
    assert code.count("bind_storage") == 2


def test_a_primitive_that_is_called_wrongly_says_what_it_takes() -> None:
    schedule = row_by_row()
    with pytest.raises(ProgramError, match="unfold: missing a required argument: 'axes'") as caught:
        schedule.unfold("S_i_j_k_0")
    assert caught.value.hint == "s.unfold(band_name, axes)"
    assert caught.value.place["file"] == __file__


def test_an_argument_that_is_reshaped_is_given_in_its_new_shape() -> None:
    schedule = row_by_row()
    schedule.reshape(schedule.A, (3, 2, 10))
    a, b = np.arange(60, dtype=np.int32).reshape(3, 2, 10), np.arange(80, dtype=np.int32).reshape(10, 8)
    np.testing.assert_array_equal(schedule.build()(a, b), a.reshape(6, 10) @ b + 3)
    schedule.reshape(schedule.C, (48,))
    np.testing.assert_array_equal(schedule.build()(a, b), (a.reshape(6, 10) @ b + 3).reshape(48))
    with pytest.raises(SimulationError, match=r"A: expected int32 of shape \(3, 2, 10\)"):
        schedule.build()(a[0], b)


def test_a_nest_of_several_loops_is_merged_as_far_as_it_is_one() -> None:
    schedule = customize(programs.three_steps)
    schedule.compute_at("i", "ii")
    with pytest.warns(ProgramWarning, match="`ii` has several loops inside it, which all run in .* `iii`") as caught:
        schedule.compute_at("j", "jjj")
    assert caught[0].filename == __file__
    a = np.arange(20, dtype=np.int32).reshape(4, 5)
    np.testing.assert_array_equal(schedule.build()(a), (a[:, ::-1] * 2 + 1) % 3)


SIDE_BY_SIDE = """func.func @f(%pid0: index) {
  %c1 = arith.constant 1 : index
  scf.if %a {
    %0 = affine.apply affine_map<(d0) -> (d0 * 2)>(%pid0)
    scf.for %i = %c1 to %0 step %c1 {
    }
  } else {
    %0 = affine.apply affine_map<(d0) -> (d0 * 3)>(%pid0)
    scf.for %i = %c1 to %0 step %c1 {
    }
    scf.if %a {
      %1 = affine.apply affine_map<(d0) -> (d0 * 5)>(%pid0)
    }
    %1 = arith.addi %0, %0 : index
    scf.for %i = %0 to %1 step %c1 {
    }
  }
}"""


def test_bounds_of_one_name_in_blocks_side_by_side_are_told_apart() -> None:
    loops = [line.strip() for line in with_affine_loops(SIDE_BY_SIDE).splitlines() if ".for" in line]
    assert loops == [
        "affine.for %i = 1 to affine_map<(d0) -> (d0 * 2)>(%pid0) {",
        "affine.for %i = 1 to affine_map<(d0) -> (d0 * 3)>(%pid0) {",
        "scf.for %i = %0 to %1 step %c1 {",
    ]
