"""Several runs side by side: which designs are shown, and how each is referred to."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from allo_dse.common.errors import StudyError
from allo_dse.common.processes import rare_collections
from allo_dse.common.records import Frozen

from .columns import Floats, Kind, Mask
from .filters import parse_filter
from .selection import Selection
from .table import RunTable

SEPARATOR = ":"


class Ref(Frozen):
    """A design: a run's number on the board, and the row in its table. Written `run:key`, which stays valid."""

    run: int
    row: int


class ColumnAxis(Frozen):
    """A column of all runs on one scale.

    Attributes:
        numbers: per run its rows; NaN where there is no value.
        ticks: of a column of texts, what the numbers 0, 1, ... stand for.
    """

    name: str
    numbers: list[Floats]
    ticks: list[str] | None = None


@dataclass
class Board:
    """The runs that are open."""

    runs: list[RunTable] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)
    """To be held while reading, because another thread may read more of the logs."""

    @staticmethod
    def open(paths: Sequence[Path]) -> Board:
        """Read runs.

        Raises:
            StudyError: if one of them is not a run directory, or its log makes no sense.
        """
        if not paths:
            raise StudyError("no run to show", hint="name one or more run directories, for example runs/gemm_npu_i16")
        board = Board([RunTable(path) for path in dict.fromkeys(p.resolve() for p in paths)])
        with rare_collections():
            board.refresh()
        return board

    def refresh(self) -> bool:
        """Read additions to the logs; returns whether there were any.

        Raises:
            StudyError: if that makes no sense.
        """
        changed = [run.refresh() for run in self.runs]
        return any(changed)

    @property
    def version(self) -> str:
        """Changes whenever a run does."""
        return ".".join(str(run.version) for run in self.runs)

    @property
    def names(self) -> list[str]:
        """Names of the runs, numbered where directories have the same name."""
        plain = [run.name for run in self.runs]
        return [f"{name} ({i + 1})" if plain.count(name) > 1 else name for i, name in enumerate(plain)]

    def reference(self, text: str | None) -> Ref | None:
        """The design of a text `run:key`, if there is one."""
        number, _, key = (text or "").partition(SEPARATOR)
        if not number.isdecimal() or int(number) >= len(self.runs):
            return None
        row = self.runs[int(number)].row_of.get(key)
        return None if row is None else Ref(int(number), row)

    def text(self, ref: Ref) -> str:
        """The inverse of `reference`."""
        return f"{ref.run}{SEPARATOR}{self.key(ref)}"

    def key(self, ref: Ref) -> str:
        return self.runs[ref.run].keys[ref.row]

    def table(self, ref: Ref) -> RunTable:
        return self.runs[ref.run]

    def find(self, key: str) -> Ref | None:
        """The design of a key or the beginning of one."""
        for number, run in enumerate(self.runs):
            for known, row in run.row_of.items():
                if known.startswith(key):
                    return Ref(number, row)
        return None

    @property
    def column_names(self) -> list[str]:
        """All columns of all runs, in the order of the first that has them."""
        return list(dict.fromkeys(name for run in self.runs for name in run.columns))

    @property
    def objectives(self) -> list[str]:
        """Objectives of all runs, those of the first run first."""
        return list(dict.fromkeys(name for run in self.runs for name in run.objectives))

    def filtered(self, source: str, hidden: Sequence[int] = ()) -> list[Mask]:
        """Per run the rows that an expression keeps; none of hidden runs.

        Raises:
            FilterError: if the expression cannot be understood.
        """
        condition = parse_filter(source)
        condition.check(self.column_names)
        return [
            np.zeros(len(run), bool) if number in hidden else condition(run) for number, run in enumerate(self.runs)
        ]

    def selected(self, selection: Selection) -> list[Mask]:
        """Per run the rows that are selected."""
        axes = {name: self.axis(name) for name in selection.columns}
        return [
            selection.rows(run, {name: axis.numbers[number] for name, axis in axes.items()}.__getitem__, number)
            for number, run in enumerate(self.runs)
        ]

    def axis(self, name: str) -> ColumnAxis:
        """A column of all runs; texts in their natural order, the same in every run."""
        columns = [run.columns.get(name) for run in self.runs]
        if all(column is None or column.numeric for column in columns):
            return ColumnAxis(name, [run.numbers(name) for run in self.runs])
        ticks = sorted({c for column in columns if column is not None for c in column.categories}, key=natural_order)
        place = {tick: float(i) for i, tick in enumerate(ticks)}
        numbers = []
        for run, column in zip(self.runs, columns, strict=True):
            if column is None:
                numbers.append(np.full(len(run), np.nan))
            else:
                numbers.append(np.array([*(place[c] for c in column.categories), np.nan])[column.codes])
        return ColumnAxis(name, numbers, ticks)

    def front(self) -> Iterator[Ref]:
        """The designs on the fronts of all runs."""
        for number, run in enumerate(self.runs):
            for row in run.front.tolist():
                yield Ref(number, row)

    def varying(self, *kinds: Kind) -> list[str]:
        """Columns of some kinds that differ between designs, of the same run or of two."""
        names = [n for n in self.column_names if any(n in r.columns and r.columns[n].kind in kinds for r in self.runs)]
        return [name for name in names if self._varies(name)]

    def _varies(self, name: str) -> bool:
        columns = [run.columns.get(name) for run in self.runs if len(run)]
        if any(column is not None and column.varies for column in columns):
            return True
        return len({None if column is None else column.value(0) for column in columns}) > 1

    @property
    def knee(self) -> Ref | None:
        """The knee of the first run that has a front."""
        for number, run in enumerate(self.runs):
            if run.knee is not None:
                return Ref(number, run.knee)
        return None

    @property
    def default_reference(self) -> Ref | None:
        """The default design to compare with: the first feasible one of the first run that has any."""
        for number, run in enumerate(self.runs):
            for row in np.flatnonzero(run.ok)[:1].tolist():
                return Ref(number, row)
        return None


def natural_order(text: str) -> list[tuple[int, float, str]]:
    """Sorts "a2" before "a10"."""
    parts = re.split(r"(\d+)", text)
    return [(0, float(part), "") if part.isdecimal() else (1, 0.0, part) for part in parts]
