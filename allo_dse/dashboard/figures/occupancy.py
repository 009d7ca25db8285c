"""Contents over time of the buffers that cause the most waiting."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from allo_dse.simulator.engine.explanation import Explanation
from allo_dse.simulator.engine.timeline import Activity, Timeline

from .style import Figure, Theme, axis, layout, note, packed

BINS = 360
MAX_BUFFERS = 6
_STRIP = 0.68
"""Of a buffer's share of the height; the rest is for its name."""
_ABOVE = {"xref": "paper", "yref": "paper", "x": 0, "xanchor": "left", "yanchor": "bottom", "showarrow": False}

Floats = NDArray[np.float64]


def occupancy_figure(timeline: Timeline, found: Explanation, look: Theme, *, ticks_per_cycle: int = 1) -> Figure:
    """Draw the contents over time of the buffers that cause the most waiting, one strip each, scaled to their
    depths."""
    streams = _busiest(timeline)
    if not streams:
        return note(look, "nothing waits for a buffer")
    traces, axes, titles = [], {}, []
    step = 1 / len(streams)
    for position, stream in enumerate(streams):
        number = "" if position == 0 else str(position + 1)
        depth, name = int(timeline.network.depth[stream]), found.labels.stream(stream)
        bottom = 1 - (position + 1) * step
        top = bottom + step * _STRIP
        start, held = held_tokens(timeline, stream)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": packed(start / ticks_per_cycle),
                "y": packed(held),
                "yaxis": f"y{number}",
                "fill": "tozeroy",
                "line": {"shape": "hv", "width": 1, "color": look.front},
                "hovertemplate": f"{name}<br>%{{x:,.0f}} cycles: %{{y}} of {depth}<extra></extra>",
            }
        )
        axes[f"yaxis{number}"] = axis(
            look, "", domain=[bottom, top], range=[0, 1.05 * max(1, depth)], dtick=max(1, -(-depth // 2))
        )
        titles.append({**_ABOVE, "y": top, "text": f"{name} (holds {depth:,})"})
    span = [timeline.start / ticks_per_cycle, timeline.end / ticks_per_cycle]
    last = "y" if len(streams) == 1 else f"y{len(streams)}"
    across = axis(look, "time (cycles)", anchor=last, range=span, tickformat=",", nticks=6)
    height_px = 70 + 92 * len(streams)
    return {
        "data": traces,
        "layout": layout(look, xaxis=across, **axes, annotations=titles, showlegend=False, height=height_px),
    }


def held_tokens(timeline: Timeline, stream: int) -> tuple[Floats, Floats]:
    """The most tokens that a buffer holds in each of `BINS` intervals, and where they begin."""
    edges = np.linspace(timeline.start, max(timeline.start + 1, timeline.end), BINS + 1)
    held = timeline.occupancy(stream)
    most = np.zeros(BINS)
    place = np.clip(np.searchsorted(edges, held.time, side="right") - 1, 0, BINS - 1)
    np.maximum.at(most, place, held.tokens)
    at_start = held.tokens[np.maximum(np.searchsorted(held.time, edges[:-1], side="right") - 1, 0)]
    return edges[:-1], np.maximum(most, at_start)


def _busiest(timeline: Timeline) -> list[int]:
    """Streams of tokens by the time that is spent waiting for them."""
    table = timeline.intervals
    table = table[table["activity"].isin([int(Activity.WAIT_GET), int(Activity.WAIT_PUT)])]
    waits = np.bincount(table["on"], weights=table["end"] - table["start"], minlength=timeline.network.stream_count)
    order = np.argsort(-waits, kind="stable")[:MAX_BUFFERS]
    return sorted(int(s) for s in order if waits[s] > 0)
