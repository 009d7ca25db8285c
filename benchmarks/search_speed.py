"""Designs per second end to end on one core: propose, check, simulate, record; and where the time goes.

    python benchmarks/search_speed.py [--trials 2000]

Runs the GEMM study in this process (one worker) without verification: once for the speed, from a cold start (importing
and compiling the simulator included) and counted from the first result, and once under a profiler for the shares.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from allo_dse.lang import install
from allo_dse.tune.show.reporters import QuietReporter

install()
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from studies.gemm_npu import study

# The first entry in whose function the time was spent, from the inside out.
PARTS = {
    "allo_dse/eval/npu/evaluator.py:evaluate": "simulate (network, run, extrapolation)",
    "allo_dse/tune/declare/spec.py:check": "check (fold, data movement, limits)",
    "allo_dse/mapper/program.py:load_program": "compile programs",
    "optuna/study/study.py:ask": "Optuna ask",
    "optuna/study/study.py:tell": "Optuna tell",
    "allo_dse/tune/store/log.py:append": "write the log",
}


class FirstResult(QuietReporter):
    """Notes when the first designs are done."""

    at = 0.0

    def update(self, view: Any, last: bool = False) -> None:
        self.at = self.at or time.perf_counter()


def run(trials: int, seed: int) -> tuple[float, float]:
    """Seconds of a whole run, and from its first result on."""
    reporter = FirstResult()
    with tempfile.TemporaryDirectory() as directory:
        started = time.perf_counter()
        study("i16").run(trials=trials, seed=seed, run_dir=directory, verify=False, progress=reporter)
        ended = time.perf_counter()
    return ended - started, ended - reporter.at


def shares(trials: int) -> dict[str, float]:
    """Share of each part in the time of a run, by cumulative time of the functions that stand for it."""
    profiler = cProfile.Profile()
    profiler.enable()
    run(trials, seed=1)
    profiler.disable()
    found: Counter[str] = Counter()
    total = 0.0
    for (file, _, function), (_, _, own, cumulative, _) in pstats.Stats(profiler).stats.items():  # type: ignore[attr-defined]
        total += own
        for suffix, part in PARTS.items():
            if f"{file}:{function}".endswith(suffix):
                found[part] += cumulative
    found["the rest of the search"] = total - sum(found.values())  # type: ignore[assignment]
    return {part: seconds / total for part, seconds in found.most_common()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=2000)
    trials = parser.parse_args().trials
    whole, steady = run(trials, seed=0)
    print(f"{trials} designs: {trials / whole:.0f}/s from a cold start, {trials / steady:.0f}/s after the first result")
    for part, share in shares(min(trials, 600)).items():
        print(f"    {share:6.1%}  {part}")


if __name__ == "__main__":
    main()
