"""Pool of workers of one kind, with their running and waiting tasks."""

from __future__ import annotations

import math
import os
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any

import psutil
import ray
from msgspec import Struct
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from allo_dse.common.processes import has_not_ended, usable_cores
from allo_dse.common.records import replace

from ..store.record import Measurement

# A design can only be the cause of a loss if its worker died on a node that lives. Ray reports a worker's death before
# it knows that the node is gone, and reports a broken connection as a death. So the node is asked about the process;
# a dead node does not answer.


ANSWER_SECONDS = 60.0  # for a node to answer; Ray notices a dead one in about 20 s
EXIT_SECONDS = 5.0  # for a process to exit after it has closed its connections


class Place(Struct, frozen=True):
    """Location of a worker: Ray's id of its node, its process id, and the number of cores it may use."""

    node: str
    process: int
    cores: int = 1


def here() -> Place:
    """Return the location of this worker."""
    return Place(ray.get_runtime_context().get_node_id(), os.getpid(), usable_cores())


def ask_if_gone(place: Place) -> Any:
    """Ask a node whether a worker's process has ended; return a reference to the answer."""
    # A new task goes through the node's scheduler. A process that waits there may outlive the scheduler for a moment,
    # and would vouch for a dead node.
    strategy = NodeAffinitySchedulingStrategy(place.node, soft=False)
    task: Any = ray.remote(is_gone)
    return task.options(num_cpus=0, max_retries=0, scheduling_strategy=strategy).remote(place.process)


def exited_on_live_node(reference: Any) -> bool:
    """Return whether the worker died while its node lives; False if the node has not answered yet."""
    try:
        return bool(ray.get(reference, timeout=0))
    except RayError:
        return False


def is_gone(process: int) -> bool:
    """Wait a few seconds for a process to end; return whether it has."""
    until = time.monotonic() + EXIT_SECONDS
    with suppress(psutil.NoSuchProcess):
        while has_not_ended(psutil.Process(process)):
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
    return True


BATCH_SECONDS = 0.1  # work that a batch should hold
MAX_BATCH = 64
HANDLING = 1 / 16  # share of the driver's time and of a node's cores for handling batches; Ray takes as much again
CALL_SECONDS = 0.001  # core time per batch on the worker's node, measured by benchmarks/cluster_model.py
AHEAD = 2  # batches per worker, so that none waits for the driver
MAX_CRASHES = 2  # deaths of workers with a design, before the design counts as the cause
MAX_WORKER_FAILURES = 3  # losses of workers or nodes with a design, for any reason, before it is given up


class Task(Struct, frozen=True):
    """A design to evaluate, as it goes to a worker.

    Attributes:
        crashes: number of workers that died with it while their node lived.
        worker_failures: number of workers lost with it, for any reason.
    """

    number: int
    rung: int
    genes: dict[str, int]
    crashes: int = 0
    worker_failures: int = 0

    def failed(self, why: str, evaluator: str, worker: str = "") -> Measurement:
        """Return the measurement of a task that cannot be evaluated."""
        return Measurement(number=self.number, rung=self.rung, evaluator=evaluator, worker=worker, error=why)

    def fault(self, reason: str) -> str | None:
        """Return why it is not tried again; None if it is.

        Args:
            reason: cause of the last loss.
        """
        if self.crashes >= MAX_CRASHES:
            return f"given up: the worker process died twice with this design: {reason}"
        if self.worker_failures >= MAX_WORKER_FAILURES:
            return f"given up: its workers or their nodes were lost {self.worker_failures} times: {reason}"
        return None


class Batch(Struct, frozen=True):
    """Designs a worker has been given; one that is `alone` has killed a worker before, perhaps."""

    worker: int
    tasks: tuple[Task, ...]
    alone: bool

    @property
    def load(self) -> int:
        """Number of batches that it counts as; one that runs alone fills its worker."""
        return AHEAD if self.alone else 1


class WorkerFailure(Struct, frozen=True):
    """A lost worker whose cause of death is being established.

    Attributes:
        tasks: its unfinished tasks.
        reason: Ray's message.
        since: time of the loss, by the monotonic clock.
    """

    actor: Any
    tasks: tuple[Task, ...]
    reason: str
    since: float


class Pool:
    """Workers that can serve the same rungs. Queries cost the same for any number of workers and tasks.

    Args:
        workers: number of workers to start.

    Attributes:
        actors: the workers.
        places: last known location of the worker at each position.
        failures: number of failed starts of the worker at each position.
        idle_since: time since when no worker is ready; None while one is.
        given_up: whether no worker is expected to become ready any more.
        waiting: tasks without a worker, lower rungs first.
        suspects: tasks of lost workers, to be tried alone.
        pending_failures: those whose fate is unknown, by the reference to their node's answer.
        running: batches by the reference of their result.
        seconds: measured cost of one evaluation by rung, a moving average.
        handling: driver time for sending a batch and receiving its results, a moving average.
    """

    def __init__(self, workers: int, idle_since: float | None = None) -> None:
        self.actors: list[Any] = [None] * workers
        self.places: dict[int, Place] = {}
        self.failures: Counter[int] = Counter()
        self.idle_since = idle_since
        self.given_up = False
        self.waiting: deque[Task] = deque()
        self.suspects: deque[Task] = deque()
        self.pending_failures: dict[Any, WorkerFailure] = {}
        self.running: dict[Any, Batch] = {}
        self.seconds: dict[int, float] = {}
        self.handling = 0.0
        self._unfinished: Counter[int] = Counter()  # tasks by rung, wherever they are
        self._crowd: float | None = None  # most workers per core on any node; None after a worker came or went
        self._load: dict[int, int] = {}  # number of batches of each ready worker
        self._by_load = [OrderedDict[int, None]() for _ in range(AHEAD)]  # ready workers that can take more, by load

    # -- workers ------------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> Collection[int]:
        """Positions of the workers that have started."""
        return self._load.keys()

    def add_worker(self, worker: int, place: Place | None = None) -> None:
        """Mark a worker as ready. Without a known place it counts as alone on its node."""
        self.places[worker] = place or Place(f"of {worker}", 0)
        self._load[worker] = 0
        self._by_load[0][worker] = None
        self.idle_since = None
        self.given_up = False
        self._crowd = None

    @property
    def _most_per_core(self) -> float:
        if self._crowd is None:
            places = [self.places[worker] for worker in self.ready]
            nodes = Counter(place.node for place in places)
            self._crowd = max((nodes[place.node] / place.cores for place in places), default=0.0)
        return self._crowd

    def busy(self, worker: int) -> bool:
        """Return whether a worker has something to do."""
        return self._load.get(worker, 0) > 0

    def remove_worker(self, worker: int) -> tuple[Task, ...]:
        """Take back all tasks of a lost worker. Any may be the cause: results of a finished batch may be lost, too."""
        references = [reference for reference, batch in self.running.items() if batch.worker == worker]
        tasks = tuple(task for reference in references for task in self.release(reference).tasks)
        del self._load[worker], self._by_load[0][worker]
        self._crowd = None
        return tasks

    def _put(self, worker: int, more: int) -> None:
        """Change how many batches a worker has."""
        load = self._load[worker]
        if load < AHEAD:
            del self._by_load[load][worker]
        self._load[worker] = load + more
        if load + more < AHEAD:
            self._by_load[load + more][worker] = None

    # -- tasks --------------------------------------------------------------------------------------------------------

    def outstanding(self, rung: int | None = None) -> int:
        """Tasks not yet finished, of a rung or of all."""
        return self._unfinished.total() if rung is None else self._unfinished[rung]

    def room(self, rung: int) -> int:
        """Return how many more tasks keep every worker busy until the driver looks again."""
        if self.given_up:
            return 0
        return max(0, max(1, len(self.ready)) * AHEAD * self.batch_size(rung) - self.outstanding())

    def batch_size(self, rung: int) -> int:
        """Return how many designs to send to a worker at once.

        Sending must be cheap beside evaluating. Batches must also last long enough that the driver can serve every
        worker meanwhile, and that receiving them takes little of a node's cores.
        """
        seconds = self.seconds.get(rung, 0.0)
        if seconds <= 0:
            return 1
        in_time = max(self.handling * len(self.ready), CALL_SECONDS * self._most_per_core) / (HANDLING * seconds)
        return max(1, min(MAX_BATCH, max(int(BATCH_SECONDS / seconds), math.ceil(in_time))))

    def learn(self, rung: int, seconds: float) -> None:
        """Take a measured cost into the average."""
        before = self.seconds.get(rung)
        self.seconds[rung] = seconds if before is None else 0.9 * before + 0.1 * seconds

    def learn_handling(self, seconds: float) -> None:
        """Take the measured cost of a batch in the driver into the average."""
        self.handling += 0.1 * (max(0.0, seconds) - self.handling)

    def add(self, task: Task) -> None:
        """Let a task wait for a worker."""
        self.waiting.append(task)
        self._unfinished[task.rung] += 1

    def next_batch(self) -> Batch | None:
        """Take the next tasks from the queue and assign them a worker; None when all workers have enough."""
        if not self.suspects and not self.waiting:
            return None
        # A suspect runs alone on its worker, so that a death can be blamed on it.
        alone = bool(self.suspects)
        worker = next((next(iter(some)) for some in self._by_load[: 1 if alone else AHEAD] if some), None)
        if worker is None:
            return None
        if alone:
            return Batch(worker, (self.suspects.popleft(),), alone=True)
        tasks = [self.waiting.popleft()]
        size = self.batch_size(tasks[0].rung)
        while self.waiting and self.waiting[0].rung == tasks[0].rung and len(tasks) < size:
            tasks.append(self.waiting.popleft())
        return Batch(worker, tuple(tasks), alone=False)

    def start(self, reference: Any, batch: Batch) -> None:
        """Record that a worker runs a batch; the reference is that of its result."""
        self.running[reference] = batch
        self._put(batch.worker, batch.load)

    def release(self, reference: Any) -> Batch:
        """Take a batch from its worker; its tasks still count as unfinished."""
        batch = self.running.pop(reference)
        self._put(batch.worker, -batch.load)
        return batch

    def finish(self, tasks: Iterable[Task]) -> None:
        """Tasks have their outcome, or need none."""
        self._unfinished.subtract(task.rung for task in tasks)

    def requeue(self, tasks: tuple[Task, ...], may_be_cause: bool) -> list[Task]:
        """Queue lost tasks to be tried again, one by one; return those that were lost too often.

        Args:
            may_be_cause: whether one of them may be the cause.
        """
        counted = [replace(t, worker_failures=t.worker_failures + 1, crashes=t.crashes + may_be_cause) for t in tasks]
        over = [task for task in counted if task.fault("") is not None]
        self.suspects.extend(task for task in counted if task.fault("") is None)
        self.finish(over)
        return over

    def clear_waiting(self) -> None:
        """Forget the tasks that no worker has been given."""
        self.finish(self.waiting)
        self.waiting.clear()

    def abandon(self) -> int:
        """Give up, because no worker is ready: forget all tasks that wait for one; returns how many there were."""
        count = self.outstanding()
        self.waiting.clear()
        self.suspects.clear()
        self.pending_failures.clear()
        self._unfinished.clear()
        self.given_up = True
        return count
