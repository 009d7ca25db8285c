"""Where things stand in the user's source."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct


class SourceLocation(Struct, frozen=True):
    """A place in the user's source: 1-based line and column."""

    file: str
    line: int
    column: int

    @property
    def file_name(self) -> str:
        """The name of the file as comments of generated code may hold it: nothing in it ends them or goes on."""
        return re.sub(r"[^\w.+ -]", "_", Path(self.file).name)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class SourceLoop(Struct, frozen=True):
    """A loop of the source that runs in the task.

    Attributes:
        name: its variable; empty for `while`.
        grid: the name given to the `allo.grid` it belongs to, if any.
        function: the function that it stands in: the kernel, or a helper compiled in place.
        call: the number of the call of that function, among all that the task makes; 0 for the kernel itself.
        band: the nest of that function it belongs to, where a schedule was made.
        opens: whether it is the outermost loop of that nest.
        hints: what the program says of it for hardware: "pipeline" with an interval, "unroll" with a factor (0: all).
    """

    name: str
    grid: str
    location: SourceLocation
    function: str = ""
    call: int = 0
    band: str = ""
    opens: bool = False
    hints: tuple[tuple[str, int], ...] = ()

    @property
    def label(self) -> str:
        """How schedules tell it from other loops: `function:band.name`."""
        return f"{self.function}:{self.band}.{self.name}"

    def is_called(self, name: str) -> bool:
        """Whether a directive means it by a name."""
        return name in (self.name, self.grid, self.label)


class SourceArray(Struct, frozen=True):
    """What an array, or a variable that changes, is called in a function of the source.

    Attributes:
        function, call: as of a loop.
        argument: its position among the body's parameters, or None for the body's own memory.
        allocation: the position among the body's allocations of its own memory.
        memory: kind and type of memory ("bram", "ram_2p") where the program says it.
    """

    function: str
    call: int
    name: str
    argument: int | None
    allocation: int = -1
    memory: tuple[str, str] | None = None


class Construct(Struct, frozen=True):
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
