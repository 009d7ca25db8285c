"""Designs in few words: only what differs from the reference."""

from __future__ import annotations

from html import escape

import numpy as np

from allo_dse.tune.results.explain import latency_range_words, near_words

from .board import Board, Ref
from .query.analysis import DECIDING, Difference, differences, measured
from .table.table import RunTable
from .units import label, text

MAX_LINES = 14
LATENCY = "latency_us"


def change_text(difference: Difference) -> str:
    """The relative change, as `-12 %` or `3.4x`."""
    change = difference.change
    if change is None:
        return ""
    if abs(change) < 1:
        return f"{100 * change:+.3g} %".replace("-", "−")
    return f"{1 + change:.3g}×" if change > 0 else f"{100 * change:+,.0f} %".replace("-", "−")


def status_text(board: Board, ref: Ref) -> str:
    """Whether a design is on the front, dominated or infeasible, and why."""
    table = board.table(ref)
    verification = table.verified.get(table.keys[ref.row])
    if verification is not None and not verification.ok:
        return "deadlocked" if verification.verdict == "deadlock" else "computed wrong numbers"
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
    """Of the fastest design, how many others predictions cannot tell from it; empty of every other."""
    latencies = table.numbers(LATENCY)
    usable = table.ok & ~np.isnan(latencies)
    if not usable[row] or latencies[row] > latencies[usable].min():
        return ""
    return near_words(measured(table, row), latencies[usable].tolist())


def difference_lines(board: Board, ref: Ref, reference: Ref | None) -> list[str]:
    """Objectives, and then what differs from the reference, as lines of HTML; names are escaped."""
    table = board.table(ref)
    name = f"{board.names[ref.run]} · " if len(board.runs) > 1 else ""
    lines = [f"<b>{escape(name)}{escape(table.keys[ref.row][:8])}</b> · {escape(status_text(board, ref))}"]
    if reference is None or reference == ref:
        lines += [
            f"{escape(label(n))}: {escape(text(table.columns[n].value(ref.row)))}"
            for n in (*table.names("objective"), *table.names("parameter", varying=True))
        ]
        return lines[:MAX_LINES]
    base = board.table(reference)
    found = differences(base, reference.row, table, ref.row, DECIDING)
    for d in found[:MAX_LINES]:
        if d.kind == "objective":
            lines.append(f"{escape(label(d.name))}: {escape(text(d.second))} ({change_text(d)})")
        else:
            lines.append(f"{escape(label(d.name))}: {escape(text(d.first))} → {escape(text(d.second))}")
    if len(found) > MAX_LINES:
        lines.append(f"and {len(found) - MAX_LINES} more")
    return lines
