import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from allo_dse.common.errors import StudyError
from allo_dse.tune.store.run_info import RunInfo
from allo_dse.tune.store.rundir import LOCK, RunDirectory, default_run_dir


def info(**changes: Any) -> RunInfo:
    values = {
        "study": "s", "seed": 0, "program": "p1", "device": "npu1", "evaluator": "sim 1",
        "space": {"params": {"Pm": ["8", "16"]}, "max_nodes": 16}, "versions": {}, "command": [],
    }  # fmt: skip
    return RunInfo(**{**values, **changes})


def open_and_begin(path: Path, the_info: RunInfo, *, fresh: bool = False) -> None:
    directory = RunDirectory(path)
    try:
        if fresh:
            directory.clear()
        directory.begin(the_info)
    finally:
        directory.close()


def test_a_run_of_the_same_thing_is_resumed_whatever_its_seed(tmp_path: Path) -> None:
    open_and_begin(tmp_path, info())
    open_and_begin(tmp_path, info(seed=3, command=["x"]))


def test_a_run_of_something_else_is_refused_with_the_differences(tmp_path: Path) -> None:
    open_and_begin(tmp_path, info())
    other = info(device="npu2", space={"params": {"Pm": ["8"], "Pn": ["4"]}, "max_nodes": 16})
    with pytest.raises(StudyError) as caught:
        open_and_begin(tmp_path, other)
    message = caught.value.message
    assert "device: was npu1, is npu2" in message
    assert "parameter Pm: was 8, 16, is 8" in message
    assert "parameter Pn: was absent, is 4" in message
    assert "--fresh" in caught.value.hint
    open_and_begin(tmp_path, other, fresh=True)


def test_of_long_lists_of_values_what_has_changed_is_said() -> None:
    def differences(before: list[str], now: list[str]) -> list[str]:
        return info(space={"params": {"P": before}}).differences(info(space={"params": {"P": now}}))

    many = [str(n) for n in range(1000)]
    assert differences(many, [*many[1:], "x"]) == ["parameter P: without 0, now also x"]
    assert differences(many, many[::-1]) == ["parameter P: in another order"]
    (said,) = differences([], many)
    assert said.startswith("parameter P: now also 0, 1, 2")
    assert said.endswith(", ... (1,000 values)")
    assert len(said) < 100


def test_fresh_discards_results_but_not_a_strangers_directory(tmp_path: Path) -> None:
    open_and_begin(tmp_path / "run", info())
    (tmp_path / "run" / "best").mkdir()
    (tmp_path / "run" / "best" / "old.txt").write_text("x")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "kept.txt").write_text("x")
    (tmp_path / "run" / "link").symlink_to(tmp_path / "elsewhere")
    open_and_begin(tmp_path / "run", info(), fresh=True)
    assert (tmp_path / "elsewhere" / "kept.txt").exists()
    assert not (tmp_path / "run" / "link").is_symlink()
    assert not (tmp_path / "run" / "best").exists()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("precious")
    with pytest.raises(StudyError, match="not a run directory"):
        RunDirectory(tmp_path / "home")
    assert (tmp_path / "home" / "thesis.tex").exists()


def test_two_drivers_on_one_directory_are_refused(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from allo_dse.tune.store.rundir import RunDirectory;"
        + f"RunDirectory(Path({str(tmp_path)!r}))"
    )
    directory = RunDirectory(tmp_path)
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    directory.close()
    assert "is in use by process" in found.stderr
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_who_only_looks_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the machine takes to let it go on; a driver is not."""
    RunDirectory(tmp_path).close()
    looking = os.open(tmp_path / LOCK, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 100:
            os.close(looking)

    monkeypatch.setattr(time, "sleep", wait)
    directory = RunDirectory(tmp_path)
    assert len(waits) == 100
    with pytest.raises(StudyError, match=f"in use by process {os.getpid()}"):
        RunDirectory(tmp_path)
    assert len(waits) == 100
    directory.close()


def test_a_file_and_a_damaged_marker_are_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StudyError, match="is a file"):
        RunDirectory(tmp_path / "file")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{")
    with pytest.raises(StudyError, match="damaged"):
        open_and_begin(tmp_path / "run", info())


def test_study_names_become_safe_directories() -> None:
    assert str(default_run_dir("gemm npu/../../etc")) == "runs/gemm_npu_.._.._etc"
    assert str(default_run_dir("...")) == "runs/study"


def test_nothing_is_written_into_a_directory_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(StudyError, match=r"is not a run directory \(it holds thesis\.tex\)"):
        RunDirectory(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_run_that_was_killed_while_it_said_what_it_is_can_be_started_again(tmp_path: Path) -> None:
    (tmp_path / ".run.json.new").write_text('{"stu')
    RunDirectory(tmp_path).close()


def test_a_directory_that_is_being_cleared_says_to_the_end_what_it_is(tmp_path: Path, monkeypatch: Any) -> None:
    removed: list[str] = []
    monkeypatch.setattr(Path, "unlink", lambda path: removed.append(path.name))
    for name in ("run.json", "log.jsonl", "trials.csv", "a", "zzz"):
        (tmp_path / name).touch()
    RunDirectory(tmp_path).clear()
    assert (len(removed), removed[-1]) == (5, "run.json")
