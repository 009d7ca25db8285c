"""Predicted against measured latencies, and what the run has learned from them."""

from __future__ import annotations

import numpy as np

from allo_dse.eval.calibrate.correction import Correction

from ..data.table.columns import Floats
from .style import Figure, Spec, Theme, axis, layout, note, packed

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
    line = {"type": "scatter", "mode": "lines", "name": "as measured", "x": packed(ends), "y": packed(ends),
            "line": {"color": look.muted, "width": 1, "dash": "dash"}, "hoverinfo": "skip"}  # fmt: skip
    span = np.log10(ends).tolist()
    return {
        "data": [
            line,
            _points("predicted", names, times, predicted, {"symbol": "circle-open", "color": look.series[1]}),
            _points("corrected by the others", names, times, corrected, {"symbol": "diamond", "color": look.front}),
        ],
        "layout": layout(
            look,
            xaxis=axis(look, "measured (µs)", type="log", range=span, nticks=6, tickangle=0),
            yaxis=axis(look, "predicted (µs)", type="log", range=span, nticks=6),
        ),
    }


def _points(name: str, designs: list[str], measured: Floats, predicted: Floats, marker: Spec) -> Spec:
    off = [f"{100 * (p / m - 1):+.1f} %" for p, m in zip(predicted, measured, strict=True)]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": packed(measured),
        "y": packed(predicted),
        "marker": {**marker, "size": 9, "line": {"width": 1.5}},
        "customdata": [list(both) for both in zip(designs, off, strict=True)],
        "hovertemplate": f"%{{customdata[0]}}: measured %{{x:,.4~g}} µs, {name} %{{y:,.4~g}} µs (%{{customdata[1]}})"
        "<extra></extra>",
    }
