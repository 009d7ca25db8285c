"""Kill the driver again and again at any moment: nothing lost, nothing doubled, the same trials as undisturbed.

ALLO_DSE_SOAK_KILLS=200 python -m pytest tests/tune/run/test_soak.py     # longer
"""

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from allo_dse.tune.store.log import read_log
from tests.tune.fakes import fake_study

ROOT = Path(__file__).parent.parent.parent.parent
KILLS = int(os.environ.get("ALLO_DSE_SOAK_KILLS", "3"))
TRIALS = 40 * KILLS
ALIVE_FOR = 30  # designs, at most: three lives and the last one make all
PROGRAM = f"""
import os, signal, sys, threading, time
from tests.tune.fakes import FakeEvaluator, fake_study

trials, run_dir, delay = sys.argv[1:]

class Slow(FakeEvaluator):
    begun = 0

    def evaluate(self, design):
        time.sleep(0.004)
        if delay:
            Slow.begun += 1
            if Slow.begun == 5:
                threading.Timer(float(delay), os.kill, (os.getpid(), signal.SIGKILL)).start()
            if Slow.begun == {ALIVE_FOR}:
                time.sleep(60)
        return super().evaluate(design)

fake_study(evaluator=Slow).run(int(trials), run_dir=run_dir, seed=5, progress="quiet", verify=False)
"""


def designs(run_dir: Path) -> Any:
    entries = [e for e in read_log(run_dir / "log.jsonl").entries if e["type"] == "design"]
    return [{k: v for k, v in e.items() if k not in ("at", "seconds")} for e in entries]


def trials(run_dir: Path) -> Any:
    return [e for e in designs(run_dir) if e["status"] != "violation"]


def test_random_kills_of_the_driver_change_nothing(tmp_path: Path) -> None:
    rng = random.Random(7)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    delays = [str(rng.uniform(0, 0.1)) for _ in range(KILLS)]
    for delay in [*delays, ""]:
        command = [sys.executable, "-c", PROGRAM, str(TRIALS), str(tmp_path / "run"), delay]
        driver = subprocess.run(command, env=environment, capture_output=True, timeout=120)
        assert driver.returncode == (-9 if delay else 0), driver.stderr.decode()
    whole = fake_study().run(TRIALS, run_dir=tmp_path / "whole", seed=5, progress="quiet", verify=False)
    assert trials(tmp_path / "run") == trials(tmp_path / "whole")
    again = fake_study().run(TRIALS, run_dir=tmp_path / "run", seed=5, progress="quiet", verify=False)
    assert [d.key for d in again.front] == [d.key for d in whole.front]


@pytest.mark.parametrize("cut", [1, 7, 60, 300])
def test_a_torn_end_is_repaired_and_evaluated_again(tmp_path: Path, cut: int) -> None:
    fake_study().run(30, run_dir=tmp_path / "run", seed=5, progress="quiet", verify=False)
    expected = trials(tmp_path / "run")
    path = tmp_path / "run" / "log.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    fake_study().run(30, run_dir=tmp_path / "run", seed=5, progress="quiet", verify=False)
    assert sorted(trials(tmp_path / "run"), key=lambda e: e["number"]) == sorted(expected, key=lambda e: e["number"])
