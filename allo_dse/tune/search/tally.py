"""Evaluated designs of a study, with counts, best designs and front, updated one record at a time."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, cast, get_args

import numpy as np

from allo_dse.eval.calibrate.correction import Correction

from ..store.log import Log
from ..store.record import Record, Status, decode_entry
from .objectives import Objective
from .pareto_front import ParetoFront
from .scoring import Scorer, Values

STATUSES: tuple[Status, ...] = get_args(Status)


class Designs(Sequence[Record]):
    """Evaluated designs in the order of results. A record is read from the log when it is asked for.

    Args:
        log: has a line for each.
        judged: returns a record of the log under today's objectives, constraints and correction.

    Attributes:
        rows: row of each design, by key.
        promoted: records with the metrics of several rungs, by row.
        differing: rows of the other designs whose records differ from their lines in the log.
        next_number: number of the next proposal.
    """

    def __init__(
        self, log: Log | Sequence[bytes] = (), judged: Callable[[Record], Record] = lambda record: record
    ) -> None:
        self.log, self._judged = log, judged
        self.rows: dict[str, int] = {}
        self.promoted: dict[int, Record] = {}
        self.next_number = 0
        self._places = array("q")  # of their lines
        self._statuses = bytearray()
        self.differing: set[int] = set()

    def add(self, record: Record, line: int) -> None:
        """Add a design; its record is that line of the log."""
        self.rows[record.key] = len(self._places)
        self._places.append(line)
        self._statuses.append(STATUSES.index(record.status))
        self.next_number = max(self.next_number, record.number + 1)

    def judged_by(self, judged: Callable[[Record], Record]) -> Designs:
        """Return the same designs under other objectives, constraints or correction."""
        made = copy(self)
        made._judged, made.promoted, made._statuses, made.differing = judged, {}, self._statuses[:], set()
        return made

    def judge(self) -> Iterator[Record]:
        """Yield each design under today's objectives, constraints and correction, which count from then on."""
        for row in range(len(self)):
            before = self.logged(row)
            record = self._judged(before)
            self._statuses[row] = STATUSES.index(record.status)
            if record is not before:
                self.differing.add(row)
            yield record

    @property
    def first(self) -> Designs:
        """The designs as the first rung measured them."""
        made = copy(self)
        made.promoted = {}
        return made

    def logged(self, row: int) -> Record:
        """Return a record as it is in the log."""
        return cast(Record, decode_entry(self.log[self._places[row]]))

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, slice):
            return [self[row] for row in range(len(self))[which]]
        row = range(len(self))[which]
        if row in self.promoted:
            return self.promoted[row]
        record = self.logged(row)
        return self._judged(record) if row in self.differing else record

    def by_key(self, key: str) -> Record:
        """Return a design's record with all its measurements."""
        return cast(Record, self[self.rows[key]])

    def with_status(self, status: Status) -> Iterator[Record]:
        """Yield the designs that have a status."""
        code = STATUSES.index(status)
        rows = (row for row, known in enumerate(self._statuses) if known == code or row in self.promoted)
        return (record for row in rows if (record := self[row]).status == status)


@dataclass
class Tally:
    """Counts, best designs and front of the records so far.

    Attributes:
        records: every evaluated design, in the order of results; promoted ones with the metrics of all rungs.
        values: first-rung objective values by design key, for feasible designs.
        rungs: the same for each rung above the first; None for designs that failed there or violate a constraint.
        infeasible: number of evaluated designs that each constraint of the study ruled out.
        evaluator_seconds: total time in evaluators.
        correction: correction of predictions by measurements; applied to all predicted records.
        improved: number of records when the front last changed.
    """

    objectives: Sequence[Objective]
    records: Designs = field(default_factory=Designs)
    values: dict[str, Values] = field(default_factory=dict)
    rungs: dict[int, dict[str, Values | None]] = field(default_factory=dict)
    front: ParetoFront = field(init=False)
    statuses: Counter[str] = field(default_factory=Counter)
    infeasible: Counter[str] = field(default_factory=Counter)
    evaluator_seconds: float = 0.0
    last_error: str = ""
    correction: Correction = field(default_factory=Correction)
    improved: int = 0

    def __post_init__(self) -> None:
        self.front = ParetoFront(len(self.objectives), [o.most_loss for o in self.objectives])

    def add(self, record: Record, values: Values | None, line: int) -> None:
        """Count an evaluated design.

        Args:
            values: its objective values if it is feasible.
            line: number of its line in the log.
        """
        self.records.add(record, line)
        self._count(record.key, record, values)
        if values is not None and self.front.add(
            record.key, [o.sign * v for o, v in zip(self.objectives, values, strict=True)]
        ):
            self.improved = len(self.records)

    def restore(self, designs: Designs, scorer: Scorer) -> None:
        """Count the evaluated designs of earlier runs, in the order of their results, before any other."""
        self.records = designs
        for key, record in zip(designs.rows, designs.judge(), strict=True):  # each key is in memory once
            self._count(key, record, scorer.values(record))
        if self.values:
            losses = np.array(list(self.values.values()), float) * [o.sign for o in self.objectives]
            self.front.extend(list(self.values), losses)
            self.improved = max(designs.rows[key] for key in self.front.keys) + 1

    def begin_again(self, correction: Correction) -> None:
        """Count nothing, as at the start, under another correction."""
        vars(self).update(vars(Tally(self.objectives, correction=correction)))

    def _count(self, key: str, record: Record, values: Values | None) -> None:
        if values is not None:
            self.values[key] = values
        self.statuses[record.status] += 1
        self.evaluator_seconds += record.seconds
        if record.status == "infeasible":
            self.infeasible.update(name for name, v in (record.constraints or {}).items() if v > 0)
        if record.status == "failed":
            self.last_error = record.error or ""

    def add_higher(self, record: Record, values: Values | None) -> None:
        """Count a higher rung's result for a design; `record` has the metrics of all rungs."""
        self.records.promoted[self.records.rows[record.key]] = record
        self.rungs.setdefault(record.rung, {})[record.key] = values
        self.evaluator_seconds += record.seconds
        if record.status == "failed":
            self.last_error = record.error or ""

    def feasible(self, rung: int) -> Mapping[str, Values]:
        """Objective values of the designs that satisfy everything, as a rung measured them."""
        if rung == 0:
            return self.values
        return {key: values for key, values in self.rungs.get(rung, {}).items() if values is not None}

    @property
    def refuted(self) -> set[str]:
        """Designs that failed or violate a constraint at a higher rung; rungs where all do are ignored."""
        telling = (found for found in self.rungs.values() if any(found.values()))
        return {key for found in telling for key, values in found.items() if values is None}

    @property
    def final_values(self) -> Mapping[str, Values]:
        """Objective values by the highest rung with a feasible design, since only those are comparable.

        Designs that failed or violated a constraint at a higher rung are excluded.
        """
        refuted: set[str] = set()
        for rung in sorted(self.rungs, reverse=True):
            found = {key: values for key, values in self.feasible(rung).items() if key not in refuted}
            if found:
                return found
            refuted.update(key for key, values in self.rungs[rung].items() if values is None)
        return {k: values for k, values in self.values.items() if k not in refuted} if refuted else self.values

    @property
    def done(self) -> int:
        """Number of trials: evaluated designs, with any outcome."""
        return len(self.records)

    def best_value(self, objective: Objective) -> float | None:
        """The best one of the front, or as the highest rung that found a feasible design measured it."""
        position = list(self.objectives).index(objective)
        known = self.final_values.values() if self.rungs else map(self.values.__getitem__, self.front.keys)
        best = min((objective.sign * values[position] for values in known), default=None)
        return None if best is None else objective.sign * best
