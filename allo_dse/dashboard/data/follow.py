"""Reading a log while another process writes it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from allo_dse.common.records import JsonObject
from allo_dse.tune.store.log import NONSENSE, decode_line, sealed
from allo_dse.tune.store.record import Entry, decode_entry

CHUNK_BYTES = 2 << 20

Where = tuple[int, int]
"""The offset and the length of a line."""


class LogFollower:
    """Hands out the entries that were added to a log since the last look, some at a time.

    A line that is still being written is left for later; damaged lines are skipped and counted.

    Attributes:
        damaged: lines skipped so far.
        generation: how often the log turned out to be another one (a run begun anew).
        offset: how many bytes have been read.
    """

    def __init__(self, path: Path, chunk_bytes: int) -> None:
        self.path = path
        self.damaged = 0
        self.generation = 0
        self.offset = 0
        self._chunk_bytes = chunk_bytes
        self._identity: tuple[int, int] | None = None

    def look(self) -> list[tuple[Entry, Where]]:
        """The next new entries, none when all have been read. If the log was replaced, `generation` grows and all of
        its entries are new.

        Raises:
            ValueError, TypeError: if a line is intact and yet not an entry.
        """
        status = self._status()
        if status is None:
            return []
        if self._is_other(status):
            self.generation += 1
            self.offset, self.damaged = 0, 0
        self._identity = (status.st_dev, status.st_ino)
        found: list[tuple[Entry, Where]] = []
        while not found and self.offset < status.st_size:
            lines = self._lines(status.st_size)
            if not lines:
                break
            found = self.take(lines)
        return found

    def take(self, lines: Sequence[bytes]) -> list[tuple[Entry, Where]]:
        """The entries of the next lines, up to one that makes no sense if that is not the first.

        Raises:
            ValueError, TypeError: if it is.
        """
        found: list[tuple[Entry, Where]] = []
        for line in lines:
            length, entry = len(line), None
            if sealed(line):
                try:
                    entry = decode_entry(line)
                except NONSENSE:
                    if found:
                        return found  # the next read reports the problem
                    raise
            elif line:
                self.damaged += 1
            if entry is not None:
                found.append((entry, (self.offset, length)))
            self.offset += length + 1
        return found

    def replaced(self) -> bool:
        """Return whether another file has replaced the log since it was read."""
        status = self._status()
        return status is not None and self._is_other(status)

    @property
    def size(self) -> int:
        """Bytes that the log has now."""
        status = self._status()
        return 0 if status is None else status.st_size

    def _status(self) -> os.stat_result | None:
        try:
            return self.path.stat()
        except FileNotFoundError:
            return None

    def _is_other(self, status: os.stat_result) -> bool:
        return self._identity not in (None, (status.st_dev, status.st_ino)) or status.st_size < self.offset

    def _lines(self, end: int) -> list[bytes]:
        """The complete lines of the next chunk, or of as much more as the first of them takes."""
        size = self._chunk_bytes
        with self.path.open("rb") as file:
            while True:
                file.seek(self.offset)
                lines = file.read(size).split(b"\n")[:-1]
                if lines or self.offset + size >= end:
                    return lines
                size *= 2

    def read(self, offset: int, length: int) -> JsonObject:
        """One entry again."""
        return decode_line(self._line(offset, length)) or {}

    def entry(self, offset: int, length: int) -> Entry | None:
        """Read one entry again; None if the log has changed."""
        try:
            line = self._line(offset, length)
            return decode_entry(line) if sealed(line) else None
        except (OSError, *NONSENSE):
            return None

    def _line(self, offset: int, length: int) -> bytes:
        with self.path.open("rb") as file:
            return os.pread(file.fileno(), length, offset)
