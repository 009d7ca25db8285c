"""Workers of one kind, what they are doing, and what waits for them."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import Any

BATCH_SECONDS = 0.1  # work that a batch should hold
MAX_BATCH = 64
AHEAD = 2  # batches per worker, so that none waits for the driver
MAX_DEATHS = 2  # of workers with a design, before it is taken to be the cause
MAX_LOSSES = 3  # of workers and nodes with a design, whatever the cause, before it is given up


@dataclass(frozen=True)
class Task:
    """A design to evaluate, as it goes to a worker.

    Attributes:
        deaths: workers that died while they had it, on a node that lived on.
        losses: those and all others that were lost with it, in whatever way.
    """

    number: int
    rung: int
    genes: dict[str, int]
    deaths: int = 0
    losses: int = 0

    def fault(self, reason: str) -> str | None:
        """Why it is not tried again; None when it is.

        Args:
            reason: what is known of the last loss.
        """
        if self.deaths >= MAX_DEATHS:
            return f"poisonous: the worker process died twice with this design: {reason}"
        if self.losses >= MAX_LOSSES:
            return f"given up: its workers or their nodes were lost {self.losses} times: {reason}"
        return None


@dataclass(frozen=True)
class Batch:
    """Designs a worker has been given; one that is `alone` has killed a worker before, perhaps."""

    worker: int
    tasks: tuple[Task, ...]
    alone: bool


@dataclass(frozen=True)
class Loss:
    """A lost worker whose cause of death is being established.

    Attributes:
        tasks: what it had been given.
        reason: what Ray says.
        since: when it was lost, by the monotonic clock.
    """

    actor: Any
    tasks: tuple[Task, ...]
    reason: str
    since: float


@dataclass
class Pool:
    """Workers that can serve the same rungs.

    Attributes:
        actors: the workers.
        ready: positions of those that have started.
        places: where those at a position last said that they run.
        failures: how often a worker at a position could not be started.
        idle_since: since when none is ready; None while one is.
        given_up: whether nobody is expected to become ready any more.
        waiting: tasks nobody has been given; those of a higher rung come after those of a lower one.
        suspects: tasks that were with a worker that was lost.
        losses: lost workers by the reference of what their node says about them.
        running: batches by the reference of their result.
        seconds: measured cost of one evaluation by rung, a moving average.
    """

    actors: list[Any]
    ready: set[int] = field(default_factory=set)
    places: dict[int, Any] = field(default_factory=dict)
    failures: Counter[int] = field(default_factory=Counter)
    idle_since: float | None = None
    given_up: bool = False
    waiting: deque[Task] = field(default_factory=deque)
    suspects: deque[Task] = field(default_factory=deque)
    losses: dict[Any, Loss] = field(default_factory=dict)
    running: dict[Any, Batch] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)

    def outstanding(self, rung: int | None = None) -> int:
        """Tasks not yet finished, of a rung or of all."""
        given = [batch.tasks for batch in self.running.values()] + [loss.tasks for loss in self.losses.values()]
        tasks = [*self.waiting, *self.suspects, *(task for tasks in given for task in tasks)]
        return len(tasks) if rung is None else sum(task.rung == rung for task in tasks)

    def room(self, rung: int) -> int:
        """How many more tasks keep every worker busy until the driver looks again."""
        if self.given_up:
            return 0
        return max(0, AHEAD * max(1, len(self.ready)) * self.batch_size(rung) - self.outstanding())

    def batch_size(self, rung: int) -> int:
        """How many designs to send at once, so that sending costs little beside evaluating."""
        seconds = self.seconds.get(rung, 0.0)
        return max(1, min(MAX_BATCH, int(BATCH_SECONDS / seconds))) if seconds > 0 else 1

    def learn(self, rung: int, seconds: float) -> None:
        """Take a measured cost into the average."""
        before = self.seconds.get(rung)
        self.seconds[rung] = seconds if before is None else 0.9 * before + 0.1 * seconds

    def lost(self, worker: int) -> tuple[Task, ...]:
        """Take back what a lost worker had been given. It may have been at any of it: of a batch that it had finished,
        the answer may be lost with it."""
        self.ready.discard(worker)
        references = [reference for reference, batch in self.running.items() if batch.worker == worker]
        return tuple(task for reference in references for task in self.running.pop(reference).tasks)

    def again(self, tasks: tuple[Task, ...], guilty: bool) -> list[Task]:
        """Let lost tasks be tried once more, one by one; returns those that have been lost too often.

        Args:
            guilty: whether one of them may be the cause.
        """
        counted = [replace(t, losses=t.losses + 1, deaths=t.deaths + guilty) for t in tasks]
        self.suspects.extend(task for task in counted if task.fault("") is None)
        return [task for task in counted if task.fault("") is not None]

    def abandon(self) -> int:
        """Give up, nobody being ready: forget everything that waits for a worker; returns how much that was."""
        count = self.outstanding()
        self.waiting.clear()
        self.suspects.clear()
        self.losses.clear()
        self.given_up = True
        return count

    def busy(self, worker: int) -> bool:
        """Whether a worker has something to do."""
        return any(batch.worker == worker for batch in self.running.values())

    def next_batch(self) -> Batch | None:
        """The next tasks and who shall have them, taken from what waits; None when all workers have enough."""
        if not self.suspects and not self.waiting:
            return None
        if not self.ready:
            return None
        load = dict.fromkeys(sorted(self.ready), 0)
        for batch in self.running.values():
            load[batch.worker] += AHEAD if batch.alone else 1
        worker = min(load, key=load.__getitem__)
        # A suspect has its worker for itself, so that if that worker dies it is known why.
        alone = bool(self.suspects)
        if load[worker] >= (1 if alone else AHEAD):
            return None
        if alone:
            return Batch(worker, (self.suspects.popleft(),), alone=True)
        tasks = [self.waiting.popleft()]
        while self.waiting and self.waiting[0].rung == tasks[0].rung and len(tasks) < self.batch_size(tasks[0].rung):
            tasks.append(self.waiting.popleft())
        return Batch(worker, tuple(tasks), alone=False)
