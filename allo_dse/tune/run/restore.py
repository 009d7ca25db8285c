"""Earlier runs in a log, under the objectives and constraints of today."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from allo_dse.common.records import replace
from allo_dse.eval.calibrate.correction import PREDICTED, Correction, correction_of
from allo_dse.space.choices.parameters import parameters_of
from allo_dse.space.genes import Genes
from allo_dse.space.space import Space

from ..search.proposer import Outcome
from ..search.scoring import Scorer
from ..search.screening import Screen
from ..search.tally import Tally
from ..store.record import NOTHING, PlacementNote, Record, Revaluation, Session, Verification, Withdrawal, decode_entry

Stated: TypeAlias = Record | Revaluation
"""Entry of the log with a design's status and objective values."""


@dataclass
class History:
    """Earlier runs of a study.

    Attributes:
        designs: designs evaluated by the first rung, in the order of results; predictions are corrected by all
            measurements.
        outside: the same, for parameters that the study's conditions (`where=`, `when=`) no longer allow.
        higher: results of rungs above the first.
        enqueued: genes of the designs that the first run began with.
        verified, placed: results for designs of a front, by key.
        stated: latest entry of the log with a design's values, by key.
        withdrawn: whether a design has contradicted the bounds of today's first evaluator.
        started_at: seconds the study had run for.
    """

    designs: list[Record] = field(default_factory=list)
    outside: list[Record] = field(default_factory=list)
    higher: list[Record] = field(default_factory=list)
    enqueued: list[Genes] = field(default_factory=list)
    verified: dict[str, Verification] = field(default_factory=dict)
    placed: dict[str, PlacementNote] = field(default_factory=dict)
    stated: dict[str, Stated] = field(default_factory=dict)
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

    def count(self, tally: Tally, scorer: Scorer) -> list[Revaluation]:
        """Count everything.

        Returns:
            Entries for the log on designs whose status or values have changed, for its readers. The study may have
            new objectives or constraints.
        """
        tally.restore(self.designs, [scorer.values(record) for record in self.designs])
        for record in self.higher:
            together = scorer.merged(tally.record(record.key), record)
            tally.add_higher(together, scorer.values(together))
        today: list[Stated] = [*tally.records]
        today += [Revaluation(key=one.key, status="infeasible", values={}) for one in self.outside]
        return [
            Revaluation(key=now.key, status=now.status, values=now.values or {})
            for now in today
            if now is not (before := self.stated[now.key])
            and (now.status, now.values or None) != (before.status, before.values or None)
        ]


def read_history(lines: Iterable[bytes], scorer: Scorer, screen: Screen, names: Sequence[str]) -> History:
    """Take over the intact lines of a log; the screen learns which designs are known.

    Args:
        names: names of today's evaluators; results of others above the first rung are ignored.
    """
    history, found = History(), []
    seen: defaultdict[tuple[int, str], set[str]] = defaultdict(set)  # duplicate lines count once
    for line in lines:
        entry = decode_entry(line)
        if isinstance(entry, Record):
            if (key := entry.key) not in (known := seen[entry.rung, entry.evaluator]):
                known.add(key)
                found.append(entry)
                history.stated[key] = entry
        elif isinstance(entry, Revaluation):
            history.stated[entry.key] = entry
        elif isinstance(entry, Session):
            history.enqueued = history.enqueued or entry.enqueued
        elif isinstance(entry, Verification):
            history.verified[entry.key] = entry
        elif isinstance(entry, Withdrawal):
            history.withdrawn |= entry.evaluator == names[0]
        elif isinstance(entry, PlacementNote):
            history.placed[entry.key] = entry
    inside = _in(screen.space)
    measured = {record.key for record in found if record.rung}  # above the first rung
    first = {r.key: r for r in found if not r.rung and r.key in measured and r.evaluated and inside(r)}
    history.higher = [r for r in found if r.rung and r.key in first and r.evaluator in names[r.rung : r.rung + 1]]
    history.correction = correction_of((r.key, r.rung, first[r.key].metrics, r.metrics) for r in history.higher)
    history.started_at = max((record.at for record in found), default=0.0)
    for record in found:
        if record.rung:
            continue
        if not inside(record):
            history.outside += [record] if record.evaluated else []
            continue
        screen.remember(record.key, record.violations, record.genes)
        if record.evaluated:
            history.designs.append(scorer.scored(corrected(record, history.correction)))
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
