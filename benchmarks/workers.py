"""What worker processes gain, and what they cost per design.

    python -m benchmarks.workers [--seconds 0.02] [--designs 400] [--wait] [--workers 1,2] [--study gemm]

A stand-in evaluator that computes for `--seconds` per design, on the GEMM study's space, with one and with two worker
processes: designs per second, their ratio, the share of the time that the workers evaluate, the overhead per design
(wall time times workers, less the time spent in evaluators), and the CPU time per design of the driver, of all workers
together and of Ray's own processes; of the second half of the designs, once all workers have started. The ratio means
something on a machine that does nothing else: the workers and the driver share its cores. With `--wait` any number of
workers can be tried on it, as far as there is memory for them and CPU time for what they do beside waiting.

With `--study formula`, designs are of a made-up program that need not be compiled, so that driver and transport are
measured: each worker compiles each of the GEMM study's programs once, which takes seconds at the beginning of a run.
"""

import argparse
import os
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from allo_dse.eval.evaluator import Metrics
from allo_dse.tune.show.reporters import QuietReporter
from allo_dse.tune.study import Study
from benchmarks.search_overhead import Instant, gemm_study
from tests.tune.fakes import fake_study

TICKS = os.sysconf("SC_CLK_TCK")
COUNTED_SECONDS = 0.5  # between looks at the CPU time of other processes


def formula_study() -> Study:
    """Some hundred thousand designs of a program that is only a formula."""
    return fake_study(size=8192, at_most=512, max_nodes=64)


STUDIES = {"gemm": gemm_study, "formula": formula_study}


class Busy:
    """Computes, or waits for a tool, for a while; prices a design from its descriptor."""

    name = "busy"
    version = "1"

    def __init__(self, seconds: Any, wait: Any) -> None:
        self.seconds, self.wait = seconds, wait
        self.waits = bool(wait)

    def evaluate(self, design: Any) -> Metrics:
        if self.wait:
            time.sleep(self.seconds)
        until = time.process_time() + self.seconds * (not self.wait)
        while time.process_time() < until:
            pass
        return Instant().evaluate(design)


class Pace(QuietReporter):
    """Notes when results come in, from when all workers have given some."""

    def __init__(self, workers: int) -> None:
        super().__init__()
        self.seen: list[Any] = []
        self._missing, self._known = workers, set[str]()
        self._others, self._looked, self._read = Counter[str](), 0.0, 0

    def update(self, view: Any, last: bool = False) -> None:
        records, self._read = view.tally.records[self._read :], len(view.tally.records)
        self._known.update(record.worker for record in records)
        if len(self._known) >= self._missing:
            now = time.perf_counter()
            if last or now > self._looked + COUNTED_SECONDS:
                self._others, self._looked = cpu_of_others(), now
            cpu = time.process_time(), self._others["workers"], self._others["ray"]
            self.seen.append((view.tally.done, now, view.tally.evaluator_seconds, *cpu))


def cpu_of_others() -> Counter[str]:
    """Seconds that processes which descend from this one have computed: workers, and what belongs to Ray."""
    known, children = {}, defaultdict(list)
    for process in Path("/proc").glob("[0-9]*"):
        try:
            head, _, rest = (process / "stat").read_text().rpartition(")")
        except OSError:  # it has ended
            continue
        fields = rest.split()
        known[int(process.name)] = head.partition("(")[2], (int(fields[11]) + int(fields[12])) / TICKS
        children[int(fields[1])].append(int(process.name))

    def below(number: int) -> Iterator[int]:
        for child in children[number]:
            yield child
            yield from below(child)

    found = Counter[str]()
    for name, seconds in (known[number] for number in below(os.getpid())):
        found["workers" if name.startswith("ray::RayWorker") else "ray"] += seconds  # type: ignore[assignment]
    return found


def busy_study(kind: Any, seconds: Any, wait: Any) -> Study:
    study = STUDIES[kind]()
    study._evaluator = Busy(seconds, wait)
    study.reload = partial(busy_study, kind, seconds, wait)
    return study


def measure(workers: Any, seconds: Any, designs: Any, wait: Any, kind: Any = "gemm") -> Any:
    """(designs per second, overhead per design, CPU seconds per design of driver, workers and Ray, share of the time
    that workers evaluate)."""
    study = busy_study(kind, seconds, wait)
    pace = Pace(workers)
    with tempfile.TemporaryDirectory() as folder:
        study.run(designs, workers=workers, verify=False, progress=pace, run_dir=Path(folder) / "run", export=False,
                  ray_address="local" if workers == 1 else None)  # fmt: skip
    # From half on: starting a worker takes more than a second of CPU time, and it compiles programs at first.
    start = next(s for s in pace.seen if s[0] >= designs // 2)
    count, wall, busy, *cpu = (b - a for a, b in zip(start, pace.seen[-1], strict=True))
    return count / wall, (wall * workers - busy) / count, [one / count for one in cpu], busy / (wall * workers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.02)
    parser.add_argument("--designs", type=int, default=400)
    parser.add_argument("--wait", action="store_true", help="evaluations wait instead of computing")
    parser.add_argument("--workers", default="1,2", help="numbers of workers, the first to compare with")
    parser.add_argument("--study", default="gemm", choices=STUDIES)
    options = parser.parse_args()
    rates = {}
    for workers in map(int, options.workers.split(",")):
        rates[workers], overhead, (driver, own, ray), busy = measure(
            workers, options.seconds, options.designs, options.wait, options.study
        )
        print(f"{workers} worker(s): {rates[workers]:7.1f} designs/s, workers busy {100 * busy:.1f} %, overhead "
              f"{1e3 * overhead:.2f} ms per design; CPU per design: driver {1e3 * driver:.2f} ms, workers "
              f"{1e3 * own:.2f} ms, Ray {1e3 * ray:.2f} ms", flush=True)  # fmt: skip
    first, *others = rates
    for workers in others:
        print(f"{workers} workers against {first}: {rates[workers] / rates[first]:.2f}x")


if __name__ == "__main__":
    main()
