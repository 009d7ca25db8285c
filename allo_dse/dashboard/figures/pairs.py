"""A front of three objectives or more as small plots, one for each pair: what a picture in space hides."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from ..data.table.table import RunTable
from ..data.units import label
from .style import VERMILLION, Figure, Spec, Theme, axis, layout, note, packed

MOST = 4
"""Objectives that are shown: six pairs."""
_ACROSS, _GAP = 3, 0.12


def pairs_figure(run: RunTable, look: Theme) -> Figure:
    """The designs of the front, and its knee, in every pair of the first objectives."""
    names = [name for name in run.names("objective") if name in run.columns][:MOST]
    pairs = list(combinations(names, 2))
    rows = run.front
    if len(names) < 3 or not len(rows):
        return note(look, "Fewer than three objectives, or no feasible design yet.")
    lines = -(-len(pairs) // _ACROSS)
    traces: list[Spec] = []
    axes: Spec = {}
    for place, (x, y) in enumerate(pairs):
        number = "" if place == 0 else str(place + 1)
        line, column = divmod(place, _ACROSS)
        knee = np.array([] if run.knee is None else [run.knee], np.int64)
        for own, color, symbol, size in ((rows, look.front, "circle", 6), (knee, VERMILLION, "star", 12)):
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "x": packed(run.numbers(x)[own]),
                    "y": packed(run.numbers(y)[own]),
                    "xaxis": f"x{number}",
                    "yaxis": f"y{number}",
                    "marker": {"color": color, "symbol": symbol, "size": size},
                    "hovertemplate": "%{x:,.6~g}, %{y:,.6~g}<extra></extra>",
                }
            )
        axes[f"xaxis{number}"] = axis(look, label(x), anchor=f"y{number}", domain=_part(column, _ACROSS), nticks=4)
        axes[f"yaxis{number}"] = axis(look, label(y), anchor=f"x{number}", domain=_part(lines - 1 - line, lines))
    return {"data": traces, "layout": layout(look, **axes, showlegend=False)}


def _part(position: int, count: int) -> list[float]:
    """Where one of so many plots stands, as shares of the whole."""
    return [(position + _GAP) / count if position else 0.0, (position + 1 - _GAP) / count]
