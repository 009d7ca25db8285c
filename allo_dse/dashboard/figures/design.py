"""Pictures of one design, and of two side by side."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from allo_dse.eval.calibrate.correction import Correction

from ..data.analysis import ColumnDifference, ResourceUse, change_text
from ..data.columns import Floats
from ..data.selection import label, text
from .style import (
    BARS,
    BLUE,
    CURVES,
    GREEN,
    ORANGE,
    POINTS,
    VERMILLION,
    Figure,
    Spec,
    Theme,
    axis,
    figure_of,
    layout,
    note,
    packed,
)


def resources_figure(found: list[ResourceUse], look: Theme) -> Figure:
    """Used shares of the device's resources."""
    if not found:
        return note(look, "no metric that the device has a known limit for")
    found = found[::-1]
    colors = [VERMILLION if u.share > 1 else ORANGE if u.share > 0.9 else look.front for u in found]
    trace = {
        **BARS,
        "x": [max(_SLIVER, 100 * u.share) for u in found],
        "y": [label(u.name) for u in found],
        "marker": {"color": colors, "pattern": {"shape": ["/" if u.share > 1 else "" for u in found]}},
        "text": [f"{text(u.used)} of {text(u.limit)}" for u in found],
        "customdata": [f"{100 * u.share:.1f} %" for u in found],
        **_texts([u.share for u in found], colors, look),
        "hovertemplate": "%{y}: %{text} (%{customdata})<extra></extra>",
    }
    most = max(102.0, *(105 * u.share for u in found))
    line = {"type": "line", "x0": 100, "x1": 100, "yref": "paper", "y0": 0, "y1": 1}
    return figure_of(
        look,
        [trace],
        xaxis=axis(look, "used (% of the device's limit)", range=[0, most]),
        yaxis=axis(look, ""),
        shapes=[{**line, "line": {"color": look.muted, "dash": "dash", "width": 1}}],
        bargap=0.35,
    )


def bound_figure(bound: Mapping[str, float], look: Theme) -> Figure:
    """The share of the run time each resource was busy."""
    shares = sorted(((k, v) for k, v in bound.items() if isinstance(v, int | float)), key=lambda item: item[1])
    if not shares:
        return note(look, "no evaluator has said what was busy")
    colors = [look.front] * (len(shares) - 1) + [ORANGE]
    trace = {
        **BARS,
        "x": [100 * v for _, v in shares],
        "y": [k for k, _ in shares],
        "marker": {"color": colors},
        "texttemplate": "%{x:.1f} %",
        **_texts([v for _, v in shares], colors, look),
        "hovertemplate": "%{y}: %{x:.1f} %<extra></extra>",
    }
    return figure_of(
        look, [trace], xaxis=axis(look, "busy (% of the run time)", range=[0, 102]), yaxis=axis(look, ""), bargap=0.35
    )


_SLIVER = 0.05
"""Percent; a bar of no length would have no text."""
_HALF = 0.5


def _texts(shares: list[float], colors: list[str], look: Theme) -> dict[str, object]:
    """Texts in long bars and beside short ones, in a colour that can be read there."""
    inside = [share >= _HALF for share in shares]
    on_bar = ["#ffffff" if color in (BLUE, VERMILLION) else "#10151b" for color in colors]
    return {
        "textposition": ["inside" if within else "outside" for within in inside],
        "insidetextanchor": "start",
        "textangle": 0,
        "textfont": {"color": [own if within else look.text for within, own in zip(inside, on_bar, strict=True)]},
        "cliponaxis": False,
    }


def compare_figure(found: list[ColumnDifference], look: Theme) -> Figure:
    """The relative change of every number that differs, objectives by whether they got better."""
    numbers = [d for d in found if d.change is not None and d.kind in ("objective", "metric")][::-1]
    if not numbers:
        return note(look, "no metric differs")
    trace: Spec = {
        **BARS,
        "x": [min(MOST_PERCENT, 100 * (d.change or 0.0)) for d in numbers],
        "y": [label(d.name) for d in numbers],
        "marker": {
            "color": [look.dominated if d.better is None else GREEN if d.better else VERMILLION for d in numbers],
            "pattern": {
                "shape": ["/" if d.better is False else "" for d in numbers],
                "fillmode": "overlay",
                "fgcolor": "#ffffff",
            },
        },
        "text": [change_text(d) for d in numbers],
        "customdata": [f"{text(d.first)} → {text(d.second)}" for d in numbers],
        "textposition": "none",
        "hovertemplate": "%{y}: %{customdata} (%{text})<extra></extra>",
    }
    low, high = min(0.0, *trace["x"]), max(0.0, *trace["x"])
    room = max(high - low, 1.0)
    beside = {"xref": "paper", "x": 1, "xanchor": "left", "xshift": 6, "yref": "y", "showarrow": False}
    figure = layout(
        look,
        xaxis=axis(look, "change (%)", range=[low - 0.03 * room, high + 0.03 * room]),
        yaxis=axis(look, ""),
        bargap=0.3,
        height=90 + 30 * len(numbers),
        # Beside the plot, where they cover no bar and no name even in narrow windows.
        annotations=[{**beside, "y": label(d.name), "text": change_text(d)} for d in numbers],
    )
    return {"data": [trace], "layout": {**figure, "margin": {**figure["margin"], "r": 72}}}


MOST_PERCENT = 400.0
"""Longer bars would hide all others; the number beside them is right."""
MARGIN = 1.15  # of the axes beyond the outermost design


def measured_figure(correction: Correction, look: Theme) -> Figure:
    """A point per measured design as it was predicted, and one as the others correct it; on the line both are equal."""
    if not correction.pairs:
        return note(look, "no design has been measured yet")
    times = np.array([pair.measured_us for pair in correction.pairs])
    predicted = np.array([pair.predicted_us for pair in correction.pairs])
    corrected = np.array(correction.corrected_us)
    names = [pair.key[:8] for pair in correction.pairs]
    everything = np.concatenate([times, predicted, corrected])
    ends = np.array([everything.min() / MARGIN, everything.max() * MARGIN])
    line = {**CURVES, "name": "as measured", "x": packed(ends), "y": packed(ends),
            "line": {"color": look.muted, "width": 1, "dash": "dash"}, "hoverinfo": "skip"}  # fmt: skip
    span = np.log10(ends).tolist()
    return figure_of(
        look,
        [
            line,
            _points("predicted", names, times, predicted, {"symbol": "circle-open", "color": look.series[1]}),
            _points("corrected by the others", names, times, corrected, {"symbol": "diamond", "color": look.front}),
        ],
        xaxis=axis(look, "measured (µs)", type="log", range=span, nticks=6, tickangle=0),
        yaxis=axis(look, "predicted (µs)", type="log", range=span, nticks=6),
    )


def _points(name: str, designs: list[str], measured: Floats, predicted: Floats, marker: Spec) -> Spec:
    off = [f"{100 * (p / m - 1):+.1f} %" for p, m in zip(predicted, measured, strict=True)]
    return {
        **POINTS,
        "name": name,
        "x": packed(measured),
        "y": packed(predicted),
        "marker": {**marker, "size": 9, "line": {"width": 1.5}},
        "customdata": [list(both) for both in zip(designs, off, strict=True)],
        "hovertemplate": f"%{{customdata[0]}}: measured %{{x:,.4~g}} µs, {name} %{{y:,.4~g}} µs (%{{customdata[1]}})"
        "<extra></extra>",
    }
