"""unfold, outline and to: nests as processes, memory of their own, and FIFOs whose order is checked."""

from collections.abc import Callable
from typing import Any

import pytest

from allo_dse.common.errors import ProgramError
from allo_dse.lang.schedule import customize

from . import programs
from .test_laws import same
from .test_schedules import cycles


@pytest.mark.parametrize("axes", [[0], [1], [0, 1]])
@pytest.mark.parametrize("program", [programs.gemm, programs.with_memory, programs.systolic])
def test_unfolded_nests_compute_the_same(program: Any, axes: list[int]) -> None:
    schedule = customize(program)
    assert schedule.unfold("PE", axes) == axes
    same(schedule)


def test_copies_have_memory_of_their_own_where_they_fill_it() -> None:
    schedule = customize(programs.with_memory)
    schedule.partition("products", dim=1)
    schedule.unfold("PE", [0, 1])
    text = str(schedule.module)
    assert text.count("memref<4xi32>\n") >= 16
    assert text.count("memref.alloca()") == 16
    names = {directive.name for directive in schedule.session.program.schedule}
    assert len(names) == 16, "what was said of an array holds for those of all copies"


def test_memory_that_carries_values_from_round_to_round_is_shared() -> None:
    schedule = customize(programs.carried)
    schedule.unfold("S_i_0", [0])
    assert str(schedule.module).count("memref.alloc()") == 1
    same(schedule)


def test_loops_of_copies_are_told_together() -> None:
    schedule = customize(programs.gemm)
    schedule.unfold("PE", [0, 1])
    schedule.split("k", 2)
    schedule.pipeline("k.outer")
    assert str(schedule.module).count("pipeline_ii") == 16
    same(schedule)


def three_levels() -> Any:
    """A systolic array of a plain product: rows and columns in buffers, processing elements, FIFOs between them."""
    schedule = customize(programs.gemm)
    schedule.pipeline("k")
    rows, columns = schedule.buffer_at(schedule.A, "i"), schedule.buffer_at(schedule.B, "j")
    elements = schedule.unfold("PE", [0, 1])
    for array, dim in ((schedule.A, 1), (schedule.B, 2), (schedule.C, 0)):
        schedule.partition(array, dim=dim)
    schedule.to(rows, elements, axis=1, depth=5)
    schedule.to(columns, elements, axis=0, depth=5)
    return schedule


def test_a_product_becomes_a_systolic_array() -> None:
    schedule = three_levels()
    same(schedule)
    plain = customize(programs.gemm)
    plain.pipeline("k")
    assert cycles(schedule) < cycles(plain) / 3
    code = schedule.build("vhls").hls_code
    assert code.count("type=fifo depth=5") == 16 + 12, "rows: 4 for each of 4; columns: 3 between 4 elements"


def test_processing_elements_written_by_hand_pass_on_what_they_read() -> None:
    schedule = customize(programs.systolic)
    alone = cycles(schedule)
    elements = schedule.unfold("PE", [0, 1])
    schedule.to(schedule.across, elements, axis=1, depth=3)
    schedule.to(schedule.down, elements, axis=0, depth=3)
    schedule.partition(schedule.C, dim=0)
    same(schedule)
    assert cycles(schedule) < alone
    code = schedule.build("vhls").hls_code
    assert code.count("volatile") == 2, "what leaves the last FIFOs leaves them"
    assert "array_partition variable=across dim=1 complete" in code
    assert "array_partition variable=across dim=3" not in code


def test_several_readers_of_one_array_get_a_fifo_each() -> None:
    schedule = customize(programs.two_readers)
    schedule.to(schedule.B, "S_i_1")
    schedule.to(schedule.B, "D")
    same(schedule)
    assert schedule.build("vhls").hls_code.count("type=fifo") == 2


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda s: s.to(s.B, "second"), "`B` cannot be a FIFO: B[1, 0] is read where B[0, 1] comes out"),
        (lambda s: s.unfold("second", [2]), "unfold: `second` has loops 0 to 1, not [2]"),
        (lambda s: s.outline("i_", "f"), "`backwards` has no loop `i_`"),
        (lambda s: s.outline(s.get_loops()["first"]["i"], "backwards"), "there is a function `backwards`"),
    ],
)
def test_what_would_change_results_is_an_error_at_its_line(step: Callable[[Any], object], message: str) -> None:
    schedule = customize(programs.backwards)
    before = str(schedule.module)
    with pytest.raises(ProgramError) as raised:
        step(schedule)
    assert message in str(raised.value)
    assert raised.value.file == __file__
    assert str(schedule.module) == before


def test_an_order_that_fits_after_a_reorder_is_taken() -> None:
    schedule = customize(programs.backwards)
    schedule.reorder(schedule.get_loops()["second"]["j"], schedule.get_loops()["second"]["i"])
    schedule.to(schedule.B, "second")
    same(schedule)


def test_an_outlined_nest_is_a_function_of_loops_and_arrays() -> None:
    schedule = customize(programs.backwards)
    assert schedule.outline(schedule.get_loops()["second"]["i"], "turn") == "turn"
    schedule.reorder("turn:j", "turn:i")
    schedule.pipeline("turn:i")
    schedule.partition("turn:B", dim=1)
    same(schedule)
    assert "array_partition variable=B dim=1 complete" in schedule.build("vhls").hls_code
