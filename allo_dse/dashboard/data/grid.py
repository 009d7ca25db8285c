"""The table of designs: columns, and the rows of a window as AG Grid's infinite row model asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
        parts = []
        for number, mask in enumerate(kept):
            rows = np.flatnonzero(mask)
            parts.append(np.stack([np.full(len(rows), number), rows], axis=1))
        places = np.concatenate(parts) if parts else np.zeros((0, 2), np.int64)
        return places[self._sorted(places, query.sort)]

    def _sorted(self, places: NDArray[np.int64], sort: Sequence[tuple[str, bool]]) -> NDArray[np.int64]:
        """The order of the rows: by the columns asked for, else the fronts first, then as evaluated."""
        if not sort:
            rank = np.ones(len(places))
            for number, run in enumerate(self.board.runs):
                mine = places[:, 0] == number
                rank[mine] = ~np.isin(places[mine, 1], run.front)
            objectives = self.board.objectives[:1]
            first = self._keys(places, objectives[0], False) if objectives else rank
            return np.lexsort((first, rank))
        keys = [self._keys(places, name, descending) for name, descending in sort]
        return np.lexsort(keys[::-1])

    def _keys(self, places: NDArray[np.int64], name: str, descending: bool) -> NDArray[np.float64]:
        """Sort keys of a column; rows without a value come last."""
        if name == MARK:
            keys = np.array([float(row in self.board.runs[run].front) for run, row in places.tolist()])
        elif name == RUN:
            keys = places[:, 0].astype(float)
        else:
            axis = self.board.axis(name)
            keys = np.full(len(places), np.nan)
            for number, numbers in enumerate(axis.numbers):
                mine = places[:, 0] == number
                keys[mine] = numbers[places[mine, 1]]
        return np.where(np.isnan(keys), np.inf, -keys if descending else keys)
