"""Differences between designs, the importance of parameters, and use of a device's resources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from allo_dse.common.errors import DeviceError
from allo_dse.common.records import Frozen
from allo_dse.device.device import Device
from allo_dse.eval.backend import backend_of
from allo_dse.eval.calibrate.correction import merged_metrics
from allo_dse.tune.results.explain import latency_range_words, near_words
from allo_dse.tune.results.importance import importances, weighed

from .runs import Board, Ref
from .selection import label, text
from .table import RunTable

DECIDING = ("objective", "parameter", "mapping")


@dataclass(frozen=True)
class ColumnDifference:
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
) -> list[ColumnDifference]:
    """Return the columns in which the second design differs from the first."""
    names = [n for n, c in {**table.columns, **other.columns}.items() if c.kind in kinds]
    directions = {o.name: o.sign for o in table.facts.objectives}
    found = []
    for name in names:
        a, b = _value(table, name, first), _value(other, name, second)
        if a == b:
            continue
        column = table.columns.get(name) or other.columns[name]
        numbers = isinstance(a, int | float) and isinstance(b, int | float)
        change = (b - a) / abs(a) if numbers and a else None
        better = directions[name] * (b - a) < 0 if numbers and name in directions else None
        found.append(ColumnDifference(name, column.kind, a, b, change, better))
    return found


def _value(table: RunTable, name: str, row: int) -> Any:
    column = table.columns.get(name)
    return None if column is None else column.value(row)


def measured(table: RunTable, row: int) -> Mapping[str, Any]:
    """A design's metrics by the most expensive evaluator that has measured it; empty before any has."""
    return next((rung.metrics for rung in reversed(table.rungs(table.keys[row])) if rung.metrics), {})


def known(table: RunTable, row: int) -> Mapping[str, Any]:
    """A design's metrics by all of its evaluators, the more expensive ones first."""
    empty: dict[str, Any] = {}
    return reduce(merged_metrics, (rung.metrics for rung in table.rungs(table.keys[row])), empty)


class Sample(Frozen):
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


MAX_LINES = 14
LATENCY = "latency_us"


def change_text(difference: ColumnDifference) -> str:
    """The relative change, as `-12 %` or `3.4x`."""
    change = difference.change
    if change is None:
        return ""
    if abs(change) < 1:
        return f"{100 * change:+.3g} %".replace("-", "−")
    return f"{1 + change:.3g}×" if change > 0 else f"{100 * change:+,.0f} %".replace("-", "−")


def status_text(board: Board, ref: Ref) -> str:
    """Describe the status of a design: on the front, dominated or infeasible, and why."""
    table = board.table(ref)
    verification = table.verified.get(table.keys[ref.row])
    if verification is not None and not verification.ok:
        return verification.words
    if not table.ok[ref.row]:
        failed = table.columns["status"].value(ref.row) == "failed"
        return f"{'failed' if failed else 'infeasible'}: {table.columns['reason'].value(ref.row)}"
    if ref.row == table.knee:
        return "knee of the Pareto front"
    if ref.row in table.front:
        return "on the Pareto front"
    measured = table.measured_rows
    if measured is not None and len(measured) and ref.row not in measured:
        last = table.rungs(table.keys[int(measured[0])])[-1]
        return f"not measured by {last.evaluator or 'the most expensive evaluator'}"
    return "dominated"


def rung_table(table: RunTable, key: str) -> tuple[list[str], list[list[str]]]:
    """A design's metrics with a column per evaluator: the head, and a row per metric."""
    rungs = table.rungs(key)
    found = [rung.metrics or {} for rung in rungs]
    names = dict.fromkeys(n for metrics in found for n, v in metrics.items() if not isinstance(v, dict | list))
    head = ["", *(rung.evaluator or "evaluator" for rung in rungs)]
    rows = [[label(n), *(text(metrics.get(n)) for metrics in found)] for n in names]
    ranges = [latency_range_words(metrics) for metrics in found]
    return head, [*rows, ["How good it is", *ranges]] if any(ranges) else rows


def fastest_words(table: RunTable, row: int) -> str:
    """Describe how many designs predictions cannot tell from the fastest; empty for all other designs."""
    latencies = table.numbers(LATENCY)
    usable = table.ok & ~np.isnan(latencies)
    if not usable[row] or latencies[row] > latencies[usable].min():
        return ""
    return near_words(measured(table, row), latencies[usable].tolist())


def comparable(board: Board, one: Ref, other: Ref) -> bool:
    """Return whether changes between two designs tell anything: they are of one device."""
    return board.table(one).facts.device == board.table(other).facts.device


def title_text(board: Board, ref: Ref) -> str:
    """Return a design's short key, after the name of its run if there are several."""
    name = f"{board.names[ref.run]} · " if len(board.runs) > 1 else ""
    return name + board.key(ref)[:8]


def difference_lines(board: Board, ref: Ref, reference: Ref | None) -> list[str]:
    """Return the title and status, the objectives, then the differences from the reference, as lines of text."""
    table = board.table(ref)
    lines = [f"{title_text(board, ref)} · {status_text(board, ref)}"]
    if reference is None or reference == ref or not comparable(board, ref, reference):
        lines += [
            f"{label(n)}: {text(table.columns[n].value(ref.row))}"
            for n in (*table.names("objective"), *table.names("parameter", varying=True))
        ]
        return lines[:MAX_LINES]
    base = board.table(reference)
    found = differences(base, reference.row, table, ref.row, DECIDING)
    for d in found[:MAX_LINES]:
        if d.kind == "objective":
            lines.append(f"{label(d.name)}: {text(d.second)} ({change_text(d)})")
        else:
            lines.append(f"{label(d.name)}: {text(d.first)} → {text(d.second)}")
    if len(found) > MAX_LINES:
        lines.append(f"and {len(found) - MAX_LINES} more")
    return lines


# Resource limits of a device, and how much of each a design uses.


class ResourceUse(Frozen):
    """A design's use of one limited resource."""

    name: str
    used: float
    limit: float

    @property
    def share(self) -> float:
        return self.used / self.limit if self.limit else 0.0


def uses(device: str, metrics: Mapping[str, Any]) -> list[ResourceUse]:
    """The resources of a built-in device that a design's metrics speak of; empty for other devices."""
    found = _device(device)
    limits = {} if found is None else backend_of(found).capacity(found)
    return [
        ResourceUse(name, float(metrics[name]), limit)
        for name, limit in limits.items()
        if isinstance(metrics.get(name), int | float)
    ]


def project_folder(device: str) -> str:
    """Return the folder of a built-in device's exports that is a project of its own; empty if there is none."""
    found = _device(device)
    return "" if found is None else backend_of(found).project_folder


def _device(name: str) -> Device | None:
    try:
        return Device.load(name) if name in Device.names() else None
    except DeviceError:
        return None
