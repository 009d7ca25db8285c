"""What the shell completes."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from allo_dse.cli.commands.tune import SCRIPTS, app, complete, complete_plain
from allo_dse.cli.main import COMMANDS, application


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.py").write_text("raise SystemExit\ndef gemm(size: int = 3, *, dtype='i8') -> dse.Study: ...\n")
    for name, key in (("first", "aaaa1111bbbb"), ("second", "cccc2222dddd")):
        run = tmp_path / "runs" / name
        run.mkdir(parents=True)
        (run / "run.json").write_text("{}")
        (run / "pareto.csv").write_text(f"number,key,status\n1,{key},ok\n")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["sta"], ["status"]),
        (["co"], ["compare", "completion"]),
        (["study.py", "--set", ""], ["dtype=", "size="]),
        (["study.py", "--set", "si"], ["size="]),
        (["nothing.py", "--set", ""], []),
        (["study.py", "--tri"], ["--trials"]),
        (["status", "ru"], ["runs/first", "runs/second"]),
        (["status", "--j"], ["--json"]),
        (["show", "aaaa", "--run", "runs/f"], ["runs/first"]),
        (["export", "--run", "runs/first", ""], ["aaaa1111", "runs/first", "runs/second"]),
        (["verify", "--run", "runs/second", "cc"], ["cccc2222"]),
        (["study.py", ""], []),
    ],
)
def test_words_are_completed(folder: Path, words: list[str], found: list[str]) -> None:
    assert complete(len(words), ["allo-tune", *words], sorted(COMMANDS), application) == found


def test_the_script_is_one_for_bash(tmp_path: Path) -> None:
    bash: Any = shutil.which("bash") or pytest.skip("needs bash")
    program = tmp_path / "allo-tune"
    program.write_text('#!/bin/sh\n[ "$1 $2 $3 $4" = "--complete 1 allo-tune st" ] && echo status\n')
    program.chmod(0o755)
    words = "COMP_WORDS=(allo-tune st); COMP_CWORD=1; _allo_tune; echo ${COMPREPLY[0]}"
    found = subprocess.run(
        [bash, "-c", f"PATH={tmp_path}:$PATH\n{SCRIPTS['bash']}\n{words}"], capture_output=True, text=True, check=False
    )
    assert (found.stdout.strip(), found.stderr) == ("status", "")


NAMES = ("a$(touch hit)b", "it's `id`", 'say "x"', "two words", "back\\slash", "stars*?[]", "{a,b}", "~root", "#c;&|<>")


@pytest.mark.parametrize("name", NAMES)
def test_shells_that_quote_by_themselves_get_names_as_they_are(folder: Path, name: str) -> None:
    (folder / "runs" / name).mkdir()
    (folder / "runs" / name / "run.json").write_text("{}")
    for typed in (f"runs/{name}"[: 5 + k] for k in range(len(name))):
        assert f"runs/{name}" in complete_plain(2, ["allo-tune", "status", typed], sorted(COMMANDS), application)


def test_names_with_control_characters_are_left_out(folder: Path) -> None:
    (folder / "runs" / "a\nb\x1b").mkdir()
    (folder / "runs" / "a\nb\x1b" / "run.json").write_text("{}")
    assert complete_plain(2, ["allo-tune", "status", "runs/a"], sorted(COMMANDS), application) == []


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_80_columns(command: str) -> None:
    """Paragraphs are broken by the terminal; what stands in lines, examples above all, is not."""
    shown: Any = get_command(application(command) if command else app)
    shown = shown.commands[command] if command else shown
    with shown.make_context("allo-tune", [], resilient_parsing=True, terminal_width=80) as context:
        text = shown.get_help(context)
    assert [line for line in text.splitlines() if len(line) > 80] == []
    written = f"{shown.help}\n{shown.epilog or ''}".splitlines()
    assert [
        line for line in written if line.startswith(" ") and line.strip() and f"  {line}\n" not in text + "\n"
    ] == []
