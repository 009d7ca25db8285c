"""What every core and channel of a design did over time, and what was in the buffers between them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from allo_dse.simulator.engine.explanation import Explanation
from allo_dse.simulator.engine.timeline import Activity, Timeline
from allo_dse.simulator.network.labels import node_label
from allo_dse.tune.store.texts import shortened

from ..recordings import PARTS, Recorded, Span, Total
from .occupancy import BINS
from .style import (
    BLUE,
    GREEN,
    NAME,
    ORANGE,
    PURPLE,
    VERMILLION,
    Figure,
    Spec,
    Theme,
    axis,
    hatching,
    layout,
    note,
    packed,
)

MAX_ROWS = 40
MAX_STEPS = 3_000
IDLE = 0.02
"""A row that does something for less than this share of an interval is idle in it."""
ACTIVITIES = {
    Activity.WORK: ("works", BLUE),
    Activity.WAIT_GET: ("waits for a token", ORANGE),
    Activity.WAIT_PUT: ("waits for room", VERMILLION),
    Activity.WAIT_RESOURCE: ("waits for DRAM", PURPLE),
    Activity.SERVICE: ("is served by DRAM", GREEN),
}

Floats = NDArray[np.float64]


def timeline_figure(timeline: Timeline, found: Explanation, look: Theme, *, ticks_per_cycle: int = 1) -> Figure:
    """A row per core and channel, coloured by what it does most around each time; the critical path as a line."""
    if not timeline.cycles:
        return note(look, "the run takes no time")
    rows = chosen_rows(timeline, found)
    names = _names(timeline, found, rows)
    edges = np.linspace(timeline.start, timeline.end, BINS + 1)
    shares = np.stack([_shares(timeline, node, edges) for node in rows])
    trace, keys = activity_traces(shares, edges / ticks_per_cycle, names, tuple(ACTIVITIES))
    data = [trace, *keys, *_path(timeline, found, rows, names, look, ticks_per_cycle)]
    return _over_time(look, data, len(rows), (timeline.start / ticks_per_cycle, timeline.end / ticks_per_cycle))


def overview_figure(whole: Recorded, look: Theme, shown: Span) -> Figure:
    """The whole run: a row per kind of element, coloured by what they do most; a frame around what is shown in detail.

    Args:
        shown: what is shown, in ticks.
    """
    cycles, per = whole.recording.cycles, whole.ticks_per_cycle
    if not cycles:
        return note(look, "the run takes no time")
    edges = np.linspace(0, cycles, BINS + 1)
    shares, kinds = whole.over_time(edges), whole.totals[:MAX_ROWS]
    names = [_kind(total) for total in kinds]
    trace, keys = activity_traces(shares[: len(names)], edges / per, names, PARTS)
    made = _over_time(look, [trace, *keys, _targets(edges / per, names)], len(names), (0, cycles / per))
    low, high = (s / per for s in shown)
    frame = {"type": "rect", "xref": "x", "yref": "paper", "x0": low, "x1": high, "y0": 0, "y1": 1}
    line = {"color": look.text, "width": 2}
    made["layout"].update(
        shapes=[{**frame, "line": line}],
        dragmode="select",
        selectdirection="h",
        selections=[],
        height=130 + 24 * len(names),
    )
    made["layout"]["xaxis"].pop("tickformat")  # "200k": the whole run in few ticks
    made["layout"]["xaxis"]["fixedrange"] = made["layout"]["yaxis"]["fixedrange"] = True
    return made


def _targets(at: Floats, names: list[str]) -> Spec:
    """Invisible points, because Plotly lets only traces with points be selected in."""
    middle = (at[1:] + at[:-1]) / 2
    marker = {"opacity": 0, "size": 1}
    y = [names[len(names) // 2]] * len(middle)
    return {
        "type": "scatter",
        "mode": "markers",
        "x": packed(middle),
        "y": y,
        "marker": marker,
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _over_time(look: Theme, data: list[Spec], rows: int, span: tuple[float, float]) -> Figure:
    """Rows over time, in cycles."""
    return {
        "data": data,
        "layout": layout(
            look,
            xaxis=axis(look, "time (cycles)", range=list(span), tickformat=",", nticks=6),
            yaxis=axis(
                look,
                "",
                range=[rows - 0.5, -0.5],
                type="category",
                tickfont={"size": 10, "color": look.muted},
            ),
            height=150 + 17 * rows,
            showlegend=True,
        ),
    }


def _names(timeline: Timeline, found: Explanation, rows: list[int]) -> list[str]:
    """A name for each row, no two alike."""
    names = [shortened(node_label(found.labels, timeline.network, node), NAME) for node in rows]
    return [f"{name} #{names[:i].count(name) + 1}" if names.count(name) > 1 else name for i, name in enumerate(names)]


def activity_traces(
    shares: Floats, edges: Floats, names: list[str], activities: Sequence[Activity]
) -> tuple[Spec, list[Spec]]:
    """What each row does most around each time, and the legend's entries.

    Args:
        shares: per row, interval and activity; edges: of the intervals, in cycles.
        activities: what the last axis of `shares` is of.
    """
    most = np.where(shares.max(axis=2) > IDLE, shares.argmax(axis=2), -1)
    known = list(ACTIVITIES)
    colour = np.array([known.index(a) for a in activities])
    trace: Spec = {
        "type": "heatmap",
        "x": packed((edges[1:] + edges[:-1]) / 2),
        "y": names,
        "z": [[None if value < 0 else int(colour[value]) for value in row] for row in most.tolist()],
        "text": [[_shares_text(bin_, activities) for bin_ in row] for row in shares],
        "hovertemplate": "%{y}<br>%{x:,.0f} cycles<br>%{text}<extra></extra>",
        "colorscale": _discrete(),
        "zmin": -0.5,
        "zmax": len(ACTIVITIES) - 0.5,
        "ygap": 1,
        "showscale": False,
    }
    seen = set(most[most >= 0].tolist())
    return trace, [_key(*ACTIVITIES[activity]) for i, activity in enumerate(activities) if i in seen]


def _key(text: str, color: str) -> Spec:
    """An entry of the legend."""
    marker = {"symbol": "square", "size": 12, "color": color}
    return {"type": "scatter", "mode": "markers", "name": text, "x": [None], "y": [None], "marker": marker}


def _discrete() -> list[list[float | str]]:
    """A colour scale of steps."""
    count = len(ACTIVITIES)
    return [[(i + end) / count, color] for i, (_, color) in enumerate(ACTIVITIES.values()) for end in (0, 1)]


def chosen_rows(timeline: Timeline, found: Explanation) -> list[int]:
    """The rows that are shown, by number: those that the critical path is in for longest, and the busiest."""
    nodes = np.arange(timeline.network.node_count)
    busy = timeline.node_cycles[:, Activity.WORK] + timeline.node_cycles[:, Activity.SERVICE]
    critical = found.path.cycles_by(("work", "service"), timeline.network.task_node[found.path.task], len(nodes))
    first = np.argsort(-critical, kind="stable")[: MAX_ROWS // 2]
    first = first[critical[first] > 0]
    rest = [n for n in np.argsort(-busy, kind="stable").tolist() if n not in set(first.tolist())]
    return sorted([*first.tolist(), *rest[: MAX_ROWS - len(first)]])


def _shares(timeline: Timeline, node: int, edges: Floats) -> Floats:
    """(bins, activities): the share of each interval that a node spends on each activity."""
    table = timeline.intervals
    mine = table[table["node"] == node]
    result = np.zeros((len(edges) - 1, len(ACTIVITIES)))
    for activity in ACTIVITIES:
        own = mine[mine["activity"] == int(activity)]
        if len(own):
            result[:, int(activity)] = np.diff(_done(own["start"].to_numpy(), own["end"].to_numpy(), edges))
    found: Floats = result / (edges[1] - edges[0])
    return found


def _done(start: NDArray[np.int64], end: NDArray[np.int64], edges: Floats) -> Floats:
    """Time in ascending intervals up to each edge."""
    total = np.cumsum(end - start)
    times = np.stack([start, end], axis=1).ravel()
    values = np.stack([total - (end - start), total], axis=1).ravel()
    found: Floats = np.interp(edges, times, values)
    return found


def _shares_text(shares: Floats, activities: Sequence[Activity]) -> str:
    parts = [f"{100 * share:.0f} % {ACTIVITIES[a][0]}" for share, a in zip(shares, activities, strict=True)]
    return ", ".join(p for p, share in zip(parts, shares, strict=True) if share > IDLE) or "idle"


def _path(
    timeline: Timeline, found: Explanation, rows: list[int], names: list[str], look: Theme, per_cycle: int
) -> list[Spec]:
    """The critical path, as far as it runs through the rows that are shown."""
    if not len(found.path):
        return []
    path = found.path
    place = dict(zip(rows, names, strict=True))
    keep = np.linspace(0, len(path) - 1, min(len(path), MAX_STEPS)).astype(np.int64)
    nodes = timeline.network.task_node[path.task[keep]].tolist()
    x: list[float | None] = []
    y: list[str | None] = []
    for node, start, end in zip(nodes, path.start[keep].tolist(), path.end[keep].tolist(), strict=True):
        if node in place:
            x += [start / per_cycle, end / per_cycle]
            y += [place[node]] * 2
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "critical path",
            "x": x,
            "y": y,
            "line": {"color": look.text, "width": 1.5},
            "hoverinfo": "skip",
        }
    ]


def _kind(total: Total) -> str:
    """A kind of elements, and how many there are."""
    name = shortened(total.name, NAME)
    return f"{name} ({total.count:,})" if total.count > 1 else name


def totals_figure(totals: Sequence[Total], look: Theme) -> Figure:
    """Per kind of processing element the share of the time that it works and waits."""
    if not totals:
        return note(look, "the run takes no time")
    shown = totals[:MAX_ROWS][::-1]
    names = [_kind(t) for t in shown]
    traces = []
    for position, activity in enumerate(PARTS):
        text, color = ACTIVITIES[activity]
        values = [100 * t.shares[position] for t in shown]
        if any(v > 0 for v in values):
            traces.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "name": text,
                    "x": values,
                    "y": names,
                    "marker": {"color": color, "pattern": hatching(position)},
                    "hovertemplate": f"%{{y}}: %{{x:.1f}} % {text}<extra></extra>",
                }
            )
    return {
        "data": traces,
        "layout": layout(
            look,
            xaxis=axis(look, "share of the time (%)", range=[0, 102]),
            yaxis=axis(look, "", type="category"),
            barmode="stack",
            bargap=0.35,
            height=max(320, 130 + 22 * len(shown)),
        ),
    }
