"""Designs that a study begins with."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import optuna
import pytest

import allo_dse as dse
from allo_dse.common.errors import StudyError
from allo_dse.space.sampler.optuna_sampler import distribution
from allo_dse.tune.declare.enqueued import MOST_OF_RUN
from allo_dse.tune.run.reproposal import propose_again
from allo_dse.tune.show.output import summary
from allo_dse.tune.store.log import Log
from allo_dse.tune.study import Study, load_studies
from studies.hand_made import HAND_MADE

from ...support.values import present
from ..fakes import FakeEvaluator, FakeViolation, check, fake_study

STUDIES = Path(__file__).parents[3] / "studies"

QUIET: dict[str, Any] = {"progress": "quiet", "verify": False}


@cache
def legal_design() -> Any:
    """One of some thousand designs from the first one, as most of those break a limit."""
    legal = (c.design for c in fake_study().space.designs() if not check(c.design))
    return next(itertools.islice(legal, 17, None))


def with_enqueued() -> Study:
    study = fake_study()
    study.enqueue(legal_design())
    study.enqueue({"Pm": 32, "Pk": 64})
    return study


@pytest.mark.parametrize(("sampler", "trials"), [("evolution", 20), ("tpe", 12), ("exhaustive", 20)])
def test_what_is_enqueued_comes_first_and_is_the_baseline(tmp_path: Path, sampler: str, trials: int) -> None:
    study = with_enqueued()
    result = study.run(trials, run_dir=tmp_path, sampler=sampler, **QUIET)
    first, second = result.records[:2]
    assert [first.genes, second.genes] == study.enqueued
    assert (second.params["Pm"], second.params["Pk"]) == (32, 64)
    assert [record.number for record in result.records] == list(range(trials))
    assert len({record.key for record in result.records}) == trials
    assert present(result.baseline).key == first.key == summary(result)["baseline"]["key"]
    assert f"best over baseline {first.key[:8]}: latency_us " in result.against_baseline


@pytest.mark.parametrize("sizes", [{}, {"initial": 1}])  # then the second is of the second generation
def test_a_resumed_run_goes_on_and_can_be_proposed_again(tmp_path: Path, sizes: dict[str, int]) -> None:
    options: dict[str, Any] = {"sampler": "evolution", **sizes, **QUIET}
    for trials in (1, 2, 3, 30):
        result = with_enqueued().run(trials, run_dir=tmp_path / "parts", **options)
    whole = with_enqueued().run(30, run_dir=tmp_path / "whole", **options)
    assert [r.key for r in result.records] == [r.key for r in whole.records]
    found = propose_again(with_enqueued(), Log(tmp_path / "parts" / "log.jsonl"), lambda: "")
    assert (found.difference, found.proposed) == ("", 30)


def test_a_design_that_breaks_a_limit_is_no_baseline(tmp_path: Path) -> None:
    study = fake_study()
    study.enqueue(next(c for c in study.space.designs() if check(c.design)).design)
    result = study.run(5, run_dir=tmp_path, **QUIET)
    assert result.baseline is None
    assert result.against_baseline == ""
    assert result.ruled_out["core data memory"] >= 1


def test_a_run_begins_with_the_best_designs_of_another_size(tmp_path: Path) -> None:
    earlier = fake_study(size=1024).run(60, run_dir=tmp_path / "small", sampler="random", **QUIET)
    study = fake_study(size=2048)
    for trials in (12, 13):
        result = study.run(trials, run_dir=tmp_path / "large", warm_start=tmp_path / "small", sampler="random", **QUIET)
    first = result.records[: len(study.enqueued)]
    assert [record.genes for record in first] == study.enqueued
    assert 1 <= len(first) <= MOST_OF_RUN
    known = [{"Pm": r.params["Pm"], "Pn": r.params["Pn"]} for r in earlier.records]
    assert any({"Pm": r.params["Pm"], "Pn": r.params["Pn"]} in known for r in first)
    assert present(result.baseline).key == first[0].key
    reopened = dse.open_run(tmp_path / "large", study=fake_study(size=2048))
    assert present(reopened.baseline).key == first[0].key


def test_a_run_whose_designs_do_not_fit_is_no_beginning(tmp_path: Path) -> None:
    fake_study().run(5, run_dir=tmp_path, **QUIET)
    study = fake_study(check=lambda design: [FakeViolation("cores", 2, 1)])
    with pytest.raises(StudyError, match="no design among its best that is legal"):
        study.enqueue(tmp_path)


@pytest.mark.parametrize("name", ["ffn_npu", "vector_add_npu"])
def test_a_list_as_allo_takes_it_is_the_design_it_makes(name: str) -> None:
    (study,) = load_studies(STUDIES / f"{name}.py", {})
    design = HAND_MADE[name].design(study)
    study.enqueue(design.mapping_primitives, params=HAND_MADE[name].params)
    study.enqueue(design.fold, params=HAND_MADE[name].params)
    (genes,) = study.enqueued
    assert present(study.space.decode_genes(genes)).key == design.key
    with pytest.raises(StudyError, match="no program of the study takes the mapping"):
        study.enqueue([("chain", ["nobody", "at_all"])])


@pytest.mark.parametrize(("wanted", "hint"), [({"Pz": 1}, "there are Pm"), ({"Pm": 33}, "one of 8, 16")])
def test_what_the_space_does_not_have_cannot_be_enqueued(wanted: dict[str, Any], hint: str) -> None:
    with pytest.raises(StudyError, match=next(iter(wanted))) as refused:
        fake_study().enqueue(wanted)
    assert hint in refused.value.hint


# -- measurements that were made before --


class Unused(FakeEvaluator):
    evaluated: ClassVar[list[str]] = []

    def evaluate(self, design: Any) -> Any:
        self.evaluated.append(design.key)
        return super().evaluate(design)


def test_an_attached_design_is_not_evaluated_again(tmp_path: Path) -> None:
    study, design = fake_study(evaluator=Unused), legal_design()
    metrics = {**FakeEvaluator().evaluate(design), "latency_us": np.float32(0.5)}
    study.attach(design, metrics)
    Unused.evaluated.clear()
    result = study.run(12, run_dir=tmp_path, sampler="evolution", export=False, **QUIET)
    first = result.records[0]
    assert (first.key, first.cached, first.metrics) == (design.key, True, metrics)
    assert type(present(first.metrics)["latency_us"]) is float
    assert result.best("latency_us").key == design.key
    assert len(Unused.evaluated) == 11
    assert design.key not in Unused.evaluated


def test_parameters_that_leave_the_mapping_open_cannot_be_attached() -> None:
    with pytest.raises(StudyError, match="leave open how tasks are mapped"):
        fake_study().attach({"Pm": 32, "Pk": 64, "Pn": 64}, {"latency_us": 1.0})


def test_trials_of_optuna_are_attached_with_their_failures(tmp_path: Path) -> None:
    before = fake_study()
    result = before.run(15, run_dir=tmp_path / "before", sampler="random", export=False, **QUIET)
    other = optuna.create_study(directions=["minimize"] * len(before.objectives))
    for record in result.records[:9]:
        kinds = {name: distribution(before.space.genes[name]) for name in record.genes}
        values = {"values": list(result.values[record.key])} if record.key != result.records[8].key else {
            "state": optuna.trial.TrialState.FAIL
        }  # fmt: skip
        other.add_trial(optuna.trial.create_trial(params=record.genes, distributions=kinds, **values))
    study = fake_study(evaluator=Unused)
    study.attach(other)
    Unused.evaluated.clear()
    again = study.run(9, run_dir=tmp_path / "after", sampler="evolution", export=False, **QUIET)
    assert Unused.evaluated == []
    assert [r.key for r in again.records] == [r.key for r in result.records[:9]]
    assert [again.values[r.key] for r in again.records[:8]] == [result.values[r.key] for r in result.records[:8]]
    assert again.records[8].status == "failed"


def test_trials_of_a_run_are_attached(tmp_path: Path) -> None:
    result = fake_study().run(9, run_dir=tmp_path / "before", sampler="random", export=False, **QUIET)
    study = fake_study(evaluator=Unused)
    study.attach(result.optuna_study)
    assert {found and found["latency_us"] for found in study.attached.values()} >= {
        result.values[design.key][0] for design in result.front
    }


def test_a_table_of_another_tool_is_attached(tmp_path: Path) -> None:
    table, metrics = tmp_path / "tuned.csv", "fold.gemm.order,latency_us,pe_count,local_memory_bytes,note"
    table.write_text(f"Pm,Pn,Pk,size,{metrics}\n8,64,16,2048,2,3.5,2,1e3,fast\n16,8,8,2048,0,,,,did not build\n")

    def plain() -> Study:
        """A study whose parameters decide everything."""
        return fake_study(max_nodes=1, output_depths=(1,), check=lambda design: (), where=None)

    study = plain()
    study.attach(table)
    result = study.run(2, run_dir=tmp_path / "run", sampler="evolution", export=False, **QUIET)
    first, second = result.records
    assert (first.params["Pm"], first.metrics) == (8, {"latency_us": 3.5, "pe_count": 2, "local_memory_bytes": 1e3})
    assert (second.params["Pm"], second.status) == (16, "failed")
    for text, message in (
        ("Pm,Pn,Pk\n7,8,8\n", "tuned.csv:2: Pm has no value '7'"),
        ("Pm\n8\n", "no column for"),
        ("\ufeffPm , Pn,Pk,latency_us\n8,8,8,1.5 ms\n", "tuned.csv:2: latency_us: '1.5 ms' is no number"),
        ("Pm,Pn,Pk\n8,8\n", "tuned.csv:2: the numbers of values and of columns differ"),
        ("Pm,Pn,Pm\n8,8,8\n", "tuned.csv:1: more than one column 'Pm'"),
    ):
        table.write_text(text)
        with pytest.raises(StudyError, match=message):
            plain().attach(table)


def test_a_sampler_of_optuna_says_what_it_lacks(tmp_path: Path) -> None:
    class Lacking(optuna.samplers.RandomSampler):
        def sample_independent(self, *given: Any) -> Any:
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

    with pytest.raises(StudyError, match="not installed: No module named 'torch'") as caught:
        fake_study().run(3, run_dir=tmp_path, sampler=Lacking(), **QUIET)
    assert "pip install torch" in str(caught.value.hint)


def test_a_sampler_of_optuna_that_cannot_search_this_study_is_a_message(tmp_path: Path) -> None:
    class OneObjective(optuna.samplers.RandomSampler):
        def infer_relative_search_space(self, study: Any, trial: Any) -> Any:
            raise ValueError("it has one objective only")

    with pytest.raises(StudyError, match="'OneObjective': it has one objective only"):
        fake_study().run(3, run_dir=tmp_path, sampler=OneObjective(), **QUIET)
