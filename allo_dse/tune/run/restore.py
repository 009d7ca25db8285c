"""What a log holds of earlier runs, under the objectives and constraints of today."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..search.judge import Judge
from ..search.screening import Screen
from ..search.tally import Tally
from ..store.record import PlacementNote, Record, Revaluation, Verification, decode_entry


@dataclass
class History:
    """Earlier runs of a study.

    Attributes:
        designs: evaluated by the first rung, in the order in which their results came in.
        higher: what rungs above the first found out.
        verified, placed: by key, what became of designs of a front.
        changed: entries for the log on designs that count otherwise than it says: objectives and constraints may have
            changed since, and readers of the log want to know.
        started_at: seconds the study had run for.
    """

    designs: list[Record] = field(default_factory=list)
    higher: list[Record] = field(default_factory=list)
    verified: dict[str, Verification] = field(default_factory=dict)
    placed: dict[str, PlacementNote] = field(default_factory=dict)
    changed: list[Revaluation] = field(default_factory=list)
    started_at: float = 0.0

    @property
    def next_number(self) -> int:
        """Of the next proposal."""
        return max((record.number for record in self.designs), default=-1) + 1

    def count(self, tally: Tally, judge: Judge, names: list[str]) -> None:
        """Count everything. `names`: of today's evaluators; what others found above the first rung counts nothing."""
        tally.restore(self.designs, [judge.values(record) for record in self.designs])
        for record in self.higher:
            known = record.rung < len(names) and record.evaluator == names[record.rung] and record.key in tally
            if known:
                together = judge.merged(tally.record(record.key), record)
                tally.add_higher(together, judge.values(together))


def read_history(lines: Iterable[bytes], judge: Judge, screen: Screen) -> History:
    """Take over the intact lines of a log; the screen learns which designs are known."""
    history, found = History(), []
    stated: dict[str, Revaluation] = {}  # by key, what the log said last
    for line in lines:
        entry = decode_entry(line)
        if isinstance(entry, Record):
            found.append(entry)
        elif isinstance(entry, Revaluation):
            stated[entry.key] = entry
        elif isinstance(entry, Verification):
            history.verified[entry.key] = entry
        elif isinstance(entry, PlacementNote):
            history.placed[entry.key] = entry
    for record in found:
        history.started_at = max(history.started_at, record.at)
        if record.rung:
            history.higher.append(record)
            continue
        screen.remember(record.key, record.violations)
        if not record.evaluated:
            continue
        now, said = judge.judged(record), stated.get(record.key, record)
        if (said.status, said.values or None) != (now.status, now.values or None):
            history.changed.append(Revaluation(key=now.key, status=now.status, values=now.values or {}))
        history.designs.append(now)
    return history
