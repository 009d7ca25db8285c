"""Studies as objective functions of Optuna: any sampler, pruner and storage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

import allo_dse as dse
from allo_dse.common.errors import StudyError
from allo_dse.eval.evaluator import Metrics

from .fakes import FakeEvaluator, fake_study

SAMPLERS: dict[str, Any] = {
    "tpe": lambda: optuna.samplers.TPESampler(seed=0, n_startup_trials=5),
    "nsga2": lambda: optuna.samplers.NSGAIISampler(seed=0, population_size=8),
    "evolution": lambda: dse.EvolutionSampler(seed=0),
}


class Fails(FakeEvaluator):
    def evaluate(self, design: Any) -> Metrics:
        if int(design.key, 16) % 5 == 0:
            raise RuntimeError("no licence")
        return super().evaluate(design)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_any_sampler_searches_a_study(sampler: str, tmp_path: Path) -> None:
    study = fake_study(evaluator=Fails, constraints=[dse.require("pe_count", at_most=12, name="cores")])
    objective = dse.objective(study)
    found = optuna.create_study(
        directions=objective.directions, sampler=SAMPLERS[sampler](), storage=f"sqlite:///{tmp_path}/trials.db"
    )
    found.optimize(objective, n_trials=30)
    assert len(found.trials) == 30
    assert found.metric_names == [one.name for one in study.objectives]
    assert {t.state for t in found.trials} >= {TrialState.COMPLETE, TrialState.FAIL}
    for trial in found.trials:
        if trial.state == TrialState.PRUNED:
            assert trial.user_attrs["violations"]
        if trial.state == TrialState.FAIL:
            assert trial.user_attrs["error"] == "RuntimeError: no licence"
        if trial.state == TrialState.COMPLETE:
            metrics = trial.user_attrs["metrics"]
            assert trial.values == [metrics[name] for name in found.metric_names]
            assert (trial.constraints["cores"] <= 0) == (metrics["pe_count"] <= 12)
    best = next(t for t in found.trials if t.state == TrialState.COMPLETE)
    design = objective.design(best)
    assert (design.key, list(design.values.values())) == (best.user_attrs["key"], best.values)
    assert design.params.items() >= best.user_attrs["params"].items()


def test_a_pruner_decides_what_the_next_evaluator_measures() -> None:
    class Expensive(FakeEvaluator):
        name = "expensive"

    study = fake_study(objectives=[dse.minimize("latency_us")], rungs=[Expensive])
    pruner = optuna.pruners.MedianPruner(n_startup_trials=4)
    found = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0), pruner=pruner)
    found.optimize(dse.objective(study), n_trials=30)
    pruned = [t for t in found.trials if t.state == TrialState.PRUNED and t.intermediate_values]
    complete = [t for t in found.trials if t.state == TrialState.COMPLETE]
    assert pruned
    assert complete
    assert min(t.intermediate_values[0] for t in pruned) > min(t.values[0] for t in complete)


def test_a_trial_with_known_parameters_is_enqueued() -> None:
    study = fake_study()
    objective = dse.objective(study)
    found = optuna.create_study(directions=objective.directions, sampler=optuna.samplers.RandomSampler(seed=0))
    wanted = {name: parameter.values[-1] for name, parameter in study.parameters.free.items()}
    found.enqueue_trial(wanted)
    found.optimize(objective, n_trials=1)
    assert found.trials[0].params.items() >= wanted.items()


def test_other_directions_are_explained() -> None:
    with pytest.raises(StudyError, match="has directions") as caught:
        optuna.create_study().optimize(dse.objective(fake_study()), n_trials=1)
    assert "objective.directions" in caught.value.hint


def test_a_misspelt_metric_is_found_before_the_first_evaluation(tmp_path: Path) -> None:
    class Says(FakeEvaluator):
        metrics = ("latency_us", "pe_count", "local_memory_bytes")

        def evaluate(self, design: Any) -> Metrics:
            raise AssertionError("evaluated")

    for changes in (
        {"objectives": [dse.minimize("latncy_us")]},
        {"objectives": [dse.minimize(lambda m: m.latncy_us * m.pe_count, name="product")]},
        {"constraints": [dse.require("latncy_us", at_most=3)]},
    ):
        study = fake_study(evaluator=Says, **changes)
        with pytest.raises(StudyError, match="no metric 'latncy_us'; did you mean latency_us"):
            study.run(3, run_dir=tmp_path / "run", progress="quiet")
        with pytest.raises(StudyError, match="did you mean latency_us"):
            dse.objective(study)
    assert not (tmp_path / "run" / "log.jsonl").exists()


def test_an_evaluator_that_inherits_from_another_may_report_more(tmp_path: Path) -> None:
    class Says(FakeEvaluator):
        metrics = ("latency_us",)

    class Own(Says):
        def evaluate(self, design: Any) -> Metrics:
            return Metrics(**super().evaluate(design), energy_nj=1.0)

    study = fake_study(evaluator=Own, objectives=[dse.minimize("energy_nj")])
    assert study.run(3, run_dir=tmp_path / "run", progress="quiet").front
