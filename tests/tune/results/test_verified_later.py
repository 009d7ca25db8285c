"""A front that is verified after its run has the verdicts of a run that verifies."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from allo_dse import open_run
from allo_dse.common.errors import StudyError
from allo_dse.tune.results.result import Result
from allo_dse.tune.store.record import Verification
from allo_dse.tune.store.rundir import RunDirectory

from ..fakes import fake_study


def _verifier(design: Any) -> Verification:
    if design.buffering.output_depth == 1:
        raise ValueError("no run")
    return Verification(ok=design.fold.node_count > 2, message="C[0, 0] is 3, should be 4", seconds=0.0)


def _run(path: Path, *, verify: bool) -> Result:
    return fake_study(verifier=_verifier).run(60, seed=3, run_dir=path, progress="quiet", verify=verify, export=False)


def _verdicts(result: Result) -> dict[str, tuple[str, str]]:
    return {key: (one.verdict, one.message) for key, one in result.verified.items()}


def test_verdicts_front_log_and_tables_are_those_of_a_run_that_verifies(tmp_path: Path) -> None:
    whole = _run(tmp_path / "whole", verify=True)
    assert {verdict for verdict, _ in _verdicts(whole).values()} == {"yes", "wrong", "not run"}
    searched = _run(tmp_path / "later", verify=False)
    assert (searched.verified, searched.unverified) == ({}, len(searched.front))
    later = searched.verify()
    assert searched.verified == {}
    again = open_run(tmp_path / "later", study=fake_study(verifier=_verifier))
    resumed = _run(tmp_path / "later", verify=True)  # has nothing left to verify
    for result in (later, again, resumed, again.verify()):
        assert _verdicts(result) == _verdicts(whole)
        assert result.front_keys == whole.front_keys
    tables = [list(csv.DictReader((tmp_path / name / "pareto.csv").open())) for name in ("whole", "later")]
    assert [[(row["key"], row["verified"]) for row in table] for table in tables] == [
        [(key, "yes") for key in whole.front_keys]
    ] * 2


def test_another_study_and_a_directory_in_use_are_refused(tmp_path: Path) -> None:
    _run(tmp_path / "run", verify=False)
    with pytest.raises(StudyError, match="program: was "):
        open_run(tmp_path / "run", study=fake_study(salt="other")).verify()
    directory = RunDirectory(tmp_path / "run")
    with pytest.raises(StudyError, match="is in use by process"):
        open_run(tmp_path / "run", study=fake_study()).verify()
    directory.close()
