"""The attacks find what is broken and make it small; a few attempts of each find nothing."""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import allo_dse as dse
from allo_dse.device.device import Device

from ..support import killed_runs
from . import forms, numbers, runs, texts
from .__main__ import ATTACKS, attempt, main
from .attack import Found, smallest


@given(st.sets(st.integers(0, 40), max_size=4), st.integers(1, 41))
def test_what_is_left_of_the_edits_is_what_fails(bad: set[int], count: int) -> None:
    needed = {edit for edit in bad if edit < count}

    def fails(edits: Sequence[int]) -> bool:
        return needed <= set(edits)

    assert set(smallest(list(range(count)), fails)) == (needed or set())


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_a_few_attempts_find_nothing(attack: Any, tmp_path: Path) -> None:
    for seed in range(1 if attack.name == "c++" else 2):
        assert attempt(attack, seed, tmp_path) == ""


def test_an_error_that_is_not_meant_for_people_is_found_and_its_mutation_shown(
    tmp_path: Path, monkeypatch: Any
) -> None:
    def broken(path: Path) -> None:
        if b'"' not in Path(path).read_bytes():
            return
        raise ZeroDivisionError("broken")

    monkeypatch.setattr(Device, "load", broken)
    found = attempt(texts.MutatedDevices(), 1, tmp_path)
    assert "ZeroDivisionError: broken" in found


def test_wrong_numbers_of_programs_and_folds_are_found(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(dse, "simulate", lambda program, *arrays: arrays[-1].fill(1))
    assert "computes" in attempt(numbers.RandomPrograms(), 3, tmp_path)

    calls = []

    def drifting(_program: Any, *arrays: Any) -> None:
        calls.append(1)
        arrays[-1].fill(len(calls))

    monkeypatch.setattr(dse, "simulate", drifting)
    assert "computes other numbers when folded" in attempt(numbers.RandomFolds(), 3, tmp_path)


def test_folds_and_schedules_that_are_called_different_are_found(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(dse, "equivalent", lambda *_programs, **_options: False)
    assert "is called another function when folded" in attempt(numbers.RandomFolds(), 3, tmp_path)
    assert "is called another function when scheduled" in attempt(forms.RandomSchedules(), 1, tmp_path)


def test_wrong_numbers_of_schedules_are_found(tmp_path: Path, monkeypatch: Any) -> None:
    values = itertools.count()
    monkeypatch.setattr(forms, "outcome", lambda _built, _seed: [np.full(2, next(values))])
    assert "computes other numbers when scheduled" in attempt(forms.RandomSchedules(), 1, tmp_path)


@pytest.mark.skipif(not forms.HAS_COMPILER, reason="g++ is not installed")
def test_wrong_numbers_of_cpp_are_found(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(
        forms, "CSimulation", lambda _project, seconds: nullcontext(lambda *arrays: arrays[-1].fill(77))
    )
    assert "C++ computes other numbers" in attempt(forms.RandomCpp(), 1, tmp_path)


def test_what_is_found_says_how_to_repeat_it(capsys: Any, monkeypatch: Any) -> None:
    def broken(_attack: object, _rng: object, _folder: object) -> None:
        raise Found("it broke")

    monkeypatch.setattr(texts.MutatedDevices, "attempt", broken)
    monkeypatch.setattr("tests.soak.__main__.ATTACKS", (texts.MutatedDevices(),))
    assert main(["--minutes", "0.001", "--seed", "5"]) == 1
    assert "again: python -m tests.soak --attack devices --seed 6" in capsys.readouterr().out


def test_designs_that_are_lost_or_twice_are_found(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(runs, "trials", lambda path: killed_runs.trials(path)[1:])
    assert any("lost" in attempt(runs.DamagedLogs(), seed, tmp_path) for seed in range(3))


def test_it_counts_what_it_tried(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("tests.soak.__main__.ATTACKS", (texts.MutatedDevices(),))
    assert main(["--minutes", "0.001", "--seed", "5"]) == 0
    assert re.fullmatch(r"devices \d+ tried 0 failed\n", capsys.readouterr().out)


def test_counts_are_added_up_to_the_goal(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("tests.soak.__main__.ATTACKS", (texts.MutatedDevices(), texts.MutatedPrograms()))
    monkeypatch.setattr("tests.soak.__main__.GOAL", {"devices": 5, "programs": 2})
    kept = tmp_path / "counts.json"
    kept.write_text('{"tried": {"devices": 4}}')
    assert main(["--goal", str(kept), "--seed", "5"]) == 0
    assert capsys.readouterr().out == "devices 5 tried 0 failed, programs 2 tried 0 failed\n"
    assert main(["--goal", str(kept), "--seed", "5"]) == 0
    assert json.loads(kept.read_text())["tried"] == {"devices": 5, "programs": 2}


def test_what_a_mutated_program_assigns_to_modules_is_gone_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "study.py"
    imports = "import allo.dataflow as df\nimport allo_dse as dse\nimport numpy as np\n"
    path.write_text(f"{imports}df.region = []\nnp.maximum = 0\nraise ValueError\n")
    with pytest.raises(dse.AlloDseError, match="ValueError"):
        texts.MutatedPrograms()._compile(path)
    assert callable(sys.modules["allo.dataflow"].region)
    assert np.maximum(1, 2) == 2
