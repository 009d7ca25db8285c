"""Which designs should go up to an expensive evaluator? What it has measured, as a share of what there is to be found.

    python -m benchmarks.promotion [--seeds 20] [--workers 1] [--cases npu_board,arrays,...]

Cases (`promotion_cases.py`) are designs that a search by a cheap evaluator has met, or of a synthetic space, and what
an expensive evaluator says of each. After 5, 10, 20 and 40 designs that went up: the hypervolume of the logarithms of
what was measured as a share of that of all designs, in the box from the ideal point of the true front to a tenth beyond
its worst; with one objective how far the best is on the way from the quartile of the worse designs to the optimum.
Median and quartiles over seeds, each 300 other designs of a search or a space of its own. `model` is what a study does,
`layers` the order of the cheap evaluator's fronts, `random` any order. `--workers`: so many are measured at a time.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Callable

import numpy as np

from allo_dse import minimize
from allo_dse.space.sampler.pareto import pareto_positions
from allo_dse.tune.search.pareto_front import hypervolume
from allo_dse.tune.search.promotion import Promotion, Rung, promoted
from allo_dse.tune.search.tally import Tally
from allo_dse.tune.store.record import Record, json_text
from benchmarks.kernel_spaces import Booleans, Floats
from benchmarks.promotion_cases import CASES, Case
from tests.tune.fakes import add

MARKS = (5, 10, 20, 40)
WORST = 0.75  # of the designs, with one objective


def by_model(case: Case, seed: int, workers: int) -> list[int]:
    """Rows of a case in the order in which a study measures them."""
    signs = [1.0] * case.cheap.shape[1]
    tally = Tally([minimize(f"loss{n}") for n in range(len(signs))])
    for row, (genes, losses) in enumerate(zip(case.genes, case.cheap.tolist(), strict=True)):
        add(tally, Record(number=row, key=f"{row:06}", status="ok", genes_json=json_text(genes)), tuple(losses))
    rung = Rung(object, best=1.0, at_most=MARKS[-1])  # type: ignore[arg-type]
    promotion = Promotion([rung], tally, signs, case.ranges)
    order: list[int] = []
    under_way: deque[Record] = deque()
    while True:
        under_way += promotion.next(1, workers - len(under_way), over=True)
        if not under_way:
            return order
        record = under_way.popleft()
        losses, order = case.true[record.number], [*order, record.number]
        holds = bool(np.isfinite(losses).all())
        measured = Record(number=record.number, key=record.key, status="ok", rung=1, genes_json=record.genes_json)
        tally.add_higher(measured, tuple(losses.tolist()) if holds else None)


def by_layers(case: Case, seed: int, workers: int) -> list[int]:
    values = {str(row): tuple(losses) for row, losses in enumerate(case.cheap.tolist())}
    rung = Rung(object, best=1.0, at_most=MARKS[-1])  # type: ignore[arg-type]
    return [int(key) for key in promoted(rung, values, (1.0,) * case.cheap.shape[1])]


def at_random(case: Case, seed: int, workers: int) -> list[int]:
    order: list[int] = np.random.default_rng(seed).permutation(len(case.genes)).tolist()
    return order[: MARKS[-1]]


ORDERS: dict[str, Callable[[Case, int, int], list[int]]] = {
    "model": by_model, "layers": by_layers, "random": at_random,
}  # fmt: skip


def scores(case: Case, order: list[int]) -> list[float]:
    """At each of the marks."""
    holds: Booleans = np.asarray(np.isfinite(case.true).all(1))
    known = np.log(case.true[holds])
    front = known[pareto_positions(known)]
    low, high = front.min(0), front.max(0) + 0.1 * np.ptp(front, 0)
    if case.true.shape[1] == 1:
        high = np.quantile(known, WORST, 0)
    span = np.where(high > low, high - low, 1.0)

    def volume(losses: Floats) -> float:
        return hypervolume((losses - low) / span, np.ones(len(span))) if len(losses) else 0.0

    measured = (order[:mark] for mark in MARKS)
    return [volume(np.log(case.true[[row for row in rows if holds[row]]])) / volume(known) for rows in measured]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--cases", default=",".join(CASES))
    options = parser.parse_args()
    print(f"after {MARKS} designs that went up, median (quartiles) of {options.seeds} seeds; fail: share of designs")
    for name in options.cases.split(","):
        cases = [CASES[name](seed) for seed in range(options.seeds)]
        fail = 1 - np.mean([np.isfinite(case.true).all(1).mean() for case in cases])
        for order, choose in ORDERS.items():
            started = time.process_time()
            rows = [scores(case, choose(case, seed, options.workers)) for seed, case in enumerate(cases)]
            each = (time.process_time() - started) / len(rows) / MARKS[-1]
            cells = "".join(f"{m:>7.3f} ({a:.2f} {b:.2f})" for a, m, b in np.quantile(rows, [0.25, 0.5, 0.75], 0).T)
            print(f"{name:16}{fail:5.0%} {order:7}{cells}   {1e3 * each:.1f} ms each", flush=True)


if __name__ == "__main__":
    main()
