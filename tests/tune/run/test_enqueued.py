"""Designs that a study begins with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from allo_dse.common.errors import StudyError
from allo_dse.tune.run.reproposal import propose_again
from allo_dse.tune.show.output import summary
from allo_dse.tune.store.log import read_log
from allo_dse.tune.study import Study
from tests.support.values import present
from tests.tune.fakes import check, fake_study

QUIET: dict[str, Any] = {"progress": "quiet", "verify": False}


def with_enqueued() -> Study:
    study = fake_study()
    legal = [c for c in study.space.designs() if not check(c.design)]
    study.enqueue(legal[17].design)
    study.enqueue({"Pm": 32, "Pk": 64})
    return study


@pytest.mark.parametrize("sampler", ["evolution", "tpe", "exhaustive"])
def test_what_is_enqueued_comes_first_and_is_the_baseline(tmp_path: Path, sampler: str) -> None:
    study = with_enqueued()
    result = study.run(20, run_dir=tmp_path, sampler=sampler, **QUIET)
    first, second = result.records[:2]
    assert [first.genes, second.genes] == study.enqueued
    assert (second.params["Pm"], second.params["Pk"]) == (32, 64)
    assert [record.number for record in result.records] == list(range(20))
    assert len({record.key for record in result.records}) == 20
    assert present(result.baseline).key == first.key == summary(result)["baseline"]["key"]
    assert f"best over baseline {first.key[:8]}: latency_us " in result.against_baseline


def test_a_resumed_run_goes_on_and_can_be_proposed_again(tmp_path: Path) -> None:
    for trials in (1, 2, 30):
        result = with_enqueued().run(trials, run_dir=tmp_path / "parts", sampler="evolution", **QUIET)
    whole = with_enqueued().run(30, run_dir=tmp_path / "whole", sampler="evolution", **QUIET)
    assert [r.key for r in result.records] == [r.key for r in whole.records]
    found = propose_again(with_enqueued(), read_log(tmp_path / "parts" / "log.jsonl").lines, lambda: "")
    assert (found.difference, found.proposed) == ("", 30)


def test_a_design_that_breaks_a_limit_is_no_baseline(tmp_path: Path) -> None:
    study = fake_study()
    study.enqueue(next(c for c in study.space.designs() if check(c.design)).design)
    result = study.run(5, run_dir=tmp_path, **QUIET)
    assert result.baseline is None
    assert result.against_baseline == ""
    assert result.ruled_out["core data memory"] >= 1


@pytest.mark.parametrize(("wanted", "hint"), [({"Pz": 1}, "there are Pm"), ({"Pm": 33}, "one of 8, 16")])
def test_what_the_space_does_not_have_cannot_be_enqueued(wanted: dict[str, Any], hint: str) -> None:
    with pytest.raises(StudyError, match=next(iter(wanted))) as refused:
        fake_study().enqueue(wanted)
    assert hint in refused.value.hint
