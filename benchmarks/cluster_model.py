"""Up to a thousand workers, simulated: how busy the driver is, where it saturates, and which batch sizes avoid that.

    python benchmarks/cluster_model.py [--workers 1000] [--design-ms MS] [--batch-ms MS] [--send-ms MS]

What the driver pays is measured first, in CPU time, on this machine and on the GEMM study's space: for a design
(propose, check, log, tell; an evaluator that answers at once), for a batch sent to a worker through Ray and received,
for each design in it, and for keeping track of that many workers. A model of the driver then spends that time, one
thing after the other, while workers, which have two batches each, evaluate for times that vary by 30 %. The designs per
second are the model's, not a cluster's.
"""

import argparse
import heapq
import random
import tempfile
import time
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allo_dse.eval.evaluator import needs
from allo_dse.tune.show.reporters import QuietReporter
from allo_dse.tune.study import Study
from allo_dse.tune.workers.executor import Job
from allo_dse.tune.workers.pool import AHEAD, BATCH_SECONDS, MAX_BATCH, Pool, Task
from allo_dse.tune.workers.ray_executor import RayExecutor
from benchmarks.search_overhead import Instant, gemm_study

HORIZON_BATCHES = 20_000
DESIGNS, WARM_UP = 1500, 500  # evaluated to find out what one costs; the first ones compile programs
ROUND_TRIPS = 200
POOL_ROUNDS = 20


@dataclass
class Costs:
    """What the driver pays, in seconds: for a design, for a batch, and for sending a design in a batch."""

    design: float
    batch: float
    send: float

    def of_batch(self, size: Any) -> Any:
        return self.batch + size * (self.design + self.send)


class Meter(QuietReporter):
    """Notes the CPU time at which numbers of designs are reached."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, float]] = []

    def update(self, view: Any, last: bool = False) -> None:
        self.seen.append((view.tally.done, time.process_time()))


def instant_study() -> Study:
    study = gemm_study()
    study._evaluator = Instant
    return study


def design_cost() -> Any:
    """Seconds per design, everything but the evaluator; and the genes of some designs."""
    meter = Meter()
    with tempfile.TemporaryDirectory() as folder:
        result = instant_study().run(DESIGNS, verify=False, progress=meter, run_dir=Path(folder) / "run")
    (first, started), (last, ended) = next(s for s in meter.seen if s[0] >= WARM_UP), meter.seen[-1]
    return (ended - started) / (last - first), [record.genes for record in result.records[:MAX_BATCH]]


def batch_cost(executor: RayExecutor, jobs: Any) -> Any:
    """Seconds of this process to have these designs evaluated as one batch."""
    started = time.process_time()
    for _ in range(ROUND_TRIPS):
        executor.submit(jobs)
        while executor.outstanding():
            executor.collect()
    return (time.process_time() - started) / ROUND_TRIPS


def measured() -> Costs:
    """The costs on this machine."""
    design, genes = design_cost()
    study = instant_study()
    study.reload = instant_study
    jobs = [Job(number, 0, study.space.decode_genes(found)) for number, found in enumerate(genes)]  # type: ignore[arg-type]
    executor = RayExecutor(study, [needs(study.make_evaluator())], 1, None)
    try:
        batch_cost(executor, jobs)  # the worker compiles programs, and the executor learns that batches may be full
        single, full = batch_cost(executor, jobs[:1]), batch_cost(executor, jobs)
    finally:
        executor.close()
    send = max(0.0, (full - single) / (MAX_BATCH - 1))
    return Costs(design, single - send, send)


def pool_cost(workers: int, size: int) -> float:
    """Seconds per batch of that size to keep track of what the workers have."""
    pool = Pool(workers)
    pool.seconds[0] = BATCH_SECONDS / (size + 0.5)
    for worker in range(workers):
        pool.welcome(worker, None)
    for number in range(AHEAD * workers * size):
        pool.add(Task(number, 0, {}))
    while (batch := pool.next_batch()) is not None:
        pool.start(len(pool.running), batch)
    given, started = len(pool.running), time.process_time()
    for number in range(POOL_ROUNDS):
        done = pool.release(number).tasks
        pool.finish(done)
        pool.room(0)
        pool.outstanding(0)
        for task in done:
            pool.add(task)
        batch = pool.next_batch()
        assert batch is not None
        pool.start(given + number, batch)
        pool.next_batch()  # says that there is nothing more to give
    return (time.process_time() - started) / POOL_ROUNDS


def simulate(workers: int, evaluation: float, batch: int, cost: float, seed: int = 0) -> tuple[float, float, float]:
    """(designs per second, share of time the driver is busy, share of time workers are busy). `cost`: of a batch."""
    rng = random.Random(seed)
    free = [0.0] * workers  # when each worker has finished what it was given
    arrivals: list[tuple[float, int]] = []
    clock, busy, done, worked = 0.0, 0.0, 0, 0.0

    def give(worker: int, now: float) -> None:
        nonlocal worked
        seconds = sum(evaluation * rng.uniform(0.7, 1.3) for _ in range(min(batch, 8))) * batch / min(batch, 8)
        free[worker] = max(free[worker], now) + seconds
        worked += seconds
        heapq.heappush(arrivals, (free[worker], worker))

    for _ in range(AHEAD):
        for worker in range(workers):
            clock += cost
            busy += cost
            give(worker, clock)
    while done < HORIZON_BATCHES * batch:
        arrived, worker = heapq.heappop(arrivals)
        clock = max(clock, arrived) + cost
        busy += cost
        done += batch
        give(worker, clock)
    return done / clock, busy / clock, min(1.0, worked / (clock * workers))


def chosen_costs(options: Namespace) -> Costs:
    """What was given, and for the rest what is measured."""
    given = {name: getattr(options, f"{name}_ms") for name in ("design", "batch", "send")}
    found = measured() if None in given.values() else None
    text = "given" if found is None else "measured here" if set(given.values()) == {None} else "given or measured here"
    costs = Costs(**{name: getattr(found, name) if ms is None else ms / 1e3 for name, ms in given.items()})
    print(f"driver ({text}): {1e3 * costs.design:.2f} ms per design to propose, check, log and tell; through Ray "
          f"{1e3 * costs.batch:.2f} ms per batch and {1e3 * costs.send:.3f} ms per design in it")  # fmt: skip
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--design-ms", type=float, help="per design: propose, check, log, tell (default: measured)")
    parser.add_argument("--batch-ms", type=float, help="per batch sent and received (default: measured)")
    parser.add_argument("--send-ms", type=float, help="per design in a batch (default: measured)")
    options = parser.parse_args()
    costs = chosen_costs(options)
    sizes = (1, 8, MAX_BATCH)
    tracking = {size: pool_cost(options.workers, size) for size in sizes}
    text = ", ".join(f"{1e3 * tracking[size]:.2f} ms per batch of {size}" for size in sizes)
    print(f"{options.workers} workers; to keep track of them: {text}")
    of_batch = {size: costs.of_batch(size) + tracking[size] for size in sizes}
    for text, evaluation in (("1 ms", 1e-3), ("1 s", 1.0), ("10 min", 600.0)):
        chosen = max(1, min(MAX_BATCH, int(BATCH_SECONDS / evaluation)))
        for batch in sizes if evaluation < 60 else (1,):
            rate, busy, worked = simulate(options.workers, evaluation, batch, of_batch[batch])
            mark = " (chosen)" if batch == chosen else ""
            shares = f"driver {100 * busy:5.1f} % busy, workers {100 * worked:5.1f} %"
            print(f"{text:>7} each, batches of {batch:2}{mark}: {rate:9.1f} designs/s, {shares}")
        limit = evaluation * chosen / of_batch[chosen]
        print(f"{'':7} the driver keeps {limit:,.{'1f' if limit < 10 else '0f'}} workers busy with such batches")


if __name__ == "__main__":
    main()
