"""A file system that is really full: the run stops and says what to do, and goes on when there is space again."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from allo_dse.tune.store.log import Log

ROOT = Path(__file__).parents[3]
TRIALS = 40
STUDY = """
from tests.tune.fakes import FakeEvaluator, fake_study

class Fails(FakeEvaluator):
    isolate = True

    def evaluate(self, design):
        if int(design.key, 16) % 8 == 0:
            print("no licence " * 100)
            raise RuntimeError("no licence")
        return super().evaluate(design)

study = fake_study("full", evaluator=Fails)
"""
# In a namespace of mounts, with which file systems end; its commands begin with the package imported.
PROGRAM = """
import os, shutil, subprocess, sys
from pathlib import Path
from tests.support.commands import allo_tune

KIB = 4000

def tune(run):
    words = ["study.py", "--trials", sys.argv[1], "--run-dir", run, "--seed", 5, "-q", "--no-verify"]
    return allo_tune(*words, cwd=Path.cwd())

def kept(name, found):
    Path(name + ".err").write_text(found.stderr)
    Path(name + ".code").write_text(str(found.returncode))

def in_pages_kib(folder):
    page = os.sysconf("SC_PAGE_SIZE")  # what files take of a file system in memory
    return sum(-(-path.stat().st_size // page) * page for path in folder.rglob("*") if path.is_file()) >> 10

kept("whole", tune("whole"))
needed_kib = in_pages_kib(Path("whole"))
for percent in sys.argv[2:]:
    disk = Path("disk" + percent)
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={KIB}k", "none", disk], check=True)
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(1024 * (KIB - needed_kib * int(percent) // 100)))
    log = disk / "run" / "log.jsonl"
    kept("first" + percent, tune(disk / "run"))
    if log.exists():
        shutil.copy(log, f"first{percent}.jsonl")
    ballast.unlink()
    kept("second" + percent, tune(disk / "run"))
    shutil.copy(log, f"second{percent}.jsonl")
"""
PERCENT = (0, 12, 75, 90)


def namespace() -> list[str] | None:
    """The command that gives a process mounts of its own, which needs no rights where users may have namespaces."""
    unshare = shutil.which("unshare")
    for options in (["--mount"], ["--mount", "--map-root-user"]):
        command = [unshare, *options] if unshare else []
        probe = [*command, "sh", "-c", 'mount -t tmpfs none "$0"', "/mnt"]
        if command and subprocess.run(probe, capture_output=True).returncode == 0:
            return command
    return None


def trials(path: Path) -> Any:
    entries = [e for e in Log(path).entries if e["type"] == "design" and e["status"] != "violation"]
    return [(e["number"], e["key"], e["status"], e.get("metrics")) for e in entries]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where runs on file systems that were full at first have left their logs, what they said and how they ended."""
    command = namespace()
    if command is None:
        pytest.skip("no file system can be mounted here: needs root, or user namespaces (unshare)")
    folder = tmp_path_factory.mktemp("full")
    (folder / "study.py").write_text(STUDY)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", PROGRAM, *map(str, (TRIALS, *PERCENT))]
    done = subprocess.run([*command, *words], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (folder / "whole.code").read_text() == "0"
    return folder


@pytest.mark.parametrize("percent", PERCENT)
def test_a_full_file_system_stops_the_run_cleanly_and_it_goes_on(folder: Path, percent: int) -> None:
    """What does not fit any more: the lock, the log, the table of all designs, the best designs."""
    wanted = trials(folder / "whole" / "log.jsonl")
    said = (folder / f"first{percent}.err").read_text()
    assert "No space left on device" in said
    assert "free some space and run the same command again" in said
    assert "Traceback" not in said
    assert (folder / f"first{percent}.code").read_text() == "2"
    log = folder / f"first{percent}.jsonl"
    if log.exists():
        assert Log(log).notes == []
        assert trials(log) == wanted[: len(trials(log))]
    assert (folder / f"second{percent}.code").read_text() == "0", (folder / f"second{percent}.err").read_text()
    assert trials(folder / f"second{percent}.jsonl") == wanted
