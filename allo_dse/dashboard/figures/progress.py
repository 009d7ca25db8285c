"""Figures of a run's progress: history of objectives, hypervolume, designs over time, workers, and importances."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from allo_dse.tune.results.causes import causes_in
from allo_dse.tune.store.run_info import shortened

from ..data.columns import Floats
from ..data.progress import Progress, lost
from ..data.runs import Board
from ..data.selection import label
from ..data.table import RunTable
from .style import (
    BARS,
    CURVES,
    NAME,
    POINTS,
    Figure,
    Spec,
    Theme,
    axis,
    figure_of,
    hatching,
    note,
    number_axis,
    packed,
    scale,
)
from .thinning import Rows, thin

MAX_STEPS = 2_000
MAX_REASONS = 6
MAX_CAUSES = 8  # with two lines each
_TITLES = {"designs": "evaluated designs", "time": "wall time (s)"}
_NONE = "no design has been evaluated yet"


def hypervolume_figure(board: Board, look: Theme, *, against: str = "designs", hidden: Sequence[int] = ()) -> Figure:
    """The hypervolume of each run against evaluated designs or wall time ("time")."""
    traces = []
    for number, run in enumerate(board.runs):
        steps = _steps(run.hypervolume)
        if number in hidden or not len(steps):
            continue
        if len(steps) > MAX_STEPS:
            steps = steps[np.linspace(0, len(steps) - 1, MAX_STEPS).astype(np.int64)]
        x, y = _across(run, against)[steps], run.hypervolume[steps]
        traces.append(_line(board.names[number], x, y, look.series[number % len(look.series)]))
    if not traces:
        return note(look, "the hypervolume is known from 20 feasible designs on")
    up = axis(look, f"hypervolume ({hypervolume_unit(board.runs[0])})", rangemode="tozero")
    return figure_of(look, traces, xaxis=axis(look, _TITLES[against]), yaxis=up, showlegend=len(traces) > 1)


def history_figure(
    board: Board, objective: str, look: Theme, *, against: str = "designs", hidden: Sequence[int] = ()
) -> Figure:
    """Values of an objective in the order of evaluation, with the best so far and what no design can be better than.

    Of several evaluators the most expensive one decides the best, as it does for the front.

    Args:
        against: "designs" or "time", the axis across.
        hidden: positions of runs to leave out.
    """
    runs = [(n, run) for n, run in enumerate(board.runs) if n not in hidden and objective in run.objectives]
    found = [(n, run, line) for n, run in runs if (line := _best_line(run, objective)) is not None]
    if not found:
        return note(look, "no feasible design yet")
    traces, span = [], []
    for number, run, (steps, best) in found:
        color, name = look.series[number % len(look.series)], shortened(board.names[number], NAME)
        across, values = _across(run, against), run.numbers(objective)
        rows = np.flatnonzero(run.ok & np.isfinite(values))
        rows = rows[thin(across[rows], values[rows], MAX_STEPS)]
        group = {"legendgroup": name, "showlegend": False}
        dots = {"size": 5, "color": color, "opacity": 0.35, "line": {"width": 0}}
        traces.append({**_points(across[rows], values[rows], [run.keys[row][:8] for row in rows], dots), **group})
        named = name if len(found) > 1 else f"best so far: {best[-1]:,.6g}"
        traces.append({**_line(named, across[steps], best, color), "legendgroup": name})
        ticks = [tick for tick in run.ticks if np.isfinite(tick.bounds.get(objective, np.nan))]
        bounds = np.array([tick.bounds[objective] for tick in ticks])
        at = np.array([tick.at for tick in ticks])
        if against == "designs":
            at = np.searchsorted(run.numbers("at"), at, "right").astype(np.float64)
        if len(ticks):
            dotted = {"shape": "hv", "width": 1, "dash": "dot", "color": color}
            traces.append({**_line("no design is better", at, bounds, color), "line": dotted, **group})
        span += [values[rows].min(), values[rows].max(), *bounds]
    wide = min(span) > 0 and max(span) > 10 * min(span)
    up = number_axis(look, label(objective), log=bool(wide))
    return figure_of(look, traces, xaxis=axis(look, _TITLES[against]), yaxis=up, showlegend=True)


def _across(run: RunTable, against: str) -> Floats:
    """Position of each evaluated design on the axis across."""
    return run.numbers("at") if against == "time" else np.arange(1.0, len(run) + 1)


def _best_line(run: RunTable, objective: str) -> tuple[Rows, Floats] | None:
    """Rows of a run where the best value of an objective changes, with the values; None without a feasible design."""
    compared = run.ok if run.measured_rows is None else np.isin(np.arange(len(run)), run.measured_rows)
    values = np.where(compared, run.numbers(objective), np.nan)
    direction = next(one.direction for one in run.facts.objectives if one.name == objective)
    best = (np.fmin if direction == "minimize" else np.fmax).accumulate(values) if len(values) else values
    steps = _steps(best)
    return (steps, best[steps]) if len(steps) else None


def _steps(values: Floats) -> Rows:
    """Positions where known values change, and the last; empty if none is known."""
    known = np.flatnonzero(np.isfinite(values))
    if not len(known):
        return known
    return np.append(known[np.flatnonzero(np.diff(values[known], prepend=np.inf) != 0)], known[-1])


def _line(name: str, x: Floats, y: Floats, color: str) -> Spec:
    return {
        **(CURVES if x[0] < x[-1] else POINTS),
        "name": name,
        "x": packed(x),
        "y": packed(y),
        "line": {"shape": "hv", "width": 2, "color": color},
        "hovertemplate": "%{x:,.1~f}: %{y:,.6~g}<extra></extra>",
    }


def _points(x: Floats, y: Floats, names: list[str], marker: Spec) -> Spec:
    return {
        **POINTS,
        "x": packed(x),
        "y": packed(y),
        "text": names,
        "marker": marker,
        "hovertemplate": "%{text}, %{x:,.1~f}: %{y:,.6~g}<extra></extra>",
    }


def hypervolume_unit(run: RunTable) -> str:
    """Return "share" if all objectives are minimised, as zero then bounds the box; otherwise "relative"."""
    return "share" if all(o.direction == "minimize" for o in run.facts.objectives) else "relative"


def designs_figure(spans: Progress, look: Theme) -> Figure:
    """Designs per second over time: feasible ones, and by kind those that a limit, a constraint or a failure ruled out.

    A design that breaks several limits counts for each.
    """
    names = list(spans.failures)
    shown = {"feasible": spans.feasible, **{name: spans.failures[name] for name in names[:MAX_REASONS]}}
    if rest := names[MAX_REASONS:]:
        shown[f"{len(rest)} other reasons"] = np.sum([spans.failures[name] for name in rest], axis=0)
    if not sum(counts.sum() for counts in shown.values()):
        return note(look, _NONE)
    middles = packed(spans.middles)
    traces = [
        {
            "type": "bar",
            "name": shortened(name, NAME),
            "x": middles,
            "y": packed(counts / spans.seconds),
            "width": spans.seconds,
            "marker": {"color": look.series[i % len(look.series)], "line": {"width": 0}, "pattern": hatching(i)},
            "hovertemplate": "%{x:.1f} s: %{y:,.3~g}<extra>" + _plain(name) + "</extra>",
        }
        for i, (name, counts) in enumerate(shown.items())
    ]
    axes = {"xaxis": axis(look, _TITLES["time"]), "yaxis": axis(look, "designs per second")}
    return figure_of(look, traces, **axes, barmode="stack", bargap=0, showlegend=len(traces) > 1)


def _plain(name: str) -> str:
    """A name that Plotly does not take for markup."""
    return name.replace("<", "‹").replace(">", "›").replace("%{", "% {")


def lost_figure(table: RunTable, look: Theme) -> Figure:
    """Rank the limits that ruled designs out by count; each names the choices that it rules out most."""
    counts = lost(table).most_common(MAX_CAUSES)[::-1]
    if not counts:
        return note(look, "no design was ruled out")
    size = len(table) + len(table.ruled_out)
    struck = _struck(table.path, size - size % max(20, 1 << max(0, size.bit_length() - 4)))
    names = [f"{name}\n{struck[name]}" if struck.get(name) else name for name, _ in counts]
    return _ranking(names, [c for _, c in counts], look, "designs", ",d")


@lru_cache(maxsize=16)
def _struck(path: Path, _size: int) -> dict[str, str]:
    """The choices that each cause strikes most; while a run grows they change slowly, and are looked for every few
    percent."""
    try:
        return {cause.name: cause.worst_values for cause in causes_in(path)}
    except OSError:  # the run is being deleted
        return {}


def importance_figure(shares: dict[str, float], look: Theme) -> Figure:
    """Rank parameters by importance."""
    if not shares:
        return note(look, "known from 20 feasible designs on, if a parameter varies")
    top = list(shares.items())[:12][::-1]
    return _ranking([label(n) for n, _ in top], [100 * v for _, v in top], look, "importance (%)", ".0f")


def _ranking(names: list[str], values: list[float], look: Theme, title: str, form: str) -> Figure:
    """Bars with their names; a line that is too long is shown in full on hover."""
    lines = [_plain(name).split("\n") for name in names]
    full = ["<br>".join(own) for own in lines]
    short = ["<br>".join(shortened(line, NAME) for line in own) for own in lines]
    trace = {
        **BARS,
        "x": values,
        "y": full,
        "customdata": full,
        "marker": {"color": look.front},
        "texttemplate": f"%{{x:{form}}}",
        "textposition": "outside",
        "cliponaxis": False,
        "hovertemplate": f"%{{customdata}}: %{{x:{form}}}<extra></extra>",
    }
    across = axis(look, title, range=[0, 1.12 * max([*values, 1e-9])])
    return figure_of(look, [trace], xaxis=across, yaxis=axis(look, "", tickvals=full, ticktext=short), bargap=0.25)


def workers_figure(spans: Progress, look: Theme) -> Figure:
    """Draw how busy each worker was over time."""
    names = list(spans.workers)
    if not any(share.any() for share in spans.workers.values()):
        return note(look, _NONE)
    trace = {
        "type": "heatmap",
        "x": packed(spans.middles),
        "y": [_plain(name) for name in names],
        "z": [(100 * spans.workers[name]).round(1).tolist() for name in names],
        "zmin": 0,
        "zmax": 100,
        "colorscale": scale(look),
        "colorbar": {"title": {"text": "busy (%)"}, "thickness": 12, "outlinewidth": 0},
        "hovertemplate": "%{y}, %{x:.1f} s: %{z:.0f} % busy<extra></extra>",
    }
    return figure_of(look, [trace], xaxis=axis(look, _TITLES["time"]), yaxis=axis(look, "worker", type="category"))
