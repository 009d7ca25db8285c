"""Callbacks of the plots of the front page: scatter and parallel coordinates."""

from __future__ import annotations

import math
from typing import Any

from dash import Dash, Input, Output, State, no_update
from dash.exceptions import PreventUpdate

from ..data.board import Board
from ..data.filters import FilterError
from ..data.selection import Selection
from ..data.units import label
from ..figures.parallel import parallel_columns, parallel_figure
from ..figures.scatter import Drawn, View, front_figure
from ..figures.style import Figure, Theme, theme
from ..figures.thin import Window
from .context import Context, hidden_runs

FIRST_LOG = frozenset("x")
"""Axes that are logarithmic at first."""

PARALLEL_AXIS_PX = 95


def register(app: Dash, context: Context) -> None:
    _axes(app, context)
    _scatter(app, context)
    _parallel(app, context)


def axis_names(board: Board) -> list[str]:
    """Columns to choose an axis from: objectives, metrics, and parameters that vary."""
    names = [*board.objectives, *board.varying("metric", "parameter", "mapping")]
    return list(dict.fromkeys([*(n for n in names if n in board.column_names), "number", "at", "seconds"]))


def axis_choices(board: Board) -> tuple[list[dict[str, str]], tuple[str, str]]:
    """What axes can be chosen from, and the usual x and y."""
    names = axis_names(board)
    usual = [*names, "number", "at"]
    return [{"label": label(name), "value": name} for name in names], (usual[0], usual[1])


def _axes(app: Dash, context: Context) -> None:
    @app.callback(
        [Output(name, part) for name in ("x", "y", "z") for part in ("options", "value")],
        Input("version", "data"),
        State("x", "value"),
        State("y", "value"),
        State("z", "value"),
        State("x", "options"),
        prevent_initial_call=True,
    )
    def options(_: str, x: str | None, y: str | None, z: str | None, known: list[dict[str, str]]) -> Any:
        with context.board.lock:
            found, usual = axis_choices(context.board)
        if known == found:
            raise PreventUpdate
        begun = usual[0] in [choice["value"] for choice in known]  # else there was nothing to choose from before
        return [found, x if begun else usual[0], found, y if begun else usual[1], found, z]


def _scatter(app: Dash, context: Context) -> None:
    board = context.board

    @app.callback(
        Output("scatter", "figure"),
        Output("scatter-note", "children"),
        Output("drawn", "data"),
        Input("x", "value"),
        Input("y", "value"),
        Input("z", "value"),
        Input("log", "value"),
        Input("show", "value"),
        Input("filter-applied", "data"),
        Input("selection", "data"),
        Input("runs", "value"),
        Input("version", "data"),
        Input("theme", "data"),
        Input("design", "data"),
        Input("reference", "data"),
        Input("zoom", "data"),
        State("drawn", "data"),
        State("kept", "data"),
        prevent_initial_call=True,
    )
    def scatter(
        x: str | None,
        y: str | None,
        z: str | None,
        log: list[str],
        show: list[str],
        source: str,
        selection: dict[str, Any] | None,
        shown: list[int],
        version: str,
        look: str | None,
        design: str | None,
        reference: str | None,
        zoom: dict[str, Any] | None,
        drawn_before: dict[str, Any] | None,
        kept: dict[str, Any],
    ) -> Any:
        if not look or not x or not y:
            raise PreventUpdate
        view = View(
            x,
            y,
            z or None,
            frozenset(log or ()),
            "dominated" in show,
            "infeasible" in show,
            source or "",
            Selection.from_dict(selection),
            hidden_runs(board, shown),
            zoom_range(zoom, x, y, log),
            context.reference_of(reference),
            board.reference(design),
            kept["tool"],
            kept["camera"],
        )
        with board.lock:
            try:
                drawn = front_figure(board, view, theme(look))
            except FilterError:
                raise PreventUpdate from None
        state = drawn_state(view, selection, shown, version, look)
        return drawn.figure, drawn_note(drawn), no_update if state == drawn_before else state


def _parallel(app: Dash, context: Context) -> None:
    board = context.board

    @app.callback(
        Output("parallel", "figure"),
        Output("parallel", "style"),
        Output("parallel-drawn", "data"),
        Input("parallel-wanted", "data"),
        State("drawn", "data"),
        State("parallel-drawn", "data"),
        State("parallel", "style"),
        prevent_initial_call=True,
    )
    def parallel(_: int, state: dict[str, Any] | None, before: dict[str, Any] | None, style: dict[str, str]) -> Any:
        if not state or state == before:
            raise PreventUpdate
        with board.lock:
            try:
                figure = parallel_figure(
                    board,
                    theme(state["theme"]),
                    source=state["filter"],
                    selection=Selection.from_dict(state["selection"]),
                    hidden=hidden_runs(board, state["runs"]),
                    dominated=state["dominated"],
                )
            except FilterError:
                raise PreventUpdate from None
            wide = parallel_style(board)
        return figure, no_update if wide == style else wide, state


def parallel_style(board: Board) -> dict[str, str]:
    """The parallel coordinates' size: so wide that the names of the axes stand side by side."""
    return {"height": "100%", "minWidth": f"{PARALLEL_AXIS_PX * len(parallel_columns(board))}px"}


def drawn_state(
    view: View, selection: dict[str, Any] | None, shown: list[int], version: str, look: str
) -> dict[str, Any]:
    """What the parallel coordinates show: the same designs as the scatter."""
    return {
        "dominated": view.dominated,
        "filter": view.filter,
        "selection": selection,
        "runs": shown,
        "version": version,
        "theme": look,
    }


def first_scatter(context: Context, look: Theme) -> tuple[Figure, str, dict[str, Any]]:
    """The scatter as the page begins with, what is said below it, and what it shows."""
    board = context.board
    _, (x, y) = axis_choices(board)
    view = View(x, y, log=FIRST_LOG, infeasible=False, reference=context.reference_of(None), current=board.knee)
    drawn = front_figure(board, view, look)
    shown = list(range(len(board.runs)))
    return drawn.figure, drawn_note(drawn), drawn_state(view, None, shown, board.version, look.name)


def drawn_note(drawn: Drawn) -> str:
    """How a crowd is drawn."""
    if drawn.marks == drawn.designs:
        return ""
    return (
        f"{drawn.designs:,} designs at {drawn.marks:,} spots, darker where there are more: zoom in to part them. "
        "Selections and filters count all."
    )


def zoom_range(zoom: dict[str, Any] | None, x: str, y: str, log: list[str] | None) -> Window | None:
    """The visible ranges of the axes; None when all is visible, or the axes are not those that were zoomed."""
    if not zoom or (zoom["x"], zoom["y"], sorted(zoom["log"])) != (x, y, sorted(log or ())):
        return None
    (a, b), (c, d) = ((sorted(span) if span else [-math.inf, math.inf]) for span in zoom["spans"])
    return (a, b), (c, d)
