"""The book-keeping of workers and tasks, against counting everything each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from allo_dse.tune.workers.pool import AHEAD, MAX_WORKER_FAILURES, Place, Pool, Task, WorkerFailure

WORKERS = 3
STEPS = ("add", "give", "finish", "retry", "lose", "conclude", "welcome", "clear")


def under_way(pool: Pool) -> Any:
    """Every task that the pool has, wherever it is."""
    given = [batch.tasks for batch in pool.running.values()] + [loss.tasks for loss in pool.pending_failures.values()]
    return [*pool.waiting, *pool.suspects, *(task for tasks in given for task in tasks)]


def load(pool: Pool, worker: Any) -> Any:
    return sum(AHEAD if batch.alone else 1 for batch in pool.running.values() if batch.worker == worker)


class Driver:
    """Does with a pool what the executor does, step by step."""

    def __init__(self) -> None:
        self.pool, self.number = Pool(WORKERS), 0
        self.over: list[Any] = []

    def add(self, _: Any) -> None:
        self.pool.add(Task(self.number, self.number % 2, {}))
        self.number += 1

    def give(self, _: Any) -> None:
        loads = {worker: load(self.pool, worker) for worker in self.pool.ready}
        alone = bool(self.pool.suspects)
        batch = self.pool.next_batch()
        if batch is None:
            enough = not loads or min(loads.values()) >= (1 if alone else AHEAD)
            assert enough or not (self.pool.waiting or self.pool.suspects)
            return
        assert loads[batch.worker] == min(loads.values())
        assert batch.alone == alone
        self.number += 1
        self.pool.start(self.number, batch)

    def finish(self, pick: Callable[[list[int]], int]) -> None:
        if self.pool.running:
            tasks = self.pool.release(pick(sorted(self.pool.running))).tasks
            self.pool.finish(tasks)
            self.over += [task.number for task in tasks]

    def retry(self, pick: Any) -> None:
        if self.pool.running:
            self._again(self.pool.release(pick(sorted(self.pool.running))).tasks)

    def lose(self, pick: Any) -> None:
        if self.pool.ready:
            self.number += 1
            self.pool.pending_failures[self.number] = WorkerFailure(
                None, self.pool.remove_worker(pick(sorted(self.pool.ready))), "", 0.0
            )

    def conclude(self, pick: Any) -> None:
        if self.pool.pending_failures:
            self._again(self.pool.pending_failures.pop(pick(sorted(self.pool.pending_failures))).tasks)

    def _again(self, tasks: tuple[Task, ...]) -> None:
        self.over += [task.number for task in self.pool.requeue(tasks, may_be_cause=False)]

    def welcome(self, pick: Any) -> None:
        away = [worker for worker in range(WORKERS) if worker not in self.pool.ready]
        if away:
            self.pool.add_worker(pick(away), None)

    def clear(self, _: Any) -> None:
        self.over += [task.number for task in self.pool.waiting]
        self.pool.clear_waiting()


@settings(max_examples=150)
@given(st.data())
def test_nothing_is_lost_and_the_least_busy_worker_is_next(data: DataObject) -> None:
    driver, added = Driver(), 0
    for step in data.draw(st.lists(st.sampled_from(STEPS), max_size=60)):
        getattr(driver, step)(lambda choices: data.draw(st.sampled_from(choices)))
        added += step == "add"
        pool, tasks = driver.pool, under_way(driver.pool)
        assert pool.outstanding() == len(tasks) == added - len(driver.over)
        assert [pool.outstanding(rung) for rung in range(2)] == [sum(t.rung == r for t in tasks) for r in range(2)]
        assert all(pool.busy(worker) == (load(pool, worker) > 0) for worker in pool.ready)
        assert max((task.worker_failures for task in tasks), default=0) < MAX_WORKER_FAILURES
    driver.pool.abandon()
    assert driver.pool.outstanding() == 0


def test_batches_grow_with_the_time_that_the_driver_takes_for_all_workers() -> None:
    pool = Pool(500)
    for worker in range(500):
        pool.add_worker(worker, None)
    pool.seconds[0] = 0.1
    assert pool.batch_size(0) == 1
    for _ in range(200):
        pool.learn_handling(0.0005)
    # 500 batches take the driver 0.25 s, which is a sixteenth of the 4 s that they last.
    assert pool.batch_size(0) == 40
    pool.seconds[0] = 600.0
    assert pool.batch_size(0) == 1


def crowded(cores: int, workers: int) -> Pool:
    """Half of the workers on one node, half on another."""
    pool = Pool(workers)
    for worker in range(workers):
        pool.add_worker(worker, Place("ab"[worker % 2], worker, cores))
    return pool


def test_batches_grow_with_the_workers_that_share_a_core() -> None:
    pool = crowded(2, 128)
    pool.seconds[0] = 0.1
    # A millisecond for each of 32 workers on a core, which is a sixteenth of the half second that the batches last.
    assert pool.batch_size(0) == 6
    assert pool.room(0) == 128 * AHEAD * 6
    roomy = crowded(64, 128)
    roomy.seconds[0] = 0.1
    assert roomy.batch_size(0) == 1
    for worker in range(8, 128):
        pool.remove_worker(worker)
    assert pool.batch_size(0) == 1
