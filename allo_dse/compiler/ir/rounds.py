"""Execution counts in a task body, from loops with known bounds and conditions on their variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from .affine import Linear, Test, decided, forms_of


class Around(Struct, frozen=True):
    """A loop around an operation. A bound without a linear form is None, so is an unknown step (0)."""

    variable: int
    lower: Linear | None
    upper: Linear | None
    step: int

    @property
    def variables(self) -> set[int]:
        return {v for bound in (self.lower, self.upper) if bound is not None for v in bound.variables}


class Under(Struct, frozen=True):
    """A side of a condition around an operation; `test` is None where data decides."""

    test: Test | None
    side: bool

    @property
    def variables(self) -> set[int]:
        return {v for form in forms_of(self.test) for v in form.variables}


Path: TypeAlias = tuple[Around | Under, ...]
"""What something is in, outermost first."""


def rounds(path: Sequence[Around | Under], known: Mapping[int, int], left: Iterator[int]) -> int | None:
    """Count the executions of something; None if data decides, or if counting takes too long.

    Args:
        path: the loops and conditions around it, outermost first.
        known: process ids, and variables of loops further out, by value number.
        left: has an item for each value of a loop variable that may be tried; several calls may share it.
    """
    if not path:
        return 1
    first, rest = path[0], path[1:]
    if isinstance(first, Under):
        holds = decided(first.test, known)
        return None if holds is None else rounds(rest, known, left) if holds == first.side else 0
    if first.lower is None or first.upper is None or first.step <= 0:
        return None
    start, end = first.lower.value(known), first.upper.value(known)
    if start is None or end is None:
        return None
    values = range(start, end, first.step)
    if not any(first.variable in inner.variables for inner in rest):
        each = rounds(rest, known, left) if values else 0
        return None if each is None else len(values) * each
    total = 0
    for value in values:
        each = rounds(rest, {**known, first.variable: value}, left)
        if each is None or next(left, None) is None:
            return None
        total += each
    return total
