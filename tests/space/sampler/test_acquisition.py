"""Models of what designs are worth, and what is proposed by them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

import allo_dse as dse
from allo_dse.space.genes import Gene, Genes
from allo_dse.space.sampler.acquisition import Archive, Candidates, _milestone, log_gain, log_normal
from allo_dse.space.sampler.optuna_sampler import coding_of
from allo_dse.space.sampler.pareto import FAILED, Individual
from allo_dse.space.sampler.surrogate import (
    JITTER,
    Features,
    Surrogate,
    _slope,
    as_rows,
    covariances,
    fitted_scales,
    one_thread,
    prior_scales,
    squares_apart,
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
        Individual(n, genes, (np.inf,) * (1 + len(more)), {FAILED: 1.0}) if fails(genes)
        else Individual(n, genes, (loss(genes), *(other(genes) for other in more)))
        for n, genes in enumerate(designs)
    ]  # fmt: skip


# -- the regression --


def prediction(model: Surrogate, features: Any) -> tuple[Any, Any]:
    """Means and standard deviations."""
    found = model.posterior(features)
    return found.mean, found.deviation


NUMBERS = np.zeros(3, bool)  # none of the features is categorical


def covariance(features: Any, scales: Any) -> Any:
    """The mixture of the textbook's covariances, pair by pair."""
    scaled = ((features[:, None] - features[None]) * np.exp(-scales[:-2])) ** 2
    distance, share = np.sqrt(5 * scaled.sum(2)), 1 / (1 + np.exp(-scales[-1]))
    matern = (1 + distance + distance**2 / 3) * np.exp(-distance)
    return share * (1 / (1 + scaled)).mean(2) + (1 - share) * matern


def likelihood(theta: Any, features: Any, losses: Any) -> float:
    """The logarithm of the marginal likelihood at the best scale of the covariance, up to a constant."""
    size = len(losses)
    found = covariance(features, theta) + (np.exp(2 * theta[-2]) + JITTER) * np.eye(size)
    scale = losses @ np.linalg.solve(found, losses) / size
    return float(-size / 2 * np.log(scale) - 0.5 * np.linalg.slogdet(found)[1])


@given(st.integers(0, 1000))
def test_the_slope_is_that_of_the_likelihood(seed: int) -> None:
    rng = np.random.default_rng(seed)
    features, losses = rng.random((12, 3)), rng.standard_normal(12)
    theta = np.concatenate((rng.normal(-0.2, 0.4, 3), [-1.0, rng.normal()]))
    found = _slope(theta, squares_apart(features, NUMBERS), losses)
    for n, step in enumerate(1e-5 * np.eye(5)):
        by_difference = (likelihood(theta + step, features, losses) - likelihood(theta - step, features, losses)) / 2e-5
        assert found[n] == pytest.approx(by_difference, rel=1e-3, abs=1e-4)


def test_the_effect_of_a_parameter_is_learnt_from_designs_that_differ_in_others() -> None:
    """Categories, each seen three times with other values of six further parameters."""
    rng = np.random.default_rng(0)
    kinds, others, categorical = rng.permutation(np.tile(np.arange(16), 3)), rng.random((48, 6)), np.arange(7) == 0
    losses = kinds % 3 - 1 + others[:, 0] - others[:, 0].mean()
    features, new = np.column_stack((kinds, others)), np.column_stack((np.arange(16), rng.random((16, 6))))
    scales = fitted_scales(features, losses, categorical)

    def error(used: Any) -> float:
        found = prediction(Surrogate(features, losses, categorical, used), new)[0]
        return float(np.abs(found - (np.arange(16) % 3 - 1 + new[:, 1] - others[:, 0].mean())).mean())

    assert error(scales) < 0.8 * error(np.append(scales[:-1], -6))


def test_it_knows_what_it_was_told_and_how_little_it_knows_elsewhere() -> None:
    rng = np.random.default_rng(0)
    features = rng.random((30, 2))
    losses = np.sin(5 * features[:, 0])
    model = Surrogate(features, losses, NUMBERS[:2], fitted_scales(features, losses, NUMBERS[:2]))
    mean, deviation = prediction(model, features)
    assert np.abs(mean - losses).max() < 0.1
    assert prediction(model, np.array([[3.0, 0.5]]))[1][0] > 3 * deviation.max()


def test_a_prediction_is_that_of_the_textbook() -> None:
    """K (K + s² I)⁻¹ y, where much is left unexplained too."""
    rng = np.random.default_rng(2)
    features, losses, scales = (
        rng.random((20, 3)),
        rng.standard_normal(20),
        np.array([0.0, -1.0, 0.5, 0.0, 0.7]),
    )
    model = Surrogate(features, losses, NUMBERS, scales, centred=True)
    shared = covariance(features, scales)
    expected = shared @ np.linalg.solve(shared + (1 + JITTER) * np.eye(20), losses)
    np.testing.assert_allclose(prediction(model, features)[0], expected)


def test_categories_are_equally_far_from_each_other_and_from_none() -> None:
    """However many there are, wherever they begin, and whether they were met or not."""
    genes = {"c": Gene(2, 1_000_000_000, "categorical"), "n": Gene(3, 9)}
    known: list[Genes] = [{"c": 2, "n": 3}, {"c": 4, "n": 3}, {"c": 77, "n": 3}, {"n": 3}, {"c": 4, "n": 9}]
    others: list[Genes] = [*known[:4], {"c": 3, "n": 3}, {"c": 1_000_000_000, "n": 3}]
    names, ranges = sorted(genes), [genes[name] for name in sorted(genes)]
    features = Features.of(as_rows(known, names, ranges), ranges)
    coded, met = (features.encode(as_rows(of, names, ranges)) for of in (others, known[:4]))
    found = covariances(coded, met, np.ones(2), features.categorical, 0.5)
    same = np.array([[one.get("c") == other.get("c") for other in known[:4]] for one in others])
    assert len(np.unique(found[~same])) == 1
    assert np.allclose(found[same], 1)
    one, other = np.triu_indices(len(others), 1)
    assert np.allclose(squares_apart(coded, features.categorical)[0], coded[one, 0] != coded[other, 0])


def test_features_that_make_no_difference_have_longer_scales() -> None:
    rng = np.random.default_rng(1)
    features = rng.random((60, 3))
    scales = fitted_scales(features, np.sin(6 * features[:, 1]), NUMBERS)
    assert scales[1] + 1 < min(scales[0], scales[2])


# -- what is learnt --


def predicted(designs: list[Individual], candidates: list[Genes]) -> Candidates:
    memory = Archive(GENES, designs)
    rows = as_rows(candidates, memory.names, [GENES[name] for name in memory.names])
    return present(memory.model()).candidates(rows)


def ranking(designs: list[Individual], candidates: list[Genes]) -> list[Genes]:
    """The candidates, most promising first."""
    worth = predicted(designs, candidates).worth(np.random.default_rng(0))
    return [candidates[n] for n in np.argsort(-np.round(worth, 7), kind="stable")]


def test_the_probability_of_failing_is_calibrated() -> None:
    """Of designs that are said to fail with some probability about as many do."""
    others = drawn(3000, seed=1)
    said = predicted(told(drawn(120)), others).probability()
    holds = np.array([not fails(genes) for genes in others])
    assert np.mean((said - holds) ** 2) < 0.5 * holds.mean() * (1 - holds.mean())
    for low, high in ((0.0, 0.2), (0.2, 0.8), (0.8, 1.0)):
        within = (said >= low) & (said <= high)
        assert abs(said[within].mean() - holds[within].mean()) < 0.15


@pytest.mark.parametrize("others", [[], [lambda g: g["a"] + g["d"]], [lambda g: g["d"], lambda g: 20 - g["a"]]])
def test_ranking_gives_every_candidate_once_and_good_ones_first(others: list[Any]) -> None:
    candidates = drawn(200, seed=2)
    ranked = ranking(told(drawn(60), *others), candidates)
    first, last = ranked[:20], ranked[-20:]
    if others:
        assert sum(map(fails, first)) + 5 < sum(map(fails, last))
    else:  # the last are certainly slow, whether they fail or not
        assert np.mean([loss(g) for g in first]) < np.mean([loss(g) for g in candidates]) - 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("power", [-1000, 1000])
def test_what_is_learnt_of_losses_of_both_signs_does_not_depend_on_their_unit(power: int) -> None:
    designs, candidates = told(drawn(20)), drawn(30, seed=1)
    off = [Individual(i.number, i.genes, (i.losses[0] - 4.5,), i.constraints) for i in designs]
    scaled = [Individual(i.number, i.genes, (i.losses[0] * 2.0**power,), i.constraints) for i in off]
    assert ranking(off, candidates) == ranking(scaled, candidates)


def test_there_is_no_model_of_nothing() -> None:
    assert Archive(GENES).model() is None
    assert Archive(GENES, told([drawn(1)[0]] * 5)).model() is None


def test_failures_are_learnt_from_before_anything_works() -> None:
    failed = [Individual(n, {"a": n, "d": n % 2}, (np.inf,), {FAILED: 1.0}) for n in range(4)]
    model = present(Archive(GENES, failed).model())
    assert not model.informed
    found = model.candidates(np.array([[1, 0], [8, 0], [15, 1]])).probability()
    assert 0 < found[0] < found[1] < found[2]
    works = [*failed, Individual(4, {"a": 12, "d": 0}, (3.0,))]
    model = present(Archive(GENES, works).model())
    near, far = model.candidates(np.array([[13, 0], [1, 0]])).probability()
    assert model.informed
    assert near > 3 * far


def test_a_constraint_that_says_by_how_much_is_met_at_its_border() -> None:
    """Told as numbers, the border between two designs is where it is; told as true or false, in the middle."""

    def border(value: Callable[[int], float]) -> int:
        designs = [Individual(n, {"a": n}, (1.0,), {"c": value(n)}) for n in (0, 1, 2, 12, 13, 14, 15)]
        found = present(Archive(GENES, designs).model()).candidates(np.arange(16)[:, None]).probability()
        return int((found > 0.5).argmax())

    assert border(lambda n: 4.5 - n) in (4, 5)
    assert border(lambda n: 10.5 - n) in (10, 11)
    assert border(lambda n: float(n < 5)) in (6, 7, 8)


def test_genes_that_some_designs_do_not_have() -> None:
    designs = drawn(40)
    for genes in designs[::3]:
        del genes["d"]
    individuals = [Individual(n, genes, (loss(genes),)) for n, genes in enumerate(designs)]
    assert len(ranking(individuals, designs)) == len(designs)


def test_a_model_does_not_depend_on_when_earlier_ones_were_made() -> None:
    """So that a search that is resumed goes on as it would have."""
    individuals, candidates = told(drawn(50)), drawn(30, seed=3)
    step_by_step = Archive(GENES)
    for individual in individuals:
        step_by_step.add([individual])
        step_by_step.model()
    rows = as_rows(candidates, step_by_step.names, [GENES[name] for name in step_by_step.names])
    grown, at_once = (
        present(memory.model()).candidates(rows).worth(np.random.default_rng(0))
        for memory in (step_by_step, Archive(GENES, individuals[::-1]))
    )
    assert grown.tolist() == at_once.tolist()


@given(st.integers(4, 5000))
def test_milestones_are_seldom(count: int) -> None:
    assert count / 1.5 - 1 <= _milestone(count) <= count
    assert _milestone(_milestone(count)) == _milestone(count)


def test_scales_default_to_the_prior() -> None:
    assert np.exp(prior_scales(1)[-2]) == pytest.approx(0.15)


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
    offspring = [best(seed, modelled=0) for seed in range(3)]
    assert np.mean([value for value, _ in by_model]) < 1.15
    assert np.mean([value for value, _ in by_model]) <= np.mean([value for value, _ in offspring])
    assert np.mean([count for _, count in by_model]) < 8


@given(st.floats(-8, 9))
def test_the_normal_distribution_and_the_expected_improvement_are_those_of_the_textbook(z: float) -> None:
    normal = statistics.NormalDist()
    assert np.exp(log_normal(np.array(z))) == pytest.approx(normal.cdf(z), rel=1e-6)
    means, front, rng = np.array([[-z], [1 - z]]), np.zeros((1, 1)), np.random.default_rng(0)
    found = log_gain(means, np.ones((2, 1)), front, np.zeros(2, bool), rng)
    assert found[0] > found[1]  # also where no draw is an improvement
    if z > -1:
        assert np.exp(found[0]) == pytest.approx(normal.pdf(z) + z * normal.cdf(z), rel=0.1)


def test_a_front_that_begins_in_a_corner_is_extended() -> None:
    """A design far along the expected front gains more than a slightly better neighbour of the only known one."""
    means, deviations = np.array([[0.0, 0.99], [1.0, 0.0], [1.0, 2.0]]), np.full((3, 2), 0.01)
    front, rng = np.array([[0.0, 1.0]]), np.random.default_rng(0)
    near, far, dominated = log_gain(means, deviations, front, np.ones(3, bool), rng)
    assert far > near > dominated


def test_a_design_that_is_believed_makes_others_near_it_certain() -> None:
    rng = np.random.default_rng(0)
    known, values = rng.random((10, 2)), rng.standard_normal(10)
    scales, others = np.array([0.0, 0.0, -1.9, -6.0]), np.array([[0.5, 0.5], [0.5, 0.51], [0.9, 0.0]])
    model = Surrogate(known, values, NUMBERS[:2], scales, centred=True)
    found = model.posterior(others)
    found.believe(0)
    found.believe(2)
    mean = prediction(model, others)[0]
    both, expected = np.vstack((known, others[[0, 2]])), np.append(values, mean[[0, 2]])
    mean, deviation = prediction(again := Surrogate(both, expected, NUMBERS[:2], scales, centred=True), others)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-6)
    np.testing.assert_allclose(found._left, np.maximum(JITTER, deviation**2 / again._variance), rtol=1e-6)
