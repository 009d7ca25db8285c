"""Filter expressions: `bram18 < 80 and latency_us < 900`.

Expressions have the grammar of Python, which its own parser reads; nothing is ever executed. Comparisons, `and`, `or`,
`not`, `in` and arithmetic mean what they mean in Python. Beyond Python, columns may have dots in their names, or any
characters in `backquotes`, `name ~ text` looks for a part of a text, and words after `~` or in a list need no quotes.
A design without a value in a column matches no comparison with it.
"""

from __future__ import annotations

import ast
import difflib
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np
from msgspec import Struct

from allo_dse.common.errors import AlloDseError

from .columns import MISSING, Column, Floats, Mask

__all__ = ["Filter", "FilterError", "parse_filter"]

MAX_LENGTH = 1000
MAX_DEPTH = 50

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_][\w.]*)|`(?P<quoted>[^`]+)`"
    r"|(?P<text>\"[^\"]*\"|'[^']*')|(?P<op><=|>=|==|!=|[<>=~()+\-*/,]))"
)
_WORDS = ("and", "or", "not", "in")
_AS_PYTHON = {"=": "==", "~": "|"}  # `|` is read like `~`: after arithmetic, before comparisons
_WIDTH = 4  # characters of each token as Python reads it: columns of its syntax tree then number tokens
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


class Table(Protocol):
    """Columns of equal length."""

    def __len__(self) -> int: ...

    def column(self, name: str) -> Column | None: ...


Condition = Callable[[Table], Mask]
Term = Callable[[Table], Floats]


class Filter(Struct, frozen=True):
    """A parsed expression.

    Attributes:
        names: columns that it reads.
    """

    source: str
    condition: Condition | None
    names: tuple[str, ...]

    def __call__(self, table: Table) -> Mask:
        """Return per row of the table whether it matches."""
        if self.condition is None:
            return np.ones(len(table), bool)
        with np.errstate(all="ignore"):
            return self.condition(table)

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


def parse_filter(source: str) -> Filter:
    """Parse an expression; an empty one matches everything.

    Raises:
        FilterError: with the place of the mistake.
    """
    if len(source) > MAX_LENGTH:
        raise FilterError(f"the filter is longer than {MAX_LENGTH} characters")
    if not source.strip():
        return Filter(source, None, ())
    reader = _Reader(source)
    return Filter(source, reader.condition(reader.tree(), 0), tuple(reader.names))


class _Token(Struct, frozen=True):
    """A part of an expression: a number, name, text or operator (also words and parentheses), or the end."""

    kind: str
    text: str
    at: int

    @property
    def is_value(self) -> bool:
        return self.kind in ("number", "name", "text")

    @property
    def python(self) -> str:
        """Return the token as Python reads it: values are names, whatever they hold, and known by their place."""
        return ("_" if self.is_value else _AS_PYTHON.get(self.text, self.text)).ljust(_WIDTH)


class _Reader:
    """Makes functions of tables from the syntax tree of an expression."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.names: dict[str, None] = {}
        self.tokens: list[_Token] = []
        position, end = 0, len(source.rstrip())
        while position < end:
            match = _TOKEN.match(source, position)
            if match is None:
                raise self.mistake(position, "this cannot stand in a filter")
            kind = str(match.lastgroup)
            text, at = match[kind], match.start(kind)
            if kind == "name" and text.lower() in _WORDS:
                kind, text = "op", text.lower()
            text = text[1:-1] if kind == "text" else text
            self.tokens.append(_Token("name" if kind == "quoted" else kind, text, at))
            position = match.end()
        self.tokens.append(_Token("end", "", end))

    def mistake(self, at: int, message: str, hint: str = "latency_us < 900") -> FilterError:
        return FilterError(
            f"{message}, at character {at + 1}: {self.source[:at]}▸{self.source[at:]}",
            hint=hint,
        )

    def token(self, node: ast.expr) -> _Token:
        """Return the token that an expression begins with."""
        return self.tokens[node.col_offset // _WIDTH]

    def wrong(self, node: ast.expr, message: str) -> FilterError:
        return self.mistake(self.token(node).at, message)

    def tree(self) -> ast.expr:
        """Return the syntax tree.

        Raises:
            FilterError: for what Python cannot parse. What Python says of it depends on its version, so the usual
                mistakes are found in the order of the tokens.
        """
        opened, before = 0, _Token("op", "(", 0)
        for token in self.tokens:
            after_value = before.is_value or before.text == ")"
            if after_value and (token.is_value or token.text == "("):
                raise self.mistake(token.at, "expected `and`, `or` or the end")
            starts_value = token.is_value or token.text in ("(", "-", "not")
            if not after_value and not starts_value and (before.text, token.text) != ("not", "in"):
                raise self.mistake(token.at, "expected a column, a number or a text")
            opened += (token.text == "(") - (token.text == ")") if token.kind == "op" else 0
            if opened < 0:
                raise self.mistake(token.at, "there is no `(` before this `)`")
            if opened > MAX_DEPTH:
                raise self.mistake(token.at, "the filter is nested too deeply")
            before = token
        if opened:
            raise self.mistake(before.at, "expected `)`")
        try:
            return ast.parse("".join(token.python for token in self.tokens), mode="eval").body
        except SyntaxError as error:
            at = self.tokens[max(0, (error.offset or 1) - 1) // _WIDTH].at
            raise self.mistake(at, "this cannot stand here") from None
        except (RecursionError, MemoryError):
            raise self.mistake(0, "the filter is nested too deeply") from None

    def condition(self, node: ast.expr, depth: int) -> Condition:
        if depth > MAX_DEPTH:
            raise self.wrong(node, "the filter is nested too deeply")
        match node:
            case ast.BoolOp(op, values):
                parts = [self.condition(value, depth + 1) for value in values]
                joined = np.logical_and if isinstance(op, ast.And) else np.logical_or
                return lambda table: np.asarray(joined.reduce([part(table) for part in parts]))
            case ast.UnaryOp(ast.Not(), operand):
                inner = self.condition(operand, depth + 1)
                return lambda table: ~inner(table)
            case ast.BinOp(left, ast.BitOr(), right):
                name, part = self.column(left), self.literal(right).lower()
                return lambda table: _contains(table.column(name), part, len(table))
            case ast.Compare(left, [ast.In() | ast.NotIn() as op], [right]):
                return self.within(self.column(left), right, isinstance(op, ast.NotIn))
            case ast.Compare(left, ops, comparators):
                sides = [left, *comparators]
                steps = [self.comparison(op, a, b, depth) for a, op, b in zip(sides, ops, comparators, strict=False)]
                return lambda table: np.asarray(np.logical_and.reduce([step(table) for step in steps]))
        last = ((node.end_col_offset or 1) - 1) // _WIDTH
        raise self.mistake(self.tokens[last + 1].at, "expected a comparison such as `< 900`")

    def within(self, name: str, values: ast.expr, negated: bool) -> Condition:
        first = values.col_offset // _WIDTH
        if not isinstance(values, ast.Tuple) and self.tokens[first - 1].text != "(":
            raise self.wrong(values, "expected a list in parentheses")
        texts = [self.literal(v) for v in (values.elts if isinstance(values, ast.Tuple) else [values])]

        def matches(table: Table) -> Mask:
            found = np.logical_or.reduce([_equals(table.column(name), text, len(table)) for text in texts])
            return np.asarray(~found if negated else found)

        return matches

    def comparison(self, op: ast.cmpop, left: ast.expr, right: ast.expr, depth: int) -> Condition:
        if type(op) not in _COMPARE:
            raise self.wrong(left, "`in` is not part of a chain of comparisons")
        for one, other in ((left, right), (right, left)):
            if isinstance(op, ast.Eq | ast.NotEq) and isinstance(one, ast.Name) and isinstance(other, ast.Name):
                token = self.token(other)
                if self.token(one).kind == "name" and token.kind in ("number", "text"):
                    return self.equality(one, token, self.compared(op, left, right, depth), isinstance(op, ast.NotEq))
        return self.compared(op, left, right, depth)

    def equality(self, column: ast.expr, value: _Token, as_numbers: Condition, negated: bool) -> Condition:
        """Compare a column with a value: with a number as numbers, unless the column has texts."""
        name = self.column(column)
        text = value.text if value.kind == "text" else f"{float(value.text):g}"

        def matches(table: Table) -> Mask:
            found = table.column(name)
            if value.kind == "number" and (found is None or found.numeric):
                return as_numbers(table)
            same = _equals(found, text, len(table))
            if not negated:
                return same
            return same if found is None else ~same & (found.codes != MISSING)

        return matches

    def compared(self, op: ast.cmpop, left: ast.expr, right: ast.expr, depth: int) -> Condition:
        first, second, compare = self.term(left, depth + 1), self.term(right, depth + 1), _COMPARE[type(op)]

        def matches(table: Table) -> Mask:
            a, b = first(table), second(table)
            return np.asarray(compare(a, b) & ~np.isnan(a) & ~np.isnan(b))

        return matches

    def term(self, node: ast.expr, depth: int) -> Term:
        if depth > MAX_DEPTH:
            raise self.wrong(node, "the filter is nested too deeply")
        match node:
            case ast.Name():
                return self.value(self.token(node))
            case ast.UnaryOp(ast.USub(), operand):
                inner = self.term(operand, depth + 1)
                return lambda table: -inner(table)
            case ast.BinOp(left, op, right) if type(op) in _ARITHMETIC:
                # A long sum is nested to the left, but reads as flat: its depth does not grow with its terms.
                first, second, compute = self.term(left, depth), self.term(right, depth + 1), _ARITHMETIC[type(op)]
                return lambda table: compute(first(table), second(table))
        raise self.wrong(node, "expected a column, a number or a text")

    def value(self, token: _Token) -> Term:
        if token.kind == "number":
            number = float(token.text)
            return lambda table: np.full(len(table), number)
        if token.kind == "name":
            self.names[token.text] = None

        def numbers(table: Table) -> Floats:
            if token.kind == "text":
                raise self.mistake(token.at, "a text has no order", hint="compare texts with == or !=")
            column = table.column(token.text)
            if column is None:
                return np.full(len(table), np.nan)
            if not column.numeric:
                example = next(iter(column.categories), "...")
                hint = f'compare it with a text: {token.text} == "{example}"'
                raise self.mistake(token.at, f"{token.text} is not a number", hint)
            return column.numbers

        return numbers

    def column(self, node: ast.expr) -> str:
        token = self.token(node)
        if not isinstance(node, ast.Name) or token.kind != "name":
            raise self.wrong(node, "expected a column")
        self.names[token.text] = None
        return token.text

    def literal(self, node: ast.expr) -> str:
        match node:
            case ast.UnaryOp(ast.USub(), ast.Name() as operand):
                return "-" + self.token(operand).text
            case ast.Name():
                return self.token(node).text
        raise self.wrong(node, "expected a value")


def _by_category(column: Column, wanted: Sequence[bool]) -> Mask:
    found: Mask = np.array([*wanted, False])[column.codes] & (column.codes != MISSING)
    return found


def _contains(column: Column | None, part: str, length: int) -> Mask:
    if column is None:
        return np.zeros(length, bool)
    return _by_category(column, [part in category.lower() for category in column.categories])


def _equals(column: Column | None, value: str, length: int) -> Mask:
    if column is None:
        return np.zeros(length, bool)
    if column.numeric:
        try:
            return np.asarray(column.numbers == float(value))
        except ValueError:
            return np.zeros(length, bool)
    return _by_category(column, [category == value for category in column.categories])
