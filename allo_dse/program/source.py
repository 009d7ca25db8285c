"""Where things stand in the user's source."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SourceLocation:
    """A place in the user's source: 1-based line and column."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class SourceLoop:
    """A loop of the source that runs in the task.

    Attributes:
        name: its variable; empty for `while`.
        grid: the name given to the `allo.grid` it belongs to, if any.
    """

    name: str
    grid: str
    location: SourceLocation


@dataclass(frozen=True)
class Construct:
    """Something a task does that not everything builds, at its place in the source.

    Attributes:
        kind: "stream index" (computed while the task runs), "call" (of a function of the user's), "choice" (`a if c
            else b`), the name of a function or of an operator, or what it is in words; `mapper.target` says which
            there are, and what to write instead.
        text: it, as written.
    """

    kind: str
    text: str
    location: SourceLocation
