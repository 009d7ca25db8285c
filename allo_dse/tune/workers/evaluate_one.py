"""Evaluating one design: in this process, or in a child process that may crash, hang or be killed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import structs

from allo_dse.aliases import JsonObject
from allo_dse.eval.evaluator import Evaluator, Needs, full_name, needs
from allo_dse.space.space import Candidate

from ..declare.spec import StudySpec
from ..store.log import stored
from ..store.record import Measurement
from .isolated_process import IsolatedBench


class Bench(Protocol):
    """Evaluates designs of one rung, one at a time. Whatever an evaluator does costs that one design."""

    def run(self, number: int, candidate: Candidate) -> Measurement:
        """Evaluate a design, of the proposal of that number."""
        ...

    def close(self) -> None: ...


class OpenBench:
    """Evaluates in this process; an evaluator that raises, exits or returns nonsense costs that design only.

    Args:
        blank: what all measurements made here have in common.
    """

    def __init__(self, evaluator: Evaluator, blank: Measurement) -> None:
        self._evaluator, self._blank = evaluator, blank

    def run(self, number: int, candidate: Candidate) -> Measurement:
        started = time.perf_counter()
        try:
            metrics: dict[str, Any] | None = checked(self._evaluator.evaluate(candidate.design))
            error = None
        except (Exception, SystemExit) as problem:  # whatever an evaluator raises is a result, not a crash of the study
            metrics, error = None, f"{type(problem).__name__}: {problem}"
        seconds = time.perf_counter() - started
        return structs.replace(self._blank, number=number, metrics=metrics, error=error, seconds=seconds)

    def close(self) -> None:
        pass


def make_bench(
    study: StudySpec, rung: int, evaluator: Evaluator, *, worker: str = "", asked: Needs | None = None
) -> Bench:
    """The place where designs are evaluated at a rung.

    Args:
        worker: who evaluates there.
        asked: instead of what the evaluator itself needs.
    """
    asked = asked or needs(evaluator)
    blank = Measurement(rung=rung, evaluator=full_name(evaluator), worker=worker)
    if asked.isolate:
        return IsolatedBench(study.reload or study, asked, blank)
    return OpenBench(evaluator, blank)


def checked(found: Any) -> JsonObject:
    """Metrics as the log keeps them.

    Raises:
        TypeError, ValueError: when an evaluator returned something that is not metrics.
    """
    if not isinstance(found, Mapping):
        raise TypeError(f"evaluate() returned {type(found).__name__}, not Metrics")
    return stored(dict(found))
