"""What an expensive evaluator is expected to say of designs, and which of them it measures next."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allo_dse.space.genes import Gene, Genes
from allo_dse.tune.search.promotion import FEWEST, MOST, Losses, MultiFidelityModel, _Scale

RANGES = {"a": Gene(0, 9), "b": Gene(0, 9), "c": Gene(0, 2, "categorical")}
GENES: dict[str, Genes] = {
    f"{a}{b}{c}": {"a": a, "b": b, "c": c} for a in range(10) for b in range(10) for c in range(3)
}


def cheap(genes: Genes) -> Losses:
    """A trade between two objectives; `c` costs as much in both."""
    a, b, c = genes.values()
    return 10 / (1 + a) + b / 4 + c, 1.0 + a + b / 4 + c


BELOW = {key: cheap(genes) for key, genes in GENES.items()}


def expected(found: MultiFidelityModel) -> dict[str, Losses]:
    """Of the designs that it chooses among."""
    return dict(zip(found.keys, map(tuple, np.exp(found.means).tolist()), strict=True))


def model_of(true: Callable[[Genes], Losses | None], keys: list[str]) -> MultiFidelityModel:
    return MultiFidelityModel(GENES, RANGES, BELOW, {key: true(GENES[key]) for key in keys})


def some(count: int, seed: int = 0) -> list[str]:
    return random.Random(seed).sample(sorted(GENES), count)


def slow(genes: Genes) -> Losses:
    """What nobody said of the first objective: a cliff, and a category that costs."""
    first, second = cheap(genes)
    return first * (3 if genes["a"] > 5 else 1) * (1, 0.5, 2)[genes["c"]], second


def off(said: dict[str, Losses], keys: set[str]) -> float:
    return float(np.median([abs(np.log(said[key][0] / slow(GENES[key])[0])) for key in keys]))


def test_what_was_measured_says_what_others_will_measure() -> None:
    measured = some(30)
    said = expected(model_of(slow, measured))
    others = GENES.keys() - set(measured)
    assert off(said, others) < 0.3 * off(BELOW, others)
    assert all(said[key][1] == pytest.approx(BELOW[key][1]) for key in others)  # which the cheap one has right


@given(st.permutations(some(12)), st.permutations(sorted(GENES)[::3] + some(12)))
def test_the_order_of_designs_makes_no_difference(measured: list[str], keys: list[str]) -> None:
    true = {key: slow(GENES[key]) for key in measured}
    found = MultiFidelityModel(GENES, RANGES, {key: BELOW[key] for key in keys}, true)
    again = MultiFidelityModel(
        GENES, RANGES, {key: BELOW[key] for key in sorted(keys)}, {key: true[key] for key in some(12)}
    )
    left = [key for key in found.keys if key not in true]
    assert found.best(3, left) == again.best(3, left[::-1])
    assert expected(found) == expected(again)


POINTS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=FEWEST + 1, max_size=20, unique=True)


@given(POINTS, st.booleans())
def test_of_designs_that_were_predicted_right_none_is_measured_before_a_better_one(
    points: list[Losses], neg: bool
) -> None:
    below = {str(n): tuple(float(-v if neg else v) for v in point) for n, point in enumerate(points)}
    genes = {key: {"a": n % 10} for n, key in enumerate(below)}
    measured: dict[str, Losses | None] = {key: below[key] for key in list(below)[:FEWEST]}
    while left := below.keys() - measured.keys():
        (chosen,) = MultiFidelityModel(genes, RANGES, below, measured).best(1, list(left))
        better = [k for k in left if below[k] != below[chosen] and np.all(np.array(below[k]) <= below[chosen])]
        assert not better or any(np.all(np.array(below[k]) <= below[better[0]]) for k in measured)
        measured[chosen] = below[chosen]


def test_designs_that_are_measured_at_the_same_time_are_not_alike() -> None:
    """Of each design there are three that are nearly the same; no two of these are measured before all others are."""
    genes: dict[str, Genes] = {f"{a} {twin}": {"a": a} for a in range(10) for twin in range(3)}
    below = {key: (2.0 ** -genes[key]["a"], 2.0 ** genes[key]["a"] + 1e-6 * int(key[-1])) for key in genes}
    measured = {key: below[key] for key in ("0 0", "3 0", "9 0")}
    left = [key for key in below if key not in measured]
    found = MultiFidelityModel(genes, RANGES, below, measured)
    together = found.best(7, left)
    assert sorted(genes[key]["a"] for key in together) == [1, 2, 4, 5, 6, 7, 8]
    assert found.best(1, [key for key in left if key not in together[:3]], together[:3]) == together[3:4]


def test_what_fails_is_left_and_nothing_is_impossible() -> None:
    def true(genes: Genes) -> Losses | None:
        return None if genes["c"] == 0 and genes["a"] > 3 else cheap(genes)

    measured = some(40)
    found = model_of(true, measured)
    says = dict(zip(found.keys, found.probability.tolist(), strict=True))
    fails = [p for key, p in says.items() if true(GENES[key]) is None]
    holds = [p for key, p in says.items() if true(GENES[key]) is not None]
    assert min(fails) > 0
    assert max(holds) < 1
    assert np.mean(fails) + 0.4 < np.mean(holds)
    left = [key for key in GENES if key not in measured]
    assert all(true(GENES[key]) for key in found.best(3, left))
    by_cheap = MultiFidelityModel(GENES, RANGES, BELOW, {key: BELOW[key] for key in measured})
    assert not all(true(GENES[key]) for key in by_cheap.best(3, left))


def test_where_all_fail_others_are_tried() -> None:
    found = model_of(lambda _: None, ["900", "910", "920"])
    (chosen,) = found.best(1, [key for key in GENES if key not in ("900", "910", "920")])
    assert expected(found) == {key: pytest.approx(losses) for key, losses in BELOW.items()}
    assert GENES[chosen]["a"] < 9


def test_of_many_measured_designs_the_promising_ones_are_learnt_from() -> None:
    found = model_of(slow, some(2 * MOST))
    assert off(expected(found), set(some(2 * MOST))) < 0.3 * off(BELOW, set(some(2 * MOST)))
    assert {len(process._model._features) for process in found._excess if process._model} == {MOST}


@given(st.lists(st.floats(-100, 100), min_size=1))
def test_a_scale_keeps_the_order(losses: list[float]) -> None:
    column = np.sort(np.round(losses, 3))
    assert (np.diff(_Scale.of(column).to(column)) >= 0).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("unit", [1.0, 2.0**1000, 2.0**-1000])
def test_losses_of_both_signs_differ_by_what_was_measured(unit: float) -> None:
    below = {key: (unit * (losses[0] - 5),) for key, losses in BELOW.items()}
    found = MultiFidelityModel(GENES, RANGES, below, {key: (below[key][0] + 2 * unit,) for key in some(5)})
    means = np.ldexp(found.means[:, 0], found._scales[0].magnitude)
    np.testing.assert_allclose(means / unit, [below[key][0] / unit + 2 for key in found.keys])
    assert found.best(3, found.keys)
