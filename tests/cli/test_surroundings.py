"""The command line where files, streams and terminals are not as usual."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allo_dse.cli import main
from allo_dse.tune.show.run_view import format_value
from allo_dse.tune.study import load_studies

ROOT = Path(__file__).parents[2]
GEMM = (ROOT / "studies" / "gemm_npu.py").read_bytes()
FAKE = "from tests.tune.fakes import fake_study\nstudy = fake_study()\n"
Said = tuple[int, str, str]


@pytest.fixture
def tune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    monkeypatch.chdir(tmp_path)
    Path("study.py").write_text(FAKE)

    def call(*arguments: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["allo-tune", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code or 0
        assert isinstance(code, int)
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def run(tune: Callable[..., Said]) -> Callable[..., Said]:
    assert tune("study.py", "--trials", "8", "-q", "--run-dir", "r 1")[0] == 0
    return tune


@pytest.mark.parametrize(
    "arguments", [("study.py", "--trials", "abc"), ("study.py", "--bogus"), ("status", "--bogus"), ("calibrate",)]
)
def test_what_is_wrong_with_options_is_json_where_that_is_asked_for(tune: Callable[..., Said], arguments: Any) -> None:
    code, printed, _ = tune(*arguments, "--json")
    assert (code, json.loads(printed)["event"]) == (2, "error")


@pytest.mark.parametrize("columns", ["0", "1", "5", "20"])
def test_terminals_may_be_narrow(run: Callable[..., Said], monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for command in ("status", "best", "pareto"):
        assert run(command, "r 1")[0] == 0


@pytest.mark.parametrize("columns", ["20", "30", "40", "60"])
def test_narrow_terminals_show_numbers(run: Callable[..., Said], monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    front = json.loads(run("pareto", "r 1", "--json")[1])["front"]
    wanted = {text for one in front for text in (one["key"][:8], *map(format_value, one["values"].values()))}
    monkeypatch.setenv("COLUMNS", columns)
    assert front[0]["key"][:8] in run("show", front[0]["key"], "--run", "r 1")[1]
    for command in (("pareto", "r 1"), ("study.py", "--trials", "8", "-q", "--run-dir", "r 1")):
        assert wanted - set(run(*command)[1].split()) == set()


def test_commands_that_are_shown_can_be_pasted(run: Callable[..., Said]) -> None:
    assert "allo-tune dashboard 'r 1'" in run("study.py", "--trials", "9", "-q", "--run-dir", "r 1")[1]


@pytest.mark.parametrize(
    ("output", "problem"), [("nowhere/npu.toml", "there is no such directory"), (".", "is a directory")]
)
def test_a_device_file_that_cannot_be_written_is_refused_before_anything_is_fitted(
    tune: Callable[..., Said], output: str, problem: str
) -> None:
    code, _, said = tune("calibrate", "no.csv", "--run", "nowhere", "-o", output)
    assert (code, f"error: cannot write {output}: {problem}" in said) == (2, True)


def test_what_a_file_system_refuses_is_no_traceback(run: Callable[..., Said]) -> None:
    Path("file").touch()
    code, printed, _ = run("export", "1", "--run", "r 1", "-o", "file/design", "--json")
    assert (code, json.loads(printed)["event"]) == (2, "error")
    code, _, said = run("study.py", "--trials", "1", "--run-dir", "x" * 300)
    assert (code, "File name too long" in said) == (2, True)


def test_ctrl_c_during_an_import_is_no_error(tune: Callable[..., Said], monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11 makes a `RuntimeError` of it where a class is made; that ended with a traceback."""

    def interrupted(name: str) -> None:
        raise RuntimeError("Error calling __set_name__") from KeyboardInterrupt()

    monkeypatch.setattr(sys.modules[main.__module__], "import_module", interrupted)
    assert tune("status") == (130, "", "")


def test_a_run_can_be_removed_from_inside(
    run: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("r 1")
    assert run("clean", ".", "--yes")[0] == 0
    assert not (tmp_path / "r 1").exists()


def test_a_study_file_that_has_moved_is_asked_for(run: Callable[..., Said]) -> None:
    Path("study.py").rename("moved.py")
    code, _, said = run("replay", "1", "--run", "r 1")
    assert (code, "study.py, which is not there" in said, "--study" in said) == (2, True, True)
    assert run("replay", "1", "--run", "r 1", "--study", "moved.py")[0] == 0


def test_a_link_to_a_run_is_not_removed_and_that_is_said(run: Callable[..., Said]) -> None:
    Path("link").symlink_to("r 1")
    code, _, said = run("clean", "link", "--yes")
    assert (code, "is a link to" in said, Path("r 1").exists()) == (2, True, True)


def test_one_damaged_run_hides_no_others_and_a_damaged_log_is_said(run: Callable[..., Said]) -> None:
    shutil.copytree("r 1", "r 2")
    Path("r 2/run.json").unlink()
    Path("r 2/run.json").mkdir()
    assert "r 2  cannot read r 2/run.json: Is a directory" in run("list", ".")[1]
    with Path("r 1/log.jsonl").open("a") as log:
        log.write("damaged\n")
    warning = "warning: r 1/log.jsonl: damaged lines are skipped: 1\n"
    assert [run(*command)[2] for command in (("status", "r 1"), ("report", "r 1"))] == [warning] * 2


BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
BUFFERING = [BUFFERED, {**BUFFERED, "PYTHONUNBUFFERED": "1"}]


def _command(*arguments: str, environment: dict[str, str], **streams: Any) -> tuple[int, str]:
    """The exit code and standard error of a command with other streams."""
    command = [sys.executable, "-m", "allo_dse", *arguments]
    environment = {**environment, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, **{"stderr": subprocess.PIPE, **streams}, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("environment", BUFFERING, ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("arguments", [("status", "r 1", "--json"), ("status", "r 1"), ("--help",)], ids=" ".join)
def test_standard_output_may_be_full(run: Callable[..., Said], arguments: Any, environment: dict[str, str]) -> None:
    with open("/dev/full", "w") as full:
        ended = _command(*arguments, environment=environment, stdout=full)
    assert ended == (2, "error: No space left on device\n")


@pytest.mark.parametrize("environment", BUFFERING, ids=["buffered", "unbuffered"])
def test_an_error_keeps_its_exit_code_where_standard_error_is_full(
    run: Callable[..., Said], environment: dict[str, str]
) -> None:
    with open("/dev/full", "w") as full:
        assert _command("status", "nowhere", environment=environment, stderr=full)[0] == 2


@pytest.mark.parametrize("environment", BUFFERING, ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("arguments", [("status", "r 1", "--json"), ("status", "r 1")], ids=" ".join)
def test_the_reader_of_standard_output_may_leave(
    run: Callable[..., Said], arguments: Any, environment: dict[str, str]
) -> None:
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as nobody:
        assert _command(*arguments, environment=environment, stdout=nobody) == (1, "")


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_streams_may_be_closed(tmp_path: Path, closed: str) -> None:
    (tmp_path / "study.py").write_text(FAKE)
    command = f'exec "{sys.executable}" -m allo_dse study.py --trials 3 --run-dir run {closed}'
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "pareto.csv").exists()


def test_characters_that_the_terminal_has_not_are_shown_somehow(tmp_path: Path) -> None:
    (tmp_path / "study.py").write_text(FAKE)
    command = [sys.executable, "-m", "allo_dse", "study.py", "--trials", "3", "--run-dir", "rün"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "r\\xfcn/pareto.csv" in done.stdout


@pytest.mark.parametrize(
    "text", [b"\xef\xbb\xbf" + GEMM, b"# -*- coding: latin-1 -*-\n# \xfc\n" + GEMM], ids=["bom", "latin_1"]
)
def test_study_files_are_read_as_python_reads_them(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "gemm.py").write_bytes(text)
    (study,) = load_studies(tmp_path / "gemm.py", {"size": "256"})
    result = study.run(2, run_dir=tmp_path / "run", progress="quiet", verify=False)
    assert (result.run_dir / "best" / "latency_us" / "program.py").exists()
    shutil.rmtree(result.run_dir)
