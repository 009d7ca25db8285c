"""An executor that leaves to other drivers of a study what they are evaluating, and takes their results."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from allo_dse.common.records import replace

from ..store.record import Measurement
from ..workers.executor import Executor, Job
from .claims import STALE_SECONDS
from .optuna_storage import LOOK_SECONDS, SharedStudy

WAIT_SECONDS = 0.05  # when there is nothing to do but to wait for others


@dataclass
class _Mean:
    """Seconds per design, with more weight on what was measured last."""

    seconds: float = 0.0
    designs: float = 0.0

    def learn(self, seconds: float, designs: int = 1) -> None:
        self.seconds = 0.95 * self.seconds + seconds
        self.designs = 0.95 * self.designs + designs

    @property
    def each(self) -> float | None:
        return self.seconds / self.designs if self.designs else None


class SharingExecutor:
    """Claims every job in the shared study before the executor gets it. A job that is another driver's is finished
    when that one's result is there, and goes to the executor when that driver gives it up or dies.

    Nothing is claimed while a claim is measured to cost more than evaluating a design again.
    """

    def __init__(self, executor: Executor, shared: SharedStudy) -> None:
        self._executor, self._shared = executor, shared
        self._left: dict[tuple[int, str], Job] = {}  # to others
        self._found: list[Measurement] = []
        self._claiming, self._evaluating = _Mean(), dict[int, _Mean]()
        self._looked = time.monotonic()
        self._said: list[str] = []
        self._waiting = False  # nothing else left to do, and this has been said

    def outstanding(self, rung: int | None = None) -> int:
        rungs = [job.rung for job in self._left.values()] + [found.rung for found in self._found]
        return sum(rung in (None, each) for each in rungs) + self._executor.outstanding(rung)

    def room(self, rung: int) -> int:
        room = self._executor.room(rung)
        # A claim costs the same for one job as for many: none is taken while there is work for a while.
        return room if room >= self._executor.outstanding(rung) else 0

    def submit(self, jobs: Sequence[Job]) -> None:
        wanted = [job for job in jobs if job.known is None and self._worth_claiming(job.rung)]
        others = {(job.rung, job.candidate.key): job for job in self._claim(wanted)} if wanted else {}
        self._left.update(others)
        self._deliver()
        self._executor.submit([job for job in jobs if (job.rung, job.candidate.key) not in others])

    def _worth_claiming(self, rung: int) -> bool:
        evaluating, claiming = self._evaluating.get(rung, _Mean()).each, self._claiming.each
        return evaluating is None or claiming is None or claiming < evaluating

    def _claim(self, jobs: Sequence[Job]) -> list[Job]:
        """The jobs that others have claimed, or finished."""
        started = time.perf_counter()
        won = self._shared.claim([(job.rung, job.candidate.key) for job in jobs])
        self._claiming.learn(time.perf_counter() - started, len(jobs))
        return [job for job in jobs if (job.rung, job.candidate.key) not in won]

    def _deliver(self) -> None:
        """Take the results of others for jobs that were left to them."""
        for wanted in list(self._left):
            result = self._shared.result(*wanted)
            if result is not None:
                job = self._left.pop(wanted)
                self._found.append(replace(result.measured, number=job.number))

    def _look(self) -> None:
        """See what has become of the jobs that were left to others; those whose driver has gone are ours."""
        self._looked = time.monotonic()
        busy = self._shared.claimed_by_others(list(self._left))
        self._deliver()
        free = [wanted for wanted in self._left if wanted not in busy]
        self.submit([self._left.pop(wanted) for wanted in free])

    def collect(self) -> list[Measurement]:
        if self._left and time.monotonic() - self._looked >= LOOK_SECONDS:
            self._look()
        if self._executor.outstanding():
            self._waiting = False
            found = self._executor.collect()
            for measured in (each for each in found if not each.cached):
                self._evaluating.setdefault(measured.rung, _Mean()).learn(measured.seconds)
            self._found += found
        elif not self._found:
            self._say_waiting()
            time.sleep(WAIT_SECONDS)
        return self.finished()

    def finished(self) -> list[Measurement]:
        found, self._found = self._found + self._executor.finished(), []
        return found

    def _say_waiting(self) -> None:
        """Say once why nothing happens any more."""
        if self._left and not self._waiting:
            self._waiting = True
            self._said.append(
                f"waiting for {len(self._left)} design(s) that other drivers are evaluating; "
                f"those of one that has died are evaluated here after {STALE_SECONDS:.0f} s"
            )

    def separate(self, rung: int) -> bool:
        return self._executor.separate(rung)

    def news(self) -> list[str]:
        said, self._said = self._said, []
        return said + self._executor.news()

    def stop(self) -> None:
        self._left.clear()
        self._executor.stop()

    def close(self) -> None:
        self._executor.close()
