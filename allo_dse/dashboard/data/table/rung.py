"""What an evaluator found out about a design, as the page has it."""

from __future__ import annotations

from allo_dse.tune.store.record import Measurement, Record

from ..log.follow import Where


class Rung(Measurement, frozen=True, kw_only=True, gc=False):
    """What one evaluator found out about a design.

    Attributes:
        where: offset and length of the entry in the log.
    """

    where: Where

    @staticmethod
    def of(entry: Record, where: Where) -> Rung:
        """What an entry says."""
        return Rung(
            where=where, number=entry.number, rung=entry.rung, evaluator=entry.evaluator, worker=entry.worker,
            metrics=entry.metrics, error=entry.error, seconds=entry.seconds, cached=entry.cached, printed=entry.printed,
        )  # fmt: skip
