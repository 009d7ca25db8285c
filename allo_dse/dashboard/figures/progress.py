"""Figures of a run's progress: hypervolume, rates, failures, workers, and the importance of parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from msgspec import Struct

from allo_dse.tune.results.causes import causes_in
from allo_dse.tune.store.run_info import StatedObjective, shortened

from ..data.columns import Floats
from ..data.progress import Timeline, lost
from ..data.runs import Board
from ..data.selection import label
from ..data.table import RunTable
from .style import NAME, Figure, Spec, Theme, axis, hatching, layout, note, packed, scale

MAX_STEPS = 2_000
MAX_REASONS = 6
MAX_CAUSES = 8  # with two lines each
_DASHES = ("solid", "dash", "dashdot")
_NONE = "no design has been evaluated yet"


def hypervolume_figure(board: Board, look: Theme, *, against: str = "designs", hidden: tuple[int, ...] = ()) -> Figure:
    """The hypervolume of each run against evaluated designs or wall time ("time")."""
    traces = []
    for number, run in enumerate(board.runs):
        values = run.hypervolume
        known = np.flatnonzero(~np.isnan(values))
        if number in hidden or not len(known):
            continue
        steps = known[np.flatnonzero(np.diff(values[known], prepend=-1.0) != 0)]
        steps = np.append(steps, known[-1])
        if len(steps) > MAX_STEPS:
            steps = steps[np.linspace(0, len(steps) - 1, MAX_STEPS).astype(np.int64)]
        x = steps + 1.0 if against == "designs" else run.numbers("at")[steps]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": board.names[number],
                "x": packed(x),
                "y": packed(values[steps]),
                "line": {"shape": "hv", "width": 2, "color": look.series[number % len(look.series)]},
                "hovertemplate": "%{x:,.0f}: %{y:.4f}<extra></extra>",
            }
        )
    if not traces:
        return note(look, "the hypervolume is known from 20 feasible designs on")
    title = "evaluated designs" if against == "designs" else "wall time (s)"
    return {
        "data": traces,
        "layout": layout(
            look,
            xaxis=axis(look, title),
            yaxis=axis(look, f"hypervolume ({hypervolume_unit(board.runs[0])})", rangemode="tozero"),
            showlegend=len(traces) > 1,
        ),
    }


def best_figure(
    runs: Mapping[str, RunTable], look: Theme, *, against: str = "designs", colors: Sequence[int] = ()
) -> Figure:
    """The best value of each objective against evaluated designs or wall time ("time"), as a multiple of the best at
    the end of all runs, so that all fit; and what no design can be better than, where the search of a lone run knows.
    Of several evaluators the most expensive one counts, as for the front.

    Args:
        runs: by name.
        colors: positions in the theme's series, one per run, if there are several.
    """
    lines = [line for number, item in enumerate(runs.items()) for line in _best_lines(number, *item, against)]
    if not lines:
        return note(look, "no feasible design yet")
    traces, several = [], len(runs) > 1
    places = {objective: place for place, objective in enumerate(dict.fromkeys(line.objective.name for line in lines))}
    for line in lines:
        alike = [one for one in lines if one.objective.name == line.objective.name]
        one = line.objective.sign * min(own.objective.sign * own.last for own in alike)
        place = places[line.objective.name]
        shade = (colors[line.run] if colors else line.run) if several else place
        drawn = {"shape": "hv", "width": 2, "color": look.series[shade % len(look.series)], "dash": _DASHES[place % 3]}
        name = shortened(label(line.objective.name), NAME)
        unit = "" if against == "designs" else " s"
        named = shortened(line.name, NAME) if several else f"{name}: {line.last:,.6g}"
        trace = _relative(named, line.x, line.best, one, drawn, unit)
        if several:  # one entry per run: more would leave no room for the lines
            hover = f"{name} {trace['hovertemplate']}"
            trace |= {"legendgroup": named, "showlegend": place == 0, "hovertemplate": hover}
        traces.append(trace)
        if not several and len(line.bounds):
            dotted = {**drawn, "width": 1, "dash": "dot"}
            bound = _relative(f"{name}: no design is better", line.bounds_x, line.bounds, one, dotted, unit)
            traces.append({**bound, "showlegend": False})
    title = "evaluated designs" if against == "designs" else "wall time (s)"
    up = axis(look, "best so far / best at the end")
    return {"data": traces, "layout": layout(look, xaxis=axis(look, title), yaxis=up, showlegend=True)}


class _BestLine(Struct, frozen=True):
    """The best values of an objective in a run so far, and bounds of its space. `last` is the best at the end."""

    run: int
    name: str
    objective: StatedObjective
    x: Floats
    best: Floats
    last: float
    bounds_x: Floats
    bounds: Floats


def _best_lines(number: int, name: str, run: RunTable, against: str) -> Iterator[_BestLine]:
    measured = run.measured_rows
    compared = run.ok if measured is None else np.isin(np.arange(len(run)), measured)
    across, ticks = run.numbers("at"), np.array([tick.at for tick in run.ticks])
    if against == "designs":
        ticks = np.searchsorted(across, ticks, "right").astype(np.float64)
        across = np.arange(1, len(across) + 1, dtype=np.float64)
    for objective in run.facts.objectives:
        values = np.where(compared, run.numbers(objective.name), np.nan)
        smaller = objective.direction == "minimize"
        best = (np.fmin if smaller else np.fmax).accumulate(values) if len(values) else values
        known = np.flatnonzero(np.isfinite(best))
        if not len(known):
            continue
        steps = np.append(known[np.flatnonzero(np.diff(best[known], prepend=np.inf) != 0)], known[-1])
        bounds = np.array([tick.bounds.get(objective.name, np.nan) for tick in run.ticks])
        bounded = np.flatnonzero(~np.isnan(bounds))
        yield _BestLine(
            number, name, objective, across[steps], best[steps], float(best[known[-1]]), ticks[bounded], bounds[bounded]
        )


def _relative(name: str, x: Floats, values: Floats, one: float, line: Spec, unit: str) -> Spec:
    """Values as multiples of one of them."""
    return {
        "type": "scatter",
        "mode": "lines" if x[0] < x[-1] else "markers",
        "name": name,
        "x": packed(x),
        "y": packed(values / one if one else values + 1),
        "customdata": packed(values),
        "line": line,
        "hovertemplate": f"%{{x:,.1~f}}{unit}: %{{customdata:,.6~g}}<extra></extra>",
    }


def hypervolume_unit(run: RunTable) -> str:
    """Return "share" if all objectives are minimised, as zero then bounds the box; otherwise "relative"."""
    return "share" if all(o.direction == "minimize" for o in run.facts.objectives) else "relative"


def rate_figure(spans: Timeline, look: Theme) -> Figure:
    """Evaluated designs per second, and repeats that were answered from earlier results."""
    if not spans.designs.sum():
        return note(look, _NONE)
    middles = packed(spans.middles)
    traces: list[dict[str, object]] = [
        _bars("evaluated", middles, spans.designs / spans.seconds, look.front, spans.seconds),
    ]
    known = (("answered by the cache", spans.cache_hits), ("proposed again", spans.repeats))
    for position, (name, amount) in enumerate(known, start=1):
        if amount.sum():
            color = look.series[position]
            traces.append(_bars(name, middles, amount / spans.seconds, color, spans.seconds, pattern=position))
    return {
        "data": traces,
        "layout": layout(
            look, xaxis=axis(look, "wall time (s)"), yaxis=axis(look, "designs per second"), barmode="stack", bargap=0
        ),
    }


def feasible_figure(spans: Timeline, look: Theme) -> Figure:
    """The share of proposals that satisfied everything."""
    known = ~np.isnan(spans.feasible)
    if not known.any():
        return note(look, "no design has been proposed yet")
    trace = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": packed(spans.middles[known]),
        "y": packed(100 * spans.feasible[known]),
        "line": {"color": look.front},
        "marker": {"size": 5},
        "hovertemplate": "%{x:.1f} s: %{y:.0f} %<extra></extra>",
    }
    return {
        "data": [trace],
        "layout": layout(
            look, xaxis=axis(look, "wall time (s)"), yaxis=axis(look, "feasible (% of proposals)", range=[0, 102])
        ),
    }


def failures_figure(spans: Timeline, look: Theme) -> Figure:
    """Designs lost over time by kind: limits of the device, constraints of the study, failed evaluations."""
    if not spans.failures:
        return note(look, "no design was ruled out")
    names = list(spans.failures)
    shown = {name: spans.failures[name] for name in names[:MAX_REASONS]}
    rest = names[MAX_REASONS:]
    if rest:
        shown[f"{len(rest)} other reasons"] = np.sum([spans.failures[name] for name in rest], axis=0)
    middles = packed(spans.middles)
    traces = [
        _bars(name, middles, counts, look.series[i % len(look.series)], spans.seconds, pattern=i)
        for i, (name, counts) in enumerate(shown.items())
    ]
    axes = {"xaxis": axis(look, "wall time (s)"), "yaxis": axis(look, "designs ruled out")}
    return {"data": traces, "layout": layout(look, **axes, barmode="stack", bargap=0, showlegend=True)}


def _bars(name: str, middles: Floats, values: Floats, color: str, width: float, pattern: int = 0) -> Spec:
    return {
        "type": "bar",
        "name": shortened(name, NAME),
        "x": middles,
        "y": packed(values),
        "width": width,
        "marker": {"color": color, "line": {"width": 0}, "pattern": hatching(pattern)},
        "hovertemplate": "%{x:.1f} s: %{y:,.3~g}<extra>" + _plain(name) + "</extra>",
    }


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
    """Bars with their names, of which lines may be too long to be shown but when one points at a bar."""
    lines = [_plain(name).split("\n") for name in names]
    full = ["<br>".join(own) for own in lines]
    short = ["<br>".join(shortened(line, NAME) for line in own) for own in lines]
    trace = {
        "type": "bar",
        "orientation": "h",
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
    return {
        "data": [trace],
        "layout": layout(look, xaxis=across, yaxis=axis(look, "", tickvals=full, ticktext=short), bargap=0.25),
    }


def workers_figure(spans: Timeline, look: Theme) -> Figure:
    """Draw how busy each worker was over time."""
    names = list(spans.workers)
    if not names or not spans.designs.sum():
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
    return {
        "data": [trace],
        "layout": layout(look, xaxis=axis(look, "wall time (s)"), yaxis=axis(look, "worker", type="category")),
    }
