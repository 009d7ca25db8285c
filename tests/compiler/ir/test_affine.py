"""Linear forms of integers that wrap."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allo_dse.compiler.ir.affine import Around, Linear, derive, rounds
from allo_dse.compiler.ir.nest import read_nest

BODY = """func.func @f(%pid0: index) {{
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %rows = arith.constant 6 : index
  %hundred = arith.constant 100 : i8
  %many = arith.constant 200 : index
  scf.for %j = %zero to %rows step %one {{
    %i = arith.index_cast %j : index to i8
    %n = arith.muli %i, %hundred : i8
    {}
  }}
  return
}}
"""
LOOP = """scf.for %k = %{} to %{} step %one {{
      "df.cost"() {{site = 0 : i64}} : () -> ()
    }}"""
BRANCH = """scf.if %{} {{
      "df.cost"() {{site = 0 : i64}} : () -> ()
    }}"""
UNSIGNED = "%w = arith.extui %n : i8 to i32\n%b = arith.index_cast %w : i32 to index\n" + LOOP.format("zero", "b")
SIGNED = "%b = arith.index_cast %n : i8 to index\n" + LOOP.format("b", "many")


@pytest.mark.parametrize(
    ("text", "times"),
    [
        (UNSIGNED, lambda n: int(n.astype(np.uint8))),
        (SIGNED, lambda n: 200 - int(n)),
        ("%c = arith.cmpi slt, %n, %hundred : i8\n" + BRANCH.format("c"), lambda n: n < 100),
        ("%c = arith.cmpi ult, %n, %hundred : i8\n" + BRANCH.format("c"), lambda n: n.astype(np.uint8) < 100),
        ("%c = arith.cmpi eq, %n, %hundred : i8\n" + BRANCH.format("c"), lambda n: n == 100),
    ],
    ids=["unsigned bound", "signed bound", "signed comparison", "unsigned comparison", "equality"],
)
def test_narrow_integers_wrap_as_when_they_are_computed(text: str, times: Callable[[np.int8], int]) -> None:
    (path,) = read_nest(BODY.format(text)).priced[0]
    executed = sum(times(np.int64(j * 100).astype(np.int8)) for j in range(6))
    assert rounds(path, {}, iter(range(1000))) == executed


def test_narrow_integers_that_do_not_wrap_stay_linear() -> None:
    text = BODY.format(UNSIGNED).replace("arith.constant 6 : index", "arith.constant 3 : index")
    (path,) = read_nest(text).priced[0]
    assert isinstance(path[1], Around)
    assert path[1].upper is not None
    assert not path[1].upper.derived


def _forms(depth: int = 2) -> st.SearchStrategy[Linear]:
    """Sums, multiples, quotients and remainders of two variables."""
    plain = st.sampled_from([Linear.variable(0), Linear.variable(1), Linear((), 3)])
    if not depth:
        return plain
    inner, by = _forms(depth - 1), st.integers(2, 5)
    quotients = st.builds(_quotient, inner, by)
    remainders = st.builds(lambda form, n: form + _quotient(form, n).scaled(-n), inner, by)
    return st.one_of(plain, st.builds(Linear.__add__, inner, inner), quotients, remainders)


def _quotient(form: Linear, divisor: int) -> Linear:
    return derive("arith.floordivsi", form, Linear((), divisor))


@given(_forms(), st.integers(0, 2), st.integers(1, 5), st.booleans())
def test_extremes_of_forms_that_are_not_linear_are_true_or_unknown(
    form: Linear, low: int, count: int, most: bool
) -> None:
    ends = [(v, (Linear((), low), Linear((), low + count - 1))) for v in (1, 0)]
    found = form.extreme(ends, most=most)
    values = [form.value({0: i, 1: j}) for i in range(low, low + count) for j in range(low, low + count)]
    assert not found.is_constant or found.constant == (max if most else min)(v for v in values if v is not None)
