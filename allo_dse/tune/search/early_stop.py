"""Early stop of a run in which no evaluated design can count, with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from allo_dse.common.errors import StudyError

from ..store.record import Record
from ..store.run_info import failure_kind
from .tally import Designs

MISSING = 5  # designs whose metrics lack one that an objective or constraint needs
FAILED = 10  # designs that fail with the same error
UNMET = 200  # designs that break a constraint, or a device limit, by the same amount: the search has no direction
AGAIN = "the same command tries other designs, and keeps these"


class EarlyStop:
    """Stopping rule of a run in which no evaluated design is feasible.

    Args:
        earlier: designs of the run before it was resumed. If one is feasible, the constraints can be met, and failures
            of that time are no reason to stop.
    """

    def __init__(self, earlier: Designs) -> None:
        self._over, self._met = False, any(earlier.with_status("ok"))
        self._usual = {failure_kind(r.error) for r in earlier.with_status("failed") if self._met}
        self._evaluated = self._missing = 0
        self._kinds: Counter[str] = Counter()
        self._unmet: set[tuple[str, float]] | None = None  # constraints that all designs break by the same amount

    def look(self, records: Sequence[Record]) -> None:
        """Count results of the first rung.

        Raises:
            StudyError: when there is no point in going on.
        """
        for record in records:
            if self._over or record.rung:
                continue
            self._evaluated += 1
            if record.status == "ok":
                self._over = True
            elif record.status == "failed":
                self._failed(record)
            elif not self._met:
                self._infeasible(record)

    def _failed(self, record: Record) -> None:
        error = record.error or ""
        kind = failure_kind(error)
        if kind in self._usual:
            return
        self._missing += record.metrics is not None
        self._kinds[kind] += 1
        self._unmet = set()
        if self._missing == self._evaluated == MISSING:
            raise StudyError(f"no design can be judged: {error}", hint="correct the study and run it again")
        if self._kinds[kind] == self._evaluated == FAILED:
            raise StudyError(
                f"the first {FAILED} designs all failed in {record.evaluator}: {error}",
                hint=f"correct the program, or the evaluator with another version; or {AGAIN}",
            )

    def _infeasible(self, record: Record) -> None:
        broken = {(name, amount) for name, amount in (record.constraints or {}).items() if amount > 0}
        self._unmet = broken if self._unmet is None else self._unmet & broken
        if self._unmet and self._evaluated >= UNMET:
            names = " and ".join(repr(name) for name, _ in sorted(self._unmet))
            raise StudyError(
                f"none of {self._evaluated} designs satisfies the constraint {names} or comes near",
                hint=f"correct or loosen it; a metric with at_most= or at_least= would guide the search; {AGAIN}",
            )
