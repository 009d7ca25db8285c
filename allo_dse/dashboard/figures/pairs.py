"""A front of three objectives or more as small plots, one for each pair: what a picture in space hides."""

from __future__ import annotations

from textwrap import wrap

import numpy as np

from allo_dse.tune.store.texts import shortened

from ..data.table.table import RunTable
from ..data.units import label
from .style import VERMILLION, Figure, Spec, Theme, axis, layout, note, packed

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
            "type": "scatter",
            "mode": "markers",
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
    return {"data": traces, "layout": layout(look, **axes, showlegend=False)}


def _title(name: str) -> str:
    return "<br>".join(wrap(shortened(label(name), 2 * _LINE), _LINE))


def _part(position: int, count: int) -> list[float]:
    """Return the start and end of one of `count` plots, as shares of the whole."""
    return [(position + _GAP) / count if position else 0.0, (position + 1 - _GAP) / count]
