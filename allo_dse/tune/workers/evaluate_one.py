"""Evaluating one design: in this process, or in a child process that may crash, hang or be killed."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Protocol

from allo_dse.common.aliases import JsonObject
from allo_dse.common.records import replace
from allo_dse.eval.evaluator import Evaluator, Needs, full_name, needs
from allo_dse.space.space import Candidate

from ..declare.spec import StudySpec
from ..store.log import json_bytes
from ..store.record import Measurement
from ..store.texts import TEXT_LENGTH, error_text, valid
from .isolated_process import IsolatedBench

INLINE_WORKER = "inline"
METRICS_BYTES = 1 << 20
"""Of the metrics of one design: a log keeps them of all."""
METRICS_LEVELS = 100
"""Of objects and lists of metrics inside each other: what reads them back has room for about ten times as many."""


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
        interruptible: whether Ctrl-C of a person arrives in this process; where not, it is the evaluator's doing.
    """

    def __init__(self, evaluator: Evaluator, blank: Measurement, *, interruptible: bool = False) -> None:
        self._evaluator, self._blank = evaluator, blank
        self._passed: tuple[type[BaseException], ...] = (KeyboardInterrupt,) if interruptible else ()

    def run(self, number: int, candidate: Candidate) -> Measurement:
        started = time.perf_counter()
        try:
            metrics: dict[str, Any] | None = checked(self._evaluator.evaluate(candidate.design))
            error = None
        except self._passed:
            raise
        except BaseException as problem:  # whatever an evaluator raises is a result, not a crash of the study
            metrics, error = None, error_text(problem)
        seconds = time.perf_counter() - started
        return replace(self._blank, number=number, metrics=metrics, error=error, seconds=seconds)

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
    return OpenBench(evaluator, blank, interruptible=worker == INLINE_WORKER)


def checked(found: Any) -> JsonObject:
    """Metrics as the log keeps them.

    Raises:
        TypeError, ValueError: when an evaluator returned something that is not metrics.
    """
    if not isinstance(found, Mapping):
        raise TypeError(f"evaluate() returned {type(found).__name__}, not Metrics")
    data = json_bytes(dict(found))
    if len(data) > TEXT_LENGTH:
        data = json_bytes(valid(json.loads(data)))
    if len(data) > METRICS_BYTES:
        raise ValueError(f"evaluate() returned {len(data) >> 20} MiB of metrics, more than {METRICS_BYTES >> 20} MiB")
    kept: JsonObject = json.loads(data)
    if data.count(b"{") + data.count(b"[") > METRICS_LEVELS and _is_deeper(kept, METRICS_LEVELS):
        raise ValueError(f"evaluate() returned metrics nested more than {METRICS_LEVELS} levels deep")
    return kept


def _is_deeper(value: object, levels: int) -> bool:
    """Whether there are objects and lists inside each other on more levels."""
    inside = [value]
    for _ in range(levels + 1):
        containers = [one.values() if isinstance(one, dict) else one for one in inside if isinstance(one, dict | list)]
        inside = [inner for one in containers for inner in one]
    return bool(containers)
