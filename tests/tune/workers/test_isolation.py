"""What an evaluator does to its process costs one trial, with its reason and what it printed."""

import json
import math
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allo_dse.common.errors import StudyError
from allo_dse.tune.workers import evaluate_one as cell_process

from ...support.values import present
from .. import hazards
from ..fakes import FakeEvaluator
from ..hazards import Hazard, study, wait_until
from .conftest import ray_files

FIRST, TRIALS, MANY = 12, 15, 24
"""As many as it takes for one unlucky design, which is the last, so that the child need not be started again; for two,
the second of which is the last, so that it is started again once; for five, and one more."""


def unlucky(key: Any) -> Any:
    return int(key, 16) % Hazard.one_in == 0


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    result = study(FakeEvaluator).run(MANY, run_dir=tmp_path_factory.mktemp("plain") / "run", **OPTIONS)
    struck = [number for number, record in enumerate(result.records) if unlucky(record.key)]
    assert struck[:2] == [FIRST - 1, TRIALS - 1]
    assert len(struck) == 5
    assert struck[-1] < MANY - 1
    return {r.key: r.metrics for r in result.records}


OPTIONS: dict[str, Any] = {"sampler": "exhaustive", "progress": "quiet", "verify": False}


@pytest.fixture
def hurried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines are missed by what hangs, and only by that."""
    monkeypatch.setenv(hazards.HANGS, str(tmp_path / "hangs"))
    monkeypatch.setattr(cell_process, "time", hazards.Hurried(tmp_path / "hangs"))


def test_what_an_evaluator_starts_has_the_environment_of_the_user(tmp_path: Path) -> None:
    # Pythons of other versions stop where a variable names the directories of this one.
    result = study(hazards.SaysWhatPythonIsTold).run(1, run_dir=tmp_path / "run", **OPTIONS)
    (record,) = result.records
    told = {name: value for name, value in os.environ.items() if name.startswith("PYTHON")}
    assert json.loads(present(record.error).partition(": ")[2]) == told


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    ("evaluator", "trials", "reasons"),
    [
        (
            hazards.Various,
            MANY,
            ("SIGSEGV", "SIGKILL", "exited with code 3", "SystemExit: no licence", "nonsense"),
        ),
        (hazards.Hangs, TRIALS, ("longer than its deadline of 1 s",) * 2),
        (hazards.Hoards, TRIALS, ("emory",) * 2),
        (hazards.HoardsInAChild, TRIALS, ("more than its 400 MiB",) * 2),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_hazard_costs_its_own_trials_only(
    tmp_path: Path,
    undisturbed: Any,
    evaluator: Callable[..., Any],
    trials: int,
    reasons: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setenv(hazards.NOTES, str(tmp_path / "notes"))
    result = study(evaluator).run(trials, run_dir=tmp_path / "run", **OPTIONS)
    assert [r.key for r in result.records] == list(undisturbed)[:trials]
    struck = [record for record in result.records if unlucky(record.key)]
    for record, reason in zip(struck, reasons, strict=True):
        assert record.status == "failed"
        assert reason in present(record.error)
        assert f"tripping over {record.key}" in (tmp_path / "run" / present(record.log)).read_text()
    for record in result.records:
        assert record in struck or record.metrics == undisturbed[record.key]
    assert hazards.sleepers() == []
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize(
    ("evaluator", "reason"),
    [(hazards.Floods, "answered with more than 1 MiB"), (hazards.Multiplies, "processes, more than 20")],
)
def test_what_has_no_end_is_ended(tmp_path: Path, evaluator: Any, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_process, "REPLY_BYTES", 1 << 20)
    monkeypatch.setattr(cell_process, "MOST_PROCESSES", 20)
    monkeypatch.setattr(cell_process, "COUNT_SECONDS", 0.1)
    result = study(evaluator).run(FIRST, run_dir=tmp_path / "run", **OPTIONS)
    assert any(unlucky(r.key) for r in result.records)
    assert all((reason in (r.error or "")) == unlucky(r.key) for r in result.records)
    assert hazards.sleepers() == []


@pytest.mark.usefixtures("hurried")
def test_an_evaluator_without_a_deadline_gets_one_from_what_its_designs_take(
    tmp_path: Path, undisturbed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience = cell_process.Deadline(None)
    assert patience.seconds == cell_process.FIRST_DEADLINE_SECONDS
    for seconds in (20.0, 30.0, 400.0):
        patience.learn(seconds)
    assert patience.seconds == 3000.0
    assert cell_process.Deadline(math.inf).seconds == math.inf
    for name in ("FIRST_DEADLINE_SECONDS", "DEFAULT_DEADLINE_SECONDS"):
        monkeypatch.setattr(cell_process, name, 2.0)
    result = study(hazards.HangsUnannounced).run(FIRST, run_dir=tmp_path / "run", **OPTIONS)
    failed = {r.key: r.error for r in result.records if r.status == "failed"}
    assert list(failed) == list(undisturbed)[FIRST - 1 : FIRST]
    assert all("deadline" in present(error) for error in failed.values())


def test_garbage_on_the_standard_streams_is_no_answer(
    tmp_path: Path, undisturbed: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    result = study(hazards.Babbles).run(MANY, run_dir=tmp_path / "run", **OPTIONS)
    assert {r.key: r.metrics for r in result.records} == undisturbed
    out, err = capfd.readouterr()
    assert out + err == ""


@pytest.mark.parametrize("isolate", [True, False])
def test_nonsense_instead_of_metrics_is_a_failed_trial(tmp_path: Path, isolate: bool) -> None:
    result = study(hazards.AnswersNonsense if isolate else hazards.AnswersNonsenseAtHome).run(
        40, run_dir=tmp_path / "run", **OPTIONS
    )
    errors = {int(r.key, 16) % 4: r.error for r in result.records}
    assert "returned NoneType, not Metrics" in present(errors[0])
    assert "cannot be written to the log" in present(errors[1])
    assert "objective 'latency_us'" in present(errors[2])
    assert errors[3] is None


def test_an_evaluator_that_cannot_start_ends_the_run_with_what_it_said(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="tool not found"):
        study(hazards.StartsOnlyAtHome).run(3, run_dir=tmp_path / "run", **OPTIONS)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_child_ends_with_its_parent(tmp_path: Path, workers: int) -> None:
    (tmp_path / "study.py").write_text(
        "from tests.tune.fakes import fake_study\nfrom tests.tune.hazards import Hangs\n"
        "class AlwaysHangs(Hangs):\n    one_in = 1\n    deadline_s = 300\n"
        "study = fake_study('hangs', evaluator=AlwaysHangs)\n"
    )
    driver = os.fork()
    if driver == 0:
        os.chdir(tmp_path)
        (tmp_path / "temporary").mkdir()
        here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "TMPDIR": str(tmp_path / "temporary")}
        command = [sys.executable, "-m", "allo_dse", "study.py", "--trials", "3", "-q", "--workers", str(workers)]
        os.execve(sys.executable, command, here)
    wait_until(lambda: len(hazards.sleepers()) == 2 * workers)
    assert len(list(tmp_path.glob("temporary/allo-dse-*/*/half a project"))) == workers
    os.kill(driver, signal.SIGKILL)
    os.waitpid(driver, 0)
    wait_until(lambda: not hazards.sleepers())
    wait_until(lambda: not list(tmp_path.glob("temporary/allo-dse-*")))
    for session in ray_files(driver):  # which its driver removes otherwise
        shutil.rmtree(session.parents[1], ignore_errors=True)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("deadline", ["2000ms", {"hanging": 2, "": "1h"}])
def test_a_deadline_from_the_command_line_ends_what_is_not_isolated_too(
    tmp_path: Path, undisturbed: Any, deadline: str
) -> None:
    result = study(hazards.HangsAtHome).run(FIRST, run_dir=tmp_path / "run", deadline=deadline, **OPTIONS)
    *others, last = result.records
    assert "longer than its deadline of 2 s" in present(last.error)
    assert [record.metrics for record in others] == [undisturbed[record.key] for record in others]


@pytest.mark.parametrize(
    ("deadline", "text"),
    [("soon", "is not a duration"), ("-1s", "is not a duration"), ("0s", "a deadline of '0s' leaves no time"),
     ({"rtl": "1s"}, "a deadline for 'rtl': the study has no such evaluator")],
)  # fmt: skip
def test_deadlines_that_make_no_sense_are_explained(tmp_path: Path, deadline: str, text: str) -> None:
    with pytest.raises(StudyError, match=text):
        study(FakeEvaluator).run(3, run_dir=tmp_path / "run", deadline=deadline, **OPTIONS)
