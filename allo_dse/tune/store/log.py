"""The append-only log of a run: one JSON object per line, each with a checksum of its own.

A record is in the file before it is counted, and reaches the disk with the next group commit (at most `FSYNC_SECONDS`
later). A process that is killed loses nothing that was counted; a machine that loses power loses at most that interval.
"""

from __future__ import annotations

import errno
import json
import os
import time
import weakref
import zlib
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from allo_dse.common.errors import RunDirectoryError, StudyError
from allo_dse.common.records import JsonObject

from .run_info import valid

FSYNC_SECONDS = 0.5
NONSENSE = (KeyError, TypeError, ValueError, AttributeError)
"""Errors raised by entries that are intact but not in this version's format."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_COPIED_AT_ONCE = 1 << 20
_SEAL = b',"crc":"'
_SEAL_LENGTH = len(_SEAL) + 8 + len(b'"}')


def disk_full(path: Path, error: OSError) -> RunDirectoryError | None:
    """Return the error for a write that failed for lack of space; None if it failed for another reason."""
    if error.errno not in _FULL:
        return None
    return RunDirectoryError(
        f"{path}: cannot write: {os.strerror(error.errno or 0)}",
        hint="free some space and run the same command again: everything evaluated so far is kept",
    )


def same_file(path: Path, descriptor: int) -> bool:
    """Return whether a path still leads to a file that is open."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError:
        return False


def encode_line(values: JsonObject) -> bytes:
    """One line, ending with a checksum of everything before it and a newline. Values that are JSON text go in as it."""
    texts = {name: value for name, value in values.items() if isinstance(value, msgspec.Raw)}
    others = {name: value for name, value in values.items() if name not in texts} if texts else values
    body = json_bytes(others)[:-1]
    body += b"".join(b',"%s":%s' % (name.encode(), text) for name, text in texts.items())
    return body + _SEAL + b"%08x" % zlib.crc32(body) + b'"}\n'


def decode_line(line: bytes) -> JsonObject | None:
    """The object of a line without its newline, or None when it is damaged."""
    if not sealed(line):
        return None
    values = json.loads(line)
    del values["crc"]
    return dict(values)


@contextmanager
def sensible(path: Path) -> Iterator[None]:
    """Turn errors of entries that are intact but not in this version's format into a `StudyError`.

    Raises:
        StudyError: if an entry lacks a field, or has a wrong type in its place.
    """
    try:
        yield
    except NONSENSE as error:
        raise StudyError(
            f"{path} has an entry that makes no sense here: {type(error).__name__}: {error}",
            hint="was it written by another version, or by hand? --fresh begins anew",
        ) from error


def sealed(line: bytes) -> bool:
    """Return whether a line without its newline ends with its checksum."""
    return line.endswith(b'%b%08x"}' % (_SEAL, zlib.crc32(line[:-_SEAL_LENGTH])))


def stored(values: JsonObject) -> JsonObject:
    """Values as they come back from the log.

    Raises:
        TypeError, ValueError: when they cannot be written to it.
    """
    copy: JsonObject = json.loads(json_bytes(values))
    return copy


def _plain(value: Any) -> Any:
    """NumPy scalars and arrays as Python numbers and lists."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be written to the log")


_ENCODER = json.JSONEncoder(separators=(",", ":"), default=_plain)


def json_bytes(value: Any) -> bytes:
    """A value as the log writes it: compact, and with infinities as Python reads them.

    Raises:
        TypeError, ValueError: when it cannot be written.
    """
    data = _ENCODER.encode(value).encode()
    # Such escapes occur only for surrogates, alone or in pairs.
    return _ENCODER.encode(valid(json.loads(data))).encode() if b"\\ud" in data else data


class Log:
    """Intact lines of a log, without their newlines. They stay in the file, and take 16 bytes of memory each.

    A torn last line is left out; damaged lines before it are skipped. The file stays open as long as lines may be read,
    even if it is deleted.

    Attributes:
        notes: messages about what was repaired or skipped.
        end: length in bytes of the intact part.
    """

    def __init__(self, path: Path, flags: int = os.O_RDONLY) -> None:
        self.path, self.end = path, 0
        self.notes: list[str] = []
        self._places = array("q")  # of each line, its offset and length
        with suppress(FileNotFoundError):
            self._open(path, flags)
            self._read()

    def _open(self, path: Path, flags: int) -> None:
        self._fd = os.open(path, flags, 0o644)
        weakref.finalize(self, os.close, self._fd)

    def _read(self) -> None:
        damaged = torn = 0
        with open(self._fd, "rb", closefd=False) as file:
            for line in file:
                torn = 0
                if sealed(text := line.removesuffix(b"\n")):
                    self._add(len(text) + 1)
                else:
                    damaged, torn, self.end = damaged + 1, len(line), self.end + len(line)
        self.end -= torn
        if torn:
            self.notes.append(f"{self.path}: the last record was cut short and is dropped ({torn} bytes)")
        if damaged > bool(torn):
            self.notes.append(f"{self.path}: {damaged - bool(torn)} damaged record(s) in the middle are skipped")

    def _add(self, length: int) -> None:
        """Count a line that comes next in the file, with its newline."""
        self._places.extend((self.end, length - 1))
        self.end += length

    def __len__(self) -> int:
        return len(self._places) // 2

    def __getitem__(self, number: int) -> bytes:
        offset, length = self._places[2 * number : 2 * number + 2]
        return os.pread(self._fd, length, offset)

    def __iter__(self) -> Iterator[bytes]:
        return map(self.__getitem__, range(len(self)))

    @property
    def entries(self) -> list[JsonObject]:
        """The objects of the lines."""
        return [values for values in map(decode_line, self) if values is not None]


class RunLog(Log):
    """A log open for appending, which adds to its lines. Opening repairs a torn end."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, os.O_RDWR | os.O_CREAT)
        self._synced = time.monotonic()
        self._dirty = False
        os.ftruncate(self._fd, self.end)
        if self.end:  # the newline may be missing
            self._write(b"\n", self.end - 1)

    @property
    def is_there(self) -> bool:
        """True if the path still leads to the file that is written to."""
        return same_file(self.path, self._fd)

    def move(self, path: Path) -> None:
        """Go on in a new file, with everything that is in this one: the system keeps it as long as it is open."""
        before, self.path, self._dirty = self._fd, path, True
        self._open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        for start in range(0, self.end, _COPIED_AT_ONCE):
            os.pwrite(self._fd, os.pread(before, min(_COPIED_AT_ONCE, self.end - start), start), start)
        self.sync()

    def append(self, entries: Iterable[JsonObject]) -> None:
        """Write entries in one piece.

        Raises:
            StudyError: when the disk is full; nothing of the entries is left in the file then.
        """
        lines = list(map(encode_line, entries))
        if lines:
            self._write(b"".join(lines), self.end)
        for line in lines:
            self._add(len(line))
        if time.monotonic() - self._synced > FSYNC_SECONDS:
            self.sync()

    def _write(self, data: bytes, where: int) -> None:
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(self._fd, data[written:], where + written)
        except OSError as error:
            os.ftruncate(self._fd, where)
            raise (disk_full(self.path, error) or error) from error
        self._dirty = True

    def sync(self) -> None:
        """Make everything appended so far survive a power cut."""
        if self._dirty:
            try:
                os.fsync(self._fd)
            except OSError as error:  # some file systems, e.g. network ones, report a full disk only now
                raise (disk_full(self.path, error) or error) from error
            self._dirty = False
        self._synced = time.monotonic()

    close = sync  # the lines can still be read
