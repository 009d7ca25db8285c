"""Programs against each other and against their folds."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

import allo_dse as dse
from allo_dse.eval.equivalence.compare import ERROR, points_for
from allo_dse.lang.types import float32, int32
from allo_dse.mapper.fold.fold_space import fold_choices

from ...compiler.samples import systolic, tiled
from ..execute.test_folded_results import pipeline
from . import programs


def compared(a: Any, b: Any, **options: Any) -> dse.Equivalence:
    return dse.equivalent(dse.load_program(a), dse.load_program(b), **options)


def test_a_systolic_array_is_a_product_of_matrices() -> None:
    found = compared(systolic(T=int32), programs.matmul(T=int32))
    assert (found.equal, found.degree, found.points) == (True, 2, 1)
    assert 0 < found.error < ERROR
    assert str(found).startswith("equal at 1 random point of degree 2")


def test_the_order_of_floating_point_sums_counts_unless_it_may_change() -> None:
    forwards, backwards = programs.matmul(T=float32), programs.matmul(T=float32, backwards=True)
    assert compared(systolic(T=float32), forwards)
    assert not compared(forwards, backwards)
    assert compared(forwards, backwards, allow_reassociation=True)


def test_what_is_equal_for_real_numbers_only_is_named() -> None:
    forwards, backwards = programs.matmul(T=float32), programs.matmul(T=float32, backwards=True)
    strict, loose = (compared(forwards, backwards, allow_reassociation=allowed) for allowed in (False, True))
    assert strict.reordered == strict.difference == loose.reordered
    assert (loose.difference, loose.reordered and loose.reordered.index) == (None, (0, 0))
    assert "but equal for real numbers" in str(strict)
    assert "; in another order: C[0, 0] is " in str(loose)
    assert all("programs.py:" in place for place in loose.reordered.writers) if loose.reordered else False
    assert compared(forwards, forwards).reordered is None


def test_what_keeps_a_side_from_being_compiled_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise dse.SimulationError("gemm.py:3:1: no room", hint="make room")

    monkeypatch.setattr("allo_dse.eval.equivalence.compare.compile_bodies", broken)
    with pytest.raises(dse.SimulationError, match=r"gemm\.py:3:1: no room\n  hint: make room"):
        compared(programs.chain(first=5), programs.chain())


def test_the_order_of_integer_sums_does_not_count() -> None:
    assert compared(programs.matmul(T=int32), programs.matmul(T=int32, backwards=True))


def test_branches_on_data_are_choices() -> None:
    assert compared(programs.rectified("statement"), programs.rectified("expression"))
    assert not compared(programs.rectified("statement"), programs.rectified("wrong"))


def test_bits_count_only_where_they_are_seen() -> None:
    assert compared(programs.widths("wide"), programs.widths("narrow"))
    assert not compared(programs.widths("wide"), programs.widths("cut"))


def test_a_difference_names_the_first_element_and_who_wrote_it() -> None:
    found = compared(programs.chain(), programs.chain(first=1))
    assert found.difference is not None
    assert (found.difference.tensor, found.difference.index, found.difference.elements) == ("B", (0,), 8)
    assert all("sink_0 (" in writer and "programs.py:" in writer for writer in found.difference.writers)
    assert str(found).startswith("different: B[0] is ")
    assert found.difference.formulas == ("A[0] + 1 term that both have", "A[1] + 1 term that both have")


def test_a_program_that_does_not_end_is_different() -> None:
    found = compared(programs.chain(), programs.chain(dropped=3))
    assert not found
    assert "deadlock" in found.message


@pytest.mark.parametrize("region", [tiled(M=8, N=8, K=8, P0=2, P1=2), pipeline()])
def test_folds_compute_the_same(region: Any) -> None:
    program = dse.load_program(region)
    folds = list(islice(fold_choices(program), 1, 30, 9))
    assert folds
    for fold in folds:
        assert dse.equivalent(program, program.vmg.fold(fold))


def test_data_that_decides_on_loops_is_refused_with_its_place() -> None:
    with pytest.raises(dse.Undecidable, match=r"programs\.py:\d+:\d+: data decides how often a loop runs"):
        compared(programs.searched(), programs.searched())


def test_arguments_must_be_alike() -> None:
    with pytest.raises(dse.SimulationError, match="do not have the same arguments"):
        compared(programs.chain(), programs.formula())


def test_more_hashes_and_higher_degrees_take_more_points() -> None:
    assert points_for(2, 0)[0] == 1
    assert points_for(2, 1 << 20)[0] == 3
    assert all(points_for(d, h)[1] < ERROR for d in (1, 1000, 1 << 20) for h in (0, 1000))
    with pytest.raises(dse.Undecidable, match="too large"):
        points_for(1 << 61, 0)
