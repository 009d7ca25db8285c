"""Run directories and results are data: names stay inside, nothing is executed, a full disk is said."""

import errno
import pickle
from pathlib import Path
from typing import Any

import pytest

import allo_dse
from allo_dse.common.errors import StudyError
from allo_dse.common.quoting import file_name
from allo_dse.tune.search.objectives import minimize
from allo_dse.tune.store.log import disk_full
from allo_dse.tune.store.rundir import RunDirectory

from ..fakes import FakeEvaluator, fake_study

HOSTILE = ["../../escape", "/etc/passwd", "a\0b", "..", ".", "", "x" * 500, "<script>alert(1)</script>", "line\nbreak"]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_become_one_harmless_part_of_a_path(name: Any) -> None:
    safe = file_name(name)
    assert safe
    assert Path(safe).name == safe
    assert not safe.startswith(".")
    assert len(safe) < 120
    assert not set(safe) & set("/\0\n<>\"'")


def test_long_names_stay_different() -> None:
    assert file_name("x" * 200 + "a") != file_name("x" * 200 + "b")


def test_hostile_names_write_inside_the_run_directory_only(tmp_path: Path) -> None:
    class Hostile(FakeEvaluator):
        name = "../../evaluator"

    study = fake_study("../../study", objectives=[minimize("latency_us", name="../../objective")], evaluator=Hostile)
    study.run(10, run_dir=tmp_path / "a" / "b" / "run", cache=tmp_path / "a" / "cache", progress="quiet")
    assert {p.name for p in tmp_path.iterdir()} == {"a"}
    assert {p.name for p in (tmp_path / "a").iterdir()} == {"b", "cache"}
    assert {p.name for p in (tmp_path / "a" / "b").iterdir()} == {"run"}


def test_nothing_in_a_run_directory_is_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*arguments: Any) -> None:
        raise AssertionError("unpickled")

    study = fake_study()
    for trials in (15, 20):  # new and resumed: Numba loads its own machine code of a function when that is first called
        study.run(trials, run_dir=tmp_path / "run", cache=tmp_path / "cache", progress="quiet", verify=False)
    monkeypatch.setattr(pickle, "loads", forbidden)
    monkeypatch.setattr(pickle, "load", forbidden)
    study.run(25, run_dir=tmp_path / "run", cache=tmp_path / "cache", progress="quiet", verify=False)
    package = Path(allo_dse.__file__).parent
    users = {p.name for p in package.rglob("*.py") if "pickle.load" in p.read_text()}
    # From the process that starts them or that they start, never from a file.
    assert users <= {"parameters.py", "pickled_study.py"}


def test_a_full_disk_is_said_wherever_it_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = RunDirectory(tmp_path / "run")

    def full(self: Any, *how: Any, **more: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(StudyError, match="cannot write") as caught:
        directory.write("pareto.csv", "x")
    assert "free some space" in caught.value.hint
    assert disk_full(tmp_path, OSError(errno.EACCES, "no")) is None
    directory.close()
