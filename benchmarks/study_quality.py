"""How good is what the search finds, study by study? Against the mapping that an expert writes by hand.

    python -m benchmarks.study_quality [--trials 1500] [--seed 0] [study ...]

Prints for each study the size of its space, the share of legal folds that is never built because it cannot fit, designs
per second, and the latency of the best design over that of the mapping by hand (studies/hand_made.py).
"""

from __future__ import annotations

import argparse
import importlib
import tempfile
import time

from allo_dse import NpuSimulator
from allo_dse.lang import install
from allo_dse.tune.show.reporters import QuietReporter

install()

from studies.hand_made import HAND_MADE

COUNT_LIMIT = 10**7


def measure(name: str, trials: int, seed: int) -> str:
    """One line of the table."""
    study = importlib.import_module(f"studies.{name}").study()
    by_hand = HAND_MADE[name].design(study)
    hand_us = NpuSimulator().evaluate(by_hand).latency_us
    pruned = study.folds.pruned_share(by_hand.program)
    size = study.space.count(COUNT_LIMIT)
    with tempfile.TemporaryDirectory() as directory:
        started = time.perf_counter()
        result = study.run(trials=trials, seed=seed, run_dir=directory, verify=False, progress=QuietReporter())
        seconds = time.perf_counter() - started
        found_us = result.best("latency_us").metrics.latency_us
        rate = len(result.trials) / seconds
    space = f"{size:,}" if size is not None else f"> {COUNT_LIMIT:,}"
    return (
        f"{name:<16}{space:>12}{pruned:>9.1%}{rate:>10.0f}{hand_us:>12.0f}{found_us:>12.0f}{hand_us / found_us:>8.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", nargs="*", default=list(HAND_MADE))
    parser.add_argument("--trials", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print(f"{'study':<16}{'designs':>12}{'pruned':>9}{'evals/s':>10}{'by hand us':>12}{'found us':>12}{'ratio':>8}")
    for name in arguments.studies:
        print(measure(name, arguments.trials, arguments.seed), flush=True)


if __name__ == "__main__":
    main()
