"""Killed drivers and damaged logs: a run goes on, has lost nothing that was intact, and has nothing twice."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allo_dse.common.errors import AlloDseError
from allo_dse.tune.store.log import decode_line

from ..support import killed_runs
from ..support.killed_runs import SEED, Kill, trials
from ..tune.fakes import fake_study
from .attack import Endless, Found, limited

SECONDS = 120
TRIALS = 24
MORE = 8


@dataclass(frozen=True)
class Kills:
    """A run is killed at any moment, also in the midst of a write, once or twice, and then run to its end."""

    name: str = "kills"

    def attempt(self, rng: random.Random, folder: Path) -> None:
        known: set[str] = set()
        kills = [Kill.drawn(rng) for _ in range(rng.randint(1, 2))]
        count = killed_runs.MOST_EVALUATED * len(kills) + 2
        for kill in (*kills, None):
            if wrong := killed_runs.run(folder / "run", count, kill):
                raise Found(wrong)
            keys = [entry["key"] for entry in trials(folder / "run")]
            _complete(known, keys)
            known = set(keys)
        if len(known) != count:
            raise Found(f"{len(known)} designs, not {count}, after {kills}")


def _complete(known: set[str], keys: Sequence[Any]) -> None:
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
            fake_study().run(TRIALS, run_dir=whole, seed=SEED, progress="quiet", verify=False)
        run_dir = folder / "run"
        shutil.copytree(whole, run_dir)
        log = run_dir / "log.jsonl"
        for _ in range(rng.randint(1, 4)):
            log.write_bytes(_damaged(log.read_bytes(), rng))
        intact = {entry["key"] for line in log.read_bytes().split(b"\n") if (entry := _design(line)) is not None}
        try:
            with limited(SECONDS):
                fake_study().run(TRIALS + MORE, run_dir=run_dir, seed=SEED, progress="quiet", verify=False)
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
