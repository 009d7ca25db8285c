"""Filter expressions: `bram18 < 80 and latency_us < 900`.

Expressions are parsed (`filter_syntax.py`) and computed on arrays; nothing is ever executed. A design without a value
in a column matches no comparison with it.
"""

from __future__ import annotations

import difflib
import operator
from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np
from msgspec import Struct

from ..table.columns import MISSING, Column, Floats, Mask
from .filter_syntax import (
    Arithmetic,
    Both,
    Comparison,
    Condition,
    Contains,
    Either,
    FilterError,
    Name,
    Not,
    Number,
    Term,
    Text,
    Within,
    names_in,
    parse,
)

__all__ = ["Filter", "FilterError", "parse_filter"]

_COMPARE: dict[str, Callable[[Floats, Floats], Mask]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "=": operator.eq,
    "!=": operator.ne,
}
_ARITHMETIC: dict[str, Callable[[Floats, Floats], Floats]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


class Table(Protocol):
    """What an expression is computed on."""

    def __len__(self) -> int: ...

    def column(self, name: str) -> Column | None: ...


class Filter(Struct, frozen=True):
    """A parsed expression."""

    source: str
    condition: Condition | None

    def __call__(self, table: Table) -> Mask:
        """Per row of the table whether it matches."""
        if self.condition is None:
            return np.ones(len(table), bool)
        with np.errstate(all="ignore"):
            return _matches(self.condition, table)

    def check(self, names: Iterable[str]) -> None:
        """Refuse columns that no table has.

        Raises:
            FilterError: with the nearest names.
        """
        known = list(names)
        for name in names_in(self.condition):
            if name not in known:
                near = difflib.get_close_matches(name, known, n=3)
                hint = f"did you mean {' or '.join(near)}?" if near else 'texts stand in quotes: how == "chain"'
                raise FilterError(f"there is no column {name!r}", hint=hint)


def parse_filter(source: str) -> Filter:
    """Parse an expression; an empty one matches everything.

    Raises:
        FilterError: with the place of the mistake.
    """
    return Filter(source, parse(source))


def _matches(condition: Condition, table: Table) -> Mask:
    match condition:
        case Both(left, right):
            return _matches(left, table) & _matches(right, table)
        case Either(left, right):
            return _matches(left, table) | _matches(right, table)
        case Not(inner):
            return ~_matches(inner, table)
        case Within(name, values):
            found: Mask = np.logical_or.reduce([_equals(table, name, value) for value in values])
            return found
        case Contains(name, part):
            column = table.column(name.value)
            if column is None:
                return np.zeros(len(table), bool)
            wanted = [part.lower() in category.lower() for category in column.categories]
            return _by_category(column, wanted)
        case Comparison(op, left, right):
            return _compare(op, left, right, table)


def _by_category(column: Column, wanted: list[bool]) -> Mask:
    codes = column.codes
    found: Mask = np.array([*wanted, False])[codes] & (codes != MISSING)
    return found


def _equals(table: Table, name: Name, value: str) -> Mask:
    column = table.column(name.value)
    if column is None:
        return np.zeros(len(table), bool)
    if column.numeric:
        try:
            return np.asarray(column.numbers == float(value))
        except ValueError:
            return np.zeros(len(table), bool)
    return _by_category(column, [category == value for category in column.categories])


def _compare(op: str, left: Term, right: Term, table: Table) -> Mask:
    for name, other in ((left, right), (right, left)):
        if isinstance(name, Name) and isinstance(other, Text | Number) and op in ("==", "=", "!="):
            value = other.value if isinstance(other, Text) else f"{other.value:g}"
            column = table.column(name.value)
            if isinstance(other, Number) and (column is None or column.numeric):
                break
            same = _equals(table, name, value)
            return same if op != "!=" else ~same & _present(column, len(table))
    first, second = _numbers(left, table), _numbers(right, table)
    return _COMPARE[op](first, second) & ~np.isnan(first) & ~np.isnan(second)


def _present(column: Column | None, length: int) -> Mask:
    return np.zeros(length, bool) if column is None else column.codes != MISSING


def _numbers(term: Term, table: Table) -> Floats:
    match term:
        case Number(value):
            return np.full(len(table), value)
        case Name(value):
            column = table.column(value)
            if column is None:
                return np.full(len(table), np.nan)
            if not column.numeric:
                raise FilterError(
                    f"{value} is not a number", hint=f'compare it with a text: {value} == "{_example(column)}"'
                )
            return column.numbers
        case Arithmetic(op, left, right):
            return _ARITHMETIC[op](_numbers(left, table), _numbers(right, table))
        case Text(value):
            raise FilterError(f'"{value}" is a text, which has no order', hint="compare texts with == or !=")


def _example(column: Column) -> str:
    return next(iter(column.categories), "...")
