"""Columns of a table that grows: numbers as float64 (NaN: no value), everything else as categories."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeGuard

import numpy as np
from numpy.typing import NDArray

Kind = Literal["objective", "parameter", "mapping", "metric", "meta"]
Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]
Codes = NDArray[np.int32]
HUGE = 1e300
"""Numbers from here on are shown as text."""
WAITING = 8
"""Share of a column, as one in so many, that may wait to be moved into its array while a log is read."""
MISSING = -1
"""The code of a row without a value."""


class Column:
    """One column. Appending is cheap; arrays are brought up to date when they are read.

    Attributes:
        kind: what the column says about a design.
        integral: whether all its numbers are whole, for how they are written.
    """

    def __init__(self, name: str, kind: Kind, missing: int = 0) -> None:
        self.name, self.kind = name, kind
        self.integral = True
        self._numbers: Floats = np.full(missing, np.nan)
        self._codes: Codes | None = None
        self._categories: dict[str, int] = {}
        self._tail: list[object] = []

    def append(self, value: object) -> None:
        self._tail.append(value)

    def extend(self, values: Iterable[object]) -> None:
        self._tail.extend(values)

    def replace(self, row: int, value: object) -> None:
        """Change one value."""
        self.settle()
        value = _present(value)
        if self._codes is None and not (value is None or is_number(value)):
            self._become_text()
        if self._codes is None:
            number = float(value) if is_number(value) else np.nan
            self.integral = self.integral and (value is None or number.is_integer())
            self._numbers[row] = number
        else:
            known = self._categories
            self._codes[row] = MISSING if value is None else known.setdefault(_text(value), len(known))

    def __len__(self) -> int:
        settled = self._numbers if self._codes is None else self._codes
        return len(settled) + len(self._tail)

    @property
    def numeric(self) -> bool:
        self.settle()
        return self._codes is None

    @property
    def numbers(self) -> Floats:
        """The values of a numeric column; of another one the numbers of its categories."""
        self.settle()
        if self._codes is None:
            return self._numbers
        return np.where(self._codes == MISSING, np.nan, self._codes)

    @property
    def codes(self) -> Codes:
        """Positions in `categories`; of a numeric column, its values are the categories."""
        self.settle()
        if self._codes is not None:
            return self._codes
        values, codes = np.unique(self._numbers, return_inverse=True)
        return np.where(np.isnan(values)[codes], MISSING, codes).astype(np.int32)

    @property
    def categories(self) -> list[str]:
        """The distinct values as text, in the order of `codes`."""
        self.settle()
        if self._codes is not None:
            return list(self._categories)
        values = np.unique(self._numbers)
        return [_number_text(v, self.integral) for v in values[~np.isnan(values)].tolist()]

    def value(self, row: int) -> object:
        """A row's value: a number, a text, or None."""
        self.settle()
        if self._codes is not None:
            code = int(self._codes[row])
            return None if code == MISSING else list(self._categories)[code]
        number = float(self._numbers[row])
        if np.isnan(number):
            return None
        return int(number) if number.is_integer() and self.integral else number

    def values(self, rows: NDArray[np.int64]) -> list[object]:
        """The values of some rows."""
        self.settle()
        if self._codes is not None:
            names = [*self._categories, None]
            return [names[code] for code in self._codes[rows].tolist()]
        picked = self._numbers[rows].tolist()
        if self.integral:
            return [None if v != v else int(v) for v in picked]
        return [None if v != v else v for v in picked]

    @property
    def varies(self) -> bool:
        """Whether two rows differ; a row without a value differs from one that has one."""
        self.settle()
        if len(self) < 2:
            return False
        if self._codes is not None:
            return bool((self._codes != self._codes[0]).any())
        first = self._numbers[0]
        if np.isnan(first):
            return bool((~np.isnan(self._numbers)).any())
        return bool((self._numbers != first).any())

    def settle(self, *, all_of_it: bool = True) -> None:
        """Move appended values into the arrays; unless it must be, not before they are many, as all are copied then."""
        if not self._tail or not (all_of_it or len(self) < WAITING * len(self._tail)):
            return
        tail, self._tail = self._tail, []
        if self._codes is None:
            new = as_numbers(tail)
            if new is not None:
                self.integral = self.integral and bool((np.isnan(new) | (new == np.floor(new))).all())
                self._numbers = np.concatenate([self._numbers, new])
                return
            self._become_text()
        assert self._codes is not None
        self._codes = np.concatenate([self._codes, np.array(self._coded(tail), np.int32)])

    def _coded(self, values: list[object]) -> list[int]:
        """The codes of values, of which new ones become categories."""
        known = self._categories
        texts: list[Any] = values  # None, or a text
        if not set(map(type, values)) <= {str, type(None)}:
            texts = [None if (value := _present(v)) is None else _text(value) for v in values]
        distinct = dict.fromkeys(texts)
        new = [text for text in distinct if text is not None and text not in known]
        known.update(zip(new, range(len(known), len(known) + len(new)), strict=True))
        if None in distinct:
            return [known.get(text, MISSING) for text in texts]
        return [known[texts[0]]] * len(texts) if len(distinct) == 1 else list(map(known.__getitem__, texts))

    def _become_text(self) -> None:
        """A numeric column that turned out to hold something else."""
        self._codes = np.array(self._coded(self._numbers.tolist()), np.int32)
        self._numbers = np.empty(0)


def _present(value: object) -> object:
    """A value, or None for a number that is none: one design that failed for it does not make a column text."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_numbers(values: Sequence[object]) -> Floats | None:
    """Values as numbers, NaN where there is none; None when something else is among them."""
    if not set(map(type, values)) <= {int, float, type(None)}:
        return None
    try:
        found: Floats = np.array(values, np.float64)
    except OverflowError:
        return None
    found[np.isinf(found)] = np.nan
    return None if (np.abs(found) >= HUGE).any() else found


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a finite number that is shown as one."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < HUGE


def _number_text(value: float, integral: bool) -> str:
    return str(int(value)) if integral and value.is_integer() else repr(value)


def _text(value: object) -> str:
    """A value among texts. A number is written the same whether it was taken for a column of numbers before or not."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _number_text(float(value), True) if is_number(value) else str(value)
