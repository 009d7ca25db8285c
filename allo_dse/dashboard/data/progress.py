"""Progress of a run: feasible designs, failures and workers over time."""

from __future__ import annotations

from collections import Counter

import numpy as np

from allo_dse.common.records import Frozen
from allo_dse.eval.calibrate.correction import Correction, correction_of

from .columns import Floats
from .reading import OK
from .runs import Board
from .table import RunTable

BINS = 60


class Progress(Frozen):
    """Counts of a run in equal intervals of its time.

    Attributes:
        edges: of the intervals, in seconds since the study began.
        feasible: designs that satisfied everything, in each.
        failures: per reason, designs that were lost to it in each interval: limits of the device, constraints, and
            evaluations that failed.
        workers: per worker the share of each interval that it spent evaluating.
    """

    edges: Floats
    feasible: Floats
    failures: dict[str, Floats]
    workers: dict[str, Floats]

    @property
    def middles(self) -> Floats:
        return (self.edges[1:] + self.edges[:-1]) / 2

    @property
    def seconds(self) -> float:
        """Length of an interval."""
        return float(self.edges[1] - self.edges[0])


def timeline(table: RunTable, bins: int = BINS) -> Progress:
    """The run in `bins` intervals."""
    edges = np.linspace(0, max(1e-3, table.seconds), bins + 1)
    feasible = np.histogram(table.numbers("at")[table.ok], edges)[0].astype(float)
    at, seconds = table.numbers("at"), np.nan_to_num(table.numbers("seconds"))
    worker = table.column("worker")
    # Runs without named workers: all of them together.
    names, codes = (["all"], np.zeros(len(table))) if worker is None else (worker.categories, worker.codes)
    workers = {
        name: np.minimum(1.0, _busy(at[codes == number], seconds[codes == number], edges) / (edges[1] - edges[0]))
        for number, name in enumerate(names)
    }
    return Progress(edges, feasible, _failures(table, edges), workers)


def measured(table: RunTable) -> Correction:
    """Return the correction of predictions that the measured designs give."""
    later = [(one.where, key, rungs[0], one) for key, rungs in table.promoted.items() for one in rungs[1:]]
    later.sort(key=lambda known: known[0])
    return correction_of((key, one.rung, first.metrics, one.metrics) for _, key, first, one in later)


def lost(table: RunTable) -> Counter[str]:
    """Count ruled-out designs per limit. A design that breaks several limits counts for each."""
    counts = Counter(limit for r in table.ruled_out for limit in r.limits)
    reason = table.column("reason")
    if reason is not None and not reason.numeric:
        counts.update(reason.counts)
    return +counts


def statuses(table: RunTable) -> Counter[str]:
    """Designs by status, those that break a limit of the device included."""
    column = table.column("status")
    return Counter({OK: 0, **({} if column is None else column.counts), "violation": len(table.ruled_out)})


def _failures(table: RunTable, edges: Floats) -> dict[str, Floats]:
    times: dict[str, list[float]] = {}
    for item in table.ruled_out:
        for limit in item.limits:
            times.setdefault(limit, []).append(item.at)
    reason = table.column("reason")
    if reason is not None and not reason.numeric:
        at, codes = table.numbers("at"), reason.codes
        for number, name in enumerate(reason.categories):
            times.setdefault(name, []).extend(at[codes == number].tolist())
    counted = {name: np.histogram(values, edges)[0].astype(float) for name, values in times.items()}
    return dict(sorted(counted.items(), key=lambda item: -float(item[1].sum())))


def _busy(end: Floats, seconds: Floats, edges: Floats) -> Floats:
    """Seconds of the intervals (end - seconds, end) that fall between consecutive edges."""
    return np.diff([np.clip(edge - end + seconds, 0, seconds).sum() for edge in edges])


MOST_REASONS = 3
_HELP = "docs/troubleshooting.md says what helps against each limit"


def why_none(board: Board) -> str:
    """Explain an empty page: nothing was evaluated, everything was ruled out, or a filter leaves none."""
    proposed = sum(len(run) + len(run.ruled_out) for run in board.runs)
    if not proposed:
        return "No design has been evaluated yet: this page shows them as the study runs (allo-tune STUDY.py)."
    if any(run.ok.any() for run in board.runs):
        return "No feasible design is left: clear the filter, or show the runs that are hidden."
    reasons = sum((lost(run) for run in board.runs[1:]), lost(board.runs[0])).most_common(MOST_REASONS)
    said = ", ".join(f"{name} rules out {100 * count / proposed:.0f} %" for name, count in reasons)
    return f"No feasible design among {proposed:,}: {said}. {_HELP}."
