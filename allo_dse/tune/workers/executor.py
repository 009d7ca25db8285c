"""Where designs are evaluated. The driver only knows the `Executor` protocol."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from allo_dse.aliases import JsonObject
from allo_dse.space.space import Candidate

from .evaluate_one import Bench, Finding

INLINE_AHEAD = 16  # proposals taken at a time, to batch asks and log writes
INLINE_SECONDS = 0.02  # how long to evaluate before reporting
INLINE_WORKER = "inline"


@dataclass(frozen=True)
class Job:
    """A design to evaluate at a rung of the ladder.

    Attributes:
        number: of the proposal; with the rung it identifies the job.
        known: metrics that an earlier run found, so that nothing is left to evaluate.
    """

    number: int
    rung: int
    candidate: Candidate
    known: JsonObject | None = None


@dataclass(frozen=True)
class Outcome:
    """What an evaluator said about a design: metrics, or why there are none.

    Attributes:
        printed: what an isolated evaluator wrote before it failed.
        worker: who evaluated it.
        cached: whether an earlier run did.
    """

    number: int
    rung: int
    metrics: JsonObject | None
    error: str | None
    seconds: float
    printed: str = ""
    worker: str = ""
    cached: bool = False


def outcome(number: int, rung: int, finding: Finding, worker: str) -> Outcome:
    """The outcome of a job whose design was evaluated."""
    return Outcome(number, rung, finding.metrics, finding.error, finding.seconds, finding.printed, worker)


def known_outcome(job: Job) -> Outcome:
    """The outcome of a job that needs no evaluation."""
    return Outcome(job.number, job.rung, job.known, None, 0.0, cached=True)


class Executor(Protocol):
    """Evaluates jobs, in whatever order."""

    def outstanding(self, rung: int | None = None) -> int:
        """Jobs submitted and not yet collected, of a rung or of all."""
        ...

    def room(self, rung: int) -> int:
        """How many more jobs of a rung it can use now."""
        ...

    def submit(self, jobs: Sequence[Job]) -> None: ...

    def collect(self) -> list[Outcome]:
        """Outcomes that are ready; waits a moment for the first one."""
        ...

    def separate(self, rung: int) -> bool:
        """Whether a rung has workers of its own, which would be idle while only cheaper rungs are busy."""
        ...

    def news(self) -> list[str]:
        """What has happened to the workers since it was last asked, in words."""
        ...

    def stop(self) -> None:
        """Forget what has not been started yet."""
        ...

    def close(self) -> None: ...


class InlineExecutor:
    """Evaluates one design after the other, in the order of the jobs, here or in a child process."""

    def __init__(self, benches: Sequence[Bench | None]) -> None:
        self._benches = list(benches)
        self._waiting: deque[Job] = deque()

    def outstanding(self, rung: int | None = None) -> int:
        return len(self._waiting) if rung is None else sum(job.rung == rung for job in self._waiting)

    def room(self, rung: int) -> int:
        return INLINE_AHEAD - len(self._waiting)

    def submit(self, jobs: Sequence[Job]) -> None:
        self._waiting.extend(jobs)

    def collect(self) -> list[Outcome]:
        outcomes: list[Outcome] = []
        until = time.perf_counter() + INLINE_SECONDS
        while self._waiting and (not outcomes or time.perf_counter() < until):
            outcomes.append(self._run(self._waiting.popleft()))
        return outcomes

    def _run(self, job: Job) -> Outcome:
        if job.known is not None:
            return known_outcome(job)
        bench = self._benches[job.rung]
        assert bench is not None
        return outcome(job.number, job.rung, bench.run(job.candidate), INLINE_WORKER)

    def separate(self, rung: int) -> bool:
        return False

    def news(self) -> list[str]:
        return []

    def stop(self) -> None:
        self._waiting.clear()

    def close(self) -> None:
        self._waiting.clear()
        for bench in self._benches:
            if bench is not None:
                bench.close()
