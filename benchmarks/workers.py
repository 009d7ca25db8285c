"""What worker processes gain, and what they cost per design.

    python benchmarks/workers.py [--seconds 0.02] [--designs 400] [--wait] [--workers 1,2]

A stand-in evaluator that computes for `--seconds` per design, on the GEMM study's space, with one and with two worker
processes: designs per second, their ratio, the share of the time that the workers evaluate, the overhead per design
(wall time times workers, less the time spent in evaluators), and the driver's CPU time per design. All runs go through
Ray, after their workers have started. The ratio means something on a machine that does nothing else: the workers and
the driver share its cores. With `--wait` any number of workers can be tried on it, as far as there is memory for them.
"""

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from allo_dse.eval.evaluator import Metrics
from allo_dse.tune.show.reporters import QuietReporter
from allo_dse.tune.study import Study
from benchmarks.search_overhead import gemm_study


class Busy:
    """Computes, or waits for a tool, for a while; prices a design from its descriptor."""

    name = "busy"
    version = "1"

    def __init__(self, seconds: Any, wait: Any) -> None:
        self.seconds, self.wait = seconds, wait

    def evaluate(self, design: Any) -> Metrics:
        if self.wait:
            time.sleep(self.seconds)
        until = time.process_time() + self.seconds * (not self.wait)
        while time.process_time() < until:
            pass
        p, nodes = design.program.params, design.fold.node_count
        return Metrics(latency_us=1e6 / nodes + p["Pm"], pe_count=nodes, local_memory_bytes=1.0 * p["Pn"])


class Pace(QuietReporter):
    """Notes when results come in; counts from the first batch on."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def update(self, view: Any, last: bool = False) -> None:
        if view.tally.done:
            now = time.perf_counter(), time.process_time()
            self.seen.append((view.tally.done, *now, view.tally.evaluator_seconds))


def busy_study(seconds: Any, wait: Any) -> Study:
    study = gemm_study()
    study._evaluator = Busy(seconds, wait)
    study.reload = partial(busy_study, seconds, wait)
    return study


def measure(workers: Any, seconds: Any, designs: Any, wait: Any) -> Any:
    study = busy_study(seconds, wait)
    pace = Pace()
    with tempfile.TemporaryDirectory() as folder:
        study.run(designs, workers=workers, verify=False, progress=pace, run_dir=Path(folder) / "run",
                  ray_address="local" if workers == 1 else None)  # fmt: skip
    # From a quarter on: programs are compiled once per worker at first.
    start = next(s for s in pace.seen if s[0] >= designs // 4)
    count, wall, driver, busy = (b - a for a, b in zip(start, pace.seen[-1], strict=True))
    return count / wall, (wall * workers - busy) / count, driver / count, busy / (wall * workers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.02)
    parser.add_argument("--designs", type=int, default=400)
    parser.add_argument("--wait", action="store_true", help="evaluations wait instead of computing")
    parser.add_argument("--workers", default="1,2", help="numbers of workers, the first to compare with")
    options = parser.parse_args()
    rates = {}
    for workers in map(int, options.workers.split(",")):
        rates[workers], overhead, driver, busy = measure(workers, options.seconds, options.designs, options.wait)
        print(f"{workers} worker(s): {rates[workers]:7.1f} designs/s, workers busy {100 * busy:.1f} %, overhead "
              f"{1e3 * overhead:.2f} ms per design, driver {1e3 * driver:.2f} ms of CPU per design")  # fmt: skip
    first, *others = rates
    for workers in others:
        print(f"{workers} workers against {first}: {rates[workers] / rates[first]:.2f}x")


if __name__ == "__main__":
    main()
