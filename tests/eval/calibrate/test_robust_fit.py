"""Laws of the robust fit, on functions whose answer is known."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from allo_dse.eval.calibrate.robust_fit import Problem, fit, grow

LOG_TIMES = np.log(np.array([[1, 1], [1, 3], [1, 10], [1, 30], [1, 100], [1, 300], [1, 1000], [1, 3000]], float))


def problem(measured: Any, columns: Any) -> Any:
    """Times exp(z0) + size * exp(z1), on which coordinates beyond the first two have the effect `columns` give them."""
    sizes = np.exp(LOG_TIMES[:, 1])

    def residuals_at(at: Any) -> Any:
        return np.log(np.exp(at[0]) + sizes * np.exp(at[1])) + columns @ at[2:] - measured

    wide = np.full(2 + columns.shape[1], 20.0)
    return Problem(residuals_at, -wide, wide)


@example(launch=0.0, rate=0.0, outliers={0}, by=0.5)
@example(launch=1.765641958505773, rate=1.4940905244829286, outliers={0}, by=0.5)
@example(launch=5.566184237464628, rate=-1.899068975581462, outliers={7}, by=0.7772360217175973)
@given(st.floats(-1, 6), st.floats(-2, 2), st.sets(st.integers(0, 7), max_size=2), st.floats(0.5, 2))
@settings(max_examples=60, deadline=None)
def test_what_made_the_times_is_found_in_spite_of_outliers(launch: Any, rate: Any, outliers: Any, by: Any) -> None:
    nothing = np.zeros((8, 1))
    exact = problem(np.zeros(8), nothing).residuals_at(np.array([launch, rate, 0.0]))
    measured = exact + np.array([by if i in outliers else 0.0 for i in range(8)])
    found = fit(problem(measured, nothing), np.array([launch + 0.8, rate - 0.8, 0.0]))
    assert found.selection.alike[2] == []
    for i, truth in enumerate((launch, rate)):
        if i in found.selection.free and not outliers:
            assert found.at[i] == pytest.approx(truth, abs=0.05)
    if found.selection.free == [0, 1]:
        far = {i for i in range(8) if abs(found.residuals[i]) > 0.25}
        assert far <= outliers or len(outliers) == 2


@given(st.floats(-1, 1))
@settings(max_examples=20, deadline=None)
def test_of_two_numbers_with_one_effect_one_is_left_alone_and_named(shift: Any) -> None:
    effect = np.linspace(-1, 1, 8)[:, None] * [[1.0, 0.6]]
    start = np.array([2.0, 0.0, 0.0, 0.0])
    measured = problem(np.zeros(8), effect).residuals_at(start + np.array([0, 0, shift, 0]))
    found = fit(problem(measured, effect), start)
    assert found.selection.alike[3] == [2]
    assert found.at[3] == start[3]
    assert found.at[2] == pytest.approx(shift, abs=0.01)


def test_held_out_residuals_do_not_know_their_own_measurement() -> None:
    measured = problem(np.zeros(8), np.zeros((8, 1))).residuals_at(np.array([3.0, 0.5, 0.0]))
    measured = measured + 0.02 * np.array([1, -1, 1, 1, -1, -1, 1, -1])
    found = fit(problem(measured, np.zeros((8, 1))), np.array([2.0, 0.0, 0.0]))
    held_out = found.held_out(np.arange(8))
    assert np.abs(held_out).sum() > np.abs(found.residuals).sum()


def test_held_out_residuals_keep_the_limits_of_the_fit() -> None:
    """What no coordinate within its limits explains is not explained to be by a line beyond them."""
    for off, left in ((0.6, 0.1), (3.0, 3.0)):
        launch = Problem(partial(np.add, np.full(8, off)), np.array([-0.5]), np.array([0.5]))
        assert grow(launch, np.zeros(1), np.arange(8)).held_out(np.arange(8)) == pytest.approx(np.full(8, left))


def test_nothing_is_asked_for_twice_and_slopes_are_not_asked_for_at_every_step() -> None:
    """Residuals are many runs of a model. With slopes at every step these four coordinates would take 60 of them."""
    effect = np.linspace(-1, 1, 8)[:, None] * [[1.0, 0.6]]
    asked: list[bytes] = []
    made = problem(problem(np.zeros(8), effect).residuals_at(np.array([3.0, 0.5, 0.2, 0.0])), effect)

    def residuals_at(at: Any) -> Any:
        asked.append(at.tobytes())
        return made.residuals_at(at)

    found = fit(Problem(residuals_at, made.low, made.high), np.array([2.0, 0.0, 0.0, 0.0]))
    assert np.abs(found.residuals).max() < 0.01
    assert len(asked) == len(set(asked))
    assert len(asked) <= 40


def linear(slopes: Any, measured: Any, at: Any) -> Any:
    return slopes @ at - measured


def test_deviations_hold_for_few_measurements() -> None:
    generator, off = np.random.default_rng(0), []
    for _ in range(40):
        slopes, truth = generator.normal(size=(8, 3)) / 2, generator.normal(size=3) / 2
        measured = slopes @ truth + 0.05 * generator.normal(size=8)
        wide = np.full(3, 9.0)
        found = fit(Problem(partial(linear, slopes, measured), -wide, wide), np.zeros(3))
        off += list(np.abs(found.at - truth)[found.selection.free] / found.deviations)
    assert np.mean(np.array(off) < 2) > 0.82  # of Student's distribution with five degrees of freedom 90 % are


def test_as_many_measurements_as_parameters_say_nothing_of_errors() -> None:
    wide = np.full(2, 9.0)
    found = fit(Problem(partial(linear, np.eye(2), np.ones(2)), -wide, wide), np.zeros(2))
    with np.errstate(all="raise"):
        assert np.isfinite(found.deviations).all()


def limited(at: Any) -> Any:
    """Logarithm of a launch plus the longer of computing and moving; at first moving limits nothing."""
    sizes = np.exp(LOG_TIMES[:, 1])
    return np.log(np.exp(at[0]) + np.maximum(sizes * np.exp(at[1]), np.sqrt(sizes) * np.exp(-at[2])))


@pytest.mark.parametrize("count", [4, 8])
@pytest.mark.parametrize(("coordinate", "by"), [(0, 1.0), (1, 1.2)])
def test_the_number_that_was_changed_is_found_from_few_measurements(count: int, coordinate: int, by: float) -> None:
    start, wide = np.array([2.0, 0.0, 3.0]), np.full(3, 9.0)
    measured = limited(start + by * np.eye(3)[coordinate])
    chosen = np.linspace(0, 7, count).astype(int)
    found = grow(Problem(lambda at: (limited(at) - measured)[chosen], -wide, wide), start, np.arange(count))
    assert found.selection.free == [coordinate]
    assert np.abs(limited(found.at) - measured).max() < 0.05


def test_noise_moves_no_number() -> None:
    noise = 0.1 * np.random.default_rng(3).normal(size=8)
    start, wide = np.array([2.0, 0.0, 3.0]), np.full(3, 9.0)
    found = grow(Problem(lambda at: limited(at) - limited(start) - noise, -wide, wide), start, np.arange(8))
    assert found.selection.free == []
    assert (found.at == start).all()
