"""Models of what designs are worth, and what is proposed by them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

import numpy as np
import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

import allo_dse as dse
from allo_dse.space.choice import Gene, Genes
from allo_dse.space.sampler.optuna_sampler import coding_of
from allo_dse.space.sampler.pareto import Individual
from allo_dse.space.sampler.prospects import DRAWS, QUANTILES, Memory, _milestone
from allo_dse.space.sampler.surrogate import (
    JITTER,
    Features,
    Scales,
    Surrogate,
    _matern,
    _slope,
    _squares,
    fitted_scales,
    one_thread,
)

from ...support.values import present


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    with one_thread():
        yield


GENES = {"a": Gene(0, 15), "b": Gene(1, 64, "log"), "c": Gene(0, 3, "categorical"), "d": Gene(0, 9)}


def drawn(count: int, seed: int = 0) -> list[Genes]:
    rng = np.random.default_rng(seed)
    return [{name: gene.draw(rng) for name, gene in GENES.items()} for _ in range(count)]


def loss(genes: Genes) -> float:
    return float(1 + (genes["a"] - 4) ** 2 / 20 + abs(np.log2(genes["b"]) - 3) + (0 if genes["c"] == 2 else 1.5))


def fails(genes: Genes) -> bool:
    return genes["a"] + 2 * genes["d"] > 22 or (genes["c"] == 1 and genes["b"] > 8)


def told(designs: list[Genes], *more: Any) -> list[Individual]:
    return [
        Individual(n, genes, (np.inf,) * (1 + len(more)), 1.0) if fails(genes)
        else Individual(n, genes, (loss(genes), *(other(genes) for other in more)), 0.0)
        for n, genes in enumerate(designs)
    ]  # fmt: skip


# -- the regression --


def likelihood(theta: Any, apart: Any, losses: Any) -> float:
    """The logarithm of the marginal likelihood at the best scale of the covariance, up to a constant."""
    size = len(losses)
    covariance = _matern((np.exp(-2 * theta[:-1]) @ apart).reshape(size, size))[0]
    covariance += (np.exp(2 * theta[-1]) + JITTER) * np.eye(size)
    scale = losses @ np.linalg.solve(covariance, losses) / size
    return float(-size / 2 * np.log(scale) - 0.5 * np.linalg.slogdet(covariance)[1])


def test_squares_are_those_of_the_distances() -> None:
    rng = np.random.default_rng(0)
    left, right = rng.random((4, 3)), rng.random((5, 3))
    direct = ((left[:, None] - right[None]) ** 2).sum(2)
    np.testing.assert_allclose(_squares(left, right), direct)


@given(st.integers(0, 1000))
def test_the_slope_is_that_of_the_likelihood(seed: int) -> None:
    rng = np.random.default_rng(seed)
    features, losses = rng.random((12, 3)), rng.standard_normal(12)
    apart = np.stack([_squares(features[:, [n]], features[:, [n]]).ravel() for n in range(3)])
    theta = np.append(rng.normal(-0.2, 0.4, 3), -1.0)
    found = _slope(theta, apart, losses)
    for n, step in enumerate(1e-5 * np.eye(4)):
        by_difference = (likelihood(theta + step, apart, losses) - likelihood(theta - step, apart, losses)) / 2e-5
        assert found[n] == pytest.approx(by_difference, rel=1e-3, abs=1e-4)


def test_it_knows_what_it_was_told_and_how_little_it_knows_elsewhere() -> None:
    rng = np.random.default_rng(0)
    features = rng.random((30, 2))
    losses = np.sin(5 * features[:, 0])
    groups = np.arange(2)
    model = Surrogate(features, losses, groups, fitted_scales(features, losses, groups))
    mean, deviation = model.predict(features)
    assert np.abs(mean - losses).max() < 0.1
    assert model.predict(np.array([[3.0, 0.5]]))[1][0] > 3 * deviation.max()


def test_a_prediction_is_that_of_the_textbook() -> None:
    """K (K + s² I)⁻¹ y, where much is left unexplained too."""
    rng = np.random.default_rng(2)
    features, losses = rng.random((20, 1)), rng.standard_normal(20)
    model = Surrogate(features, losses, np.zeros(1, int), Scales(np.zeros(1), noise=0.0))
    shared = _matern((features - features.T) ** 2)[0]
    expected = shared @ np.linalg.solve(shared + (1 + JITTER) * np.eye(20), losses)
    np.testing.assert_allclose(model.predict(features)[0], expected)


def test_categories_are_as_far_from_those_that_were_met_as_they_should_be() -> None:
    """However many there are, and wherever they begin: 0 from the same, 1 from others, 1/2 where one has none."""
    genes = {"c": Gene(2, 1_000_000_000, "categorical"), "n": Gene(3, 9)}
    known: list[Genes] = [{"c": 2, "n": 3}, {"c": 4, "n": 3}, {"c": 77, "n": 3}, {"n": 3}, {"c": 4, "n": 9}]
    others: list[Genes] = [*known[:4], {"c": 3, "n": 3}, {"c": 1_000_000_000, "n": 3}]
    features = Features.of(known, genes)
    assert features.groups.tolist() == [0, 0, 0, 0, 1]

    def apart(one: Genes, other: Genes) -> float:
        return float(one.get("c") != other.get("c")) * (1 if "c" in one and "c" in other else 0.5)

    expected = [[apart(one, other) for other in known[:4]] for one in others]
    assert np.allclose(_squares(features.encode(others), features.encode(known[:4])), expected)


def test_features_that_make_no_difference_have_longer_scales() -> None:
    rng = np.random.default_rng(1)
    features = rng.random((60, 3))
    scales = fitted_scales(features, np.sin(6 * features[:, 1]), np.arange(3))
    assert scales.lengths[1] + 1 < min(scales.lengths[0], scales.lengths[2])


def test_the_categories_of_a_gene_are_equally_far_from_each_other() -> None:
    designs: list[Genes] = [{"c": value} for value in range(4)]
    features = Features.of(designs, GENES)
    coded = features.encode(designs)
    assert np.allclose(_squares(coded, coded), 1 - np.eye(4))
    assert set(features.groups.tolist()) == {0}


# -- what is learnt --


def test_the_probability_of_failing_is_calibrated() -> None:
    """Of designs that are said to fail with some probability about as many do."""
    memory = Memory(GENES, told(drawn(120)))
    others = drawn(3000, seed=1)
    said = present(memory.models()).feasibility(others)
    holds = np.array([not fails(genes) for genes in others])
    assert np.mean((said - holds) ** 2) < 0.5 * holds.mean() * (1 - holds.mean())
    for low, high in ((0.0, 0.2), (0.2, 0.8), (0.8, 1.0)):
        within = (said >= low) & (said <= high)
        assert abs(said[within].mean() - holds[within].mean()) < 0.15


@pytest.mark.parametrize("others", [[], [lambda g: g["a"] + g["d"]], [lambda g: g["d"], lambda g: 20 - g["a"]]])
def test_ranking_gives_every_candidate_once_and_good_ones_first(others: list[Any]) -> None:
    prospects = present(Memory(GENES, told(drawn(60), *others)).models())
    candidates = drawn(200, seed=2)
    ranked = prospects.ranked(candidates, np.random.default_rng(0))
    assert sorted(map(str, ranked)) == sorted(map(str, candidates))
    first, last = ranked[:20], ranked[-20:]
    assert sum(map(fails, first)) + 5 < sum(map(fails, last))
    if not others:
        assert np.mean([loss(g) for g in first]) < np.mean([loss(g) for g in candidates]) - 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("power", [-1000, 1000])
def test_what_is_learnt_of_losses_of_both_signs_does_not_depend_on_their_unit(power: int) -> None:
    designs, candidates = told(drawn(20)), drawn(30, seed=1)
    off = [Individual(i.number, i.genes, (i.losses[0] - 4.5,), i.penalty) for i in designs]
    scaled = [Individual(i.number, i.genes, (i.losses[0] * 2.0**power,), i.penalty) for i in off]
    first, other = (present(Memory(GENES, own).models()) for own in (off, scaled))
    rng = np.random.default_rng
    assert first.ranked(candidates, rng(0)) == other.ranked(candidates, rng(0))


def test_there_is_no_model_of_nothing() -> None:
    assert Memory(GENES).models() is None
    assert Memory(GENES, told([drawn(1)[0]] * 5)).models() is None
    failed = [Individual(n, genes, (np.inf,), 1.0) for n, genes in enumerate(drawn(9))]
    assert Memory(GENES, failed).models() is None


def test_genes_that_some_designs_do_not_have() -> None:
    designs = drawn(40)
    for genes in designs[::3]:
        del genes["d"]
    individuals = [Individual(n, genes, (loss(genes),), 0.0) for n, genes in enumerate(designs)]
    ranked = present(Memory(GENES, individuals).models()).ranked(designs, np.random.default_rng(0))
    assert len(ranked) == len(designs)


def test_a_model_does_not_depend_on_when_earlier_ones_were_made() -> None:
    """So that a search that is resumed goes on as it would have."""
    individuals, candidates = told(drawn(50)), drawn(30, seed=3)
    step_by_step = Memory(GENES)
    for individual in individuals:
        step_by_step.designs.append(individual)
        grown = step_by_step.models()
    at_once = present(Memory(GENES, individuals[::-1]).models())
    rng = np.random.default_rng
    assert present(grown).ranked(candidates, rng(0)) == at_once.ranked(candidates, rng(0))


@given(st.integers(4, 5000))
def test_milestones_are_seldom(count: int) -> None:
    assert count / 1.5 - 1 <= _milestone(count) <= count
    assert _milestone(_milestone(count)) == _milestone(count)


def test_scales_default_to_the_prior() -> None:
    assert np.exp(Scales(np.zeros(1)).noise) == pytest.approx(0.15)


# -- the sampler --


def test_categories_that_are_numbers_in_order_are_neighbours() -> None:
    def kind(*choices: Any) -> str:
        return coding_of(optuna.distributions.CategoricalDistribution(choices)).gene.kind

    assert kind(16, 32, 64) == kind(0.5, 1, 8) == "ordinal"
    assert kind(32, 16, 64) == kind("16", "32") == kind(False, True) == kind(1, None) == "categorical"


def tuned(trial: optuna.Trial) -> float:
    """A kernel: tile sizes whose product is limited, and what nobody says fails."""
    x, y = (trial.suggest_categorical(name, [1, 2, 4, 8, 16, 32, 64]) for name in "xy")
    unroll, order = trial.suggest_int("unroll", 1, 8), trial.suggest_categorical("order", ["a", "b", "c", "d"])
    if x * y > 1024:
        raise optuna.TrialPruned
    if unroll * y > 128 or (order == "d" and x < 8):
        raise ArithmeticError("out of registers")
    stall = abs(np.log2(x) - 4) + 0.7 * abs(np.log2(y) - 3) + 0.2 * abs(unroll - 5)
    return float(1 + stall + {"a": 1.0, "b": 0.4, "c": 0.8, "d": 0.0}[order] + ((x + 3 * y + unroll) % 5) / 20)


def best(seed: int, **options: Any) -> tuple[float, int]:
    """The best value, and how many trials failed."""
    study = optuna.create_study(sampler=dse.EvolutionSampler(seed, **options))
    study.optimize(tuned, n_trials=60, catch=ArithmeticError)
    return study.best_value, sum(t.value is None for t in study.trials[30:])


@pytest.mark.filterwarnings("ignore")
def test_in_few_trials_it_finds_the_best_and_leaves_what_fails() -> None:
    by_model = [best(seed) for seed in range(3)]
    bred = [best(seed, modelled=0) for seed in range(3)]
    assert np.mean([value for value, _ in by_model]) < 1.15
    assert np.mean([value for value, _ in by_model]) < np.mean([value for value, _ in bred])
    assert np.mean([count for _, count in by_model]) < 8


def test_quantiles_are_those_of_the_standard_normal_distribution() -> None:
    assert QUANTILES.shape == (DRAWS,)
    np.testing.assert_allclose(QUANTILES, -QUANTILES[::-1], atol=1e-3)
    expected = [statistics.NormalDist().inv_cdf((n + 0.5) / DRAWS) for n in range(DRAWS)]
    np.testing.assert_allclose(QUANTILES, expected, atol=1e-2)
