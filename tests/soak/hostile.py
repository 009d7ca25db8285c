"""Evaluators that raise whatever can be raised, answer nonsense, and leave the process otherwise than they found it."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from allo_dse.common.errors import AlloDseError

from ..support.killed_runs import trials
from ..tune.fakes import FakeEvaluator, fake_study
from ..tune.workers.test_hostile import OwnBase, Unspeakable
from .attack import Endless, Found, limited

SECONDS = 120
TRIALS = 14
MORE = 6
RAISED: tuple[Callable[[], BaseException], ...] = (
    partial(ValueError, "half a pair \ud800 \0 </script> {0} %s"),
    partial(OSError, 28, "no space"),
    partial(SystemExit, "gone"),
    partial(ExceptionGroup, "many", [ValueError("x" * 100_000)]),
    partial(UnicodeDecodeError, "utf-8", b"\xff", 0, 1, "why"),
    Unspeakable, OwnBase, GeneratorExit, StopIteration, MemoryError, RecursionError, asyncio.CancelledError,
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    math.nan,
    math.inf,
    -math.inf,
    -1,
    0,
    True,
    None,
    "fast",
    b"1",
    1j,
    [],
    10**400,
    1e308,
    np.float16(3),
    "\udfff" * 9,
)


@dataclass(frozen=True)
class Hostile(FakeEvaluator):
    """Does something else for some of the designs; what it is depends on the design alone."""

    seed: int
    folder: Path

    def evaluate(self, design: Any) -> Any:
        found, rng = dict(super().evaluate(design)), random.Random(f"{self.seed} {design.key}")
        for deed in rng.choices((_raise, _spoil, _drop, _bury, self._leave_traces, None), k=2):
            if deed is not None:
                found = deed(found, rng)
        return found

    def _leave_traces(self, found: Any, rng: random.Random) -> Any:
        os.chdir(self.folder)
        random.seed(0)
        gc.disable()
        sys.setrecursionlimit(rng.choice((900, 5000)))
        os.environ.pop("HOME", None)
        return found


def _raise(_found: Any, rng: random.Random) -> NoReturn:
    raise rng.choice(RAISED)()


def _spoil(found: Any, rng: random.Random) -> Any:
    return {**found, rng.choice((*found, 7, "=cmd()", "\ud801")): rng.choice(VALUES)}


def _drop(found: Any, rng: random.Random) -> Any:
    return rng.choice((None, [found], {k: v for k, v in found.items() if rng.random() < 0.7}))


def _bury(found: Any, rng: random.Random) -> Any:
    """Metrics inside of metrics: some levels, many, or without end."""
    inner: Any = {}
    for _ in range(rng.choice((3, 2000))):
        inner = {"in": inner}
    if rng.random() < 0.3:
        inner["in"] = inner
    return {**found, "more": inner}


@dataclass(frozen=True)
class HostileEvaluators:
    """A run with such an evaluator makes all its trials, each once, and goes on when it is started again."""

    name: str = "evaluators"

    def attempt(self, rng: random.Random, folder: Path) -> None:
        seed, before = rng.randrange(1 << 30), (Path.cwd(), sys.getrecursionlimit(), dict(os.environ))
        try:
            with limited(SECONDS):
                self._run(fake_study(evaluator=partial(Hostile, seed, folder)), folder / "run")
        except (Endless, AlloDseError) as error:
            raise Found(f"{error}\nHostile({seed})") from None
        finally:
            os.chdir(before[0])
            sys.setrecursionlimit(before[1])
            os.environ.update(before[2])
            gc.enable()

    def _run(self, study: Any, run_dir: Path) -> None:
        for count in (TRIALS, TRIALS + MORE):
            result = study.run(count, run_dir=run_dir, progress="quiet", verify=False, cache=False)
            keys = [entry["key"] for entry in trials(run_dir)]
            if not len(result.records) == len(keys) == len(set(keys)) == count:
                raise Found(
                    f"{len(result.records)} records, {len(keys)} in the log, {len(set(keys))} designs; not {count}"
                )
