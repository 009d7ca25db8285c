"""Evaluated designs of a run. Memory holds their keys; everything else stays in the log."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any, cast, get_args

from .log import Log
from .record import Record, Status, decode_entry

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
