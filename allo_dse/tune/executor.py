"""Where designs are evaluated. The driver only knows the `Executor` protocol."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..eval.evaluator import Evaluator
from .proposals import Proposal

INLINE_AHEAD = 16  # proposals taken at a time, to batch asks and log writes
INLINE_SECONDS = 0.02  # how long to evaluate before reporting


@dataclass(frozen=True)
class Outcome:
    """What an evaluator said about a proposal: metrics, or why there are none."""

    number: int
    metrics: dict[str, Any] | None
    error: str | None
    seconds: float


class Executor(Protocol):
    """Evaluates proposals, in whatever order."""

    @property
    def outstanding(self) -> int:
        """Proposals submitted and not yet collected."""
        ...

    def room(self) -> int:
        """How many more proposals it can use now."""
        ...

    def submit(self, proposals: Sequence[Proposal]) -> None: ...

    def collect(self) -> list[Outcome]:
        """Outcomes that are ready; waits a moment for the first one."""
        ...

    def stop(self) -> None:
        """Forget what has not been started yet."""
        ...

    def close(self) -> None: ...


def evaluate(evaluator: Evaluator, number: int, design: Any) -> Outcome:
    """Evaluate one design; an evaluator that raises costs that design only."""
    started = time.perf_counter()
    try:
        metrics: dict[str, Any] | None = dict(evaluator.evaluate(design))
        error = None
    except Exception as problem:  # whatever an evaluator raises is a result, not a crash of the study
        metrics, error = None, f"{type(problem).__name__}: {problem}"
    return Outcome(number, metrics, error, time.perf_counter() - started)


class InlineExecutor:
    """Evaluates in this process, one design after the other, in the order of the proposals."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._waiting: deque[Proposal] = deque()

    @property
    def outstanding(self) -> int:
        return len(self._waiting)

    def room(self) -> int:
        return INLINE_AHEAD - len(self._waiting)

    def submit(self, proposals: Sequence[Proposal]) -> None:
        self._waiting.extend(proposals)

    def collect(self) -> list[Outcome]:
        outcomes: list[Outcome] = []
        until = time.perf_counter() + INLINE_SECONDS
        while self._waiting and (not outcomes or time.perf_counter() < until):
            proposal = self._waiting.popleft()
            outcomes.append(evaluate(self._evaluator, proposal.number, proposal.candidate.design))
        return outcomes

    def stop(self) -> None:
        self._waiting.clear()

    def close(self) -> None:
        self._waiting.clear()
