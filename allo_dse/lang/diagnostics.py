"""The one exception for programs that are wrong."""

from __future__ import annotations

import linecache
import sys
import sysconfig
from pathlib import Path
from types import FrameType
from typing import Self

from allo_dse.common.errors import AlloDseError

_OTHERS = (
    str(Path(__file__).resolve().parents[1]), "<frozen",
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")),
)  # fmt: skip
"""How the names of files begin that are not the user's."""


class ProgramWarning(UserWarning):
    """Something in a program that is not wrong, but hardly meant."""


class ProgramError(AlloDseError):
    """A program that does not compile.

    Attributes:
        file, line, column: the place in the user's source (1-based), or None where it is none of a kernel's. Then the
            error is shown at the line of the user's program that was running.
        source_line: the text of that line.
        width: how many characters the caret underlines.
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
        self.file = file
        self.line = line
        self.column = column
        self.source_line = source_line
        self.width = width
        self._raised = _running() if file is None else None

    @property
    def report(self) -> str:
        found = self._place()
        if found is None:
            return super().report
        file, line, column, source_line, width = found
        lines = [f"{file}:{line}:{column}: error: {self.message}"]
        if source_line:
            pad = "".join("\t" if c == "\t" else " " for c in source_line[: column - 1])
            lines += [f"{line:>5} | {source_line}", " " * 5 + " | " + pad + "^" + "~" * (width - 1)]
        return "\n".join(lines)

    @property
    def place(self) -> dict[str, str | int]:
        found = self._place()
        return {} if found is None else dict(zip(_PLACE, found, strict=True))

    def _place(self) -> tuple[str, int, int, str, int] | None:
        if self.file is None or self.line is None or self.column is None:
            return self._raised
        return self.file, self.line, self.column, self.source_line, self.width

    def __str__(self) -> str:
        if not self.place:
            return super().__str__()
        return f"{self.report}\n  hint: {self.hint}" if self.hint else self.report

    @classmethod
    def of(cls, error: ProgramError) -> Self:
        """The same error as one of this class."""
        if isinstance(error, cls):
            return error
        return cls(
            error.message, hint=error.hint, file=error.file, line=error.line, column=error.column,
            source_line=error.source_line, width=error.width,
        )  # fmt: skip


_PLACE = ("file", "line", "column", "source_line", "width")


def _running() -> tuple[str, int, int, str, int] | None:
    """The place of the line of the user's program that is running, if one is."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OTHERS):
        frame = frame.f_back
    if frame is None:
        return None
    text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).rstrip()
    column = len(text) - len(text.lstrip()) + 1
    return frame.f_code.co_filename, frame.f_lineno, column, text, max(1, len(text.strip()))


class ProgramStop(ProgramError, SystemExit):
    """What `customize` and `build` raise for a program that does not compile.

    As in Allo this ends a program that does not expect it, with the error on standard error and no traceback.
    """

    @property
    def code(self) -> str:  # type: ignore[override]
        return str(self)


class UnknownArray(ProgramError, AttributeError):
    """A schedule names an array that the program does not have, as an attribute."""


class UnknownFunction(ProgramError, RuntimeError):
    """A schedule names a function that the program does not have."""
