"""Up to a thousand workers, simulated: how busy the driver is, where it saturates, and which batch sizes avoid that.

    python benchmarks/cluster_model.py [--workers 1000] [--driver-ms 1.5] [--send-ms 1.0]

A model of the driver with the costs that the other benchmarks measure: it spends `--driver-ms` on each design
(propose, check, log, tell) and `--send-ms` on each batch (send, receive), one after the other. Workers have two batches
each and evaluate them; evaluation times vary by 30 %. The figures are the model's, not a cluster's.
"""

import argparse
import heapq
import random

from allo_dse.tune.pool import AHEAD, BATCH_SECONDS, MAX_BATCH

HORIZON_BATCHES = 20_000


def simulate(workers, evaluation, batch, driver, send, seed=0):
    """(designs per second, share of time the driver is busy, share of time workers are busy)."""
    rng = random.Random(seed)
    free = [0.0] * workers  # when each worker has finished what it was given
    arrivals, clock, busy, done, worked = [], 0.0, 0.0, 0, 0.0

    def give(worker, now):
        nonlocal worked
        seconds = sum(evaluation * rng.uniform(0.7, 1.3) for _ in range(min(batch, 8))) * batch / min(batch, 8)
        free[worker] = max(free[worker], now) + seconds
        worked += seconds
        heapq.heappush(arrivals, (free[worker], worker))

    cost = batch * driver + send
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--driver-ms", type=float, default=1.5)
    parser.add_argument("--send-ms", type=float, default=1.0)
    options = parser.parse_args()
    driver, send = options.driver_ms / 1e3, options.send_ms / 1e3
    print(f"{options.workers} workers; driver {options.driver_ms} ms per design and {options.send_ms} ms per batch")
    for text, evaluation in (("1 ms", 1e-3), ("1 s", 1.0), ("10 min", 600.0)):
        chosen = max(1, min(MAX_BATCH, int(BATCH_SECONDS / evaluation)))
        for batch in sorted({1, 8, MAX_BATCH, chosen} if evaluation < 60 else {1}):
            rate, busy, worked = simulate(options.workers, evaluation, batch, driver, send)
            mark = " (chosen)" if batch == chosen else ""
            shares = f"driver {100 * busy:5.1f} % busy, workers {100 * worked:5.1f} %"
            print(f"{text:>7} each, batches of {batch:2}{mark}: {rate:9.1f} designs/s, {shares}")
        limit = evaluation / (driver + send / chosen)
        print(f"{'':7} the driver keeps {limit:,.0f} workers busy with such batches")


if __name__ == "__main__":
    main()
