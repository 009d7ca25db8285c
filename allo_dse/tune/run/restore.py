"""Earlier runs in a log, under the objectives and constraints of today."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from allo_dse.common.records import replace
from allo_dse.eval.calibrate.correction import PREDICTED, Correction, correction_of
from allo_dse.space.choices.parameters import parameters_of
from allo_dse.space.genes import Genes
from allo_dse.space.space import Space

from ..search.proposer import Outcome
from ..search.scoring import Scorer
from ..search.screening import Screen
from ..search.tally import Tally
from ..store.designs import Designs
from ..store.log import Log
from ..store.record import NOTHING, PlacementNote, Record, Revaluation, Session, Verification, Withdrawal, decode_entry


@dataclass
class History:
    """Earlier runs of a study.

    Attributes:
        designs: designs evaluated by the first rung, in the order of results; predictions are corrected by all
            measurements.
        outside: the same, for parameters that the study's conditions (`where=`, `when=`) no longer allow.
        higher: results of rungs above the first.
        lines: of the log.
        enqueued: genes of the designs that the first run began with.
        verified, placed: results for designs of a front, by key.
        stated: line of the latest entry with a design's status and values, by key, if it is not the first.
        withdrawn: whether a design has contradicted the bounds of today's first evaluator.
        started_at: seconds the study had run for.
    """

    designs: Designs
    outside: Designs
    lines: Log
    higher: list[Record] = field(default_factory=list)
    enqueued: list[Genes] = field(default_factory=list)
    verified: dict[str, Verification] = field(default_factory=dict)
    placed: dict[str, PlacementNote] = field(default_factory=dict)
    stated: dict[str, int] = field(default_factory=dict)
    withdrawn: bool = False
    started_at: float = 0.0
    correction: Correction = field(default_factory=Correction)

    @property
    def wrong(self) -> set[str]:
        """Designs of a front that verification has refused."""
        return {key for key, verification in self.verified.items() if not verification.ok}

    def outcome_of(self, scorer: Scorer, tally: Tally | None = None) -> Callable[[Record], Outcome]:
        """Return a function that turns records into results for a proposer.

        Designs with wrong numbers, or that fail at a higher rung, count as failed.

        Args:
            tally: count of these and later records; by default of these alone.
        """
        if tally is None:
            self.count(tally := Tally(scorer.objectives), scorer)
        refuted = self.wrong | tally.refuted
        return lambda record: scorer.outcome(record, refuted)

    def count(self, tally: Tally, scorer: Scorer) -> None:
        """Count everything."""
        tally.restore(self.designs, scorer.values)
        for record in self.higher:
            together = scorer.merged(tally.records.by_key(record.key), record)
            tally.add_higher(together, scorer.values(together))

    def revaluations(self) -> Iterator[Revaluation]:
        """Yield entries for the log, for its readers, on designs whose status or values have changed since: the study
        may have new objectives or constraints."""
        rows = self.designs.rows
        changed = sorted({*self.designs.differing, *(rows[key] for key in self.stated if key in rows)})
        yield from revalued(self.designs, changed, lambda row: self._stated(self.designs.logged(row)))
        for record in self.outside:
            before = self._stated(record)
            if before.status != "infeasible" or before.values:
                yield Revaluation(key=record.key, status="infeasible", values={})

    def _stated(self, record: Record) -> Record | Revaluation:
        """Return the latest entry of the log with a design's status and values."""
        entry = decode_entry(self.lines[self.stated[record.key]]) if record.key in self.stated else record
        assert isinstance(entry, Record | Revaluation)
        return entry


def revalued(now: Designs, rows: Iterable[int], before: Callable[[int], Record | Revaluation]) -> Iterator[Revaluation]:
    """Yield entries for the log on designs, by row, whose status or values have changed."""
    for row in rows:
        record, stated = now[row], before(row)
        if (record.status, record.values or None) != (stated.status, stated.values or None):
            yield Revaluation(key=record.key, status=record.status, values=record.values or {})


def read_history(lines: Log, scorer: Scorer, screen: Screen, names: Sequence[str], end: int | None = None) -> History:
    """Take over the lines of a log; the screen learns which designs are known.

    Args:
        names: names of today's evaluators; results of others above the first rung are ignored.
        end: number of lines; all by default.
    """
    designs, higher, inside = Designs(lines), list[Record](), _in(screen.space)
    history = History(designs, Designs(lines), lines)
    seen: defaultdict[tuple[int, str], set[str]] = defaultdict(set)  # duplicate lines count once
    for number, line in enumerate(islice(lines, end)):
        entry = decode_entry(line)
        if isinstance(entry, Record):
            if entry.key in (known := seen[entry.rung, entry.evaluator]):
                continue
            known.add(entry.key)
            history.started_at = max(history.started_at, entry.at)
            if entry.rung:
                higher.append(entry)
                history.stated[entry.key] = number
            elif not inside(entry):
                if entry.evaluated:
                    history.outside.add(entry, number)
            else:
                screen.remember(entry.key, entry.violations, entry.genes)
                if entry.evaluated:
                    designs.add(entry, number)
        elif isinstance(entry, Revaluation):
            history.stated[entry.key] = number
        elif isinstance(entry, Session):
            history.enqueued = history.enqueued or entry.enqueued
        elif isinstance(entry, Verification):
            history.verified[entry.key] = entry
        elif isinstance(entry, Withdrawal):
            history.withdrawn |= entry.evaluator == names[0]
        elif isinstance(entry, PlacementNote):
            history.placed[entry.key] = entry
    history.higher = [r for r in higher if r.key in designs.rows and r.evaluator in names[r.rung : r.rung + 1]]
    pairs = ((designs.by_key(record.key), record) for record in history.higher)
    history.correction = correction_of((r.key, r.rung, first.metrics, r.metrics) for first, r in pairs)
    history.designs = designs.judged_by(judged(scorer, history.correction))
    return history


def _in(space: Space) -> Callable[[Record], bool]:
    """Return a function that checks whether a design's parameters are legal under today's conditions."""
    choice = parameters_of(space)
    if choice is None:
        return lambda record: True
    holds = choice.parameters.holds
    known = {bytes(NOTHING): True}  # conditions are user functions and may be slow

    def inside(record: Record) -> bool:
        text = bytes(record.params_json)
        if text not in known:
            known[text] = holds(record.params)
        return known[text]

    return inside


def corrected(record: Record, correction: Correction) -> Record:
    """Return a record of the first rung with its prediction corrected, for `Scorer.scored`."""
    if record.metrics is None or not (correction.used or PREDICTED in record.metrics):
        return record
    metrics = correction.applied(record.metrics)
    return record if metrics == record.metrics else replace(record, metrics=metrics)


def judged(scorer: Scorer, correction: Correction) -> Callable[[Record], Record]:
    """Return a function that puts a record of the first rung under today's objectives and a correction."""
    return lambda record: scorer.scored(corrected(record, correction))
