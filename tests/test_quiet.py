"""What runs a benchmark for `make bench`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import quiet

SCRIPT = """
import sys
from pathlib import Path
print("figures of", Path(__file__).parents[1].name, *sys.argv[1:])
sys.exit({status})
"""


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "load_per_core", lambda: 0.5)
    monkeypatch.setattr(quiet, "reference_seconds", lambda: 0.007)
    monkeypatch.setattr(sys, "argv", [])


def _script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str) -> str:
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "one.py").write_text(SCRIPT.format(status=status))
    monkeypatch.chdir(tmp_path)
    return "benchmarks/one.py"


def test_figures_of_a_script_that_exits_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    quiet.main([_script(tmp_path, monkeypatch, "0"), "--trials", "3"])
    figures, load = capsys.readouterr().out.splitlines()
    assert figures == f"figures of {tmp_path.name} --trials 3"
    assert load == "(load 0.5 and 0.5 per core, reference 7.0 and 7.0 ms, before and after)"


@pytest.mark.parametrize("status", ["1", "'a trace is missing'"])
def test_a_script_that_fails_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], status: str
) -> None:
    script = _script(tmp_path, monkeypatch, status)
    with pytest.raises(SystemExit) as end:
        quiet.main([script])
    assert str(end.value.code) == status.strip("'")
    assert "figures of" in capsys.readouterr().out


@pytest.mark.parametrize("when", ["before", "after"])
def test_nothing_is_printed_under_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], when: str
) -> None:
    loads = iter([1.6] if when == "before" else [0.5, 1.6])
    monkeypatch.setattr(quiet, "load_per_core", lambda: next(loads))
    script = _script(tmp_path, monkeypatch, "0")
    with pytest.raises(SystemExit, match=f"1.6 per core {when} the benchmark"):
        quiet.main([script])
    assert capsys.readouterr().out == ""
