"""A run as a table of its evaluated designs that grows with the log."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.errors import StudyError
from allo_dse.common.records import JsonObject
from allo_dse.eval.evaluator import COST_DIGITS, is_cost
from allo_dse.space.sampler.pareto import pareto_positions
from allo_dse.tune.search.pareto_front import ParetoFront, knee
from allo_dse.tune.store.log import sensible
from allo_dse.tune.store.record import Record, Revaluation, Tick, Verification
from allo_dse.tune.store.run_info import RunInfo, read_info
from allo_dse.tune.store.rundir import LOG, running

from .columns import Column, Floats, Growing, Kind, Mask, Repeated, RungResult
from .follow import CHUNK_BYTES, LogFollower, Where
from .reading import KEY, OK, Intake, Item, NewDesigns, RuledOut

Rows = NDArray[np.int64]


class RunTable:
    """The evaluated designs of a run, one row each, in the order of the log.

    `refresh` reads what was added since; everything else is a view on what has been read.
    """

    def __init__(self, path: Path, *, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.path = path
        self.log = LogFollower(path / LOG, chunk_bytes)
        self._generation = 0
        self._begin()

    def _begin(self) -> None:
        self.facts: RunInfo = read_info(self.path)
        self.problem: StudyError | None = None
        self.columns: dict[str, Column] = {}
        self.row_of: dict[str, int] = {}
        self._intake = Intake(self.facts, self.row_of)
        self.keys: list[str] = []
        self._ruled_out: set[str] = set()
        self.verified: dict[str, Verification] = {}
        self.ruled_out: list[RuledOut] = []
        self.promoted: dict[str, list[RungResult]] = {}
        """By key, what was found out about designs that have more than one entry."""
        self.ticks: list[Tick] = []
        self._where = Growing(np.empty((0, 2), np.int64))  # a design's first entry
        self._front = ParetoFront(max(1, len(self.facts.objectives)))
        self._volumes: Growing[np.float64] = Growing(np.empty(0))
        # Losses by the first evaluator; NaN for designs that it found infeasible.
        self._first: Growing[np.float64] = Growing(np.empty((0, self._front.objectives)))
        self._top: Growing[np.int32] = Growing(np.empty(0, np.int32))  # the highest rung that has measured a design
        self._stale = False
        self._found: tuple[int, Rows] = (-1, np.zeros(0, np.int64))
        self.version = 0

    @property
    def name(self) -> str:
        return self.path.name

    def __len__(self) -> int:
        return len(self.keys)

    def refresh(self) -> bool:
        """Read additions to the log; returns whether there were any.

        Raises:
            StudyError: if there is an entry that makes no sense. What came before it has been read, and nothing after
                it will be until the log is another one.
        """
        if self.problem is not None and not self.log.replaced():
            return False
        changed = False
        try:
            while self._read_on():
                changed = True
        except StudyError as error:
            self.problem = error
            self.version += 1  # so that the page shows it
            raise
        for column in self.columns.values():  # now, and not while a user waits for a view
            column.settle()
        return changed

    def _read_on(self) -> bool:
        """Read a few megabytes that were added to the log; return whether there was something."""
        with sensible(self.log.path):
            try:
                found = self.log.look()
            except OSError as error:
                raise StudyError(f"cannot read {self.log.path}: {error.strerror}") from error
            replaced = self.log.generation != self._generation
            if replaced:
                self._generation = self.log.generation
                before = self.version
                self._begin()
                self.version = before + 1
            self.version += len(found)
            for item in self._intake.items(found):
                self._take(item)
        return replaced or bool(found)

    @property
    def notes(self) -> list[str]:
        """Warnings about a log that is readable but damaged."""
        found = [] if self.problem is None else [str(self.problem)]
        if self.log.damaged:
            found.append(f"{self.name}/{self.log.path.name}: damaged lines are skipped: {self.log.damaged:,}")
        if self.problem is None and self.log.offset < self.log.size and running(self.path) is None:
            found.append(f"{self.name}/{self.log.path.name}: the last line is cut short")
        return found

    def _take(self, item: Item) -> None:
        if isinstance(item, NewDesigns):
            self._append(item)
        elif isinstance(item, Tick):
            self.ticks.append(item)
        elif isinstance(item, RuledOut):
            if item.key not in self._ruled_out:
                self._ruled_out.add(item.key)
                self.ruled_out.append(item)
        elif isinstance(item.entry, Verification):
            self._verify(item.entry)
        elif isinstance(item.entry, Revaluation):
            self._revalue(item.entry)
        elif item.entry.key in self.row_of:
            self._promote(item.entry, item.where)
        else:
            self._append(self._intake.one(item.entry, item.where))

    def _append(self, new: NewDesigns) -> None:
        before, columns = len(self.keys), new.columns
        self.keys += new.keys
        self.row_of.update(zip(new.keys, range(before, len(self.keys)), strict=True))
        self._where.extend(new.where)
        self._top.extend(np.full(len(new.keys), new.rung, np.int32))
        for name, (kind, _) in columns.items():
            if name not in self.columns:
                places = self.row_of if name == KEY else None  # the row of a key is its code
                self.columns[name] = Column(name, kind, missing=before, categories=places)
        absent = Repeated((None,), np.zeros(len(new.keys), np.int32))
        for name, column in self.columns.items():
            if name == KEY:
                column.extend_codes(np.arange(before, len(self.keys), dtype=np.int32))
            else:
                column.extend(columns[name][1] if name in columns else absent)
        self._first.extend(new.losses)
        self._count(new.keys, new.losses)

    def _promote(self, entry: Record, where: Where) -> None:
        """A more expensive evaluator's numbers take the place of a cheaper one's."""
        key = entry.key
        before, row = self.rungs(key), self.row_of[key]
        if any((known.rung, known.evaluator) == (entry.rung, entry.evaluator) for known in before):
            return  # duplicate lines count once
        self.promoted[key] = [*before, RungResult.of(entry, where)]
        top = self._top.values
        top[row] = max(top[row], entry.rung)
        for name, (kind, value) in self._intake.cells(entry).items():
            if value is None and kind != "meta":
                continue
            if name in ("number", "at", "seconds"):
                continue
            if name not in self.columns:
                self.columns[name] = Column(name, kind, missing=len(self.keys))
            self.columns[name].replace(row, value)

    def _verify(self, entry: Verification) -> None:
        self._stale |= not entry.ok or entry.key in self.verified
        self.verified[entry.key] = entry
        row = self.row_of.get(entry.key)
        if row is not None and self.columns["status"].value(row) == OK:
            self.columns["reason"].replace(row, None if entry.ok else entry.words)

    def _revalue(self, entry: Revaluation) -> None:
        """Objectives that were changed between two runs in the same directory."""
        row = self.row_of.get(entry.key)
        if row is None:
            return
        values = entry.values
        for name, value in {"status": entry.status, **values}.items():
            if name in self.columns:
                self.columns[name].replace(row, value)
        now = self._intake.losses([entry.status], [[values.get(name)] for name in self.objectives])
        self._first.values[row] = now[0]
        self._stale = True

    def _count(self, keys: Sequence[str], losses: Floats) -> None:
        """Take designs into the front and the hypervolume of the first evaluator."""
        before = self._volumes.values[-1] if len(self._volumes) else np.nan
        counted = ~np.isnan(losses[:, 0])
        history = self._front.extend(list(compress(keys, counted)), losses[counted])
        self._volumes.extend(np.concatenate([[before], history])[np.cumsum(counted)])

    def _settle(self) -> None:
        """Count front and hypervolume again after values have changed: by new objectives, or by a verification that
        found wrong numbers. Done on request, not per entry."""
        if not self._stale:
            return
        self._stale = False
        self._front = ParetoFront(max(1, len(self.facts.objectives)))
        self._volumes = Growing(np.empty(0))
        losses = self._first.values.copy()
        losses[self._wrong] = np.nan
        self._count(self.keys, losses)

    # -- views --------------------------------------------------------------------------------------------------------

    def column(self, name: str) -> Column | None:
        return self.columns.get(name)

    def numbers(self, name: str) -> Floats:
        """A column's numbers; NaN throughout when there is no such column."""
        column = self.columns.get(name)
        return np.full(len(self), np.nan) if column is None else column.numbers

    @property
    def seconds(self) -> float:
        """The run's search time until the last design, valid or not."""
        last = [*(design.at for design in self.ruled_out[-1:]), *(tick.at for tick in self.ticks[-1:])]
        return float(np.fmax.reduce([np.fmax.reduce(self.numbers("at"), initial=0.0), *last]))

    @property
    def hypervolume(self) -> Floats:
        """The hypervolume after each row, by the first evaluator and by the objectives as they are now."""
        self._settle()
        return self._volumes.values

    def hypervolume_beside(self, other: RunTable) -> float | None:
        """The hypervolume up to the reference point of another run of the same objectives, if it has one."""
        self._settle()
        other._settle()
        return self._front.volume_up_to(other._front) if self.facts.objectives == other.facts.objectives else None

    @property
    def objectives(self) -> list[str]:
        return [o.name for o in self.facts.objectives]

    @property
    def ok(self) -> Mask:
        """Per row, whether the design satisfies everything and did not compute wrong numbers."""
        column = self.columns.get("status")
        if column is None:
            return np.zeros(len(self), bool)
        good = column.codes == (column.categories.index(OK) if OK in column.categories else -2)
        good[self._wrong] = False
        found: Mask = good
        return found

    @property
    def _wrong(self) -> list[int]:
        """The rows of designs that computed wrong numbers."""
        return [self.row_of[key] for key, found in self.verified.items() if not found.ok and key in self.row_of]

    @property
    def losses(self) -> Floats:
        """(rows, objectives), all to be minimised; NaN where a design has no value."""
        signs = np.array([o.sign for o in self.facts.objectives])
        found: Floats = np.stack([self.numbers(name) for name in self.objectives], axis=1) * signs
        return found

    @property
    def front(self) -> Rows:
        """Rows of the Pareto front, best in the first objective first.

        Of the designs that the highest rung with a feasible one has measured: only those can be compared.
        """
        if self._found[0] != self.version:
            self._settle()
            losses, rows = self.losses, self.measured_rows
            if rows is None:
                rows = np.array([self.row_of[key] for key in self._front.keys], np.int64)
                alike = np.flatnonzero(self.ok & np.isin(losses[:, 0], losses[rows, 0]))
                rows = alike if len(rows) else rows
            rows = rows[pareto_positions(losses[rows], self._costs(rows))]
            self._found = self.version, rows[np.lexsort(losses[rows].T[::-1])] if len(rows) else rows
        return self._found[1]

    def _costs(self, rows: Rows) -> Floats:
        """Total cost of some designs, as `total_cost` has it."""
        found = np.zeros(len(rows))
        for name, column in self.columns.items():
            if column.kind in ("metric", "objective") and column.numeric and is_cost(name):
                found += np.log1p(np.nan_to_num(np.maximum(column.numbers[rows], 0.0)))
        return found.round(COST_DIGITS)

    @property
    def measured_rows(self) -> Rows | None:
        """Feasible designs that the highest rung with any has measured; None where there is only the first rung."""
        top = self._top.values
        if not (top > 0).any():
            return None
        usable = self.ok & ~np.isnan(self.losses).any(axis=1)
        return np.flatnonzero(usable & (top == top[usable].max(initial=0)))

    @property
    def knee(self) -> int | None:
        """The row of the front with the best balance of all objectives."""
        front = self.front
        return int(front[knee(self.losses[front])]) if len(front) else None

    def record(self, row: int, rung: int = -1) -> JsonObject:
        """A design's entry in the log: the last of its rungs, or the one at a position among them."""
        more = self.promoted.get(self.keys[row])
        return self.log.read(*(more[rung].where if more else self._where.values[row].tolist()))

    def rungs(self, key: str) -> list[RungResult]:
        """Return each evaluator's result for a design, the cheapest first. A single one is read from the log again."""
        if key in self.promoted:
            return self.promoted[key]
        offset, length = where = tuple(self._where.values[self.row_of[key]].tolist())
        entry = self.log.entry(offset, length)  # None where the log has been taken away
        return [RungResult.of(entry, where) if isinstance(entry, Record) else RungResult(where=where)]

    def names(self, *kinds: Kind, varying: bool = False) -> list[str]:
        """Columns of some kinds (all without any), or of these those that differ between designs."""
        return [
            name
            for name, column in self.columns.items()
            if (not kinds or column.kind in kinds) and (not varying or column.varies)
        ]
