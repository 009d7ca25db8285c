"""The ruled tables of text reports, found below their headings.

+-------------+---------+---------+
|             |  Latency (cycles) |         rows of the head, where a cell may span several columns
|  Loop Name  |   min   |   max   |
+-------------+---------+---------+
|- Loop 1     |      256|      256|         rows of the body
+-------------+---------+---------+
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from .report import Cycles, HlsReportError

_RULE = frozenset("+-")


@dataclass(frozen=True)
class TextTable:
    """One table: the headings above it, from the outermost in, its column names in lower case, and its rows."""

    headings: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def records(self) -> Iterator[dict[str, str]]:
        """Rows as dictionaries from column name to stripped text; the first cell keeps its indentation."""
        for row in self.rows:
            cells = [cell.strip() if number else cell.rstrip() for number, cell in enumerate(row)]
            yield dict(zip(self.columns, cells, strict=True))


@dataclass(frozen=True)
class TextReport:
    """A text report taken apart: header lines as `key: value`, all headings, all tables."""

    title: str
    header: dict[str, str]
    headings: tuple[tuple[str, ...], ...]
    tables: tuple[TextTable, ...]

    def table(self, *headings: str) -> TextTable | None:
        """The first table below headings that begin with these, outermost first."""
        for table in self.tables:
            rest = iter(table.headings)
            if all(any(found.startswith(heading) for found in rest) for heading in headings):
                return table
        return None


def parse_text(path: object, text: str) -> TextReport:
    """Take a text report apart.

    Raises:
        HlsReportError: if a table is cut off or its rows do not fit its head.
    """
    lines = text.splitlines()
    title, header = "", dict[str, str]()
    current: list[tuple[int, str]] = []
    headings, tables = [], []
    number = 0
    while number < len(lines):
        line = lines[number].strip()
        if _is_rule(line):
            table, number = _table(path, lines, number, tuple(text for _, text in current))
            tables.append(table)
            continue
        rank = 1 if line.startswith("== ") else 0  # then by indentation, `+` above `*`; 0 is no heading
        if line[:2] in ("+ ", "* "):
            rank = 2 + 2 * (len(lines[number]) - len(lines[number].lstrip())) + (line[0] == "*")
        if rank and not title and " Report " in line:
            title = line.lstrip("= ")
        key, separator, value = line.lstrip("* ").partition(":")
        if rank and separator and value.strip():
            header.setdefault(key.strip(), value.strip())
        elif rank:
            current = [*((r, t) for r, t in current if r < rank), (rank, line.lstrip("=+* ").rstrip(": "))]
            headings.append(tuple(t for _, t in current))
        number += 1
    return TextReport(title, header, tuple(headings), tuple(tables))


def _is_rule(line: str) -> bool:
    return len(line) > 4 and line.startswith("+-") and _RULE.issuperset(line)


def _table(path: object, lines: list[str], start: int, headings: tuple[str, ...]) -> tuple[TextTable, int]:
    """The table whose upper rule is on line `start`, and the number of the line after it."""
    rule = lines[start].strip()
    head: list[str] = []
    body: list[tuple[str, ...]] = []
    rules, number = 1, start + 1
    while number < len(lines):
        line = lines[number].strip()
        if line[:1] not in ("|", "+") or not line:
            break
        if _is_rule(line) or (rules == 1 and line.startswith("+") and line.endswith("+") and "--" in line):
            if len(line) != len(rule):
                raise _damaged(path, number)
            if _is_rule(line):
                rules += 1
            else:
                head.append(line)
        elif rules == 1:
            head.append(line)
        else:
            body.append(_cells(path, number, line, head[-1].count("|") - 1 if head else 0))
        number += 1
    if rules < 2 or (body and not _is_rule(lines[number - 1].strip())) or not (body or rules > 2):
        raise _damaged(path, number - 1)
    return TextTable(headings, _columns(head), tuple(body)), number


def _damaged(path: object, number: int) -> HlsReportError:
    return HlsReportError(f"{path}, line {number + 1}: the table is damaged or cut off", hint="copy the report again")


def _cells(path: object, number: int, line: str, columns: int) -> tuple[str, ...]:
    cells = line[1:-1].split("|") if line.endswith("|") else []
    if len(cells) > columns:  # a cell that has a `|` of its own; none of the tables that are read on has one
        cells = [*cells[: columns - 1], "|".join(cells[columns - 1 :])]
    if len(cells) != columns:
        raise _damaged(path, number)
    return tuple(cells)


def _columns(head: list[str]) -> tuple[str, ...]:
    """Names of the columns: what the rows of the head say above each, spanning cells included.

    The last row of the head has all columns; rules may leave out those that a spanning cell above covers.
    """
    names = []
    edges = [at for at, character in enumerate(head[-1] if head else "") if character == "|"]
    for left, right in pairwise(edges):
        parts = (_covering(line, (left + right) // 2) for line in head)
        names.append(" ".join(part for part in parts if part).lower())
    return tuple(names)


def _covering(line: str, at: int) -> str:
    """Text of the cell of a row that covers a position."""
    left = max(line.rfind("|", 0, at), line.rfind("+", 0, at) if "--" in line else -1)
    ends = [end for end in (line.find("|", at), line.find("+", at) if "--" in line else -1) if end >= 0]
    cell = line[left + 1 : min(ends, default=len(line))].strip()
    return "" if _RULE.issuperset(cell) else " ".join(cell.split())


# Numbers as the reports print them.


_WHOLE = re.compile(r"~?([0-9]{1,18})\Z")
_RANGE = re.compile(r"([0-9]{1,18}|\?|undef)\s*(?:~|-)\s*([0-9]{1,18}|\?|undef|inf)\Z")
_REAL = re.compile(r"-?[0-9]{1,12}(?:\.[0-9]{1,12})?")


def whole(text: str | None) -> int | None:
    """`1234`, or `~0`; None for `undef`, `?`, `-`, `inf`, `NA` and everything that is not a whole number."""
    match = _WHOLE.match((text or "").strip())
    return int(match.group(1)) if match else None


def real(text: str | None) -> float | None:
    """The number a text such as `3.33 ns` begins with."""
    match = _REAL.match((text or "").strip())
    return float(match.group()) if match else None


def cycles(text: str | None) -> Cycles:
    """`128`, `0 ~ 512` or `undef`."""
    match = _RANGE.match((text or "").strip())
    if match:
        return Cycles(min=whole(match.group(1)), max=whole(match.group(2)))
    exact = whole(text)
    return Cycles(min=exact, max=exact)
