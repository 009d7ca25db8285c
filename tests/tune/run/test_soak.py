"""Kill the driver again and again at any moment: nothing lost, nothing doubled, the same trials as undisturbed.

ALLO_DSE_SOAK_KILLS=200 python -m pytest tests/tune/run/test_soak.py     # longer
"""

import os
import random
from pathlib import Path

import pytest

from ...support.killed_runs import MOST_EVALUATED, SEED, Kill, run, trials
from ..fakes import fake_study

KILLS = int(os.environ.get("ALLO_DSE_SOAK_KILLS", "6"))
TRIALS = MOST_EVALUATED * KILLS + 10


def test_random_kills_of_the_driver_change_nothing(tmp_path: Path) -> None:
    rng = random.Random(7)
    for kill in [*(Kill.drawn(rng) for _ in range(KILLS)), None]:
        assert run(tmp_path / "run", TRIALS, kill) == ""
    whole = fake_study().run(TRIALS, run_dir=tmp_path / "whole", seed=SEED, progress="quiet", verify=False)
    assert trials(tmp_path / "run") == trials(tmp_path / "whole")
    again = fake_study().run(TRIALS, run_dir=tmp_path / "run", seed=SEED, progress="quiet", verify=False)
    assert [d.key for d in again.front] == [d.key for d in whole.front]


@pytest.mark.parametrize("cut", [1, 7, 60, 300])
def test_a_torn_end_is_repaired_and_evaluated_again(tmp_path: Path, cut: int) -> None:
    fake_study().run(30, run_dir=tmp_path / "run", seed=SEED, progress="quiet", verify=False)
    expected = trials(tmp_path / "run")
    path = tmp_path / "run" / "log.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    fake_study().run(30, run_dir=tmp_path / "run", seed=SEED, progress="quiet", verify=False)
    assert sorted(trials(tmp_path / "run"), key=lambda e: e["number"]) == sorted(expected, key=lambda e: e["number"])
