"""Evaluation in worker processes, on this machine or on a cluster, through Ray.

Workers load the study themselves and get designs as genes, in batches sized by the measured cost of an evaluation. A
worker that dies takes its batch with it; those designs are evaluated once more, one by one, so that only the one that
kills a worker again is recorded as failed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError

from ..errors import StudyError
from .executor import Outcome, evaluate
from .proposals import Proposal
from .spec import StudySpec

BATCH_SECONDS = 0.1  # work that a batch should hold
MAX_BATCH = 64
AHEAD = 2  # batches per worker, so that none waits for the driver
WAIT_SECONDS = 0.1

Job = tuple[int, dict[str, int]]


class Workbench:
    """What a worker process has: the study, its space and an evaluator."""

    def __init__(self, source: StudySpec | Callable[[], StudySpec]) -> None:
        self._study = source if isinstance(source, StudySpec) else source()
        self._evaluator = self._study.make_evaluator()

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Evaluate designs given as genes."""
        outcomes = []
        for number, genes in jobs:
            candidate = self._study.space.decode_genes(genes)
            if candidate is None:
                outcomes.append(Outcome(number, None, "the worker's space does not contain this design", 0.0))
            else:
                outcomes.append(evaluate(self._evaluator, number, candidate.design))
        return outcomes


@dataclass(frozen=True)
class _Batch:
    """Designs a worker has been given; one that is `alone` has killed a worker before, perhaps."""

    worker: int
    jobs: tuple[Job, ...]
    alone: bool


class RayExecutor:
    """Evaluates proposals in `workers` Ray actors.

    Args:
        address: of a running cluster; None starts Ray on this machine.

    Raises:
        StudyError: when the cluster cannot be reached.
    """

    def __init__(self, study: StudySpec, workers: int, address: str | None) -> None:
        self._source: StudySpec | Callable[[], StudySpec] = study.reload or study
        self._own = not ray.is_initialized()
        self._connect(workers, address)
        self._actor_class = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(Workbench)
        self._actors: list[Any] = [self._start() for _ in range(workers)]
        self._waiting: deque[Job] = deque()
        self._suspects: deque[Job] = deque()  # were in the batch of a worker that died
        self._running: dict[Any, _Batch] = {}
        self._seconds = 0.0  # measured cost of one evaluation, a moving average

    def _connect(self, workers: int, address: str | None) -> None:
        if not self._own:
            return
        try:
            if address:
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            else:
                ray.init(
                    address="local", num_cpus=workers, include_dashboard=False, log_to_driver=False,
                    logging_level=logging.ERROR,
                )  # fmt: skip
        except (ConnectionError, RuntimeError, ValueError, RayError) as error:
            raise StudyError(
                f"cannot reach Ray at {address or 'this machine'}: {error}",
                hint="start a cluster with `ray start --head`, or leave --ray out to use this machine",
            ) from error

    def _start(self) -> Any:
        return self._actor_class.remote(self._source)

    @property
    def outstanding(self) -> int:
        return len(self._waiting) + len(self._suspects) + sum(len(batch.jobs) for batch in self._running.values())

    def room(self) -> int:
        return max(0, AHEAD * len(self._actors) * self._batch_size() - self.outstanding)

    def _batch_size(self) -> int:
        if self._seconds <= 0:
            return 1
        return max(1, min(MAX_BATCH, int(BATCH_SECONDS / self._seconds)))

    def submit(self, proposals: Sequence[Proposal]) -> None:
        self._waiting.extend((p.number, p.candidate.genes) for p in proposals)
        self._dispatch()

    def _dispatch(self) -> None:
        while self._suspects or self._waiting:
            load = [0] * len(self._actors)
            for batch in self._running.values():
                load[batch.worker] += AHEAD if batch.alone else 1
            worker = min(range(len(load)), key=load.__getitem__)
            # A suspect has its worker for itself, so that if that worker dies it is known why.
            if load[worker] >= (1 if self._suspects else AHEAD):
                return
            alone = bool(self._suspects)
            count = 1 if alone else min(len(self._waiting), self._batch_size())
            queue = self._suspects if alone else self._waiting
            jobs = tuple(queue.popleft() for _ in range(count))
            self._running[self._actors[worker].run.remote(jobs)] = _Batch(worker, jobs, alone)

    def collect(self) -> list[Outcome]:
        outcomes: list[Outcome] = []
        ready, _ = ray.wait(list(self._running), num_returns=1, timeout=WAIT_SECONDS) if self._running else ([], [])
        if ready:  # and whatever else is finished by now
            ready, _ = ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        for reference in ready:
            if reference in self._running:
                outcomes += self._finish(reference)
        self._dispatch()
        return outcomes

    def _finish(self, reference: Any) -> list[Outcome]:
        batch = self._running.pop(reference)
        try:
            outcomes: list[Outcome] = ray.get(reference)
        except RayActorError as error:
            return self._bury(batch, error)
        except RayError as error:
            return [Outcome(number, None, f"worker: {error}", 0.0) for number, _ in batch.jobs]
        for outcome in outcomes:
            self._seconds = outcome.seconds if not self._seconds else 0.9 * self._seconds + 0.1 * outcome.seconds
        return outcomes

    def _bury(self, batch: _Batch, error: RayActorError) -> list[Outcome]:
        """Replace a dead worker. Its designs are tried again one by one; one that was alone then is the cause."""
        lost = [batch, *(b for b in self._running.values() if b.worker == batch.worker)]
        self._running = {r: b for r, b in self._running.items() if b.worker != batch.worker}
        self._actors[batch.worker] = self._start()
        if batch.alone:
            reason = str(error).strip().splitlines()[0]
            return [Outcome(batch.jobs[0][0], None, f"the worker process died: {reason}", 0.0)]
        self._suspects.extend(job for b in lost for job in b.jobs)
        return []

    def stop(self) -> None:
        self._waiting.clear()

    def close(self) -> None:
        for actor in self._actors:
            ray.kill(actor)
        if self._own:
            ray.shutdown()
