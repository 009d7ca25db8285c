"""Restructured loops compute what the program does: rectangles, fused and distributed nests, other orders of sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allo_dse as dse
from allo_dse.backends.fpga.choices.loop_forms import LoopForms
from allo_dse.common.errors import AlloDseError
from allo_dse.compiler.program.compiled import Directive
from allo_dse.compiler.schedule.restructure import Rewrite, cuts, fusible, has_triangles, orders, restructured, strips
from allo_dse.device.device import FpgaDevice
from allo_dse.eval.equivalence.compare import equivalent
from allo_dse.mapper.fold.fold import unfolded

from ..execute import simulate
from . import kernels


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 3), st.integers(0, 2), st.integers(1, 9))
def test_rectangles_give_the_same_numbers(start: int, slope: int, end: int) -> None:
    """Rounds from `start - i` to `min(9, slope * i + end)`, of which some rows have none."""
    program = dse.load_program(kernels.trapezoid(start, slope, end))
    found = []
    for one in (program, restructured(program, [Rewrite("k", "rectangle")])):
        a, b = np.arange(81, dtype=np.int32).reshape(9, 9), np.zeros((9, 9), np.int32)
        simulate(one, a, b)
        found.append(b)
    assert has_triangles(program.kernels[0])
    assert found[0].any() or start + slope + end < 2
    assert (found[0] == found[1]).all()


def test_rectangles_have_constant_bounds() -> None:
    program = dse.load_program(kernels.trapezoid(1, 1, 2))
    made = program.rewritten((Rewrite("k", "rectangle"),))
    assert not has_triangles(made.kernels[0])
    assert made.as_written is program
    assert program.rewritten(made.rewrites) is made
    assert made.with_params().rewrites == made.rewrites


def test_loops_that_count_down_become_rectangles_too() -> None:
    program: Any = dse.load_program(kernels.downwards)
    assert equivalent(program, program.rewritten((Rewrite("k", "rectangle"),))).equal


def test_sums_of_unknown_length_become_no_strips() -> None:
    assert strips(dse.load_program(kernels.row_sums).kernels[0]) == ()


def test_orders_that_carry_no_sum_innermost_are_offered_and_equal() -> None:
    program = dse.load_program(kernels.product)
    ((nest, found),) = orders(program.kernels[0])
    assert found[0] == ("i", "j", "k")
    assert {order[-1] for order in found[1:]} == {"i", "j"}
    for order in found[1:3]:
        assert equivalent(program, program.rewritten((Rewrite("k", "order", nest, order),))).equal


@pytest.mark.parametrize("kind", ["skewed", "element by element", "prefix"])
def test_orders_that_change_results_or_help_nothing_are_not_offered(kind: str) -> None:
    assert orders(dse.load_program(kernels.ordered(kind)).kernels[0]) == ()


def test_an_illegal_order_is_refused() -> None:
    program: Any = dse.load_program(kernels.ordered("skewed"))
    with pytest.raises(AlloDseError, match="used too early"):
        program.rewritten((Rewrite("k", "order", 0, ("j", "i")),))


@pytest.mark.parametrize(
    ("kind", "legal"), [("same", True), ("earlier", True), ("later", False), ("overwritten", False)]
)
def test_nests_of_the_same_rounds_are_fused_where_that_changes_no_results(kind: str, legal: bool) -> None:
    program = dse.load_program(kernels.neighbours(kind))
    assert fusible(program.kernels[0]) == ((1,) if legal else ())
    if legal:
        made = program.rewritten((Rewrite("k", "fuse", 1),))
        assert made.kernels[0].classes[0].loop_names == ("j",)
        assert equivalent(program, made).equal
    else:
        with pytest.raises(AlloDseError, match="before they are computed"):
            program.rewritten((Rewrite("k", "fuse", 1),))


@pytest.mark.parametrize(("kind", "legal"), [("apart", True), ("handed on", False), ("loaded before", False)])
def test_statements_get_nests_of_their_own_where_that_changes_no_results(kind: str, legal: bool) -> None:
    """The sum over columns then has an order without a sum innermost, which it had not beside the other one."""
    program = dse.load_program(kernels.two_sums(kind))
    assert cuts(program.kernels[0]) == (((0, (1,)),) if legal else ())
    if legal:
        made = program.rewritten((Rewrite("k", "distribute", 0, cut=1),))
        assert orders(program.kernels[0]) == ()
        assert orders(made.kernels[0]) == ((1, (("i", "j"), ("j", "i"))),)
        assert equivalent(program, made).equal
    else:
        with pytest.raises(AlloDseError):
            program.rewritten((Rewrite("k", "distribute", 0, cut=1),))


@pytest.mark.parametrize("kind", ["plain", "window", "scaled"])
def test_strips_move_inside_sums_and_change_no_results(kind: str) -> None:
    program = dse.load_program(kernels.summed(kind))
    assert strips(program.kernels[0]) == ((0, (8,)),)
    made = program.rewritten((Rewrite("k", "strip", 0, width=8),))
    assert made.kernels[0].classes[0].loop_names[-1].startswith("j.inner")
    assert equivalent(program, made).equal
    for width in (2, 4):
        assert equivalent(program, program.rewritten((Rewrite("k", "strip", 0, width=width),))).equal


@pytest.mark.parametrize("kind", ["before", "results", "running", "sometimes"])
def test_rounds_that_depend_on_each_other_become_no_strips(kind: str) -> None:
    """They use the column before, all columns so far, or a variable that not each of them sets."""
    program = dse.load_program(kernels.summed(kind))
    assert strips(program.kernels[0]) == ()
    with pytest.raises(AlloDseError):
        program.rewritten((Rewrite("k", "strip", 0, width=7 if kind == "before" else 8),))


def test_a_strip_hides_the_latency_of_a_sum() -> None:
    device = FpgaDevice.load("u280")
    program = dse.load_program(kernels.summed("plain"))
    cycles = []
    stripped = program.rewritten((Rewrite("k", "strip", 0, width=8),))
    for one, loop in ((program, "q"), (stripped, "j.inner")):
        pipelined = Directive("pipeline", "k", loop, {"initiation_interval": 1})
        design = dse.Design(one, unfolded(one), dse.Buffering(), device, (pipelined,))
        cycles.append(dse.FpgaSimulator(depths="declared").evaluate(design).latency_cycles)
    assert cycles[1] < cycles[0] / 2


def test_a_search_fuses_and_distributes() -> None:
    chosen = {}
    for name, region in (("fuse", kernels.neighbours("same")), ("cut", kernels.two_sums("apart"))):
        forms = LoopForms()
        program = dse.load_program(region)
        options = [draft for draft, _ in forms.options(dse.Draft(FpgaDevice.load("u280"), program=program))]
        chosen[name] = {draft.compiled.rewrites for draft in options if draft is not None}
        assert forms.scope
    assert chosen["fuse"] == {(), (Rewrite("k", "fuse", 1),)}
    cut = Rewrite("k", "distribute", 0, cut=1)
    assert chosen["cut"] == {(), (cut,), (cut, Rewrite("k", "order", 1, ("j", "i")))}


def test_a_search_says_of_which_transformations_its_space_was(tmp_path: Any) -> None:
    study = dse.Study(
        "s",
        program=kernels.trapezoid(0, 1, 1),
        device="u280",
        schedules=["auto", *(dse.interface(name, ["m_axi"]) for name in "AB")],
        objectives=[dse.minimize("latency_cycles")],
    )
    found = study.run(1, run_dir=tmp_path / "run", progress="quiet", verify=False)
    assert "; the space had loops as written, as rectangles" in str(found.certificate)
