"""Finding the run and the design that a person means."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

from allo_dse.common.errors import StudyError

if TYPE_CHECKING:
    from allo_dse.dashboard.data.table.table import RunTable

SHORTEST_KEY = 4


def means_run(text: str) -> bool:
    """Whether a word that may be a design or a run directory is the latter; it need not be there."""
    return "/" in text or Path(text).is_dir()


def open_run(path: Path | None) -> RunTable:
    """A run directory as a table, read to its present end. What is wrong with its log is said.

    Raises:
        StudyError: when it is none.
    """
    from allo_dse.dashboard.data.table.table import RunTable
    from allo_dse.tune.store.rundir import find_run

    from .output import print_warnings

    table = RunTable(find_run(path))
    table.refresh()
    print_warnings(table.notes)
    return table


def find_design(table: RunTable, wanted: str) -> int:
    """The row of a design given by its number, or by its key or the beginning of it.

    Raises:
        StudyError: when there is none, or more than one.
    """
    text = wanted.strip().removeprefix("#").lower()
    if text.isdecimal() and len(text) < len(next(iter(table.keys), "x" * 16)):
        numbers = table.numbers("number")
        rows = [row for row in range(len(table)) if numbers[row] == int(text)]
        if rows:
            return rows[0]
    rows = [row for key, row in table.row_of.items() if key.startswith(text)] if len(text) >= SHORTEST_KEY else []
    if len(rows) == 1:
        return rows[0]
    if rows:
        some = ", ".join(table.keys[row] for row in rows[:4])
        raise StudyError(f"{wanted} could be any of {len(rows)} designs: {some}", hint="give more of the key")
    near = difflib.get_close_matches(text, table.keys, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise StudyError(
        f"{table.path} has no design {wanted!r}",
        hint=f"{hint}`allo-tune pareto` lists designs by key; {SHORTEST_KEY} characters or the number will do",
    )
