"""State that all callbacks share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypedDict

from allo_dse.common.records import JsonObject

from ..data.grid import Grid
from ..data.runs import Board, Ref
from ..programs import Programs

PAGES = ("front", "progress", "design", "compare")


@dataclass
class Context:
    """The open runs, and their compiled programs."""

    board: Board
    programs: Programs
    reference: Ref | None = None
    local: bool = True
    """Whether only browsers on this computer are served: they may write notes, stop and resume runs."""

    @cached_property
    def grid(self) -> Grid:
        return Grid(self.board)

    def reference_of(self, text: str | None) -> Ref | None:
        """The reference that the user chose, or the default one."""
        return self.board.reference(text) or self.reference or self.board.default_reference


class State(TypedDict):
    """All that the front page depends on. The browser keeps it; app/gestures.py says how it changes.

    `error` is what is wrong with the filter that was written last, which is not `filter` then. `design` and `reference`
    are written as the board does, `selection` as `Selection.to_dict` does; `zoom` are the axes that were zoomed and
    their visible ranges, `sort` the table's as AG Grid has it. `pair` is what the page of comparisons
    shows where that is not the reference and the design.
    """

    x: str
    y: str
    color: str | None
    log: list[str]
    show: list[str]
    runs: list[int]
    filter: str
    error: str
    selection: JsonObject | None
    design: str | None
    reference: str | None
    pair: list[str] | None
    zoom: JsonObject | None
    sort: list[JsonObject]
    theme: str
    version: str


def page_of(pathname: str | None) -> str:
    """The page of an address."""
    name = (pathname or "/").strip("/").split("/")[0]
    return name if name in PAGES else PAGES[0]


def hidden_runs(board: Board, shown: list[int] | None) -> tuple[int, ...]:
    """Runs whose box is not ticked."""
    if shown is None:
        return ()
    return tuple(number for number in range(len(board.runs)) if number not in shown)
