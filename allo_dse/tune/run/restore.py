"""Earlier runs in a log, under the objectives and constraints of today."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, islice
from typing import cast

import msgspec

from allo_dse.common.records import replace
from allo_dse.eval.calibrate.correction import PREDICTED, Correction, correction_of
from allo_dse.space.choices.parameters import parameters_of
from allo_dse.space.genes import Genes
from allo_dse.space.space import Space

from ..search.proposer import Outcome
from ..search.scoring import Scorer
from ..search.screening import Screen
from ..search.tally import Designs, Tally
from ..store.log import Log
from ..store.record import (
    NOTHING,
    PlacementNote,
    Record,
    Revaluation,
    Session,
    Verification,
    Withdrawal,
    decode_entry,
    json_value,
)


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
        stated: line of the latest entry with a design's status and values, by key, if it is not the first.
        withdrawn: whether a design has contradicted the bounds of today's first evaluator.
        started_at: seconds the study had run for.
    """

    designs: Designs
    outside: Designs
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
        tally.restore(self.designs, scorer)
        for record in self.higher:
            together = scorer.merged(tally.records.by_key(record.key), record)
            tally.add_higher(together, scorer.values(together))

    def revaluations(self) -> Iterator[Revaluation]:
        """Return entries for the log on designs whose status or values are others under today's study."""
        designs = self.designs
        changed = designs.differing.union(designs.rows[key] for key in self.stated if key in designs.rows)
        inside = ((designs[row], self._stated(designs.logged(row))) for row in sorted(changed))
        out = ((Revaluation(key=one.key, status="infeasible", values={}), self._stated(one)) for one in self.outside)
        return revalued(chain(inside, out))

    def _stated(self, record: Record) -> Record | Revaluation:
        """Return the latest entry of the log with a design's status and values."""
        line = self.stated.get(record.key)
        return record if line is None else cast(Revaluation, decode_entry(self.designs.log[line]))


def revalued(pairs: Iterable[tuple[Record | Revaluation, Record | Revaluation]]) -> Iterator[Revaluation]:
    """Yield entries for the log on designs whose status or values now are not those before."""
    for now, before in pairs:
        if (now.status, now.values or None) != (before.status, before.values or None):
            yield Revaluation(key=now.key, status=now.status, values=now.values or {})


def read_history(lines: Log, scorer: Scorer, screen: Screen, names: Sequence[str], end: int | None = None) -> History:
    """Take over the lines of a log; the screen learns which designs are known.

    Args:
        names: names of today's evaluators; results of others above the first rung are ignored.
        end: number of lines; all by default.
    """
    designs, higher, inside = Designs(lines), list[Record](), _in(screen.space)
    history = History(designs, Designs(lines))
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
    # Conditions are user functions and may be slow.
    holds = lru_cache(1 << 16)(lambda text: choice.parameters.recorded(json_value(msgspec.Raw(text))) is not None)
    return lambda record: record.params_json == NOTHING or holds(bytes(record.params_json))


def corrected(record: Record, correction: Correction) -> Record:
    """Return a record of the first rung with its prediction corrected, for `Scorer.scored`."""
    if record.metrics is None or not (correction.used or PREDICTED in record.metrics):
        return record
    metrics = correction.applied(record.metrics)
    return record if metrics == record.metrics else replace(record, metrics=metrics)


def judged(scorer: Scorer, correction: Correction) -> Callable[[Record], Record]:
    """Return a function that puts a record of the first rung under today's objectives and a correction."""
    return lambda record: scorer.scored(corrected(record, correction))
