"""A file system that is really full: the run stops and says what to do, and goes on when there is space again."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from allo_dse.tune.store.log import read_log

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
# A file system of its own, which ends with the shell: $1 is where, $2 how many KiB are left of it at first.
SCRIPT = """
set -u
mount -t tmpfs -o size=4000k none "$1" || exit 77
tune() { "$PYTHON" -m allo_dse study.py --trials "$TRIALS" --run-dir "$1/run" --seed 5 -q --no-verify; }
dd if=/dev/zero of="$1/ballast" bs=1024 count=$((4000 - $2)) status=none
tune "$1" > first.out 2> first.err; echo $? > first.code
[ ! -f "$1/run/log.jsonl" ] || cp "$1/run/log.jsonl" first.log
rm -f "$1/ballast"
tune "$1" > second.out 2> second.err; echo $? > second.code
cp "$1/run/log.jsonl" second.log
"""


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
    entries = [e for e in read_log(path).entries if e["type"] == "design" and e["status"] != "violation"]
    return [(e["number"], e["key"], e["status"], e.get("metrics")) for e in entries]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "study.py").write_text(STUDY)
    command = [sys.executable, "-m", "allo_dse", "study.py", "--trials", str(TRIALS), "--run-dir", "run", "--seed", "5"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([*command, "-q", "--no-verify"], cwd=folder, env=environment, check=True, capture_output=True)
    return trials(folder / "run/log.jsonl"), _pages_kib(folder / "run")


def _pages_kib(folder: Path) -> int:
    """What files take of a file system in memory: whole pages."""
    page = os.sysconf("SC_PAGE_SIZE")
    return sum(-(-path.stat().st_size // page) * page for path in folder.rglob("*") if path.is_file()) >> 10


@pytest.mark.parametrize("percent", [0, 12, 75, 90])
def test_a_full_file_system_stops_the_run_cleanly_and_it_goes_on(
    tmp_path: Path, undisturbed: Any, percent: int
) -> None:
    """What does not fit any more: the lock, the log, the table of all designs, the best designs."""
    wanted, needed_kib = undisturbed
    command = namespace()
    if command is None:
        pytest.skip("no file system can be mounted here: needs root, or user namespaces (unshare)")
    (tmp_path / "study.py").write_text(STUDY)
    (tmp_path / "disk").mkdir()
    (tmp_path / "full.sh").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHON": sys.executable, "TRIALS": str(TRIALS)}
    subprocess.run(
        [*command, "bash", "full.sh", str(tmp_path / "disk"), str(needed_kib * percent // 100)],
        cwd=tmp_path, env=environment, check=True,
        capture_output=True,
    )  # fmt: skip
    said = (tmp_path / "first.err").read_text()
    assert "No space left on device" in said
    assert "free some space and run the same command again" in said
    assert "Traceback" not in said
    assert int((tmp_path / "first.code").read_text()) == 2
    if (tmp_path / "first.log").exists():
        first = read_log(tmp_path / "first.log")
        assert first.notes == []
        assert trials(tmp_path / "first.log") == wanted[: len(trials(tmp_path / "first.log"))]
    assert int((tmp_path / "second.code").read_text()) == 0, (tmp_path / "second.err").read_text()
    assert trials(tmp_path / "second.log") == wanted
