"""One evaluator's result for a design, as the page keeps it."""

from __future__ import annotations

from allo_dse.tune.store.record import Measurement, Record

from ..log.follow import Where


class Rung(Measurement, frozen=True, kw_only=True, gc=False):
    """One evaluator's result for a design.

    Attributes:
        where: offset and length of the entry in the log.
    """

    where: Where

    @staticmethod
    def of(entry: Record, where: Where) -> Rung:
        """Build the result from an entry of the log."""
        return Rung(
            where=where, number=entry.number, rung=entry.rung, evaluator=entry.evaluator, worker=entry.worker,
            metrics=entry.metrics, error=entry.error, seconds=entry.seconds, cached=entry.cached, printed=entry.printed,
        )  # fmt: skip
