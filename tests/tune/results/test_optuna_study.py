"""What a run hands to Optuna's tools, why its designs died, and what decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from allo_dse.common.errors import StudyError
from allo_dse.dashboard.data.analysis import importance, sample
from allo_dse.dashboard.data.table import RunTable
from allo_dse.eval.evaluator import Metrics
from allo_dse.tune.results.importance import importances
from allo_dse.tune.search.objectives import require
from allo_dse.tune.show.output import summary

from ..fakes import FakeEvaluator, fake_study

QUIET: dict[str, Any] = {"progress": "quiet", "verify": False}


class Fails(FakeEvaluator):
    def evaluate(self, design: Any) -> Metrics:
        if int(design.key, 16) % 5 == 0:
            raise RuntimeError("no licence")
        return super().evaluate(design)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Any:
    study = fake_study(evaluator=Fails, constraints=[require("pe_count", at_most=8, name="cores")])
    return study.run(60, run_dir=tmp_path_factory.mktemp("run"), sampler="evolution", **QUIET)


def test_every_design_is_a_trial(result: Any) -> None:
    trials = result.optuna_study.trials
    assert [t.user_attrs["key"] for t in trials] == [r.key for r in result.records]
    assert {r.status for r in result.records} == {"ok", "failed", "infeasible"}
    assert result.optuna_study.metric_names == [o.name for o in result.study.objectives]
    for trial, record in zip(trials, result.records, strict=True):
        free = result.study.parameters.free
        assert {name: trial.params[name] for name in free} == {name: record.params[name] for name in free}
        assert (trial.state == TrialState.FAIL) == (record.status == "failed")
        if trial.state == TrialState.COMPLETE:
            assert trial.values == list(record.values.values())
        elif trial.state == TrialState.PRUNED:  # another design is better at the same values
            assert result.values[record.key] in {result.values[design.key] for design in result.front}
        assert trial.constraints["cores"] == (record.constraints or {"cores": 0.0})["cores"]


def test_optuna_finds_the_same_front(result: Any) -> None:
    best = {t.user_attrs["key"] for t in result.optuna_study.best_trials}
    assert best == {design.key for design in result.front}


def test_the_summary_says_what_designs_died_of_and_what_decides(result: Any) -> None:
    said = summary(result)
    died = said["ruled_out"]
    assert list(died.values()) == sorted(died.values(), reverse=True)
    count = {status: sum(r.status == status for r in result.records) for status in ("failed", "infeasible")}
    assert died["evaluator failed"] == count["failed"] > 0
    assert died["cores"] == count["infeasible"] > 0
    assert set(died) - {"evaluator failed", "cores"}  # limits of the device
    shares = said["importances"]
    assert shares
    assert sum(shares.values()) == pytest.approx(1)


def test_the_page_says_the_same_of_what_decides_as_the_summary(result: Any) -> None:
    table = RunTable(result.run_dir)
    table.refresh()
    objective = result.study.objectives[0].name
    assert importance(sample(table, objective)) == pytest.approx(result.importances)


def test_there_is_nothing_to_say_of_few_designs(tmp_path: Path) -> None:
    result = fake_study().run(5, run_dir=tmp_path, **QUIET)
    assert result.importances == {}
    assert len(result.optuna_study.trials) == 5


def test_sizes_of_the_search_are_the_runs_then_the_studys(tmp_path: Path) -> None:
    def keys(name: str, sizes: Any = None, **options: Any) -> list[str]:
        result = fake_study(sizes=sizes).run(30, run_dir=tmp_path / name, sampler="evolution", **options, **QUIET)
        return [record.key for record in result.records]

    assert keys("study", {"initial": 5}) == keys("run", initial=5) != keys("neither")
    assert keys("both", {"initial": 9}, initial=5) == keys("run again", initial=5)


@pytest.mark.parametrize("sizes", [{"children": 0}, {"modelled": -1}, {"initial": 2.5}, {"parents": 3}])
def test_sizes_that_cannot_be(sizes: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=next(iter(sizes))):
        fake_study(sizes=sizes)
    if "parents" not in sizes:
        with pytest.raises(StudyError, match=next(iter(sizes))):
            fake_study().run(3, run_dir=tmp_path / "run", **sizes, **QUIET)
        assert not (tmp_path / "run" / "log.jsonl").exists()


def test_a_study_of_our_simulators_is_a_quick_one() -> None:
    from allo_dse.backends.fpga.evaluator import FpgaSimulator
    from allo_dse.backends.npu.evaluator import NpuSimulator
    from allo_dse.eval.evaluator import needs

    assert needs(NpuSimulator()).quick
    assert needs(FpgaSimulator()).quick
    assert not needs(FakeEvaluator()).quick


def test_importances_are_those_of_optuna() -> None:
    rng = np.random.default_rng(0)
    choices = {f"c{n}": rng.integers(0, n + 2, 60).tolist() for n in range(4)}
    losses = (rng.random(60) + np.array(choices["c1"]) - 2 * np.array(choices["c3"])).tolist()
    study = optuna.create_study()
    for loss, *row in zip(losses, *choices.values(), strict=True):
        spread: dict[str, Any] = {
            n: optuna.distributions.CategoricalDistribution(sorted(set(v))) for n, v in choices.items()
        }
        study.add_trial(
            optuna.trial.create_trial(params=dict(zip(choices, row, strict=True)), distributions=spread, value=loss)
        )
    expected = optuna.importance.get_param_importances(study, evaluator=optuna.importance.PedAnovaImportanceEvaluator())
    found = importances(choices, losses)
    assert found == pytest.approx(expected)
    assert list(found) == list(expected)
