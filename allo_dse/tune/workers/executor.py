"""Executors of evaluations. The driver only knows the `Executor` protocol."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from allo_dse.space.space import Candidate

from ..store.record import Measurement
from .evaluate_one import RungEvaluator

INLINE_AHEAD = 16  # proposals taken at a time, to batch asks and log writes
INLINE_SECONDS = 0.02  # time to evaluate before reporting


class Job(Struct, frozen=True):
    """A design to evaluate at a rung.

    Attributes:
        number: number of the proposal; with the rung it identifies the job.
        known: result of an earlier run, so that nothing is left to evaluate.
    """

    number: int
    rung: int
    candidate: Candidate
    known: Measurement | None = None


class Executor(Protocol):
    """Evaluates jobs in any order."""

    _found: list[Measurement]
    """Results that are ready."""

    def outstanding(self, rung: int | None = None) -> int:
        """Jobs submitted and not yet collected, of a rung or of all."""
        ...

    def room(self, rung: int) -> int:
        """Return how many more jobs of a rung it can use now."""
        ...

    def submit(self, jobs: Sequence[Job]) -> None: ...

    def collect(self) -> list[Measurement]:
        """Return finished measurements; wait a moment for the first one.

        An exception loses nothing: see `finished`.
        """
        ...

    def finished(self) -> list[Measurement]:
        """Return the measurements that were ready when an exception left `collect`."""
        found, self._found = self._found, []
        return found

    def separate(self, rung: int) -> bool:
        """Return whether a rung has workers of its own, which would idle while only cheaper rungs are busy."""
        return False

    def messages(self) -> list[str]:
        """Return messages about the workers since the last call."""
        return []

    def stop(self) -> None:
        """Drop jobs that have not been started."""
        ...

    def close(self) -> None: ...


class InlineExecutor(Executor):
    """Evaluates one design after the other, in the order of the jobs, here or in a child process."""

    def __init__(self, rung_evaluators: Sequence[RungEvaluator | None]) -> None:
        self._evaluators_by_rung = list(rung_evaluators)
        self._waiting: deque[Job] = deque()
        self._found = []
        self._begun = False

    def outstanding(self, rung: int | None = None) -> int:
        return len(self._waiting) if rung is None else sum(job.rung == rung for job in self._waiting)

    def room(self, rung: int) -> int:
        # No room until all jobs are done: proposals and the order of the log must not depend on evaluation times.
        # Expensive evaluators get one job at a time, because each result affects the next choice. The first design is
        # evaluated before others are proposed: a front is there at once.
        return 0 if self._waiting else INLINE_AHEAD if self._begun and not rung else 1

    def submit(self, jobs: Sequence[Job]) -> None:
        self._waiting.extend(jobs)

    def collect(self) -> list[Measurement]:
        until = time.perf_counter() + INLINE_SECONDS
        while self._waiting and (not self._found or time.perf_counter() < until):
            job = self._waiting[0]
            measured = job.known
            if measured is None:
                rung_evaluator = self._evaluators_by_rung[job.rung]
                assert rung_evaluator is not None
                measured = rung_evaluator.run(job.number, job.candidate)
            self._waiting.popleft()
            self._begun = True
            self._found.append(measured)
        return self.finished()

    def stop(self) -> None:
        self._waiting.clear()

    def close(self) -> None:
        self._waiting.clear()
        for rung_evaluator in filter(None, self._evaluators_by_rung):
            rung_evaluator.close()
