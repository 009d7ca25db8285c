"""The exceptions a user of allo-dse can meet.

Every error that a user can cause derives from `AlloDseError` and carries, beside what went wrong, a `hint` that says
what to do next. The command line prints these without a traceback; any other exception is a bug of ours and keeps it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb

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
