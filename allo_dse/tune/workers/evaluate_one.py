"""Evaluating one design: in this process, or in a child process that may crash, hang or be killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from allo_dse.aliases import JsonObject
from allo_dse.eval.evaluator import Evaluator, Needs, needs
from allo_dse.space.space import Candidate

from ..declare.spec import StudySpec
from ..store.log import stored
from .isolated_process import CellProcess

Source = StudySpec | Callable[[], StudySpec]


@dataclass(frozen=True)
class Finding:
    """What an evaluator found out about a design: metrics, or why there are none.

    Attributes:
        printed: what it wrote before it failed, where that was caught.
    """

    metrics: JsonObject | None
    error: str | None
    seconds: float
    printed: str = ""


class Bench(Protocol):
    """Evaluates designs, one at a time. Whatever an evaluator does costs that one design."""

    def run(self, candidate: Candidate) -> Finding: ...

    def close(self) -> None: ...


class OpenBench:
    """Evaluates in this process."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator

    def run(self, candidate: Candidate) -> Finding:
        return measure(self._evaluator, candidate)

    def close(self) -> None:
        pass


class CellBench:
    """Evaluates in a child process, which is ended with everything it started when it takes too long or too much.

    Args:
        source: the study, or what makes it in the child.
        rung: which of its evaluators.
    """

    def __init__(self, source: Source, rung: int, asked: Needs) -> None:
        self._cell = CellProcess(source, rung, asked)

    def run(self, candidate: Candidate) -> Finding:
        started = time.perf_counter()
        reply = self._cell.ask(candidate.genes)
        seconds = reply.seconds if reply.seconds is not None else time.perf_counter() - started
        return Finding(reply.metrics, reply.error, seconds, reply.printed)

    def close(self) -> None:
        self._cell.close()


def make_bench(study: StudySpec, rung: int, evaluator: Evaluator, asked: Needs | None = None) -> Bench:
    """The place where designs are evaluated at a rung.

    Args:
        asked: instead of what the evaluator itself needs.
    """
    asked = asked or needs(evaluator)
    if asked.isolate:
        return CellBench(study.reload or study, rung, asked)
    return OpenBench(evaluator)


def measure(evaluator: Evaluator, candidate: Candidate) -> Finding:
    """Evaluate a design; an evaluator that raises, exits or returns nonsense costs that design only."""
    started = time.perf_counter()
    try:
        metrics: JsonObject | None = checked(evaluator.evaluate(candidate.design))
        error = None
    except (Exception, SystemExit) as problem:  # whatever an evaluator raises is a result, not a crash of the study
        metrics, error = None, f"{type(problem).__name__}: {problem}"
    return Finding(metrics, error, time.perf_counter() - started)


def checked(found: Any) -> JsonObject:
    """Metrics as the log keeps them.

    Raises:
        TypeError, ValueError: when an evaluator returned something that is not metrics.
    """
    if not isinstance(found, Mapping):
        raise TypeError(f"evaluate() returned {type(found).__name__}, not Metrics")
    return stored(dict(found))
