"""What the search itself costs per design: everything but the evaluator, on the GEMM study's space.

    python -m benchmarks.search_overhead [--trials 1000,5000] [--samplers evolution,random,nsga2]

A stand-in evaluator answers at once, so what is left is proposing, decoding, the device check, the log, Optuna's
bookkeeping and the tally. Costs are processor time, and must not grow with the number of trials: each row is the mean
since the one before; the space has some 20,000 designs. Compiling the study's programs (125 of them, once each) is
shown separately.
"""

import argparse
import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from allo_dse.eval.evaluator import Metrics
from allo_dse.tune.show.reporters import QuietReporter
from allo_dse.tune.study import Study, load_studies

HERE = Path(__file__).parent


def gemm_study() -> Study:
    """The GEMM study for whatever the device can do: those that Allo builds are fewer than what is measured here."""
    return load_studies(HERE.parent / "studies" / "gemm_npu.py", {"target": "model"})[0]


class Instant:
    """Prices a design from its descriptor, without looking at the graph."""

    name = "instant"
    version = "1"

    def evaluate(self, design: Any) -> Metrics:
        p, nodes = design.program.params, design.fold.node_count
        tile = 2 * (4 * p["Pm"] + 3 * p["Pn"] + 5 * p["Pk"])
        return Metrics(latency_us=1e6 / nodes + tile % 977, pe_count=nodes, local_memory_bytes=1e6 / tile)


class Watch(QuietReporter):
    """Notes the time at which numbers of trials are reached."""

    def __init__(self, marks: Any) -> None:
        super().__init__()
        self.marks, self.checks = list(marks), 0.0
        self.rows: list[tuple[float, float]] = []

    def start(self, view: Any) -> None:
        self.last = (0, time.process_time(), 0.0)

    def update(self, view: Any, last: bool = False) -> None:
        while self.marks and view.tally.done >= self.marks[0]:
            done, then, checks = self.last
            now = time.process_time()
            self.last = (self.marks.pop(0), now, self.checks)
            count = self.last[0] - done
            self.rows.append(((now - then - (self.checks - checks)) / count, (self.checks - checks) / count))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", default="1000,5000")
    parser.add_argument("--samplers", default="evolution,random")
    options = parser.parse_args()
    marks = [int(n) for n in options.trials.split(",")]

    study = gemm_study()
    started = time.process_time()
    programs = [study.programs.load(p) for p in study.parameters.assignments()]
    print(f"{len(programs)} programs compiled, {1e3 * (time.process_time() - started) / len(programs):.1f} ms each")
    study._evaluator = Instant
    check = study.check
    for sampler in options.samplers.split(","):
        watch = Watch(marks)

        def timed(design: Any, watch: Watch = watch) -> Sequence[Any]:
            then = time.process_time()
            try:
                return check(design)
            finally:
                watch.checks += time.process_time() - then

        study.check = timed  # type: ignore[method-assign]
        with tempfile.TemporaryDirectory() as folder:
            study.run(marks[-1], sampler=sampler, verify=False, progress=watch, run_dir=Path(folder) / "run")
        for n, (seconds, checks) in zip(marks, watch.rows, strict=False):  # the space may end before
            text = f"{1e3 * seconds:.2f} ms each, and {1e3 * checks:.2f} ms checking the device"
            print(f"{sampler:10} up to {n:6,} designs: {text}")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # KiB on Linux
        print(f"{sampler:10} peak memory so far: {peak:,.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
