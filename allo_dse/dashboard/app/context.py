"""What all callbacks share."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from ..data.board import Board, Ref
from ..data.grid import Grid, Query
from ..data.opening import Opening
from ..data.selection import Selection
from ..programs import Programs

PAGES = ("front", "progress", "design", "compare")


@dataclass
class Context:
    """The runs that are open, and what was compiled for them."""

    board: Board
    programs: Programs
    reference: Ref | None = None
    opening: Opening | None = None
    """Of a board that has not been read yet."""
    grid: Grid = field(init=False)

    def __post_init__(self) -> None:
        self.grid = Grid(self.board)

    def reference_of(self, text: str | None) -> Ref | None:
        """The reference that the user chose, or the default one."""
        return self.board.reference(text) or self.reference or self.board.default_reference

    def query(
        self,
        source: str | None,
        selection: dict[str, Any] | None,
        hidden: list[int] | None,
        request: dict[str, Any] | None = None,
    ) -> Query:
        """What the table shows, from the browser's state."""
        request = request or {}
        chosen = Selection.from_dict(selection)
        return Query(
            source or "",
            tuple(hidden or ()),
            chosen,
            only_selected=not chosen.keys,
            sort=tuple((s["colId"], s["sort"] == "desc") for s in request.get("sortModel") or ()),
            filters=tuple((name, json.dumps(m)) for name, m in (request.get("filterModel") or {}).items()),
        )


def page_of(pathname: str | None) -> str:
    """The page of an address."""
    name = (pathname or "/").strip("/").split("/")[0]
    return name if name in PAGES else PAGES[0]


def hidden_runs(board: Board, shown: list[int] | None) -> tuple[int, ...]:
    """Runs whose box is not ticked."""
    if shown is None:
        return ()
    return tuple(number for number in range(len(board.runs)) if number not in shown)
