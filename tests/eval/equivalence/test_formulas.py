"""What differences say that programs compute."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import allo_dse as dse
from allo_dse.eval.equivalence.formulas import _ADD, _NOTHING, FormulaDomain, FormulaLog, told_apart
from allo_dse.lang.types import float32, int32

from . import programs


def formulas(a: Any, b: Any) -> tuple[str, str]:
    found = dse.equivalent(dse.load_program(a), dse.load_program(b))
    assert found.difference is not None
    assert found.difference.formulas is not None
    return found.difference.formulas


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_a_formula_computes_what_the_program_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b, d = (rng.integers(-99, 99, 6, dtype=np.int32) for _ in range(3))
    dse.simulate(FORMULA, a, b, d)
    assert eval(DIFFERS[0], {"A": a, "B": b}) == d[0]


FORMULA = dse.load_program(programs.formula())
DIFFERS = formulas(programs.formula(), programs.copied())


def test_sums_show_what_only_one_has() -> None:
    behind = " + 299 terms that both have"
    shown = formulas(programs.weighted(T=int32), programs.weighted(40, int32))
    assert shown == (f"A[40]{behind}", f"2 * A[40]{behind}")


def test_long_formulas_show_the_operand_that_differs() -> None:
    behind = " (an operand, 260 operations inside)"
    assert formulas(programs.weighted(), programs.weighted(40)) == (f"A[40]{behind}", f"2.0 * A[40]{behind}")


def test_sums_of_floats_are_read_from_left_to_right() -> None:
    own, other = formulas(programs.matmul(1, 1, 3, float32), programs.matmul(1, 1, 3, float32, backwards=True))
    assert own == "A[0, 0] * B[0, 0] + A[0, 1] * B[1, 0] + A[0, 2] * B[2, 0]"
    assert other == "A[0, 1] * B[1, 0] + A[0, 2] * B[2, 0] + A[0, 0] * B[0, 0]"


def test_choices_and_widths_are_shown() -> None:
    shown = formulas(programs.rectified("statement"), programs.rectified("wrong"))
    assert shown == ("A[0] if (0 < A[0]) else 0", "A[0] if (1 < A[0]) else 0")
    assert formulas(programs.widths("wide"), programs.widths("cut"))[1].startswith("extsi(A[0] * B[0])")


def test_memory_that_nothing_was_written_to_is_an_operand() -> None:
    log = FormulaLog(FormulaDomain(), [("A", (2,))], 2)
    total = log.reserve(1)
    log.words[total] = _ADD, 0, 2, _NOTHING
    assert told_apart((log, total), (log, 1)) == ("A[1]", "A[0]")
