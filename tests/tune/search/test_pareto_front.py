import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allo_dse.common.records import Array
from allo_dse.space.sampler.pareto import pareto_positions
from allo_dse.tune.search.pareto_front import REFERENCE_AFTER, ParetoFront, hypervolume, knee

POINTS = st.integers(1, 4).flatmap(
    lambda d: st.lists(st.tuples(*[st.integers(0, 5)] * d), min_size=1, max_size=25).map(lambda p: np.array(p, float))
)


@given(POINTS, st.randoms(use_true_random=False))
def test_of_equal_designs_the_cheapest_is_on_the_front(losses: Any, random: Any) -> None:
    costs = np.array([float(random.randint(0, 3)) for _ in losses])
    plain, found = pareto_positions(losses), pareto_positions(losses, costs)
    assert {tuple(losses[p]) for p in found} == {tuple(losses[p]) for p in plain}
    assert len(found) == len(plain)
    for position in found:
        equal = np.flatnonzero((losses == losses[position]).all(1))
        assert position == equal[costs[equal].argmin()]


def dominates(a: Any, b: Any) -> Any:
    return (a <= b).all() and (a < b).any()


def brute_force_front(points: Array) -> Any:
    """Non-dominated points; of equal ones the first."""
    return [
        i
        for i, p in enumerate(points)
        if not any(dominates(q, p) for q in points) and not any((q == p).all() for q in points[:i])
    ]


def brute_force_volume(points: Array, size: int) -> Any:
    """Unit cells between the points and the reference point (size, size, ...)."""
    cells = itertools.product(range(size), repeat=points.shape[1])
    return sum(any((p <= cell).all() for p in points) for cell in cells)


@given(POINTS)
def test_pareto_positions_are_those_of_brute_force(points: Array) -> None:
    assert pareto_positions(points) == brute_force_front(points)


@given(POINTS)
def test_hypervolume_counts_the_dominated_cells(points: Array) -> None:
    assert hypervolume(points, np.full(points.shape[1], 6.0)) == pytest.approx(brute_force_volume(points, 6))


@given(POINTS)
def test_the_front_kept_step_by_step_is_the_front_of_all(points: Array) -> None:
    front = ParetoFront(points.shape[1])
    for number, point in enumerate(points):
        front.add(str(number), point)
    assert sorted(map(int, front.keys)) == brute_force_front(points)


@given(st.lists(st.tuples(*[st.integers(1, 50)] * 3), min_size=REFERENCE_AFTER, max_size=60))
def test_incremental_hypervolume_equals_the_direct_one(rows: Any) -> None:
    front = ParetoFront(3)
    for number, row in enumerate(rows):
        front.add(str(number), row)
    reference = np.array(front.reference)
    direct = hypervolume(np.array(rows, float) / reference, np.ones(3))
    assert front.hypervolume == pytest.approx(direct)
    assert (reference > np.array(rows[:REFERENCE_AFTER]).max(0)).all()


@given(st.lists(st.tuples(*[st.integers(1, 50)] * 2), min_size=REFERENCE_AFTER, max_size=40), st.randoms())
def test_fronts_of_the_same_designs_have_the_same_volume_up_to_one_reference(rows: Any, order: Any) -> None:
    one, other = ParetoFront(2), ParetoFront(2)
    assert one.volume_up_to(other) is None
    for number, row in enumerate(rows):
        one.add(str(number), row)
    order.shuffle(rows)
    for number, row in enumerate(rows):
        other.add(str(number), row)
    assert one.hypervolume == pytest.approx(other.volume_up_to(one))


def test_knee_is_the_balanced_design() -> None:
    losses = np.array([[0.0, 100.0], [1.0, 20.0], [10.0, 0.0]])
    assert knee(losses) == 1
    assert knee(np.array([[3.0, 3.0]])) == 0


def test_empty_front() -> None:
    assert pareto_positions(np.empty((0, 2))) == []


@given(POINTS, st.integers(1, 9))
def test_many_at_once_enter_as_they_would_one_by_one(points: Array, block: Any) -> None:
    points = np.concatenate([points] * (REFERENCE_AFTER // len(points) + 2))
    keys = [str(n) for n in range(len(points))]
    singly, together = ParetoFront(points.shape[1]), ParetoFront(points.shape[1])
    for key, point in zip(keys, points, strict=True):
        singly.add(key, point)
    for start in range(0, len(points), block):
        together.extend(keys[start : start + block], points[start : start + block])
    assert (together.keys, together.reference) == (singly.keys, singly.reference)
    assert np.array_equal(together.losses, singly.losses)
    assert together.hypervolume == singly.hypervolume
