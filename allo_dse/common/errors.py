"""The exceptions a user of allo-dse can meet.

Every error that a user can cause derives from `AlloDseError` and carries, beside what went wrong, a `hint` that says
what to do next. The command line prints these without a traceback; any other exception is a bug of ours and keeps it.
"""

from __future__ import annotations

import difflib
import linecache
import sys
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from types import FrameType
from typing import Self

_OURS = f"{Path(__file__).resolve().parents[1]}/"


class AlloDseError(Exception):
    """Base of every error a user can cause.

    Args:
        message: what is wrong and where.
        hint: what to do next; empty when there is nothing better than the message.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def report(self) -> str:
        """Return the message and its place in the style of a compiler, without the hint."""
        return f"error: {self.message}"

    @property
    def with_hint(self) -> str:
        """Return the message and the hint in one line."""
        return f"{self.message} ({self.hint})" if self.hint else self.message

    @property
    def place(self) -> dict[str, str | int]:
        """Return the place in the user's source, for machines; empty if there is none."""
        return {}

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The beginning of a hint for a name that is not known; empty where none is near."""
    near = difflib.get_close_matches(name, list(known), 1)
    return f"did you mean {near[0]}? " if near else ""


class IllegalFold(AlloDseError):
    """A `bundle` or `chain` that the mapping rules do not allow."""


class DeviceError(AlloDseError):
    """A device file that is missing, unreadable or impossible."""


class SimulationError(AlloDseError):
    """A simulation that cannot start or cannot finish."""


class IndexRangeError(SimulationError):
    """An index that depends on data and leaves the range of an array."""


class TimeLimitError(SimulationError):
    """A simulation that was not done at its limit of time or of turns."""


class CompileLimit(SimulationError):
    """Task bodies that take more time or memory to compile than they may, or crash the compiler.

    Args:
        what: what is wrong, with `{}` in place of what is compiled.
        symbols: of the bodies.
    """

    def __init__(self, what: str, hint: str, symbols: tuple[str, ...]) -> None:
        super().__init__(what.format(", ".join(symbols)), hint=hint)
        self.what, self.symbols = what, symbols


class StaticControlError(SimulationError):
    """Control flow that is not known before the program runs, where a model needs it."""


class StudyError(AlloDseError):
    """A study that is declared wrongly, or a run directory that cannot be used."""


class RunDirectoryError(StudyError):
    """A run directory that cannot be used: another process does, the disk is full, or it is none."""


@contextmanager
def of_the_study(name: str, hint: str) -> Iterator[None]:
    """Report any exception of a function that a study provides as an error of the study, with its place.

    Args:
        name: the function of the study that is called.

    Raises:
        StudyError: for any exception.
    """
    try:
        yield
    except Exception as error:
        places = ((frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__))
        place = next((f" ({file}:{line})" for file, line in places if not file.startswith(_OURS)), "")
        raise StudyError(f"{name} of the study: {type(error).__name__}: {error}{place}", hint=hint) from error


# Errors and warnings about programs, and the functions of the language.


_OTHERS = (
    str(Path(__file__).resolve().parents[1]), "<frozen", "<string>",
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")),
)  # fmt: skip
"""Prefixes of the names of files that are not the user's; that of a dataclass's own methods is <string>."""


class ProgramWarning(UserWarning):
    """A construct in a program that is legal, but probably not intended."""


class ProgramError(AlloDseError):
    """A program that does not compile.

    Attributes:
        is_placed: whether the place itself is wrong; else it is the line of the user's program that was running.
        file, line, column: the place in the user's source (1-based), or None if there is none.
        source_line: the text of that line.
        width: number of characters that the caret underlines; without a column, the whole line.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        file: str | None = None,
        line: int | None = None,
        column: int | None = None,
        source_line: str = "",
        width: int = 1,
    ) -> None:
        super().__init__(message, hint=hint)
        self.is_placed = file is not None
        if file is None:
            file, line = running_line()
        if file is not None and line is not None and column is None:
            source_line = linecache.getline(file, line).rstrip()
            column, width = len(source_line) - len(source_line.lstrip()) + 1, max(1, len(source_line.strip()))
        self.file = file
        self.line = line
        self.column = column
        self.source_line = source_line
        self.width = width

    @property
    def report(self) -> str:
        if self.file is None or self.line is None or self.column is None:
            return super().report
        margin = f"{self.line:>5} | "
        lines = [f"{self.file}:{self.line}:{self.column}: error: {self.message}"]
        if self.source_line:
            lines.append(margin + self.source_line)
            pad = "".join("\t" if c == "\t" else " " for c in self.source_line[: self.column - 1])
            lines.append(" " * 5 + " | " + pad + "^" + "~" * (self.width - 1))
        return "\n".join(lines)

    @property
    def place(self) -> dict[str, str | int]:
        if self.file is None or self.line is None or self.column is None:
            return {}
        where: dict[str, str | int] = {"file": self.file, "line": self.line, "column": self.column}
        return {**where, "source_line": self.source_line, "width": self.width}

    def __str__(self) -> str:
        if not self.place:
            return super().__str__()
        return f"{self.report}\n  hint: {self.hint}" if self.hint else self.report

    @classmethod
    def of(cls, error: ProgramError) -> Self:
        """Return the error as an instance of this class."""
        if isinstance(error, cls):
            return error
        return cls(
            error.message, hint=error.hint, file=error.file, line=error.line, column=error.column,
            source_line=error.source_line, width=error.width,
        )  # fmt: skip


def is_users(file: str) -> bool:
    """Return whether a file is the user's: not of this package, an installed one, or Python itself."""
    return not file.startswith(_OTHERS)


def running_line() -> tuple[str, int] | tuple[None, None]:
    """Return the file and the line of the user's program that is running."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return (None, None) if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def warn(message: str) -> None:
    """Issue a warning at the line of the user's program that is running."""
    file, line = running_line()
    warnings.warn_explicit(message, ProgramWarning, file or "allo-dse", line or 1)


class ProgramStop(ProgramError, SystemExit):
    """The error of `customize` and `build` for a program that does not compile.

    As in Allo, it ends a program that does not catch it, with the error on standard error and no traceback.
    """

    @property
    def code(self) -> str:  # type: ignore[override]
        return str(self)


class UnknownArray(ProgramError, AttributeError):
    """A schedule names an array that the program does not have, as an attribute."""


class UnknownFunction(ProgramError, RuntimeError):
    """A schedule names a function that the program does not have."""


class UnknownModule(ProgramError, ModuleNotFoundError):
    """A program imports a module of Allo that is not here."""

    def __init__(self, name: str, hint: str) -> None:
        super().__init__(f"allo-dse has no {name}", hint=hint)
        self.name = name
