"""Killed drivers and damaged logs: a run goes on, has lost nothing that was intact, and has nothing twice."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from allo_dse.common.errors import AlloDseError
from allo_dse.tune.store.log import decode_line
from tests.tune.fakes import fake_study
from tests.tune.run.test_soak import PROGRAM, trials

from .attack import Endless, Found, limited

ROOT = Path(__file__).parents[2]
SECONDS = 120
WAIT_SECONDS = 3600  # for a process that hangs; a busy machine takes its time
TRIALS = 40
MORE = 15


@dataclass(frozen=True)
class Kills:
    """A driver is killed at any moment, some times, and started again."""

    name: str = "kills"

    def attempt(self, rng: random.Random, folder: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        known: set[str] = set()
        for delay in (*(str(rng.uniform(0, 0.1)) for _ in range(rng.randint(1, 2))), ""):
            command = [sys.executable, "-c", PROGRAM, str(2 * TRIALS), str(folder / "run"), delay]
            driver = subprocess.run(command, env=environment, capture_output=True, timeout=WAIT_SECONDS, check=False)
            if driver.returncode != (-9 if delay else 0):
                raise Found(
                    f"exit code {driver.returncode} after {delay or 'the last start'}\n{driver.stderr.decode()}"
                )
            keys = [entry["key"] for entry in trials(folder / "run")]
            _complete(known, keys)
            known = set(keys)
        if len(known) != 2 * TRIALS:
            raise Found(f"{len(known)} designs, not {2 * TRIALS}")


def _complete(known: set[str], keys: list[str]) -> None:
    if lost := known - set(keys):
        raise Found(f"lost {sorted(lost)}")
    if twice := [key for key, count in Counter(keys).items() if count > 1]:
        raise Found(f"twice {twice}")


@dataclass(frozen=True)
class DamagedLogs:
    """Bytes of a log are changed, lines lost, doubled, exchanged and cut; then the run goes on."""

    name: str = "logs"

    def attempt(self, rng: random.Random, folder: Path) -> None:
        whole = folder.parent / "whole"
        if not whole.exists():
            fake_study().run(TRIALS, run_dir=whole, seed=5, progress="quiet", verify=False)
        run_dir = folder / "run"
        shutil.copytree(whole, run_dir)
        log = run_dir / "log.jsonl"
        for _ in range(rng.randint(1, 4)):
            log.write_bytes(_damaged(log.read_bytes(), rng))
        intact = {entry["key"] for line in log.read_bytes().split(b"\n") if (entry := _design(line)) is not None}
        try:
            with limited(SECONDS):
                fake_study().run(TRIALS + MORE, run_dir=run_dir, seed=5, progress="quiet", verify=False)
        except AlloDseError:
            return  # said to a person, who decides
        except Endless as error:
            raise Found(str(error)) from None
        keys = [entry["key"] for entry in trials(run_dir)]
        if lost := intact - set(keys):
            raise Found(f"lost {sorted(lost)}")


def _design(line: bytes) -> dict[str, str] | None:
    entry = decode_line(line)
    found = entry if entry is not None and entry.get("type") == "design" else None
    return found if found is None or found["status"] != "violation" else None


def _damaged(content: bytes, rng: random.Random) -> bytes:
    lines = content.split(b"\n")
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    kind = rng.randrange(7)
    if kind == 0 and content:
        where = rng.randrange(len(content))
        return content[:where] + bytes([content[where] ^ (1 << rng.randrange(8))]) + content[where + 1 :]
    if kind == 1:
        return content[: rng.randrange(len(content) + 1)]
    if kind == 2:
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == 3:
        del lines[at]
    elif kind == 4:
        lines.insert(at, lines[other])
    elif kind == 5:
        lines.insert(at, rng.randbytes(rng.randrange(200)))
    else:
        lines[at] = lines[at][: len(lines[at]) // 2] + lines[other]
    return b"\n".join(lines)
