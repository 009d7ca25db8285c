"""The report's plots, each in the light theme and with what the dark one changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from ..data.board import Board, Ref
from ..data.progress import measured, timeline
from ..data.query.analysis import importance, sample
from ..data.units import label
from ..figures import progress
from ..figures.measured import measured_figure
from ..figures.parallel import parallel_figure
from ..figures.scatter import View, front_figure
from ..figures.style import DARK, LIGHT, Figure, Theme

Change = list[Any]
"""Keys that lead to a value in a figure, and the value."""


class Plot(Struct, frozen=True):
    """A figure with its title.

    Attributes:
        dark: what the dark theme changes in it.
        height: in pixels. wide: whether it takes the page's whole width. least: the width below which it scrolls.
    """

    id: str
    title: str
    figure: Figure
    dark: list[Change]
    height: int = 340
    wide: bool = False
    least: int = 0


def plot(
    name: str,
    title: str,
    draw: Callable[[Theme], Figure],
    *,
    height: int | None = None,
    wide: bool = False,
    least: int = 0,
) -> Plot:
    """A plot in both themes; its height is the figure's own unless it is given."""
    light, dark = draw(LIGHT), draw(DARK)
    tall = height or light["layout"].get("height", 340)
    return Plot(name, title, light, changes(light, dark), tall, wide, least)


def changes(first: Any, second: Any, path: tuple[str | int, ...] = ()) -> list[Change]:
    """Return the changes that turn the first value into the second, each as deep inside as possible."""
    if isinstance(first, dict) and isinstance(second, dict) and first.keys() == second.keys():
        return [c for key in first for c in changes(first[key], second[key], (*path, key))]
    alike = isinstance(first, list) and isinstance(second, list) and len(first) == len(second)
    if alike and any(isinstance(value, dict | list) for value in first):
        return [c for n, (a, b) in enumerate(zip(first, second, strict=True)) for c in changes(a, b, (*path, n))]
    return [] if first == second else [[list(path), second]]


def front_plots(board: Board, reference: Ref | None) -> list[Plot]:
    """Every pair of the first three objectives, space, and parallel coordinates."""
    names = [n for n in board.objectives if n in board.column_names]
    few = names[:3]
    pairs = [(a, b) for i, a in enumerate(few) for b in few[i + 1 :]] or ([("number", names[0])] if names else [])
    views = [
        (
            f"front-{i}",
            f"{label(y)} against {label(x)}",
            View(x, y, log=_log(board, x), reference=reference, hover=True),
        )
        for i, (x, y) in enumerate(pairs)
    ]
    if len(few) == 3:
        x, y, z = few
        # Without each design's differences: the pair plots show them, and they would be a quarter of all plots' bytes.
        views.append(("front-3d", "Three objectives", View(x, y, z, log=_log(board, x), reference=reference)))

    def drawn(view: View) -> Callable[[Theme], Figure]:
        return lambda look: front_figure(board, view, look).figure

    found = [plot(name, title, drawn(view), height=420, wide=name == "front-0") for name, title, view in views]
    least = 95 * max(8, len(board.varying("parameter", "mapping")) + len(names))
    found.append(
        plot("parallel", "What varies", lambda look: parallel_figure(board, look), height=380, wide=True, least=least)
    )
    return found


def _log(board: Board, name: str) -> frozenset[str]:
    """Return the logarithmic axes: x, if its values are positive and span more than a decade."""
    values = [v for numbers in board.axis(name).numbers for v in numbers[numbers == numbers].tolist()]
    return frozenset({"x"} if values and min(values) > 0 and max(values) > 10 * min(values) else ())


def progress_plots(board: Board) -> list[Plot]:
    """Return plots of the runs' progress. Rates, failures and workers are those of the first run."""
    run = board.runs[0]
    spans, correction = timeline(run), measured(run)
    shares = [(name, importance(sample(run, name))) for name in run.objectives]

    def drawn(found: dict[str, float]) -> Callable[[Theme], Figure]:
        return lambda look: progress.importance_figure(found, look)

    known = plot("measured", "Predicted against measured", lambda look: measured_figure(correction, look))
    return [
        *([known] if correction.pairs else []),
        plot("best-designs", "Best so far against designs", lambda look: progress.best_figure(run, look)),
        plot("best-time", "Best so far against time", lambda look: progress.best_figure(run, look, against="time")),
        plot("hv-designs", "Hypervolume against designs", lambda look: progress.hypervolume_figure(board, look)),
        plot(
            "hv-time", "Hypervolume against time", lambda look: progress.hypervolume_figure(board, look, against="time")
        ),
        plot("rate", "Designs per second", lambda look: progress.rate_figure(spans, look)),
        plot("feasible", "Feasible share", lambda look: progress.feasible_figure(spans, look)),
        plot("failures", "Ruled out over time, by kind", lambda look: progress.failures_figure(spans, look)),
        plot("lost", "Ruled out by", lambda look: progress.lost_figure(run, look)),
        *(
            plot(f"importance-{i}", f"Importance of parameters for {label(name)}", drawn(found))
            for i, (name, found) in enumerate(shares)
        ),
        plot("workers", "Workers", lambda look: progress.workers_figure(spans, look)),
    ]
