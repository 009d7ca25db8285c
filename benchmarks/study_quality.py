"""How good is what the search finds, study by study? Against the mapping that an expert writes by hand.

    python -m benchmarks.study_quality [--trials 1500] [--seed 0] [study ...]

Prints for each study the size of its space, how many designs were evaluated, the share of legal folds that is never
built because it cannot fit, and the latency of the best design beside that of the mapping by hand
(studies/hand_made.py): the table of docs/studies.md.
"""

from __future__ import annotations

import argparse
import importlib
import tempfile
from collections.abc import Iterable

from allo_dse import NpuSimulator
from allo_dse.lang import install
from allo_dse.tune.show.reporters import QuietReporter

install()

from studies.hand_made import HAND_MADE

COUNT_LIMIT = 10**7
TRIALS = 1500
TITLES = ("study", "designs", "evaluated", "pruned", "by hand, us", "found, us", "by hand / found")


def measure(name: str, trials: int = TRIALS, seed: int = 0) -> str:
    """One row of the table."""
    study = importlib.import_module(f"studies.{name}").study()
    by_hand = HAND_MADE[name].design(study)
    hand_us = NpuSimulator().evaluate(by_hand).latency_us
    pruned = study.folds.space(by_hand.program).pruned_share
    size = study.space.count(COUNT_LIMIT)
    with tempfile.TemporaryDirectory() as directory:
        result = study.run(trials=trials, seed=seed, run_dir=directory, verify=False, progress=QuietReporter())
        found_us = result.best("latency_us").metrics.latency_us
    space = f"{size:,}" if size is not None else f"> {COUNT_LIMIT:,}"
    cells = (f"`{name}`", space, f"{len(result.records):,}", f"{pruned:.1%}", f"{hand_us:,.0f}", f"{found_us:,.0f}")
    return _row((*cells, f"{hand_us / found_us:.2f}"))


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", nargs="*", default=list(HAND_MADE))
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print(_row(TITLES), _row("---" for _ in TITLES), sep="\n")
    for name in arguments.studies:
        print(measure(name, arguments.trials, arguments.seed), flush=True)


if __name__ == "__main__":
    main()
