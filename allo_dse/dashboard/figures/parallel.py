"""Parallel coordinates of everything that varies."""

from __future__ import annotations

from textwrap import wrap

import numpy as np
from numpy.typing import NDArray

from allo_dse.tune.store.run_info import shortened

from ..data.progress import why_none
from ..data.runs import Board, ColumnAxis
from ..data.selection import Selection, label, text
from ..data.table import Rows, RunTable
from .style import (
    NO_VALUE,
    ORANGE,
    POINTS,
    VERMILLION,
    Figure,
    Spec,
    Theme,
    axis,
    color_axis,
    figure_of,
    note,
    packed,
    scale,
)

MAX_LINES = 400
"""More make a grey wall; and each takes 0.6 ms to draw without a graphics card."""
MAX_AXES = 14
MAX_TICKS = 12
TICK_GAP = 0.065
"""Of an axis's length that a tick's text takes."""
HALF_LETTER_PX = 3.4
"""The name of an axis reaches so far to each side of it per character."""
GREY = 0.06
"""Of a scale of colours where designs lack the value."""
FEW_TICKS = 5
TICK = 16
"""Characters of a tick's text; an axis's name has room for twice as many."""


def parallel_columns(board: Board) -> list[str]:
    """The axes: parameters and mapping that vary, then the objectives."""
    varying = board.varying("parameter", "mapping")
    objectives = [name for name in board.objectives if name in board.column_names]
    return [*varying[: MAX_AXES - len(objectives)], *objectives]


def parallel_figure(
    board: Board,
    look: Theme,
    *,
    source: str = "",
    selection: Selection | None = None,
    hidden: tuple[int, ...] = (),
    dominated: bool = True,
    color: str | None = None,
) -> Figure:
    """About `MAX_LINES` designs: the fronts, what is selected, and an even sample of the rest; of a larger front
    an even sample with its knee.

    Args:
        color: the column that colours the lines; None distinguishes fronts and the selection from the rest.

    Raises:
        FilterError: if the filter cannot be understood.
    """
    selection = selection or Selection()
    names = parallel_columns(board)
    kept, chosen = board.filtered(source, hidden), board.selected(selection)
    rows = [_rows(board, n, kept[n], chosen[n], dominated) for n in range(len(board.runs))]
    total = sum(map(len, rows))
    if not total or len(names) < 2:
        return note(look, why_none(board) if not total else "Nothing varies among the designs.")
    picked = np.concatenate([chosen[n][r] for n, r in enumerate(rows)])
    on_front = np.concatenate([np.isin(r, board.runs[n].front) for n, r in enumerate(rows)])
    rank = np.where(picked, 2, np.where(on_front, 1, 0)) if selection else np.where(on_front, 1, 0)
    order = np.argsort(rank, kind="stable")
    brushes = dict(selection.ranges)
    made = (_dimension(board.axis(name), rows, order, brushes.get(name, ())) for name in names)
    dimensions = [d for d in made if d is not None]
    left, right = (round(HALF_LETTER_PX * len(str(dimensions[end]["label"]))) for end in (0, -1))
    ranks = [[0, _faint(look)], [0.5, look.front], [1, ORANGE]]
    by_rank: Spec = {"color": packed(rank[order]), "cmin": 0, "cmax": 2, "colorscale": ranks, "showscale": False}
    trace = {
        "type": "parcoords",
        "dimensions": dimensions,
        "line": _by_column(board.axis(color), rows, order, look) if color else by_rank,
        "unselected": {"line": {"color": look.grid, "opacity": 0.25}},
        "labelangle": -18,
        "labelfont": {"size": 12, "color": look.text},
        "tickfont": {"size": 11, "color": look.muted},
        "rangefont": {"size": 1, "color": "rgba(0,0,0,0)"},
    }
    return figure_of(look, [trace], margin={"l": max(64, left), "r": max(96, right), "t": 84, "b": 16})


def _by_column(axis: ColumnAxis, rows: list[Rows], order: Rows, look: Theme) -> Spec:
    values = np.concatenate([axis.numbers[n][r] for n, r in enumerate(rows)])[order]
    known = values[np.isfinite(values)]
    line: Spec = {**color_axis(axis, look), "showscale": True}
    if len(known) < len(values):  # designs without a value are grey: the scale extends below the values for them
        low, span = (float(known.min()), float(np.ptp(known)) or 1.0) if len(known) else (0.0, 1.0)
        below, grey = low - GREY / (1 - GREY) * span, _faint(look)
        values = np.where(np.isfinite(values), values, below)
        colors = scale(look, GREY)
        parted = [(0, grey), (GREY / 2, grey), (GREY / 2, colors[0][1]), *colors]
        line |= {"colorscale": parted, "cmin": below, "cmax": low + span}
    return {"color": packed(values), **line}


def _faint(look: Theme) -> str:
    return "#d5dae0" if look.name == "light" else "#3a424d"


def _rows(board: Board, number: int, kept: NDArray[np.bool_], chosen: NDArray[np.bool_], dominated: bool) -> Rows:
    run = board.runs[number]
    must = np.zeros(len(run), bool)
    must[run.front] = True
    usable = kept & run.ok & (must | dominated | chosen)
    share = MAX_LINES // max(1, len(board.runs))
    first = run.front[usable[run.front]]
    if len(first) > share:  # along the front, and not in the order of the log
        sampled = _sample(first[chosen[first]], share // 2), _sample(first[~chosen[first]], share // 2)
        first = np.union1d(np.concatenate(sampled), first[first == run.knee])
    picked = _sample(np.flatnonzero(usable & chosen & ~must), max(share // 2, share - len(first)))
    rest = _sample(np.flatnonzero(usable & ~must & ~chosen), max(0, share - len(first) - len(picked)))
    return np.concatenate([rest, picked, first])


def _sample(rows: Rows, most: int) -> Rows:
    return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]


def _dimension(
    axis: ColumnAxis,
    rows: list[Rows],
    order: Rows,
    brushes: tuple[tuple[float, float], ...],
) -> dict[str, object] | None:
    """One axis. Designs without a value, such as a choice that only others have, are below its values."""
    values = np.concatenate([axis.numbers[n][r] for n, r in enumerate(rows)])[order]
    known = values[np.isfinite(values)]
    if not len(known):
        return None
    name = shortened(label(axis.name), 2 * TICK)
    dimension: dict[str, object] = {"label": name, "name": axis.name}
    distinct = np.unique(known)
    marked: list[float] = []
    if axis.ticks is not None:
        marked, words = [*range(len(axis.ticks))], [shortened(t, TICK) for t in axis.ticks]
    elif len(distinct) <= MAX_TICKS:
        marked = apart(distinct.tolist())
        words = [text(v) for v in marked]
    if len(marked) == 1:  # Plotly draws an axis from its first to its last tick
        marked, words = [marked[0] - 1, marked[0], marked[0] + 1], ["", *words, ""]
    if len(known) < len(values):
        if not marked:
            marked = np.linspace(known.min(), known.max(), FEW_TICKS).tolist()
            words = [text(v) for v in marked]
        below = marked[0] - 2 * TICK_GAP * (marked[-1] - marked[0])
        values = np.where(np.isfinite(values), values, below)
        marked, words = [below, *marked], [NO_VALUE, *words]
    dimension["values"] = packed(values)
    if marked:
        dimension |= {"tickvals": marked, "ticktext": words, "range": [marked[0], marked[-1]]}
    if brushes:
        dimension["constraintrange"] = [list(b) for b in brushes] if len(brushes) > 1 else list(brushes[0])
    return dimension


def apart(values: list[float]) -> list[float]:
    """Drop values whose labels would overlap on the axis. The first and the last of the ascending values always
    stay."""
    gap = TICK_GAP * (values[-1] - values[0])
    marked = values[:1]
    for value in values[1:-1]:
        if value - marked[-1] >= gap and values[-1] - value >= gap:
            marked.append(value)
    return [*marked, *values[1:][-1:]]


# A front of three objectives or more as small plots, one per pair: a plot in space hides points.


MOST = 4
"""Objectives that are shown: six pairs."""
_GAP = 0.06
_LINE = 13  # characters of an axis title: two plots stand side by side on a telephone


def pairs_figure(run: RunTable, look: Theme) -> Figure:
    """The designs of the front, and its knee, in every pair of the first objectives: plots in a column have one x axis,
    those in a row one y axis."""
    names = [name for name in run.names("objective") if name in run.columns][:MOST]
    rows, count = run.front, len(names) - 1
    if count < 2 or not len(rows):
        return note(look, "Fewer than three objectives, or no feasible design yet.")
    knee = np.array([] if run.knee is None else [run.knee], np.int64)
    traces: list[Spec] = [
        {
            **POINTS,
            "x": packed(run.numbers(names[column])[own]),
            "y": packed(run.numbers(names[line + 1])[own]),
            "xaxis": f"x{column + 1}",
            "yaxis": f"y{line + 1}",
            "marker": {"color": color, "symbol": symbol, "size": size},
            "hovertemplate": "%{x:,.6~g}, %{y:,.6~g}<extra></extra>",
        }
        for line in range(count)
        for column in range(line + 1)
        for own, color, symbol, size in ((rows, look.front, "circle", 6), (knee, VERMILLION, "star", 12))
    ]
    axes: Spec = {}
    for place in range(count):
        number = place + 1
        axes[f"xaxis{number}"] = axis(
            look, _title(names[place]), anchor=f"y{count}", domain=_part(place, count), nticks=4
        )
        axes[f"yaxis{number}"] = axis(
            look, _title(names[number]), anchor="x1", domain=_part(count - number, count), nticks=5
        )
    return figure_of(look, traces, **axes, showlegend=False)


def _title(name: str) -> str:
    return "<br>".join(wrap(shortened(label(name), 2 * _LINE), _LINE))


def _part(position: int, count: int) -> list[float]:
    """Return the start and end of one of `count` plots, as shares of the whole."""
    return [(position + _GAP) / count if position else 0.0, (position + 1 - _GAP) / count]
