"""Attempts and what they found, by kind; exit code 1 when anything was found.

python -m tests.soak --minutes 30
python -m tests.soak --attack exchanges --attempts 2000
python -m tests.soak --goal counts.json     # until there are as many of each kind as GOAL says, over several runs
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import random
import secrets
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest.mock import patch

from allo_dse.simulator.engine import engine

from .attack import Attack, Found
from .exchanges import RandomExchanges
from .forms import HAS_COMPILER, RandomCpp, RandomSchedules
from .hostile import HostileEvaluators
from .numbers import RandomFolds, RandomMixed, RandomPrograms
from .runs import DamagedLogs, Kills
from .texts import MutatedDevices, MutatedPrograms

ATTACKS: tuple[Attack, ...] = (
    MutatedPrograms(),
    MutatedDevices(),
    RandomPrograms(),
    RandomMixed(),
    RandomFolds(),
    RandomExchanges(),
    RandomSchedules(),
    *((RandomCpp(),) if HAS_COMPILER else ()),
    DamagedLogs(),
    HostileEvaluators(),
    Kills(),
)
SHARES = {
    "kills": 2, "c++": 1, "folds": 2, "exchanges": 2, "schedules": 2, "arithmetic": 6, "mixed": 4,
    "logs": 6, "evaluators": 6,
    "programs": 24,
    "devices": 24,
}  # fmt: skip
"""Attempts of each kind in a round, by what one costs."""
GOAL = {
    "programs": 10_000, "devices": 1_000, "arithmetic": 1_000, "mixed": 1_000, "folds": 500,
    "exchanges": 500, "c++": 500, "schedules": 250,
    "logs": 1_000, "evaluators": 500, "kills": 1_000,
}  # fmt: skip
"""Attempts without a failure: 10,000 mutants, 2,000 random programs with folds and C++, 1,000 logs and runs."""
ROUND = 100
"""Attempts in a round towards the goal."""
EVERY_SECONDS = 30.0


def attempt(attack: Attack, seed: int, folder: Path) -> str:
    """What one attempt finds; empty if nothing."""
    own = folder / f"{attack.name}{seed}"
    own.mkdir()
    # Every other attempt runs optimized code, however little it does. Deadlocks do not depend on that.
    few = engine.FEW_ELEMENTS if seed % 2 or isinstance(attack, RandomExchanges) else 0
    try:
        with patch.object(engine, "FEW_ELEMENTS", few):
            attack.attempt(random.Random(seed), own)
    except Found as found:
        return str(found)
    except Exception:  # what nobody expected is a finding, too
        return traceback.format_exc()
    finally:
        shutil.rmtree(own)
    return ""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, help="2 by default; until the goal is reached, with --goal")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32), help="of the first attempts")
    parser.add_argument("--attack", choices=[attack.name for attack in ATTACKS], help="this kind only")
    parser.add_argument("--attempts", type=int, default=1, help="of that kind, with consecutive seeds; 1 by default")
    parser.add_argument("--goal", type=Path, metavar="FILE", help="add to the counts in this file, up to the goal")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        if options.attack:
            (attack,) = (a for a in ATTACKS if a.name == options.attack)
            return _repeat(attack, options.seed, options.attempts, Path(folder))
        minutes = options.minutes or (math.inf if options.goal else 2)
        return _soak(Counts(options.goal), minutes, options.seed, Path(folder))


def _repeat(attack: Attack, seed: int, attempts: int, folder: Path) -> int:
    """Make attempts of one kind and print what they find; 1 if anything."""
    failed = 0
    for own_seed in range(seed, seed + attempts):
        if found := attempt(attack, own_seed, folder):
            failed += 1
            print(f"{attack.name}, seed {own_seed}: {found}", flush=True)
    print(f"{attack.name}, seeds {seed} to {seed + attempts - 1}: {failed} of {attempts} failed")
    return 1 if failed else 0


class Counts:
    """Attempts and failures by kind, kept in a file where there is one."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        kept = json.loads(path.read_text()) if path is not None and path.exists() else {}
        self.tried, self.failed = Counter[str](kept.get("tried", {})), Counter[str](kept.get("failed", {}))
        self._findings: list[str] = kept.get("findings", [])

    def kinds(self) -> list[Attack]:
        """The attacks of a round: as often as one costs little, or as it is still to be made."""
        if self._path is None:
            return [attack for attack in ATTACKS for _ in range(SHARES[attack.name])]
        rest = {attack: max(0, GOAL[attack.name] - self.tried[attack.name]) for attack in ATTACKS}
        share = min(1.0, ROUND / max(1, sum(rest.values())))
        return [attack for attack, count in rest.items() for _ in range(math.ceil(count * share))]

    def found(self, again: str) -> None:
        self._findings.append(again)

    def keep(self) -> None:
        if self._path is not None:
            scratch = self._path.with_suffix(".new")
            kept = {"tried": self.tried, "failed": self.failed, "findings": self._findings}
            scratch.write_text(json.dumps(kept, indent=1) + "\n")
            scratch.replace(self._path)

    def __str__(self) -> str:
        shown = [(name, self.tried[name], self.failed[name]) for name in sorted(self.tried)]
        return ", ".join(f"{name} {tried:,} tried {failed} failed" for name, tried, failed in shown)


def _attacks(counts: Counts, rng: random.Random) -> Iterator[Attack]:
    """Rounds of attacks, in any order; no end without a goal."""
    while kinds := counts.kinds():
        rng.shuffle(kinds)
        yield from kinds


def _soak(counts: Counts, minutes: float, seed: int, folder: Path) -> int:
    start = shown = time.monotonic()
    print(f"seed {seed}", file=sys.stderr, flush=True)
    for own_seed, attack in enumerate(_attacks(counts, random.Random(seed)), seed + 1):
        found = attempt(attack, own_seed, folder)
        counts.tried[attack.name] += 1
        if found:
            counts.failed[attack.name] += 1
            again = f"python -m tests.soak --attack {attack.name} --seed {own_seed}"
            counts.found(again)
            print(f"{attack.name}, seed {own_seed}: {found}\n  again: {again}\n", flush=True)
        if found or time.monotonic() > shown + EVERY_SECONDS:
            shown = time.monotonic()
            counts.keep()
            print(f"{shown - start:.0f} s, {counts}", file=sys.stderr, flush=True)
        if time.monotonic() >= start + 60 * minutes:
            break
    counts.keep()
    print(counts)
    return 1 if counts.failed.total() else 0


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    sys.exit(main(sys.argv[1:]))
