"""Differences between designs, and the importance of parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from msgspec import Struct

from allo_dse.eval.calibrate.correction import merged_metrics
from allo_dse.tune.results.importance import importances, weighed

from ..table.table import RunTable

DECIDING = ("objective", "parameter", "mapping")


@dataclass(frozen=True)
class Difference:
    """A column in which two designs differ.

    Attributes:
        change: relative to the first, of numbers other than zero; 0.1 is 10 % more.
        better: whether the second is better, for objectives; else None.
    """

    name: str
    kind: str
    first: object
    second: object
    change: float | None
    better: bool | None


def differences(
    table: RunTable, first: int, other: RunTable, second: int, kinds: tuple[str, ...] = (*DECIDING, "metric")
) -> list[Difference]:
    """Return the columns in which the second design differs from the first."""
    names = [n for n, c in {**table.columns, **other.columns}.items() if c.kind in kinds]
    directions = {o.name: o.sign for o in table.facts.objectives}
    found = []
    for name in names:
        a, b = _value(table, name, first), _value(other, name, second)
        if a == b:
            continue
        column = table.columns.get(name) or other.columns[name]
        change = None
        if isinstance(a, int | float) and isinstance(b, int | float) and a:
            change = (b - a) / abs(a)
        better = None
        if name in directions and isinstance(a, int | float) and isinstance(b, int | float):
            better = directions[name] * (b - a) < 0
        found.append(Difference(name, column.kind, a, b, change, better))
    return found


def _value(table: RunTable, name: str, row: int) -> object:
    column = table.columns.get(name)
    return None if column is None else column.value(row)


def measured(table: RunTable, row: int) -> Mapping[str, Any]:
    """A design's metrics by the most expensive evaluator that has measured it; empty before any has."""
    return next((rung.metrics for rung in reversed(table.rungs(table.keys[row])) if rung.metrics), {})


def known(table: RunTable, row: int) -> Mapping[str, Any]:
    """A design's metrics by all of its evaluators, the more expensive ones first."""
    empty: dict[str, Any] = {}
    return reduce(merged_metrics, (rung.metrics for rung in table.rungs(table.keys[row])), empty)


class Sample(Struct, frozen=True):
    """Feasible designs as the importance is computed from them.

    Attributes:
        choices: per varying parameter the number of each design's value.
        losses: of one objective.
    """

    choices: Mapping[str, Sequence[int]]
    losses: Sequence[float]


def sample(table: RunTable, objective: str) -> Sample:
    """The feasible designs, or an even sample of many."""
    rows = np.flatnonzero(table.ok & ~np.isnan(table.numbers(objective)))
    rows = rows[weighed(len(rows))]
    sign = next((o.sign for o in table.facts.objectives if o.name == objective), 1.0)
    names = table.names("parameter", "mapping", varying=True)
    codes = {name: table.columns[name].codes[rows].tolist() for name in names}
    return Sample(codes, (sign * table.numbers(objective)[rows]).tolist())


def importance(found: Sample) -> dict[str, float]:
    """Return how much each varying parameter decides whether a design is among the best in an objective."""
    return importances(found.choices, found.losses)
