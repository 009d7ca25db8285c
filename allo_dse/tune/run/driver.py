"""The loop of a run: propose, screen, evaluate, write down, count, tell, show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from msgspec import structs

from allo_dse.eval.evaluator import Metrics
from allo_dse.space.params import plain_value
from allo_dse.space.space import Candidate

from ..search.budget import Budget
from ..search.ladder import Ladder, Rung
from ..search.objectives import Constraint, MetricError, Objective
from ..search.proposals import Proposer, Told
from ..search.tally import Tally
from ..store.log import RunLog
from ..store.record import Record, json_text
from ..workers.executor import Executor, Job, Outcome

FAILED = "failed"
PROPOSE_AT_ONCE = 16  # designs: an idle worker gets work before all others have theirs


@dataclass(frozen=True)
class Judge:
    """Turns metrics into objective values and constraint violations."""

    objectives: Sequence[Objective]
    constraints: Sequence[Constraint]

    @cached_property
    def _names(self) -> list[str]:
        return [objective.name for objective in self.objectives]

    def values(self, record: Record) -> tuple[float, ...] | None:
        """Objective values of a feasible design, None for every other. The record is one that was judged by `rule`."""
        return self._measured(record) if record.status == "ok" else None

    def _measured(self, record: Record) -> tuple[float, ...]:
        values = record.values or {}
        return tuple([values[name] for name in self._names])

    def told(self, record: Record) -> Told:
        """What a model learns of an evaluated design."""
        if record.status == "failed":
            return Told(None, {FAILED: 1.0, **dict.fromkeys((c.name for c in self.constraints), 0.0)})
        return Told(self._measured(record), {FAILED: 0.0, **(record.constraints or {})})

    def rule(self, outcome: Outcome) -> dict[str, Any]:
        """The fields of a record that follow from an outcome."""
        if outcome.metrics is None:
            return {"status": "failed", "error": outcome.error}
        return {**self._rule(outcome.metrics), "metrics": outcome.metrics}

    def _rule(self, found: dict[str, Any]) -> dict[str, Any]:
        """The fields that follow from metrics."""
        try:
            metrics = Metrics(**found)
            values = {o.name: o.value(metrics) for o in self.objectives}
            violated = {c.name: c.violation(metrics) for c in self.constraints}
        except MetricError as error:
            return {"status": "failed", "error": str(error), "values": None, "constraints": None}
        status = "infeasible" if any(v > 0 for v in violated.values()) else "ok"
        return {"status": status, "error": None, "values": values, "constraints": violated or None}

    def again(self, record: Record) -> Record:
        """A stored record under today's objectives and constraints, which may differ from those it was made with."""
        if not record.evaluated or record.metrics is None:
            return record
        fields = self._rule(record.metrics)
        if all(getattr(record, name) == value for name, value in fields.items()):
            return record
        return structs.replace(record, **fields)

    def merged(self, below: Record, record: Record) -> Record:
        """A design after a higher rung: the metrics of both, those of the higher one where both have them."""
        metrics = {**(below.metrics or {}), **(record.metrics or {})}
        together = structs.replace(record, metrics=metrics)
        return together if record.metrics is None else self.again(together)


def describe(candidate: Candidate) -> dict[str, Any]:
    """The fields of a record that say which design it is."""
    design = candidate.design
    return {
        "key": candidate.key,
        "genes_json": json_text(candidate.genes),
        "params_json": json_text({name: plain(value) for name, value in candidate.params.items()}),
        "fold_json": json_text(design.fold.to_dict()),
        "buffering_json": json_text(design.buffering.to_dict()),
        "schedule": [str(directive) for directive in design.schedule] or None,
        "depths": dict(design.depths) or None,
    }


def plain(value: Any) -> Any:
    """A parameter value as JSON has it: numbers, text and truth values as they are, the rest by name."""
    return value if isinstance(value, bool | int | float | str) or value is None else plain_value(value)


class Driver:
    """Runs a study until its budget is spent, its space exhausted or a stop requested, then finishes the ladder.

    Args:
        rungs: above the first; None for one that cannot be used in this run.
        names: of the evaluators of all rungs.
        started_at: seconds the study had run for before.
        known: metrics of a candidate at a rung that an earlier run found, or None.
        rebuild: the candidate of a stored design.
        keep: told about each outcome before it is recorded; returns fields of the record.
        stop_requested: asked between batches; a text ("Ctrl-C") to stop, empty to go on.
        watch: told after every batch, for progress.
        recorded: told about each record that is on disk and counted.
        others: designs that other drivers of the study have evaluated, at any rung, since it was last asked.
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
        rungs: Sequence[Rung | None],
        names: Sequence[str],
        started_at: float,
        known: Callable[[Candidate, int], dict[str, Any] | None],
        rebuild: Callable[[Record], Candidate],
        keep: Callable[[Candidate, Outcome], dict[str, Any]],
        stop_requested: Callable[[], str],
        watch: Callable[[], None],
        recorded: Callable[[Record], None],
        others: Callable[[], list[tuple[Candidate, Outcome]]] = list,
    ) -> None:
        self._proposer = proposer
        self._executor = executor
        self._judge = judge
        self._log = log
        self._tally = tally
        self._budget = budget
        self._names = names
        self._started_at = started_at
        self._known = known
        self._keep = keep
        self._stop_requested = stop_requested
        self._watch = watch
        self._others = others
        self._recorded = recorded
        self._pending: dict[tuple[int, int], Candidate] = {}
        self._violations: list[Record] = []
        self._early: list[tuple[Candidate, Outcome]] = []  # of others, on designs that are not known here yet
        self._ladder = Ladder(rungs, tally, [o.sign for o in judge.objectives], rebuild)

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
                self._promote()
            if self._executor.outstanding() == 0:
                self._record([])
                return reason or self._why()
            self._record(self._executor.collect())
            self._take_in()
            self._watch()

    def _why(self) -> str:
        if self._proposer.exhausted:
            return "exhausted"
        return "time" if self._budget.search_time_is_up else "trials"

    def _propose(self) -> None:
        room = self._executor.room(0)
        while room > 0 and not self._proposer.exhausted:
            outstanding = self._executor.outstanding(0)
            count = min(room, self._budget.trials_left(self._tally.done + outstanding), PROPOSE_AT_ONCE)
            found = self._proposer.ask(count, outstanding) if count > 0 else []
            if not found:
                return
            self._submit(0, [(p.number, p.candidate) for p in found])
            room -= len(found)

    def _promote(self) -> None:
        """Give dear evaluators designs: those with workers of their own while the search goes on, the rest after it."""
        over = self._executor.outstanding(0) == 0
        for rung in self._ladder.usable:
            if over or self._executor.separate(rung):
                self._submit(rung, self._ladder.next(rung, self._executor.room(rung), over=over))
            over = over and self._executor.outstanding(rung) == 0

    def _submit(self, rung: int, designs: Sequence[tuple[int, Candidate]]) -> None:
        if designs:
            self._pending.update(((number, rung), candidate) for number, candidate in designs)
            self._executor.submit([Job(number, rung, c, self._known(c, rung)) for number, c in designs])

    def _record(self, outcomes: list[Outcome]) -> None:
        violations, self._violations = self._violations, []
        finished = [self._finish(outcome) for outcome in outcomes]
        # On disk before counted: a record that cannot be written is not a result.
        self._log.append(record.to_dict() for record in (*violations, *finished))
        for record in finished:
            self._count(record)
            self._recorded(record)

    def _count(self, record: Record) -> None:
        if record.rung:
            together = self._judge.merged(self._tally.record(record.key), record)
            self._tally.add_higher(together, self._judge.values(together))
        else:
            self._tally.add(record, self._judge.values(record))
            self._proposer.tell(record.number, self._judge.told(record))

    def _take_in(self) -> None:
        """Record what other drivers have found out, and learn from it."""
        records = []
        for candidate, found in self._others():
            if found.rung:
                self._early.append((candidate, found))
                continue
            ruling = self._judge.rule(found)
            record = Record(
                number=-1, at=self._at(), evaluator=self._names[0], worker=found.worker, cached=True,
                **describe(candidate), **ruling,
            )  # fmt: skip
            number = self._proposer.learn(record.key, record.genes, self._judge.told(record))
            records.append(structs.replace(record, number=number))
        self._log.append(record.to_dict() for record in records)
        for record in records:
            self._tally.add(record, self._judge.values(record))
        self._take_in_higher()

    def _take_in_higher(self) -> None:
        """The same for what others have found out above the first rung, once the design is known here."""
        early, self._early = self._early, []
        records = []
        for candidate, found in early:
            if candidate.key not in self._tally:
                self._early.append((candidate, found))
            elif self._ladder.spare(found.rung, candidate.key):
                number = self._tally.record(candidate.key).number
                self._pending[number, found.rung] = candidate
                records.append(self._finish(replace(found, number=number)))
        self._log.append(record.to_dict() for record in records)
        for record in records:
            self._count(record)

    def _finish(self, outcome: Outcome) -> Record:
        candidate = self._pending.pop((outcome.number, outcome.rung))
        ruling = self._judge.rule(outcome)
        if outcome.rung and outcome.metrics is not None:
            # Objectives may need metrics of the rungs below.
            below = self._tally.record(candidate.key).metrics or {}
            together = {**below, **outcome.metrics}
            ruling = {**self._judge.rule(replace(outcome, metrics=together)), "metrics": outcome.metrics}
        return Record(
            number=outcome.number,
            rung=outcome.rung,
            seconds=round(outcome.seconds, 6),
            at=self._at(),
            evaluator=self._names[outcome.rung],
            worker=outcome.worker,
            cached=outcome.cached,
            **describe(candidate),
            **ruling,
            **self._keep(candidate, outcome),
        )

    def _at(self) -> float:
        return round(self._started_at + self._budget.elapsed, 4)
