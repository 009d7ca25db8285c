"""What the page changes: notes, stars, and running runs. Only for this computer."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from allo_dse.common.errors import StudyError
from allo_dse.dashboard.app import control
from allo_dse.dashboard.app.context import Context
from allo_dse.dashboard.app.factory import make_app
from allo_dse.dashboard.app.server import Site
from allo_dse.dashboard.data.notes import MOST_CHARACTERS, Note, Notes
from allo_dse.dashboard.data.runs import Board, Ref
from allo_dse.dashboard.programs import Programs
from allo_dse.tune.store.rundir import running

from .synthetic import write_run

WRITES = """
import sys
from pathlib import Path
from allo_dse.dashboard.data.notes import Notes
notes = Notes(Path(sys.argv[1]))
for number in range(100):
    notes.change(f"{sys.argv[2]}{number}", text="x" * 500)
"""
RUNS = """
import signal, sys, time
from pathlib import Path
from allo_dse.tune.store.rundir import RunDirectory
directory = RunDirectory(Path(sys.argv[1]))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(17))
print("running", flush=True)
time.sleep(300)
"""


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board.open([write_run(tmp_path / "runs" / "made", 12)])


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITES, str(tmp_path), name]) for name in ("a", "b")]
    assert [writer.wait(300) for writer in writers] == [0, 0]
    assert len(Notes(tmp_path).all()) == 200


def test_a_change_leaves_what_it_does_not_name(tmp_path: Path) -> None:
    first, second = Notes(tmp_path), Notes(tmp_path)
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda n: first.change("k", text=str(n)), range(20)))
    second.change("k", star=True)
    with (tmp_path / "notes.jsonl").open("ab") as file:
        file.write(b'{"key": "torn')
    second.change("other", text="after a torn line")
    assert first.of("k").star
    assert int(first.of("k").text or "") in range(20)
    assert first.of("other").text == "after a torn line"
    second.change("k", star=False, text="")
    assert list(first.all()) == ["other"]
    assert first.of("k") == Note("k", star=False, text="")
    with pytest.raises(StudyError, match="a note has at most"):
        first.change("k", text="x" * (MOST_CHARACTERS + 1))


def plain(component: Any) -> Any:
    return component.to_plotly_json()


def test_a_starred_design_is_linked(board: Board) -> None:
    key = board.runs[0].keys[3]
    control.notes_of(board, 0).change(key, star=True, text="try on the board")
    shown = json.dumps(list(map(plain, control.starred(board))), default=plain)
    assert f"/design?design={board.text(Ref(0, 3))}" in shown
    assert "try on the board" in shown


def test_a_run_is_stopped_as_by_ctrl_c(board: Board) -> None:
    process = subprocess.Popen([sys.executable, "-c", RUNS, str(board.runs[0].path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"running\n"
    assert running(board.runs[0].path) == process.pid
    assert control.control_buttons(board, 0)[0].children == "Stop"
    with pytest.raises(StudyError, match="running already"):
        control.resume(board, 0)
    assert str(process.pid) in control.stop(board, 0)
    assert process.wait(300) == 17
    with pytest.raises(StudyError, match="not running"):
        control.stop(board, 0)


def test_a_run_is_resumed_by_its_command(board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **options: started.append((command, options["cwd"])))
    command = board.runs[0].facts.command
    file = next(word for word in command if word.endswith(".py"))
    with pytest.raises(StudyError, match="there is no"):
        control.resume(board, 0)
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).touch()
    assert "started" in control.resume(board, 0)
    ((words, folder),) = started
    assert (words[1:3], words[3:], folder) == (["-m", "allo_dse"], command[1:], tmp_path)


def test_other_computers_and_other_sites_change_nothing(board: Board) -> None:
    assert any("control-text" in name for name in make_app(Context(board, Programs(board))).callback_map)
    remote = Context(board, Programs(board), local=False)
    assert not any("control-text" in name for name in make_app(remote).callback_map)
    assert not any("notes-version" in name for name in make_app(remote).callback_map)
    assert control.note_controls(remote, Ref(0, 0)) == []
    site, statuses = Site(make_app(Context(board, Programs(board))), any_host=False), []
    asked = {"REQUEST_METHOD": "POST", "HTTP_HOST": "localhost:8050", "PATH_INFO": "/_dash-update-component"}
    list(site({**asked, "HTTP_ORIGIN": "https://elsewhere.example"}, lambda status, headers: statuses.append(status)))
    assert statuses == ["403 Forbidden"]
