"""Runs that are killed at any moment, each in a process forked from one that has imported everything."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import signal
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allo_dse.tune.store.log import Log

from ..tune.fakes import FakeEvaluator, fake_study

MOST_EVALUATED = 15
"""Designs that a run evaluates at most before it is killed."""
SEED = 5
_ALIVE_SECONDS = 0.4
_WAIT_SECONDS = 3600.0  # for a process that hangs; a busy machine takes its time
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload([__name__, "allo_dse.tune.run.session", "optuna", "pandas", "pyarrow"])


@dataclass(frozen=True)
class Kill:
    """When a run is killed: after some time, in the midst of a write, or else before the last design it may evaluate.

    Attributes:
        seconds: from its start on, by another process; no limit if None.
        write: the number of the write of which only a part is done, from 0 on; none if None.
        share: of that write's bytes that reach the file.
    """

    seconds: float | None = None
    write: int | None = None
    share: float = 0.0

    @staticmethod
    def drawn(rng: random.Random) -> Kill:
        if rng.random() < 0.5:
            return Kill(seconds=rng.uniform(0, _ALIVE_SECONDS))
        return Kill(write=rng.randrange(MOST_EVALUATED), share=rng.random())


def run(run_dir: Path, trials: int, kill: Kill | None) -> str:
    """Run the fake study in a directory, killed or to its end; says what went wrong, if anything did."""
    said = run_dir.with_name("said")
    process = _PROCESSES.Process(target=_life, args=(run_dir, trials, kill, said))
    process.start()
    process.join(_WAIT_SECONDS if kill is None or kill.seconds is None else kill.seconds)
    process.kill()
    process.join()
    if process.exitcode in ((0,) if kill is None else (-signal.SIGKILL,)):
        return ""
    return f"exit code {process.exitcode} with {kill}\n{said.read_text() if said.exists() else ''}"


def _life(run_dir: Path, trials: int, kill: Kill | None, said: Path) -> None:
    if kill is not None and kill.write is not None:
        _tear(kill.write, kill.share)
    study = fake_study(evaluator=FakeEvaluator if kill is None else _Mortal)
    try:
        study.run(trials, run_dir=run_dir, seed=SEED, progress="quiet", verify=False)
    except BaseException:
        said.write_text(traceback.format_exc())
        raise


def _tear(number: int, share: float) -> None:
    """Let this process die in the midst of a write to its log."""
    whole, numbers = os.pwrite, itertools.count()

    def torn(descriptor: int, data: bytes, offset: int) -> int:
        if next(numbers) == number:
            whole(descriptor, data[: int(share * len(data))], offset)
            os.kill(os.getpid(), signal.SIGKILL)
        return whole(descriptor, data, offset)

    setattr(os, "pwrite", torn)  # noqa: B010 - mypy knows a wider type of what is written


class _Mortal(FakeEvaluator):
    def __init__(self) -> None:
        self._left = MOST_EVALUATED

    def evaluate(self, design: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().evaluate(design)


def trials(run_dir: Path) -> list[dict[str, Any]]:
    """What a log has of the trials of a run, without what differs from run to run; nothing where there is no log."""
    entries = Log(run_dir / "log.jsonl").entries
    found = [e for e in entries if e["type"] == "design" and e["status"] != "violation"]
    return [{k: v for k, v in e.items() if k not in ("at", "seconds")} for e in found]
