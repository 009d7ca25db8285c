"""The table of designs: columns, and the rows of a window as AG Grid's infinite row model asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from msgspec import field
from numpy.typing import NDArray

from allo_dse.common.records import Frozen

from .runs import Board, Ref
from .selection import Selection

ID, MARK, RUN = "_id", "_mark", "run"
_KINDS = ("objective", "parameter", "mapping", "metric", "meta")
_HIDDEN = ("key", "evaluator", "genes")


class Query(Frozen):
    """Rows and order of the table.

    Attributes:
        hidden: runs that are not shown.
        selection: narrows it, unless it is empty.
        sort: (column, descending), the most important first.
    """

    source: str = ""
    hidden: tuple[int, ...] = ()
    selection: Selection = field(default_factory=Selection)
    sort: tuple[tuple[str, bool], ...] = ()


def grid_columns(board: Board, *, hide_equal: bool) -> list[tuple[str, str, bool]]:
    """The columns of the table: name, kind, and whether it holds numbers. `hide_equal` leaves out the others."""
    found: list[tuple[str, str, bool]] = []
    for kind in _KINDS:
        for name in board.column_names:
            columns = [run.columns[name] for run in board.runs if name in run.columns]
            if columns[0].kind != kind or name in _HIDDEN:
                continue
            if hide_equal and kind != "objective" and name not in board.varying(kind):
                continue
            found.append((name, kind, all(c.numeric for c in columns)))
    return found


class Grid:
    """Answers for windows of rows; remembers the order of the last queries."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self._order = lru_cache(maxsize=8)(self._ordered)

    def window(self, query: Query, start: int, end: int) -> tuple[list[dict[str, object]], int]:
        """Rows `start` to `end` of the table, and how many there are in all."""
        refs = self._order(query, self.board.version)
        places = refs[start:end]
        parts = {
            number: self._rows(number, places[places[:, 0] == number, 1]) for number in range(len(self.board.runs))
        }
        return [next(parts[number]) for number in places[:, 0].tolist()], len(refs)

    def refs(self, query: Query) -> list[Ref]:
        """All designs of the table, in its order."""
        return [Ref(run, row) for run, row in self._order(query, self.board.version).tolist()]

    def _rows(self, number: int, rows: NDArray[np.int64]) -> Iterator[dict[str, object]]:
        """Some rows of a run."""
        run, name = self.board.runs[number], self.board.names[number]
        shown = [column for column in run.columns if column not in _HIDDEN]
        values = [run.columns[column].values(rows) for column in shown]
        marks = dict.fromkeys(run.front.tolist(), "front") | {run.knee: "knee"}
        for position, row in enumerate(rows.tolist()):
            cells = {column: cell[position] for column, cell in zip(shown, values, strict=True)}
            yield {**cells, ID: self.board.text(Ref(number, row)), RUN: name, MARK: marks.get(row, "")}

    def _ordered(self, query: Query, _version: str) -> NDArray[np.int64]:
        kept = self.board.filtered(query.source, query.hidden)
        if query.selection:
            kept = [a & b for a, b in zip(kept, self.board.selected(query.selection), strict=True)]
        places = np.concatenate([np.insert(np.argwhere(mask), 0, number, axis=1) for number, mask in enumerate(kept)])
        # By default the fronts come first, and within them and the others the best in the first objective.
        sort = query.sort or [(MARK, True), *((name, False) for name in self.board.objectives[:1])]
        return places[np.lexsort([self._keys(places, *by) for by in sort][::-1])]

    def _keys(self, places: NDArray[np.int64], name: str, descending: bool) -> NDArray[np.float64]:
        """Sort keys of a column; rows without a value come last."""
        keys, axis = np.empty(len(places)), self.board.axis(name)
        for number, run in enumerate(self.board.runs):
            mine = places[:, 0] == number
            rows = places[mine, 1]
            keys[mine] = (
                np.isin(rows, run.front) if name == MARK else number if name == RUN else axis.numbers[number][rows]
            )
        return np.where(np.isnan(keys), np.inf, -keys if descending else keys)
