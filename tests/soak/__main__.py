"""`python -m tests.soak --minutes 30`: attempts and what they found, by kind; exit code 1 when anything was found."""

from __future__ import annotations

import argparse
import itertools
import logging
import random
import secrets
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from .attack import Attack, Found
from .forms import HAS_COMPILER, RandomCpp, RandomSchedules
from .numbers import RandomFolds, RandomPrograms
from .runs import DamagedLogs, Kills
from .texts import MutatedDevices, MutatedPrograms

ATTACKS: tuple[Attack, ...] = (
    MutatedPrograms(),
    MutatedDevices(),
    RandomPrograms(),
    RandomFolds(),
    RandomSchedules(),
    *((RandomCpp(),) if HAS_COMPILER else ()),
    DamagedLogs(),
    Kills(),
)
SHARES = {"kills": 1, "c++": 1, "folds": 4, "schedules": 4, "arithmetic": 6, "logs": 6, "programs": 12, "devices": 12}
"""Attempts of each kind in a round, by what one costs."""
EVERY_SECONDS = 30.0


def attempt(attack: Attack, seed: int, folder: Path) -> str:
    """What one attempt finds; empty if nothing."""
    own = folder / f"{attack.name}{seed}"
    own.mkdir()
    try:
        attack.attempt(random.Random(seed), own)
    except Found as found:
        return str(found)
    except Exception:  # what nobody expected is a finding, too
        return traceback.format_exc()
    finally:
        shutil.rmtree(own)
    return ""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32), help="of the first attempts")
    parser.add_argument("--attack", choices=[attack.name for attack in ATTACKS], help="this kind only; one attempt")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        if options.attack:
            (attack,) = (a for a in ATTACKS if a.name == options.attack)
            found = attempt(attack, options.seed, Path(folder))
            print(found or f"{attack.name}, seed {options.seed}: nothing")
            return 1 if found else 0
        return _soak(options.minutes, options.seed, Path(folder))


def _soak(minutes: float, seed: int, folder: Path) -> int:
    start = shown = time.monotonic()
    tried, failed = Counter[str](), Counter[str]()
    kinds = [attack for attack in ATTACKS for _ in range(SHARES[attack.name])]
    random.Random(seed).shuffle(kinds)
    for own_seed, attack in enumerate(itertools.cycle(kinds), seed + 1):
        if time.monotonic() >= start + 60 * minutes:
            break
        tried[attack.name] += 1
        if found := attempt(attack, own_seed, folder):
            failed[attack.name] += 1
            again = f"python -m tests.soak --attack {attack.name} --seed {own_seed}"
            print(f"{attack.name}, seed {own_seed}: {found}\n  again: {again}\n", flush=True)
        if time.monotonic() > shown + EVERY_SECONDS:
            shown = time.monotonic()
            print(f"{shown - start:.0f} s, {_counts(tried, failed)}", file=sys.stderr, flush=True)
    print(_counts(tried, failed))
    return 1 if failed else 0


def _counts(tried: Counter[str], failed: Counter[str]) -> str:
    return ", ".join(f"{name} {tried[name]:,} tried {failed[name]} failed" for name in sorted(tried))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    sys.exit(main(sys.argv[1:]))
