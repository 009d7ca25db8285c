"""The examples of CONTRIBUTING.md run as they stand and show what their texts say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SHOWN = {
    "add_a_device": "compute tiles on my_npu: needs 16, has 8",
    "add_an_operator_cost": "in_logic: ",
    "add_an_evaluator": "rows  nodes  P",
    "add_a_choice": "input ports of depth [1, 2] were tried",
    "add_a_sampler": "latency_cycles",
    "add_a_picture": "designs drawn in front.svg",
    "calibrate_a_board": "8 measurements; wrote my_npu.toml",
}


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert SHOWN.get(name, "") in done.stdout


def test_every_example_is_named_in_the_guide() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [path.name for path in (ROOT / "examples").glob("add_*.py") if path.name not in guide] == []


def test_every_example_that_adds_something_is_run() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("add_*.py")} <= SHOWN.keys()
