"""Callbacks of the plots of the front page: scatter and parallel coordinates."""

from __future__ import annotations

import math

from dash import Dash, Input, Output, State, no_update
from dash.exceptions import PreventUpdate

from allo_dse.common.records import JsonObject

from ..data.filters import FilterError
from ..data.runs import Board
from ..data.selection import Selection, label
from ..figures.parallel import parallel_columns, parallel_figure
from ..figures.scatter import Drawn, View
from ..figures.style import theme
from ..figures.thinning import Window
from .context import Context, hidden_runs
from .context import State as Shown

FIRST_LOG = frozenset("x")
"""Axes that are logarithmic at first."""

PARALLEL_AXIS_PX = 95


def register(app: Dash, context: Context) -> None:
    board = context.board

    @app.callback(
        [Output(name, part) for name in ("x", "y", "color") for part in ("options", "value")],
        Input("version", "data"),
        State("x", "options"),
        prevent_initial_call=True,
    )
    def options(_: str, known: list[dict[str, str]]) -> object:
        with context.board.lock:
            found, usual = axis_choices(context.board)
        if known == found:
            raise PreventUpdate
        begun = usual[0] in [choice["value"] for choice in known]  # else there was nothing to choose from before
        x, y = (no_update, no_update) if begun else usual
        return [found, x, found, y, found, no_update]

    @app.callback(
        Output("parallel", "figure"),
        Output("parallel", "style"),
        Input("parallel-wanted", "data"),
        State("parallel", "style"),
        prevent_initial_call=True,
    )
    def parallel(state: Shown, style: dict[str, str]) -> object:
        with board.lock:
            try:
                figure = parallel_figure(
                    board,
                    theme(state["theme"]),
                    source=state["filter"],
                    selection=Selection.from_dict(state["selection"]),
                    hidden=hidden_runs(board, state["runs"]),
                    dominated="dominated" in state["show"],
                    color=state["color"],
                )
            except FilterError:
                raise PreventUpdate from None
            wide = parallel_style(board)
        return figure, no_update if wide == style else wide


def axis_names(board: Board) -> list[str]:
    """Columns to choose an axis from: objectives, metrics, and parameters that vary."""
    names = [*board.objectives, *board.varying("metric", "parameter", "mapping")]
    return list(dict.fromkeys([*(n for n in names if n in board.column_names), "number", "at", "seconds"]))


def axis_choices(board: Board) -> tuple[list[dict[str, str]], tuple[str, str]]:
    """Return the options for the axes, and the default x and y."""
    names = axis_names(board)
    usual = [*names, "number", "at"]
    return [{"label": label(name), "value": name} for name in names], (usual[0], usual[1])


def parallel_style(board: Board) -> dict[str, str]:
    """The parallel coordinates' size: wide enough for the names of the axes side by side."""
    return {"height": "100%", "minWidth": f"{PARALLEL_AXIS_PX * len(parallel_columns(board))}px"}


def view_of(context: Context, state: Shown) -> View:
    """Return the scatter's view for a state."""
    return View(
        state["x"],
        state["y"],
        frozenset(state["log"]),
        "dominated" in state["show"],
        "infeasible" in state["show"],
        state["filter"],
        Selection.from_dict(state["selection"]),
        hidden_runs(context.board, state["runs"]),
        zoom_range(state["zoom"], state["x"], state["y"], state["log"]),
        context.reference_of(state["reference"]),
        context.board.reference(state["design"]),
        color=state["color"],
    )


def drawn_note(drawn: Drawn, view: View) -> str:
    """Explain how designs are grouped into spots; "" if each has its own."""
    if drawn.marks == drawn.designs:
        return ""
    colored = "darker where there are more" if view.color is None else "each in the colour of one of its designs"
    return (
        f"{drawn.designs:,} designs at {drawn.marks:,} spots, {colored}: zoom in to part them. "
        "Selections and filters count all."
    )


def zoom_range(zoom: JsonObject | None, x: str, y: str, log: list[str] | None) -> Window | None:
    """The visible ranges of the axes; None when all is visible, or the axes are not those that were zoomed."""
    if not zoom or (zoom["x"], zoom["y"], sorted(zoom["log"])) != (x, y, sorted(log or ())):
        return None
    (a, b), (c, d) = ((sorted(span) if span else [-math.inf, math.inf]) for span in zoom["spans"])
    return (a, b), (c, d)
