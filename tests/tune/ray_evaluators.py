"""Evaluators for the tests with Ray: they note where and how often they evaluate."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from allo_dse.eval.evaluator import Metrics
from allo_dse.tune.study import Study
from allo_dse.tune.workers import evaluate_one

from .fakes import FakeEvaluator, Looseness
from .hazards import HANGS, Hazard, Hurried, hang, study


def is_deadly(key: Any) -> Any:
    return int(key, 16) % 250 == 0


class Noting(FakeEvaluator):
    """Appends design and process to a file, then evaluates; `seconds` long."""

    seconds = 0.0

    def __init__(self, notes: Path, **changes: Any) -> None:
        self.notes = str(notes)
        self.__dict__.update(changes)

    def evaluate(self, design: Any) -> Metrics:
        with open(self.notes, "a") as file:
            file.write(f"{design.key} {os.getpid()} {os.getppid()}\n")
        time.sleep(self.seconds)
        return super().evaluate(design)


class Deadly(Noting):
    """Kills its process for some designs."""

    def evaluate(self, design: Any) -> Metrics:
        metrics = super().evaluate(design)
        if is_deadly(design.key):
            os._exit(1)
        return metrics


class Gated(Noting):
    """Evaluates a number of designs, and waits at the next ones until a file `gate` exists."""

    gate: str
    free = 60
    seconds = 0.01  # so that the first workers to be there are not given everything
    patience = 300.0  # longer than `wait_until`

    def evaluate(self, design: Any) -> Metrics:
        until = time.monotonic() + self.patience
        while len(noted(self.notes)) >= self.free and not os.path.exists(self.gate) and time.monotonic() < until:
            time.sleep(0.02)
        return super().evaluate(design)


class OnTheBoard(Noting):
    name = "board"
    resource = "board"


class OnNothing(Noting):
    name = "nothing"
    resource = "nothing"


class HangsInAWorker(Hazard):
    deadline_s = 1.0

    def trip(self, design: Any) -> None:
        hang()


def hurried_study(evaluator: Any, folder: Path) -> Study:
    """What a worker loads: the study, and a clock for its own deadlines."""
    hangs = folder / f"{os.getpid()} hangs"
    vars(evaluate_one)["time"] = Hurried(hangs)
    os.environ[HANGS] = str(hangs)
    return study(evaluator)


def noted(path: Any) -> Any:
    """(key, process) of every evaluation that was begun."""
    return [tuple(line.split()[:2]) for line in Path(path).read_text().splitlines()] if Path(path).exists() else []


class NotingAndBounded(Noting):
    def bounding(self) -> Looseness:
        return Looseness(0.2)
