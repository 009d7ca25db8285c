"""Stars and notes on designs, kept in the run directory."""

from __future__ import annotations

import fcntl
import time
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import structs

from allo_dse.common.errors import StudyError
from allo_dse.common.records import Frozen, replace

NOTES = "notes.jsonl"
MOST_CHARACTERS = 10_000


class Note(Frozen, omit_defaults=True):
    """A change of a design's note, as a line of the file. Fields that are None stay unchanged.

    Attributes:
        at: seconds since 1970.
    """

    key: str
    star: bool | None = None
    text: str | None = None
    at: float = 0.0


_DECODER = msgspec.json.Decoder(Note)


def _empty(key: str) -> Note:
    return Note(key, star=False, text="")


class Notes:
    """The notes of a run. Any number of processes may write: each change is one line that is appended as a whole."""

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir / NOTES

    def all(self) -> dict[str, Note]:
        """Notes by the key of their design, in the order of their first line; damaged lines are skipped."""
        try:
            data = self.path.read_bytes()
        except OSError:  # there are none yet
            return {}
        found: dict[str, Note] = {}
        for line in filter(None, data.split(b"\n")):
            with suppress(msgspec.MsgspecError, UnicodeDecodeError):
                change = _DECODER.decode(line)
                changed = {name: value for name, value in structs.asdict(change).items() if value is not None}
                found[change.key] = replace(found.get(change.key, _empty(change.key)), **changed)
        return {key: note for key, note in found.items() if note.star or note.text}

    def of(self, key: str) -> Note:
        """The note on a design; an empty one if there is none."""
        return self.all().get(key, _empty(key))

    def change(self, key: str, *, star: bool | None = None, text: str | None = None) -> None:
        """Append a change.

        Raises:
            StudyError: if the text is too long, or the file cannot be written.
        """
        if text is not None and len(text) > MOST_CHARACTERS:
            raise StudyError(f"a note has at most {MOST_CHARACTERS:,} characters, not {len(text):,}")
        line = msgspec.json.encode(Note(key, star=star, text=text, at=round(time.time(), 3)))
        try:
            with self.path.open("ab", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.write(b"\n" + line + b"\n")  # the first newline ends a line that another process left torn
        except OSError as error:
            raise StudyError(f"cannot write {self.path}: {error.strerror}") from error
