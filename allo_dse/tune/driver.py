"""The loop of a run: propose, screen, evaluate, write down, count, tell, show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..eval.evaluator import Metrics
from ..space.space import Candidate
from .budget import Budget
from .executor import Executor, Outcome
from .log import RunLog
from .objectives import Constraint, MetricError, Objective
from .proposals import Proposal, Proposer, Told
from .record import Record
from .tally import Tally

FAILED = "failed"


@dataclass(frozen=True)
class Judge:
    """Turns metrics into objective values and constraint violations."""

    objectives: Sequence[Objective]
    constraints: Sequence[Constraint]

    def values(self, record: Record) -> tuple[float, ...] | None:
        """Objective values of a feasible design, None for every other."""
        if record.status != "ok":
            return None
        metrics = Metrics(**(record.metrics or {}))
        return tuple(objective.value(metrics) for objective in self.objectives)

    def told(self, record: Record) -> Told:
        """What a model learns of an evaluated design."""
        if record.status == "failed":
            return Told(None, {FAILED: 1.0, **dict.fromkeys((c.name for c in self.constraints), 0.0)})
        metrics = Metrics(**(record.metrics or {}))
        violations = {FAILED: 0.0, **(record.constraints or {})}
        return Told(tuple(objective.value(metrics) for objective in self.objectives), violations)

    def rule(self, outcome: Outcome) -> dict[str, Any]:
        """The fields of a record that follow from an outcome."""
        if outcome.metrics is None:
            return {"status": "failed", "error": outcome.error}
        try:
            metrics = Metrics(**outcome.metrics)
            values = {o.name: o.value(metrics) for o in self.objectives}
            violated = {c.name: c.violation(metrics) for c in self.constraints}
        except MetricError as error:
            return {"status": "failed", "error": str(error), "metrics": outcome.metrics}
        status = "infeasible" if any(v > 0 for v in violated.values()) else "ok"
        return {"status": status, "metrics": outcome.metrics, "values": values, "constraints": violated or None}

    def again(self, record: Record) -> Record:
        """A stored record under today's objectives and constraints, which may differ from those it was made with."""
        if not record.evaluated or record.metrics is None:
            return record
        fields = self.rule(Outcome(record.number, record.metrics, None, record.seconds))
        return Record(**{**record.__dict__, "error": None, "constraints": None, "values": None, **fields})


def describe(candidate: Candidate) -> dict[str, Any]:
    """The fields of a record that say which design it is."""
    design = candidate.design
    return {
        "key": candidate.key,
        "genes": candidate.genes,
        "params": {name: plain(value) for name, value in candidate.params.items()},
        "fold": design.fold.to_dict(),
        "buffering": design.buffering.to_dict(),
    }


def plain(value: Any) -> Any:
    """A parameter value as JSON has it: numbers, text and truth values as they are, the rest by name."""
    from ..space.params import plain_value

    return value if isinstance(value, bool | int | float | str) or value is None else plain_value(value)


class Driver:
    """Runs a study until its budget is spent, its space exhausted or a stop requested.

    Args:
        started_at: seconds the study had run for before.
        stop_requested: asked between batches; a text ("Ctrl-C") to stop, empty to go on.
        watch: told after every batch, for progress.
    """

    def __init__(
        self,
        *,
        proposer: Proposer,
        executor: Executor,
        judge: Judge,
        log: RunLog,
        tally: Tally,
        budget: Budget,
        evaluator: str,
        started_at: float,
        stop_requested: Callable[[], str],
        watch: Callable[[], None],
    ) -> None:
        self._proposer = proposer
        self._executor = executor
        self._judge = judge
        self._log = log
        self._tally = tally
        self._budget = budget
        self._evaluator = evaluator
        self._started_at = started_at
        self._stop_requested = stop_requested
        self._watch = watch
        self._pending: dict[int, Proposal] = {}
        self._violations: list[Record] = []

    def note_violation(self, candidate: Candidate, violations: list[dict[str, str]]) -> None:
        """Keep a design that breaks a device limit for the next write to the log."""
        self._violations.append(
            Record(number=-1, status="violation", violations=violations, at=self._at(), **describe(candidate))
        )

    def run(self) -> str:
        """Returns why the run ended: "trials", "time", "exhausted" or what requested the stop."""
        reason = ""
        while True:
            reason = reason or self._stop_requested()
            if reason or self._budget.time_is_up:
                self._executor.stop()
            else:
                self._propose()
            if self._executor.outstanding == 0:
                self._record([])
                return reason or self._why()
            self._record(self._executor.collect())
            self._watch()

    def _why(self) -> str:
        if self._proposer.exhausted:
            return "exhausted"
        return "time" if self._budget.time_is_up else "trials"

    def _propose(self) -> None:
        outstanding = self._executor.outstanding
        count = min(self._executor.room(), self._budget.trials_left(self._tally.done + outstanding))
        if count <= 0 or self._proposer.exhausted:
            return
        proposals = self._proposer.ask(count, outstanding)
        self._pending.update((p.number, p) for p in proposals)
        self._executor.submit(proposals)

    def _record(self, outcomes: list[Outcome]) -> None:
        violations, self._violations = self._violations, []
        finished = [self._finish(outcome) for outcome in outcomes]
        # On disk before counted: a record that cannot be written is not a result.
        self._log.append(record.to_dict() for record in (*violations, *finished))
        for record in finished:
            self._tally.add(record, self._judge.values(record))
            self._proposer.tell(record.number, self._judge.told(record))

    def _finish(self, outcome: Outcome) -> Record:
        proposal = self._pending.pop(outcome.number)
        return Record(
            number=outcome.number,
            seconds=round(outcome.seconds, 6),
            at=self._at(),
            evaluator=self._evaluator,
            **describe(proposal.candidate),
            **self._judge.rule(outcome),
        )

    def _at(self) -> float:
        return round(self._started_at + self._budget.elapsed, 4)
