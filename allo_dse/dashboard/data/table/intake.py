"""Entries of a log as a table takes them in: new designs that follow each other are one batch, by columns."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from allo_dse.tune.store.log import NONSENSE
from allo_dse.tune.store.record import Entry, Record, Revaluation, Tick, Verification
from allo_dse.tune.store.run_info import RunInfo

from ..log.follow import Where
from .batch import Columns, Irregular, columns_of
from .cells import Parts, cells
from .columns import Floats, Kind, as_numbers, is_number, listed

OK = "ok"
KEY = "key"
Found: TypeAlias = tuple[Entry, Where]


class RuledOut(Struct, frozen=True):
    """A design that breaks limits of the device: when it was proposed, and the limits."""

    key: str
    at: float
    limits: tuple[str, ...]


class Batch(NamedTuple):
    """New designs, one row each.

    Attributes:
        rung: of the evaluator of all of them.
        where: their entries in the log, (designs, 2).
        losses: (designs, objectives), to be minimised; NaN of designs that are not feasible or have not all of them.
    """

    keys: Sequence[str]
    rung: int
    where: NDArray[np.int64]
    columns: Columns
    losses: Floats


class Later(NamedTuple):
    """An entry about a design that others should be about already: of a higher rung, or once more."""

    entry: Record | Revaluation | Verification
    where: Where


Item: TypeAlias = Batch | Later | RuledOut | Tick


class Intake:
    """Turns entries into items.

    Args:
        facts: what the run was made by.
        known: keys of the designs that there are rows of; whoever takes batches adds theirs.
    """

    def __init__(self, facts: RunInfo, known: Container[str]) -> None:
        self._facts, self._known = facts, known
        self._parts = Parts()

    def items(self, found: Iterable[Found]) -> Iterator[Item]:
        """Turn entries into items, in order. Entries that are no rows come out at once.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: for an entry that makes no sense, after all before it.
        """
        new: dict[str, tuple[Record, Where]] = {}
        try:
            for entry, where in found:
                if isinstance(entry, Record) and entry.evaluated:
                    key = entry.key
                    if not entry.rung and key not in self._known and key not in new:
                        new[key] = entry, where
                        continue
                if isinstance(entry, Tick):
                    yield entry
                elif isinstance(entry, Record) and not entry.evaluated:
                    yield _ruled_out(entry)
                elif isinstance(entry, Record | Revaluation | Verification):
                    yield from self._batches(new)
                    new.clear()
                    yield Later(entry, where)
        except NONSENSE:
            yield from self._batches(new)
            raise
        yield from self._batches(new)

    def _batches(self, new: dict[str, tuple[Record, Where]]) -> Iterator[Batch]:
        """Designs that the run has not had before: together, or one by one where their structure differs."""
        if not new:
            return
        entries = [entry for entry, _ in new.values()]
        try:
            columns = columns_of(entries, self._parts, self._facts)
        except (Irregular, *NONSENSE):
            yield from (self.one(entry, where) for entry, where in new.values())
            return
        yield self._batch(list(new), entries, [where for _, where in new.values()], columns)

    def one(self, entry: Record, where: Where) -> Batch:
        """A single design."""
        columns: Columns = {name: (kind, (value,)) for name, (kind, value) in self.cells(entry).items()}
        return self._batch([entry.key], [entry], [where], columns)

    def cells(self, entry: Record) -> dict[str, tuple[Kind, object]]:
        """A design's columns."""
        return cells(entry, self._parts, self._facts)

    def _batch(self, keys: list[str], entries: list[Record], where: list[Where], columns: Columns) -> Batch:
        values = [listed(columns[objective.name][1]) for objective in self._facts.objectives]
        losses = self.losses([entry.status for entry in entries], values)
        return Batch(keys, entries[0].rung, np.array(where, np.int64), columns, losses)

    def losses(self, status: Sequence[object], values: Sequence[Sequence[object]]) -> Floats:
        """As a batch has them.

        Args:
            values: per objective, one per design.
        """
        objectives = self._facts.objectives
        losses = np.full((len(status), max(1, len(objectives))), np.nan)
        for number, (objective, column) in enumerate(zip(objectives, values, strict=True)):
            numbers = as_numbers(column)
            if numbers is None:
                numbers = np.array([v if is_number(v) else np.nan for v in column])
            losses[:, number] = objective.sign * numbers
        losses[np.isnan(losses).any(axis=1) | [s != OK for s in status]] = np.nan
        return losses


def _ruled_out(entry: Record) -> RuledOut:
    limits = tuple(dict.fromkeys(str(v.get("constraint")) for v in entry.violations or ()))
    return RuledOut(entry.key, entry.at, limits)
