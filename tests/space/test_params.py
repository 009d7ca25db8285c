import pickle
from collections.abc import Mapping
from functools import partial
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allo_dse.common.errors import StudyError
from allo_dse.space.params import Assignment, ParameterSpace, choices, divisors, powers_of_two


@given(st.integers(1, 5000), st.integers(1, 100), st.integers(1, 5000))
def test_divisors_are_the_numbers_that_divide(number: Any, low: Any, high: Any) -> None:
    expected = tuple(d for d in range(1, number + 1) if number % d == 0 and low <= d <= high)
    if expected:
        assert divisors(number, at_least=low, at_most=high).values == expected
    else:
        with pytest.raises(StudyError, match="no divisor"):
            divisors(number, at_least=low, at_most=high)


def test_powers_of_two() -> None:
    assert powers_of_two(3, 32).values == (4, 8, 16, 32)
    with pytest.raises(StudyError, match="no power of two from 5 to 7"):
        powers_of_two(5, 7)


def test_choices_refuse_twins_and_nothing() -> None:
    with pytest.raises(StudyError, match=r"choices\(3\): a list is needed"):
        choices(3)  # type: ignore[arg-type]
    with pytest.raises(StudyError, match="same value twice"):
        choices([1, 2, 1])
    with pytest.raises(StudyError, match="no value left"):
        choices([])


@pytest.mark.parametrize(
    ("values", "ordered"),
    [([2, 5, 10], True), ([0.5, 1, 2.5], True), ([5, 2, 10], False), ([False, True], False), (["a", "b"], False)],
)
def test_neighbours_among_rising_numbers_are_similar(values: Any, ordered: bool) -> None:
    assert choices(values).ordered is ordered
    assert choices(values, ordered=not ordered).ordered is not ordered


def test_conditional_parameter_is_absent_when_its_condition_fails() -> None:
    space = ParameterSpace(
        {"kind": choices(["a", "b"]), "depth": choices([1, 2, 3], when=lambda p: p.kind == "b"), "size": 64}
    )
    found = [dict(p) for p in space.assignments()]
    assert found[0] == {"kind": "a", "size": 64}
    assert [p["depth"] for p in found[1:]] == [1, 2, 3]
    assert space.product == 6


def test_where_removes_assignments() -> None:
    space = ParameterSpace({"x": choices([1, 2, 3]), "y": choices([1, 2, 3])}, [cast(Any, lambda p: p["x"] * p.y <= 3)])
    assert [(p.x, p.y) for p in space.assignments()] == [(1, 1), (1, 2), (1, 3), (2, 1), (3, 1)]


def test_a_condition_on_an_unknown_parameter_is_explained() -> None:
    space = ParameterSpace({"x": choices([1, 2])}, [cast(Any, lambda p: p.z > 1)])
    with pytest.raises(StudyError, match="no parameter 'z'"):
        list(space.assignments())


def position_in(positions: Mapping[str, int], name: str, _: object) -> int:
    return positions[name]


def test_positions_invert_assign() -> None:
    space = ParameterSpace({"x": divisors(24), "y": choices("abc"), "fixed": 7})
    for params in space.assignments():
        positions = space.positions(params)
        assert space.assign(partial(position_in, positions)) == params


def test_values_that_are_equal_have_positions_of_their_own() -> None:
    parameter = choices([2, 1, True, 1.0, 0.0, False])
    assert [parameter.position(value) for value in parameter.values] == [0, 1, 2, 3, 4, 5]
    assert parameter.position(2.0) == 0


def test_values_are_looked_at_once_however_often_they_are_asked_for() -> None:
    looked = []

    class Value:
        def __init__(self, number: int) -> None:
            self.number = number

        @property
        def name(self) -> str:
            looked.append(self.number)
            return f"v{self.number}"

    parameter = choices(map(Value, range(50)))
    looked.clear()
    assert [parameter.position(value) for value in parameter.values] == list(range(50))
    assert [parameter.position(f"v{number}") for number in range(50)] == list(range(50))
    assert len(looked) == 50


def test_assignment_survives_pickling_and_is_read_only() -> None:
    params = pickle.loads(pickle.dumps(Assignment({"a": 1})))
    assert params.a == 1
    with pytest.raises(AttributeError):
        params.a = 2
