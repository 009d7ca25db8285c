"""Conversion of metrics to objective values, constraint violations and results for a model."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

from msgspec import Struct

from allo_dse.common.records import replace
from allo_dse.eval.calibrate.correction import merged_metrics
from allo_dse.eval.evaluator import Metrics
from allo_dse.space.sampler.pareto import FAILED

from ..store.record import Record, Status
from .objectives import Constraint, MetricError, Objective
from .proposer import Outcome

Values: TypeAlias = tuple[float, ...]
"""A design's objective values."""
_Ruling: TypeAlias = tuple[Status, str | None, dict[str, float] | None, dict[str, float] | None]
"""Status, error, values and constraints of a record."""


class Scorer(Struct, frozen=True, dict=True):
    """Conversion of metrics to objective values and constraint violations."""

    objectives: Sequence[Objective]
    constraints: Sequence[Constraint]

    @property
    def _pick(self) -> Callable[[dict[str, float]], Values]:
        """Return a function that picks the objective values of a record, at least one."""
        first, *more = [objective.name for objective in self.objectives]
        return itemgetter(first, *more) if more else lambda values: (values[first],)

    def values(self, record: Record) -> Values | None:
        """Objective values of a feasible design, None for every other. The record is one that `scored` returned."""
        return self._measured(record) if record.status == "ok" else None

    def _measured(self, record: Record) -> Values:
        return self._pick(record.values or {})

    def outcome(self, record: Record, refuted: Container[str] = ()) -> Outcome:
        """Return the result of an evaluated design as a model learns it.

        Args:
            refuted: keys of designs that failed later, at a higher rung or in verification.
        """
        if record.status == "failed":
            return Outcome(None, {FAILED: 1.0, **dict.fromkeys((c.name for c in self.constraints), 0.0)})
        return Outcome(self._measured(record), {FAILED: float(record.key in refuted), **(record.constraints or {})})

    def scored(self, record: Record) -> Record:
        """Return a record under today's objectives and constraints, which may have changed since it was made."""
        if not record.evaluated or record.metrics is None:
            return record
        status, error, values, constraints = ruling = self._rule(record.metrics)
        if (record.status, record.error, record.values, record.constraints) == ruling:
            return record
        return replace(record, status=status, error=error, values=values, constraints=constraints)

    def _rule(self, found: dict[str, Any]) -> _Ruling:
        """Derive status, error, objective values and violations from metrics."""
        try:
            metrics = Metrics(**found)
            values = {o.name: o.value(metrics) for o in self.objectives}
            violated = {c.name: c.violation(metrics) for c in self.constraints}
        except MetricError as error:
            return "failed", str(error), None, None
        status: Status = "infeasible" if any(v > 0 for v in violated.values()) else "ok"
        return status, None, values, violated or None

    def merged(self, below: Record, record: Record) -> Record:
        """Merge a design's record with that of a higher rung, whose metrics take precedence."""
        metrics = merged_metrics(below.metrics, record.metrics)
        rungs = (*below.measurements, record.measurement)
        together = replace(record, metrics=metrics, rungs=rungs)
        return together if record.metrics is None else self.scored(together)
