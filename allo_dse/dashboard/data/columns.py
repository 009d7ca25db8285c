"""Columns of a table that grows: numbers as float64 (NaN: no value), everything else as categories."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeGuard, TypeVar

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from allo_dse.tune.store.record import Measurement, Record

from .follow import Where

Kind = Literal["objective", "parameter", "mapping", "metric", "meta"]
Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]
Codes = NDArray[np.int32]
HUGE = 1e305
"""Numbers from here on are shown as text."""
WAITING = 1024
"""Values of a column that may wait to be moved into its array."""
MISSING = -1
"""The code of a row without a value."""

Scalar = TypeVar("Scalar", bound=np.generic)


class Growing(Generic[Scalar]):
    """An array that grows along its first axis, with as much room again whenever it is full."""

    def __init__(self, values: NDArray[Scalar]) -> None:
        self._room, self._length = values, len(values)

    def __len__(self) -> int:
        return self._length

    def extend(self, values: NDArray[Scalar]) -> None:
        end = self._length + len(values)
        if end > len(self._room):
            room = np.empty((max(end, 2 * self._length), *self._room.shape[1:]), self._room.dtype)
            room[: self._length] = self.values
            self._room = room
        self._room[self._length : end] = values
        self._length = end

    @property
    def values(self) -> NDArray[Scalar]:
        """The values so far, not copied."""
        return self._room[: self._length]


Value = TypeVar("Value")


class Repeated(NamedTuple, Generic[Value]):
    """Values of many rows, few of them different.

    Attributes:
        few: the distinct values, in order of first occurrence.
        which: the position in it of each row's value.
    """

    few: Sequence[Value]
    which: Codes

    @staticmethod
    def among(values: Sequence[Value]) -> Repeated[Value]:
        """Values row by row, those that are equal once."""
        places = {value: place for place, value in enumerate(dict.fromkeys(values))}
        return Repeated(list(places), np.fromiter(map(places.__getitem__, values), np.int32, len(values)))

    @property
    def all(self) -> list[Value]:
        """Row by row."""
        return [self.few[position] for position in self.which.tolist()]

    def of(self, rows: Sequence[int]) -> Repeated[Value]:
        """Return the values of some rows."""
        some = Repeated.among(self.which[np.asarray(rows)].tolist())
        return Repeated([self.few[position] for position in some.few], some.which)


Values: TypeAlias = Sequence[object] | Repeated[object] | Floats
"""Of a column for many rows."""


def listed(values: Values) -> Sequence[object]:
    """The same, row by row."""
    if isinstance(values, Repeated):
        return values.all
    return values.tolist() if isinstance(values, np.ndarray) else values


class Column:
    """One column. Appending is cheap; arrays are brought up to date when they are read.

    Args:
        missing: rows before the first, without a value.
        categories: the first distinct values of a column of texts, by their codes.

    Attributes:
        kind: what the column says about a design.
        integral: whether all its numbers are whole, for how they are written.
    """

    def __init__(self, name: str, kind: Kind, missing: int = 0, categories: dict[str, int] | None = None) -> None:
        self.name, self.kind = name, kind
        self.integral = True
        self._numbers = Growing(np.full(missing if categories is None else 0, np.nan))
        self._codes = None if categories is None else Growing(np.full(missing, MISSING, np.int32))
        self._categories: dict[str, int] = {} if categories is None else categories
        self._names: list[str | None] = [None]
        self._tail: list[object] = []

    def append(self, value: object) -> None:
        self._tail.append(value)

    def extend(self, values: Values) -> None:
        if isinstance(values, Repeated | np.ndarray):
            self.settle()
            self._add(*(values if isinstance(values, Repeated) else (values,)))
        else:
            self._tail.extend(values)
            if len(self._tail) >= WAITING:
                self.settle()

    def extend_codes(self, codes: Codes) -> None:
        """Add rows with known categories to a column that began with categories."""
        assert self._codes is not None
        self._codes.extend(codes)

    def replace(self, row: int, value: object) -> None:
        """Change one value."""
        self.settle()
        value = _present(value)
        if self._codes is None and not (value is None or is_number(value)):
            self._become_text()
        if self._codes is None:
            number = float(value) if is_number(value) else np.nan
            self.integral = self.integral and (value is None or number.is_integer())
            self._numbers.values[row] = number
        else:
            known = self._categories
            self._codes.values[row] = MISSING if value is None else known.setdefault(_text(value), len(known))

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
            return self._numbers.values
        codes = self._codes.values
        return np.where(codes == MISSING, np.nan, codes)

    @property
    def codes(self) -> Codes:
        """Positions in `categories`; of a numeric column, its values are the categories."""
        self.settle()
        if self._codes is not None:
            return self._codes.values
        values, codes = np.unique(self._numbers.values, return_inverse=True)
        return np.where(np.isnan(values)[codes], MISSING, codes).astype(np.int32)

    @property
    def categories(self) -> list[str]:
        """The distinct values as text, in the order of `codes`."""
        self.settle()
        if self._codes is not None:
            return list(self._categories)
        values = np.unique(self._numbers.values)
        return [_number_text(v, self.integral) for v in values[~np.isnan(values)].tolist()]

    def value(self, row: int) -> object:
        """A row's value: a number, a text, or None."""
        self.settle()
        if self._codes is not None:
            return self._by_code[int(self._codes.values[row])]
        number = float(self._numbers.values[row])
        if np.isnan(number):
            return None
        return int(number) if self.integral else number

    def values(self, rows: NDArray[np.int64]) -> list[object]:
        """The values of some rows."""
        self.settle()
        if self._codes is not None:
            names = self._by_code
            return [names[code] for code in self._codes.values[rows].tolist()]
        as_written = int if self.integral else float
        return [None if v != v else as_written(v) for v in self._numbers.values[rows].tolist()]

    @property
    def _by_code(self) -> list[str | None]:
        """Names by code. The last one is None; `MISSING`, as index -1, reaches it as well."""
        if len(self._names) != len(self._categories) + 1:
            self._names = [*self._categories, None]
        return self._names

    @property
    def varies(self) -> bool:
        """True if two rows differ; a row without a value differs from one that has one."""
        self.settle()
        values = self._numbers.values if self._codes is None else self._codes.values
        return not np.array_equal(values[1:], values[:-1], equal_nan=True)

    @property
    def counts(self) -> dict[str, int]:
        """Number of rows of each category."""
        codes, categories = self.codes, self.categories
        numbers = np.bincount(codes[codes != MISSING], minlength=len(categories))
        return dict(zip(categories, numbers.tolist(), strict=True))

    def settle(self) -> None:
        """Move appended values into the arrays."""
        if self._tail:
            tail, self._tail = self._tail, []
            self._add(tail)

    def _add(self, values: Sequence[object] | Floats, which: Codes | None = None) -> None:
        """Rows at the end: these values, or of each row the one at a position among them."""
        if self._codes is None:
            new = as_numbers(values)
            if new is not None:
                self.integral = self.integral and bool((np.isnan(new) | (new == np.floor(new))).all())
                self._numbers.extend(new if which is None else new[which])
                return
            self._become_text()
        assert self._codes is not None
        codes = np.array(self._coded(list(values)), np.int32)
        self._codes.extend(codes if which is None else codes[which])

    def _coded(self, values: Sequence[object]) -> list[int]:
        """The codes of values; new values become categories."""
        known = self._categories
        texts: Sequence[Any] = values  # None, or a text
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
        self._codes = Growing(np.array(self._coded(self._numbers.values.tolist()), np.int32))
        self._numbers = Growing(np.empty(0))


def _present(value: object) -> object:
    """A value, or None for a number that is none: one design that failed for it does not make a column text."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_numbers(values: Sequence[object] | Floats) -> Floats | None:
    """Values as numbers, NaN where there is none; None when something else is among them."""
    if isinstance(values, np.ndarray):
        return values
    if not set(map(type, values)) <= {int, float, type(None)}:
        return None
    try:
        found: Floats = np.array(values, np.float64)
    except OverflowError:
        return None
    found[np.isinf(found)] = np.nan
    return None if (np.abs(found) >= HUGE).any() else found


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a finite number that is shown as one."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < HUGE


def _number_text(value: float, integral: bool) -> str:
    return str(int(value)) if integral and value.is_integer() else repr(value)


def _text(value: object) -> str:
    """Write a value of a column of texts. A number is written as a column of numbers writes it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _number_text(float(value), True) if is_number(value) else str(value)


class RungResult(Measurement, frozen=True, kw_only=True, gc=False):
    """One evaluator's result for a design.

    Attributes:
        where: offset and length of the entry in the log.
    """

    where: Where

    @staticmethod
    def of(entry: Record, where: Where) -> RungResult:
        """Build the result from an entry of the log."""
        return RungResult(where=where, **structs.asdict(entry.measurement))
