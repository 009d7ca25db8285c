"""Reading a log while another process writes it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...tune.log import decode_line, decode_lines

CHUNK_BYTES = 8 << 20


@dataclass(frozen=True)
class Entry:
    """One entry of a log; `where` is the offset and length of its line."""

    values: dict[str, Any]
    where: tuple[int, int]


class LogFollower:
    """Hands out the entries that were added to a log since the last look.

    A line that is still being written is left for the next look; damaged lines are skipped and counted.

    Attributes:
        damaged: lines skipped so far.
        generation: how often the log turned out to be another one (a run begun anew).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged = 0
        self.generation = 0
        self._offset = 0
        self._identity: tuple[int, int] | None = None

    def look(self) -> list[Entry]:
        """New entries. If the log was replaced, `generation` grows and all of its entries are new."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return []
        identity = (status.st_dev, status.st_ino)
        if self._identity not in (None, identity) or status.st_size < self._offset:
            self.generation += 1
            self._offset, self.damaged = 0, 0
        self._identity = identity
        found: list[Entry] = []
        while self._offset < status.st_size:
            before = self._offset
            found += self._chunk()
            if self._offset == before:
                break
        return found

    def _chunk(self) -> list[Entry]:
        with self.path.open("rb") as file:
            file.seek(self._offset)
            data = file.read(CHUNK_BYTES)
        lines = data.split(b"\n")[:-1]
        entries, position = [], self._offset
        for line, values in zip(lines, decode_lines(lines), strict=True):
            if values is None:
                self.damaged += bool(line)
            else:
                entries.append(Entry(values, (position, len(line))))
            position += len(line) + 1
        self._offset = position
        return entries

    def read(self, offset: int, length: int) -> dict[str, Any]:
        """One entry again."""
        with self.path.open("rb") as file:
            line = os.pread(file.fileno(), length, offset)
        return decode_line(line) or {}
