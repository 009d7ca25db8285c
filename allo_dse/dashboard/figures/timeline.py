"""Figures of every core's and channel's activity over time, and of the contents of the buffers between them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from allo_dse.eval.recording import PARTS, Part, Recorded, Span, Total
from allo_dse.simulator.engine.explanation import Explanation
from allo_dse.simulator.engine.timeline import Activity, Timeline
from allo_dse.simulator.network.network import node_label
from allo_dse.tune.store.run_info import shortened

from .style import (
    BARS,
    BLUE,
    CURVES,
    GREEN,
    NAME,
    ORANGE,
    POINTS,
    PURPLE,
    VERMILLION,
    Figure,
    Spec,
    Theme,
    axis,
    figure_of,
    hatching,
    note,
    packed,
)

# The contents over time of the buffers that cause the most waiting.


BINS = 360
MAX_BUFFERS = 6
_STRIP = 0.68
"""Of a buffer's share of the height; the rest is for its name."""
_ABOVE = {"xref": "paper", "yref": "paper", "x": 0, "xanchor": "left", "yanchor": "bottom", "showarrow": False}


def occupancy_figure(found: Recorded, part: Part, look: Theme) -> Figure:
    """Draw the contents over time of the buffers that cause the most waiting, one strip each, scaled to their
    depths."""
    timeline, labels, ticks_per_cycle = part.timeline, part.explanation.labels, found.ticks_per_cycle
    streams = _busiest(timeline)
    if not streams:
        return note(look, "nothing waits for a buffer")
    traces, axes, titles = [], {}, []
    step = 1 / len(streams)
    for position, stream in enumerate(streams):
        number = "" if position == 0 else str(position + 1)
        depth, name = int(timeline.network.depth[stream]), labels.stream(stream)
        bottom = 1 - (position + 1) * step
        top = bottom + step * _STRIP
        start, held = held_tokens(timeline, stream)
        traces.append(
            {
                **CURVES,
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
    return figure_of(look, traces, xaxis=across, **axes, annotations=titles, showlegend=False, height=height_px)


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


def timeline_figure(found: Recorded, part: Part, look: Theme) -> Figure:
    """A row per core and channel, coloured by its main activity around each time; the critical path as a line."""
    timeline, why, per = part.timeline, part.explanation, found.ticks_per_cycle
    if not timeline.cycles:
        return note(look, "the run takes no time")
    rows = chosen_rows(timeline, why)
    names = _names(timeline, why, rows)
    edges = np.linspace(timeline.start, timeline.end, BINS + 1)
    shares = np.stack([_shares(timeline, node, edges) for node in rows])
    trace, keys = activity_traces(shares, edges / per, names, tuple(ACTIVITIES))
    data = [trace, *keys, *_path(timeline, why, rows, names, look, per)]
    return _over_time(look, data, len(rows), (timeline.start / per, timeline.end / per))


def overview_figure(whole: Recorded, look: Theme, shown: Span) -> Figure:
    """The whole run: a row per kind of element, coloured by main activity; a frame around the detailed view.

    Args:
        shown: the visible range, in ticks.
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
        **POINTS,
        "x": packed(middle),
        "y": y,
        "marker": marker,
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _over_time(look: Theme, data: list[Spec], rows: int, span: tuple[float, float]) -> Figure:
    """Rows over time, in cycles."""
    return figure_of(
        look,
        data,
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
    )


def _names(timeline: Timeline, found: Explanation, rows: list[int]) -> list[str]:
    """A name for each row, no two alike."""
    names = [shortened(node_label(found.labels, timeline.network, node), NAME) for node in rows]
    return [f"{name} #{names[:i].count(name) + 1}" if names.count(name) > 1 else name for i, name in enumerate(names)]


def activity_traces(
    shares: Floats, edges: Floats, names: list[str], activities: Sequence[Activity]
) -> tuple[Spec, list[Spec]]:
    """Return the main activity of each row over time, and the legend's entries.

    Args:
        shares: per row, interval and activity; edges: of the intervals, in cycles.
        activities: along the last axis of `shares`.
    """
    most = np.where(shares.max(axis=2) > IDLE, shares.argmax(axis=2), -1)
    known, count = list(ACTIVITIES), len(ACTIVITIES)
    colour = np.array([known.index(a) for a in activities])
    trace: Spec = {
        "type": "heatmap",
        "x": packed((edges[1:] + edges[:-1]) / 2),
        "y": names,
        "z": [[None if value < 0 else int(colour[value]) for value in row] for row in most.tolist()],
        "text": [[_shares_text(bin_, activities) for bin_ in row] for row in shares],
        "hovertemplate": "%{y}<br>%{x:,.0f} cycles<br>%{text}<extra></extra>",
        "colorscale": [[(i + end) / count, c] for i, (_, c) in enumerate(ACTIVITIES.values()) for end in (0, 1)],
        "zmin": -0.5,
        "zmax": count - 0.5,
        "ygap": 1,
        "showscale": False,
    }
    seen = set(most[most >= 0].tolist())
    return trace, [_key(*ACTIVITIES[activity]) for i, activity in enumerate(activities) if i in seen]


def _key(text: str, color: str) -> Spec:
    """An entry of the legend."""
    marker = {"symbol": "square", "size": 12, "color": color}
    return {**POINTS, "name": text, "x": [None], "y": [None], "marker": marker}


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
    pairs = zip(shares, activities, strict=True)
    return ", ".join(f"{100 * share:.0f} % {ACTIVITIES[a][0]}" for share, a in pairs if share > IDLE) or "idle"


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
            **CURVES,
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
                    **BARS,
                    "name": text,
                    "x": values,
                    "y": names,
                    "marker": {"color": color, "pattern": hatching(position)},
                    "hovertemplate": f"%{{y}}: %{{x:.1f}} % {text}<extra></extra>",
                }
            )
    return figure_of(
        look,
        traces,
        xaxis=axis(look, "share of the time (%)", range=[0, 102]),
        yaxis=axis(look, "", type="category"),
        barmode="stack",
        bargap=0.35,
        height=max(320, 130 + 22 * len(shown)),
    )


MAX_CONTRIBUTORS = 10
MAX_RECORDED_BUFFERS = 12
_KINDS = {"work": "work", "service": "served by DRAM", "token": "tokens on their way", "room": "full buffers"}


def whole_words(found: Recorded) -> str:
    """Describe the whole run and its busiest element."""
    name, share = found.busiest
    return f"{_whole(found)} {name} is the busiest: it works {100 * share:.1f} % of them."


def _whole(found: Recorded) -> str:
    of = f" ({found.note})" if found.note else " of the run"
    return f"All {found.cycles:,.0f} cycles{of}{_costs(found)}."


def _costs(found: Recorded) -> str:
    return f", {found.costs}" if found.costs else ""


def part_words(found: Recorded, part: Part) -> str:
    """Describe the shown part of a run, its bottleneck, and the omitted rows, if any."""
    per, line = found.ticks_per_cycle, part.timeline
    if part.is_whole:
        parts = [_whole(found)]
    else:
        note = f" ({found.note})" if found.note else ""
        full = ": more operations are not kept at a time" if line.end < part.asked[1] else ""
        low, high = found.shown(part)
        span = f"Cycles {low:,} to {high:,} of {found.cycles:,.0f}"
        parts = [f"{span}{note}{_costs(found)}{full}."]
    worst = part.explanation.bottleneck
    if worst is not None:
        share = f"{100 * worst.share:.1f} % of these {line.cycles / per:,.0f} cycles"
        parts.append(f"{worst.name} sets the pace: {share}.")
    count = line.network.node_count
    if count > MAX_ROWS:
        parts.append(f"{MAX_ROWS} of {count:,} rows are shown: those on the critical path and the busiest.")
    return " ".join(parts)


def totals_words(found: Recorded) -> str:
    """Explain the basis of the totals."""
    return f"Of all {found.cycles:,.0f} cycles, mean over the elements of a kind."


def path_title(part: Part) -> str:
    """Return the title of the critical path."""
    return "Critical path of the run" if part.is_whole else "Critical path of the part that is shown"


def path_words(part: Part) -> str:
    """Describe the composition of the critical path."""
    return ", ".join(f"{_KINDS[kind]} {100 * share:.1f} %" for kind, share in part.explanation.shares.items() if share)


def path_rows(found: Recorded, part: Part) -> list[list[str]]:
    """Return the elements that are longest on the critical path: name, cycles and share."""
    per = found.ticks_per_cycle
    most = part.explanation.contributors[:MAX_CONTRIBUTORS]
    return [[b.name, f"{b.cycles / per:,.0f}", f"{100 * b.share:.1f} %"] for b in most]


HELP_HEAD = ["twice as fast", "the run takes (cycles)", "change"]
HELP_WORDS = (
    "What the whole run would take if all of a kind worked twice as fast and everything else as it does, by simulation."
)


def help_rows(found: Recorded) -> list[list[str]]:
    """Return the run's predicted length per kind of element made faster, in the order of `helps`."""
    return [
        [f.name, f"{f.share * found.cycles:,.0f}", f"{100 * (f.share - 1):z.1f} %".replace("-", "−")]
        for f in found.helps
    ]


HELD_HEAD = ["buffer", "how many", "most held", "room", "tokens in all"]


def held_rows(found: Recorded) -> list[list[str]]:
    """Over the whole run the most that buffers have held, the fullest first."""
    shown = found.held[:MAX_RECORDED_BUFFERS]
    return [[h.name, f"{h.count:,}", f"{h.most:,}", f"{h.depth:,}", f"{h.tokens:,}"] for h in shown]
