"""The sampler in plain Optuna: Optuna's own conformance suite, and what is promised beyond it."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection
from optuna.testing.pytest_samplers import BasicSamplerTestCase, MultiObjectiveSamplerTestCase

import allo_dse as dse
from allo_dse.space.sampler.optuna_sampler import coding_of, distribution, suggest_with

from ...support.values import present
from ...tune.fakes import FakeEvaluator, fake_study

optuna.logging.set_verbosity(optuna.logging.WARNING)


class TestOptunasConformance(BasicSamplerTestCase, MultiObjectiveSamplerTestCase):
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: dse.EvolutionSampler(seed=0, initial=3, children=2)


def everything(trial: optuna.Trial) -> tuple[float, float]:
    """Parameters of all kinds, some of which depend on others, and a constraint."""
    kind = trial.suggest_categorical("kind", ["a", None, True, 2.5])
    x = trial.suggest_float("x", -3, 3)
    rate = trial.suggest_float("rate", 1e-5, 1.0, log=True)
    loss = x**2 + abs(np.log10(rate) + 2) + trial.suggest_float("half", 0, 4, step=0.5)
    if kind == "a":
        for layer in range(trial.suggest_int("layers", 1, 3)):
            loss += abs(trial.suggest_int(f"units{layer}", 1, 1000, log=True) - 30) / 30
    elif kind is None:
        loss += trial.suggest_int("steps", 0, 1000, step=10) / 100 + trial.suggest_int("one", 4, 4)
    trial.set_constraint("x", 0.5 - x)
    return loss, x


DIRECTIONS = (StudyDirection.MINIMIZE, StudyDirection.MAXIMIZE)


def searched(trials: int, sampler: BaseSampler | None = None, objective: Any = everything) -> optuna.Study:
    study = optuna.create_study(directions=DIRECTIONS, sampler=sampler or dse.EvolutionSampler(seed=1))
    study.optimize(objective, n_trials=trials)
    return study


def params(study: optuna.Study) -> list[dict[str, Any]]:
    return [trial.params for trial in study.trials]


@cache
def uninterrupted() -> optuna.Study:
    return searched(150)


def test_the_same_seed_gives_the_same_trials() -> None:
    assert params(searched(70)) == params(uninterrupted())[:70]
    assert params(searched(5)) != params(searched(5, dse.EvolutionSampler(seed=2)))
    assert params(searched(5, dse.EvolutionSampler())) != params(searched(5, dse.EvolutionSampler()))


@pytest.mark.parametrize("trials", [30, 47, 56])
def test_a_loaded_study_goes_on_as_if_it_had_not_been_interrupted(trials: int) -> None:
    storage = optuna.storages.InMemoryStorage()
    first = optuna.create_study(
        study_name="s", storage=storage, directions=DIRECTIONS, sampler=dse.EvolutionSampler(seed=1)
    )
    first.optimize(everything, n_trials=trials)
    loaded = optuna.load_study(study_name="s", storage=storage, sampler=dse.EvolutionSampler(seed=1))
    loaded.optimize(everything, n_trials=70 - trials)
    assert params(loaded) == params(uninterrupted())[:70]


def test_a_pickled_sampler_proposes_the_same() -> None:
    sampler = dse.EvolutionSampler(seed=1, initial=10)
    before = params(searched(40, sampler))
    assert params(searched(40, pickle.loads(pickle.dumps(sampler)))) == before


def test_trials_that_repeat_another_are_replaced() -> None:
    def small(trial: optuna.Trial) -> tuple[float, float]:
        x, y = trial.suggest_int("x", 0, 9), trial.suggest_int("y", 0, 9)
        return x + y, abs(x - y)

    found = params(searched(80, objective=small))[12:]
    assert len({tuple(p.values()) for p in found}) == len(found)


def test_a_space_with_nothing_new_goes_on() -> None:
    def tiny(trial: optuna.Trial) -> tuple[float, float]:
        return trial.suggest_int("x", 0, 1), trial.suggest_categorical("y", [1, 2])

    assert len(searched(40, dse.EvolutionSampler(seed=0, initial=5), tiny).trials) == 40


def test_constraints_are_kept_in_later_trials() -> None:
    trials = uninterrupted().trials
    shares = [np.mean([t.constraints["x"] <= 0 for t in part]) for part in (trials[:12], trials[-50:])]
    assert shares[0] < 0.7
    assert shares[1] > 0.85


def test_trials_asked_for_in_parallel() -> None:
    sampler = dse.EvolutionSampler(seed=0, initial=8, children=4)
    study = optuna.create_study(directions=DIRECTIONS, sampler=sampler)
    trials = [study.ask() for _ in range(12)]
    for trial in reversed(trials):
        values = everything(trial)
        if trial.number % 3:
            study.tell(trial, values)
        else:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: study.optimize(everything, n_trials=10), range(4)))
    assert len(study.trials) == 52
    assert len({str(sorted(t.params.items(), key=str)) for t in study.trials}) > 45


def test_fixed_and_foreign_trials_are_learnt_from() -> None:
    study = optuna.create_study(sampler=dse.EvolutionSampler(seed=0, initial=6, population=1, wild=0.0, modelled=0))

    def objective(trial: optuna.Trial) -> float:
        return sum((trial.suggest_float(f"x{n}", 0, 1) - 0.5) ** 2 for n in range(8))

    study.add_trial(
        optuna.trial.create_trial(
            value=0.0,
            params={f"x{n}": 0.5 for n in range(8)},
            distributions={f"x{n}": FloatDistribution(0, 1) for n in range(8)},
        )
    )
    study.enqueue_trial({"x0": 0.25})
    study.optimize(objective, n_trials=40)
    assert study.trials[1].params["x0"] == 0.25
    assert np.median([t.value for t in study.trials[-10:]]) < 0.1


def test_it_is_better_than_nsga2_on_a_problem_of_two_objectives() -> None:
    def fonseca(trial: optuna.Trial) -> tuple[float, float]:
        """C. M. Fonseca and P. J. Fleming, Evolutionary Computation 3(1), 1995, with 6 variables."""
        x = np.array([trial.suggest_float(f"x{n}", -4, 4) for n in range(6)])
        return tuple(1 - float(np.exp(-((x + sign / 6**0.5) ** 2).sum())) for sign in (-1, 1))  # type: ignore[return-value]

    def best(sampler: BaseSampler) -> float:
        study = optuna.create_study(directions=["minimize"] * 2, sampler=sampler)
        study.optimize(fonseca, n_trials=100)
        return float(min(sum(t.values) for t in study.trials))

    ours = [best(dse.EvolutionSampler(seed=seed)) for seed in range(3)]
    theirs = [best(optuna.samplers.NSGAIISampler(seed=seed)) for seed in range(3)]
    assert np.mean(ours) < np.mean(theirs)


def test_designs_of_a_study_as_optunas_trials() -> None:
    """The genes of our spaces are parameters like any other."""
    study = fake_study()
    search = optuna.create_study(directions=["minimize"] * 3, sampler=dse.EvolutionSampler(seed=0))

    def objective(trial: optuna.Trial) -> tuple[float, ...]:
        metrics = FakeEvaluator().evaluate(present(study.space.decode(suggest_with(trial))).design)
        return (metrics.latency_us, float(metrics.pe_count), float(metrics.local_memory_bytes))

    search.optimize(objective, n_trials=40)
    for trial in search.trials:
        assert trial.distributions == {name: distribution(study.space.genes[name]) for name in trial.params}


INTEGERS = st.integers(-(10**6), 10**6)
REALS = st.floats(-1e308, 1e308)


@st.composite
def distributions(draw: Any) -> BaseDistribution:
    kind = draw(st.sampled_from(["int", "step", "log int", "float", "float step", "log float", "categorical"]))
    if kind == "categorical":
        return CategoricalDistribution(
            draw(st.lists(st.sampled_from([None, True, "a", 3, 2.5]), min_size=1, unique=True))
        )
    if kind in ("int", "step"):
        low, high = sorted(draw(st.tuples(INTEGERS, INTEGERS)))
        return IntDistribution(low, high, step=draw(st.integers(1, 50)) if kind == "step" else 1)
    if kind == "log int":
        low, high = sorted(draw(st.tuples(*[st.integers(1, 10**9)] * 2)))
        return IntDistribution(low, high, log=True)
    if kind == "float step":
        return FloatDistribution(-2.0, draw(st.floats(-2.0, 100.0)), step=draw(st.sampled_from([0.1, 0.25, 3.0])))
    if kind == "log float":
        low, high = sorted(draw(st.tuples(*[st.floats(1e-300, 1e300)] * 2)))
        return FloatDistribution(low, high, log=True)
    low, high = sorted(draw(st.tuples(REALS, REALS)))
    return FloatDistribution(low, high)


@given(distributions(), st.integers(0, 10**9))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_values_of_genes_are_in_the_distribution_and_come_back(given_distribution: BaseDistribution, seed: int) -> None:
    coding, rng = coding_of(given_distribution), np.random.default_rng(seed)
    number = coding.gene.draw(rng)
    for n in (number, coding.gene.low, coding.gene.high):
        value = coding.value(n)
        assert given_distribution._contains(given_distribution.to_internal_repr(value))
        again = coding.value(coding.number(value))
        assert again == value or again == pytest.approx(value, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", ["sampler.md", "optuna.md"])
def test_the_documented_examples_run(name: str) -> None:
    page = Path(__file__).parents[3] / "docs" / name
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        exec(compile(block, str(page), "exec"), {})
