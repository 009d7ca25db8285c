"""Filter expressions: `bram18 < 80 and latency_us < 900`.

Expressions are a subset of Python's: comparisons, `and`, `or`, `not`, `in` and arithmetic mean what they mean there,
and nothing is ever executed. `"text" in column` looks for a part of a text, whatever its case. Beyond Python, columns
may have any characters in `backquotes`. A design without a value in a column matches no comparison with it.
"""

from __future__ import annotations

import ast
import difflib
import operator
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np

from allo_dse.common.errors import AlloDseError
from allo_dse.common.records import Frozen

from .columns import MISSING, Column, Floats, Mask

__all__ = ["Filter", "FilterError", "parse_filter"]

MAX_LENGTH = 1000
MAX_DEPTH = 600
"""Below Python's limit of recursion, and above the longest sum of `MAX_LENGTH` characters."""
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'|`(?P<name>[^`]+)`")
_FIRST = 0x4E00
"""From this letter on each stands for a column in backquotes, as a name that Python can read."""
_COMPARE: dict[type[ast.cmpop], Callable[[Floats, Floats], Mask]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_ARITHMETIC: dict[type[ast.operator], Callable[[Floats, Floats], Floats]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class FilterError(AlloDseError):
    """A filter expression that cannot be understood."""


class Filtered(Protocol):
    """Columns of equal length."""

    def __len__(self) -> int: ...

    def column(self, name: str) -> Column | None: ...


class Filter(Frozen):
    """A parsed expression.

    Attributes:
        tree: None matches everything.
        text: the source as Python reads it.
        quoted: columns in backquotes by their names in `text`.
        names: columns that it reads.
    """

    source: str
    tree: ast.expr | None
    text: str
    quoted: Mapping[str, str]
    names: tuple[str, ...]

    def __call__(self, table: Filtered) -> Mask:
        """Return per row of the table whether it matches."""
        if self.tree is None:
            return np.ones(len(table), bool)
        with np.errstate(all="ignore"):
            return _Evaluation(self, table).condition(self.tree)

    def check(self, names: Iterable[str]) -> None:
        """Refuse columns that no table has.

        Raises:
            FilterError: with the nearest names.
        """
        known = list(names)
        for name in self.names:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=3)
                hint = f"did you mean {' or '.join(near)}?" if near else 'texts stand in quotes: how == "chain"'
                raise FilterError(f"there is no column {name!r}", hint=hint)


class _Nothing:
    """A table without rows and columns."""

    def __len__(self) -> int:
        return 0

    def column(self, name: str) -> None:
        return None


def parse_filter(source: str) -> Filter:
    """Parse an expression; an empty one matches everything.

    Raises:
        FilterError: with the place of the mistake.
    """
    if len(source) > MAX_LENGTH:
        raise FilterError(f"the filter is longer than {MAX_LENGTH} characters")
    quoted: dict[str, str] = {}

    def plain(found: re.Match[str]) -> str:
        if found["name"] is None:
            return found[0]
        letter = chr(_FIRST + len(quoted))
        quoted[letter] = found["name"]
        return letter.ljust(len(found[0]))

    text = _QUOTED.sub(plain, source.replace("\n", " ").replace("\r", " "))
    if not text.strip():
        return Filter(source, None, text, {}, ())
    start = len(text) - len(text.lstrip())
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(text[start:], mode="eval").body
    except SyntaxError as error:
        end = len(text.rstrip())
        at = start + error.offset - 1 if error.offset else end  # Python names no place for an unexpected end
        raise _mistake(source, min(at, end), "this is not an expression") from None
    except (RecursionError, MemoryError, ValueError):
        raise _mistake(source, 0, "this is not an expression") from None
    level: list[ast.AST] = [tree]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    if level:
        raise _mistake(source, 0, "the filter is nested too deeply")
    found = Filter(source, tree, text, quoted, ())
    trial = _Evaluation(found, _Nothing())  # finds all mistakes that do not depend on values
    trial.condition(tree)
    return Filter(source, tree, text, quoted, tuple(trial.names))


def _mistake(source: str, at: int, message: str, hint: str = 'latency_us < 900 and how == "chain"') -> FilterError:
    return FilterError(f"{message}, at character {at + 1}: {source[:at]}▸{source[at:]}", hint=hint)


class _Evaluation:
    """An expression on a table; `names` are the columns that have been asked for."""

    def __init__(self, of: Filter, table: Filtered) -> None:
        self.of, self.table = of, table
        self.names: dict[str, None] = {}

    def mistake(self, node: ast.expr, message: str, **hint: str) -> FilterError:
        text = self.of.text
        start = len(text) - len(text.lstrip())
        before = text[start:].encode()[: node.col_offset].decode()  # Python counts bytes
        return _mistake(self.of.source, start + len(before), message, **hint)

    def condition(self, node: ast.expr) -> Mask:
        match node:
            case ast.BoolOp(op, values):
                joined = np.logical_and if isinstance(op, ast.And) else np.logical_or
                return np.asarray(joined.reduce([self.condition(value) for value in values]))
            case ast.UnaryOp(ast.Not(), operand):
                return ~self.condition(operand)
            case ast.Compare(left, ops, comparators):
                sides = zip([left, *comparators], ops, comparators, strict=False)
                return np.asarray(np.logical_and.reduce([self.comparison(*step) for step in sides]))
        raise self.mistake(node, "expected a comparison such as `< 900`")

    def comparison(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Mask:
        if isinstance(op, ast.In | ast.NotIn):
            found = self.within(left, right)
            return ~found if isinstance(op, ast.NotIn) else found
        if type(op) not in _COMPARE:
            raise self.mistake(left, "`is` compares nothing here")
        for one, other in ((left, right), (right, left)) if isinstance(op, ast.Eq | ast.NotEq) else ():
            name, value = self.name(one), self.literal(other)
            if name is not None and value is not None:
                column = self.column(name)
                if isinstance(value, str) or (column is not None and not column.numeric):
                    same = _equals(column, value, len(self.table))
                    return same if isinstance(op, ast.Eq) or column is None else ~same & (column.codes != MISSING)
        a, b = self.term(left), self.term(right)
        return np.asarray(_COMPARE[type(op)](a, b) & ~np.isnan(a) & ~np.isnan(b))

    def within(self, left: ast.expr, right: ast.expr) -> Mask:
        """A value among others, or a part of a text."""
        part, name = self.literal(left), self.name(right)
        if isinstance(part, str) and name is not None:
            column = self.column(name)
            if column is None:
                return np.zeros(len(self.table), bool)
            return _by_category(column, [part.lower() in category.lower() for category in column.categories])
        if (name := self.name(left)) is None:
            raise self.mistake(left, "expected a column")
        elements = right.elts if isinstance(right, ast.Tuple | ast.List) else [right]
        values = [self.literal(element) for element in elements]
        for element, value in zip(elements, values, strict=True):
            if value is None:
                raise self.mistake(element, "expected a value", hint='how in ("chain", "bundle")')
        column, count = self.column(name), len(self.table)
        found = [_equals(column, value, count) for value in values if value is not None]
        return np.asarray(np.logical_or.reduce([np.zeros(count, bool), *found]))

    def term(self, node: ast.expr) -> Floats:
        value, name = self.literal(node), self.name(node)
        if isinstance(value, str):
            raise self.mistake(node, "a text has no order", hint="compare texts with == or !=")
        if value is not None:
            return np.full(len(self.table), float(value))
        if name is not None:
            column = self.column(name)
            if column is None:
                return np.full(len(self.table), np.nan)
            if not column.numeric:
                example = next(iter(column.categories), "...")
                hint = f'compare it with a text: {name} == "{example}"'
                raise self.mistake(node, f"{name} is not a number", hint=hint)
            return column.numbers
        match node:
            case ast.UnaryOp(ast.USub(), operand):
                return -self.term(operand)
            case ast.BinOp(left, op, right) if type(op) in _ARITHMETIC:
                return _ARITHMETIC[type(op)](self.term(left), self.term(right))
        raise self.mistake(node, "expected a column, a number or a text")

    def column(self, name: str) -> Column | None:
        self.names[name] = None
        return self.table.column(name)

    def name(self, node: ast.expr) -> str | None:
        """Return the column that an expression names."""
        match node:
            case ast.Name(name):
                return self.of.quoted.get(name, name)
            case ast.Attribute(value, name):
                before = self.name(value)
                return None if before is None else f"{before}.{name}"
        return None

    def literal(self, node: ast.expr) -> str | float | None:
        """Return the text or number that an expression is."""
        match node:
            case ast.Constant(str() | float() as value):
                return value
            case ast.Constant(int() as value) if not isinstance(value, bool):
                return float(value) if abs(value) < 1e300 else None
            case ast.UnaryOp(ast.USub(), ast.Constant() as operand):
                number = self.literal(operand)
                return None if number is None or isinstance(number, str) else -number
        return None


def _by_category(column: Column, wanted: Sequence[bool]) -> Mask:
    found: Mask = np.array([*wanted, False])[column.codes] & (column.codes != MISSING)
    return found


def _equals(column: Column | None, value: str | float, length: int) -> Mask:
    if column is None:
        return np.zeros(length, bool)
    if column.numeric:
        try:
            return np.asarray(column.numbers == float(value))
        except ValueError:
            return np.zeros(length, bool)
    text = value if isinstance(value, str) else f"{value:g}"
    return _by_category(column, [category == text for category in column.categories])
