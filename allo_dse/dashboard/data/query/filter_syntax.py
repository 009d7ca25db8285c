"""The syntax of filter expressions, as a tree; `filters.py` says what they mean.

expression := comparison joined by `and`, `or`, `not` and parentheses
comparison := term (< <= > >= == !=) term ...  |  name in (value, ...)  |  name ~ "part of a text"
term       := numbers, "texts", column names and + - * /; a name of other characters stands in `backquotes`
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from allo_dse.common.errors import AlloDseError

MAX_LENGTH = 1000
MAX_DEPTH = 50

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_][\w.]*)|`(?P<quoted>[^`]+)`"
    r"|(?P<text>\"[^\"]*\"|'[^']*')|(?P<op><=|>=|==|!=|[<>=~()+\-*/,]))"
)
COMPARISONS = ("<", "<=", ">", ">=", "==", "=", "!=")
ARITHMETIC = ("+", "-", "*", "/")
_WORDS = ("and", "or", "not", "in")


class FilterError(AlloDseError):
    """A filter expression that cannot be understood."""


class Number(Struct, frozen=True):
    value: float


class Text(Struct, frozen=True):
    value: str


class Name(Struct, frozen=True):
    value: str


class Arithmetic(Struct, frozen=True):
    op: str
    left: Term
    right: Term


Term = Number | Text | Name | Arithmetic


class Comparison(Struct, frozen=True):
    op: str
    left: Term
    right: Term


class Within(Struct, frozen=True):
    """A column's value is one of several."""

    name: Name
    values: tuple[str, ...]


class Contains(Struct, frozen=True):
    """A column's text has a part, in any case."""

    name: Name
    part: str


class Not(Struct, frozen=True):
    inner: Condition


class Both(Struct, frozen=True):
    left: Condition
    right: Condition


class Either(Struct, frozen=True):
    left: Condition
    right: Condition


Condition = Comparison | Within | Contains | Not | Both | Either


def parse(source: str) -> Condition | None:
    """The tree of an expression; None for an empty one.

    Raises:
        FilterError: with the place of the mistake.
    """
    if len(source) > MAX_LENGTH:
        raise FilterError(f"the filter is longer than {MAX_LENGTH} characters")
    if not source.strip():
        return None
    parser = _Parser(source)
    condition = parser.either(0)
    parser.end()
    return condition


def names_in(node: Condition | Term | None) -> Iterator[str]:
    """The columns that a tree speaks of."""
    match node:
        case Name(value):
            yield value
        case Within(name, _) | Contains(name, _):
            yield name.value
        case Not(inner):
            yield from names_in(inner)
        case Comparison(_, left, right) | Arithmetic(_, left, right) | Both(left, right) | Either(left, right):
            yield from names_in(left)
            yield from names_in(right)


class _Token(Struct, frozen=True):
    kind: str
    text: str
    at: int


def _tokens(source: str) -> Iterator[_Token]:
    position, end = 0, len(source.rstrip())
    while position < end:
        match = _TOKEN.match(source, position)
        if match is None:
            raise _mistake(source, position, "this cannot stand in a filter")
        kind = str(match.lastgroup)
        text, at = match[kind], match.start(kind)
        if kind == "quoted":
            kind = "name"
        elif kind == "name" and text.lower() in _WORDS:
            kind, text = "op", text.lower()
        elif kind == "text":
            text = text[1:-1]
        yield _Token(kind, text, at)
        position = match.end()
    yield _Token("end", "", end)


def _mistake(source: str, at: int, message: str) -> FilterError:
    return FilterError(f"{message}, at character {at + 1}: {source[:at]}▸{source[at:]}", hint="latency_us < 900")


class _Parser:
    def __init__(self, source: str) -> None:
        self.source = source
        self.tokens = list(_tokens(source))
        self.position = 0

    @property
    def now(self) -> _Token:
        return self.tokens[self.position]

    def take(self, *texts: str) -> str | None:
        """The operator that comes next, if it is one of these."""
        if self.now.kind == "op" and self.now.text in texts:
            self.position += 1
            return self.tokens[self.position - 1].text
        return None

    def fail(self, message: str) -> FilterError:
        return _mistake(self.source, self.now.at, message)

    def end(self) -> None:
        if self.now.kind != "end":
            raise self.fail("expected `and`, `or` or the end")

    def either(self, depth: int) -> Condition:
        if depth > MAX_DEPTH:
            raise self.fail("the filter is nested too deeply")
        left = self.both(depth)
        while self.take("or"):
            left = Either(left, self.both(depth))
        return left

    def both(self, depth: int) -> Condition:
        left = self.negation(depth)
        while self.take("and"):
            left = Both(left, self.negation(depth))
        return left

    def negation(self, depth: int) -> Condition:
        negated = False
        while self.take("not"):
            negated = not negated
        inner = self.comparison(depth)
        return Not(inner) if negated else inner

    def comparison(self, depth: int) -> Condition:
        before = self.position
        if self.take("("):
            try:
                inner = self.either(depth + 1)
                if self.take(")") and not self._term_goes_on():
                    return inner
            except FilterError:
                if self.now.kind == "end" or depth >= MAX_DEPTH:
                    raise
            self.position = before
        left = self.sum(depth)
        if isinstance(left, Name):
            special = self.special(left)
            if special is not None:
                return special
        return self.chain(left, depth)

    def _term_goes_on(self) -> bool:
        return self.now.kind == "op" and (self.now.text in ARITHMETIC or self.now.text in COMPARISONS)

    def special(self, name: Name) -> Condition | None:
        if self.take("~"):
            return Contains(name, self.literal())
        negated = bool(self.now.text == "not" and self.take("not"))
        if not self.take("in"):
            if negated:
                raise self.fail("expected `in`")
            return None
        if not self.take("("):
            raise self.fail("expected a list in parentheses")
        values = [self.literal()]
        while self.take(","):
            values.append(self.literal())
        if not self.take(")"):
            raise self.fail("expected `,` or `)`")
        within = Within(name, tuple(values))
        return Not(within) if negated else within

    def literal(self) -> str:
        minus = "-" if self.take("-") else ""
        if self.now.kind not in ("number", "text", "name"):
            raise self.fail("expected a value")
        self.position += 1
        return minus + self.tokens[self.position - 1].text

    def chain(self, left: Term, depth: int) -> Condition:
        condition: Condition | None = None
        while op := self.take(*COMPARISONS):
            right = self.sum(depth)
            step = Comparison(op, left, right)
            condition = step if condition is None else Both(condition, step)
            left = right
        if condition is None:
            raise self.fail("expected a comparison such as `< 900`")
        return condition

    def sum(self, depth: int) -> Term:
        left = self.product(depth)
        while op := self.take("+", "-"):
            left = Arithmetic(op, left, self.product(depth))
        return left

    def product(self, depth: int) -> Term:
        left = self.atom(depth)
        while op := self.take("*", "/"):
            left = Arithmetic(op, left, self.atom(depth))
        return left

    def atom(self, depth: int) -> Term:
        if depth > MAX_DEPTH:
            raise self.fail("the filter is nested too deeply")
        if self.take("-"):
            return Arithmetic("-", Number(0.0), self.atom(depth + 1))
        if self.take("("):
            inner = self.sum(depth + 1)
            if not self.take(")"):
                raise self.fail("expected `)`")
            return inner
        token = self.now
        if token.kind not in ("number", "text", "name"):
            raise self.fail("expected a column, a number or a text")
        self.position += 1
        if token.kind == "number":
            return Number(float(token.text))
        return Text(token.text) if token.kind == "text" else Name(token.text)
