"""Answers to questions of a choice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from allo_dse.space.choice import Question


@given(st.sets(st.integers(1, 300), min_size=1), st.integers(1, 400))
def test_the_nearest_value_is_a_neighbour_of_what_is_wanted(values: set[int], wanted: int) -> None:
    """Nothing legal lies between, and of the two neighbours none is nearer by ratio."""
    found = int(Question.number("n", sorted(values), 300).nearest(wanted))
    assert found in values
    assert not [v for v in values if min(found, wanted) < v < max(found, wanted)]
    assert all((found + 1) * (v + 1) <= (wanted + 1) ** 2 for v in values if v < wanted <= found and v != wanted)
    assert all((found + 1) * (v + 1) >= (wanted + 1) ** 2 for v in values if found <= wanted < v and found != wanted)
