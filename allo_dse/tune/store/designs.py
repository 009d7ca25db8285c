"""Evaluated designs of a run. Memory holds their keys and values; everything else stays in the log."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from itertools import compress
from typing import get_args, overload

import numpy as np
from numpy.typing import NDArray

from .log import Log
from .record import Record, Status, decode_entry

STATUSES: tuple[Status, ...] = get_args(Status)


class Designs(Sequence[Record]):
    """Evaluated designs in the order of results. A record is read from the log when it is asked for.

    Args:
        lines: of the log.
        judged: returns a record of the log under today's objectives, constraints and correction.

    Attributes:
        rows: row of each design, by key.
        promoted: records with the metrics of several rungs, by row.
        next_number: number of the next proposal.
    """

    def __init__(
        self, lines: Log | Sequence[bytes] = (), judged: Callable[[Record], Record] = lambda record: record
    ) -> None:
        self._lines, self._judged = lines, judged
        self.rows: dict[str, int] = {}
        self.promoted: dict[int, Record] = {}
        self.next_number = 0
        self._places = array("q")  # of their lines
        self._statuses, self._differ = bytearray(), bytearray()  # `_differ`: judged otherwise than in the log

    def add(self, record: Record, line: int | None = None) -> None:
        """Add a design; without the number of its line in the log, its record stays in memory."""
        row = self.rows[record.key] = len(self._places)
        self._places.append(-1 if line is None else line)
        self._statuses.append(STATUSES.index(record.status))
        self._differ.append(False)
        self.next_number = max(self.next_number, record.number + 1)
        if line is None:
            self.promoted[row] = record

    def judged_by(self, judged: Callable[[Record], Record]) -> Designs:
        """Return the same designs under other objectives, constraints or correction."""
        made = copy(self)
        made._judged, made.promoted = judged, {}
        made._statuses, made._differ = self._statuses[:], self._differ[:]
        return made

    def judge(self) -> Iterator[Record]:
        """Yield each design under today's objectives, constraints and correction, which count from then on."""
        for row in range(len(self)):
            before = self.logged(row)
            record = self._judged(before)
            self._differ[row], self._statuses[row] = record is not before, STATUSES.index(record.status)
            yield record

    @property
    def first(self) -> Designs:
        """The designs as the first rung measured them."""
        made = copy(self)
        made.promoted = {}
        return made

    @property
    def differing(self) -> list[int]:
        """Rows of the designs whose records may differ from their lines in the log."""
        return sorted({*np.flatnonzero(self._differ).tolist(), *self.promoted})

    def logged(self, row: int) -> Record:
        """Return a record as it is in the log."""
        record = decode_entry(self._lines[self._places[row]])
        assert isinstance(record, Record)
        return record

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, which: int) -> Record: ...
    @overload
    def __getitem__(self, which: slice) -> list[Record]: ...
    def __getitem__(self, which: int | slice) -> Record | list[Record]:
        if isinstance(which, slice):
            return [self[row] for row in range(len(self))[which]]
        row = range(len(self))[which]
        if (known := self.promoted.get(row)) is not None:
            return known
        record = self.logged(row)
        return self._judged(record) if self._differ[row] else record

    def by_key(self, key: str) -> Record:
        """Return a design's record with all its measurements."""
        return self[self.rows[key]]

    def with_status(self, status: Status) -> Iterator[Record]:
        """Yield the designs that have a status."""
        found = np.flatnonzero(np.frombuffer(self._statuses, np.uint8) == STATUSES.index(status)).tolist()
        return (record for row in sorted({*found, *self.promoted}) if (record := self[row]).status == status)


class Values(Mapping[str, tuple[float, ...]]):
    """Objective values of the feasible ones among some designs, by key.

    Args:
        rows: row of each design, by key.
        count: number of objectives.
    """

    def __init__(self, rows: Mapping[str, int], count: int) -> None:
        self._rows, self._count = rows, count
        self._numbers = array("d")  # row by row; NaN for a design that is not feasible

    def add(self, values: tuple[float, ...] | None) -> None:
        """Add the values of the next design; None if it is not feasible."""
        self._numbers.extend((math.nan,) * self._count if values is None else values)

    @property
    def table(self) -> tuple[list[str], NDArray[np.float64]]:
        """Keys and values of the feasible designs, (designs, objectives)."""
        values = np.array(self._numbers).reshape(-1, self._count)
        feasible = ~np.isnan(values[:, 0])
        return list(compress(self._rows, feasible.tolist())), values[feasible]

    def __getitem__(self, key: str) -> tuple[float, ...]:
        start = self._rows[key] * self._count
        values = tuple(self._numbers[start : start + self._count])
        if math.isnan(values[0]):
            raise KeyError(key)
        return values

    def __iter__(self) -> Iterator[str]:
        return iter(self.table[0])

    def __len__(self) -> int:
        return len(self.table[0])
