"""Callbacks of the front page: scatter, parallel coordinates, table, and the selection they share."""

from __future__ import annotations

import math
from typing import Any

from dash import Dash, Input, Output, State, ctx, html, no_update
from dash.exceptions import PreventUpdate

from ..data.board import Board, Ref
from ..data.filters import FilterError
from ..data.selection import Selection
from ..data.units import label
from ..figures.parallel import parallel_figure
from ..figures.scatter import Drawn, View, front_figure, point_ref
from ..figures.style import Figure, Theme, theme
from ..figures.words import difference_lines, status_text
from .context import Context

FIRST_LOG = frozenset("x")
"""Axes that are logarithmic at first."""


def hidden_runs(board: Board, shown: list[int] | None) -> tuple[int, ...]:
    """Runs whose box is not ticked."""
    if shown is None:
        return ()
    return tuple(number for number in range(len(board.runs)) if number not in shown)


def register(app: Dash, context: Context) -> None:
    _axes(app, context)
    _plots(app, context)
    _hovering(app, context)
    _selecting(app, context)
    _choosing(app, context)


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
        return [found, x or usual[0], found, y or usual[1], found, z]


def _plots(app: Dash, context: Context) -> None:
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
            zoom_range(zoom, x, y),
            context.reference_of(reference),
            board.reference(design),
        )
        with board.lock:
            try:
                drawn = front_figure(board, view, theme(look))
            except FilterError:
                raise PreventUpdate from None
        state = drawn_state(view, selection, shown, version, look)
        return drawn.figure, drawn_note(drawn), no_update if state == drawn_before else state

    @app.callback(
        Output("parallel", "figure"),
        Output("parallel-drawn", "data"),
        Input("parallel-wanted", "data"),
        State("drawn", "data"),
        State("parallel-drawn", "data"),
        prevent_initial_call=True,
    )
    def parallel(_: int, state: dict[str, Any] | None, before: dict[str, Any] | None) -> Any:
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
        return figure, state


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


def zoom_range(zoom: dict[str, Any] | None, x: str, y: str) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """The visible ranges of the axes; None when all is visible, or the axes are not those that were zoomed."""
    if not zoom or (zoom["x"], zoom["y"]) != (x, y):
        return None
    (a, b), (c, d) = (
        (sorted(span) if span else [-math.inf, math.inf]) for span in (zoom["spans"][0], zoom["spans"][1])
    )
    return (a, b), (c, d)


def _hovering(app: Dash, context: Context) -> None:
    board = context.board

    @app.callback(
        Output("tooltip", "show"),
        Output("tooltip", "bbox"),
        Output("tooltip", "children"),
        Input("scatter", "hoverData"),
        State("reference", "data"),
        State("z", "value"),
        prevent_initial_call=True,
    )
    def hover(data: dict[str, Any] | None, reference: str | None, z: str | None) -> Any:
        ref = clicked(board, data)
        if ref is None or not data:
            return False, no_update, no_update
        with board.lock:
            lines = difference_lines(board, ref, context.reference_of(reference))
        point = data["points"][0]
        here = 1 if z else int(point.get("z") or 1)  # in the plane, z is how many lie in a spot
        words = [html.Div(plain(line)) for line in lines]
        words += [html.Div(f"… and {here - 1:,} more in this spot", className="hint")] if here > 1 else []
        return True, point.get("bbox"), html.Div(words, className="tooltip-text")


def plain(line: str) -> str:
    """A line of HTML as text: Dash escapes it again."""
    from html import unescape

    return unescape(line.replace("<b>", "").replace("</b>", ""))


def clicked(board: Board, data: dict[str, Any] | None) -> Ref | None:
    """The design of a point that was clicked or hovered."""
    try:
        ref = point_ref(int(data["points"][0]["customdata"]))  # type: ignore[index]
    except (KeyError, IndexError, TypeError, ValueError):
        return None
    return ref if ref.run < len(board.runs) and ref.row < len(board.runs[ref.run]) else None


def _selecting(app: Dash, context: Context) -> None:
    board = context.board

    @app.callback(
        Output("selection", "data"),
        Output("table", "selectedRows"),
        Input("gesture", "data"),
        Input("brush", "data"),
        Input("table", "selectedRows"),
        Input("clear", "n_clicks"),
        State("selection", "data"),
        prevent_initial_call=True,
    )
    def select(
        gesture: dict[str, Any] | None,
        brush: dict[str, Any] | None,
        rows: list[dict[str, Any]] | None,
        _: int | None,
        before: dict[str, Any] | None,
    ) -> Any:
        made, unpick = Selection(), [] if rows else no_update
        if ctx.triggered_id == "gesture":
            made = drawn_selection(gesture)
        elif ctx.triggered_id == "brush":
            made = brushed(Selection.from_dict(before), brush or {})
        elif ctx.triggered_id == "table":
            if not rows and not (before or {}).get("keys"):
                raise PreventUpdate
            made, unpick = Selection(keys=frozenset(row["_id"].partition(":")[2] for row in rows or ())), no_update
        found = made.to_dict() if made else None
        if found == before:
            raise PreventUpdate
        return found, unpick

    @app.callback(
        Output("selection-text", "children"),
        Output("clear", "style"),
        Input("selection", "data"),
        Input("version", "data"),
        Input("filter-applied", "data"),
        State("runs", "value"),
        prevent_initial_call=True,
    )
    def describe(selection: dict[str, Any] | None, _: str, source: str, shown: list[int]) -> Any:
        chosen = Selection.from_dict(selection)
        if not chosen:
            return "", {"display": "none"}
        with board.lock:
            kept = board.filtered(source or "", hidden_runs(board, shown))
            count = sum(int((a & b).sum()) for a, b in zip(board.selected(chosen), kept, strict=True))
        return f"{count:,} selected: {chosen}", {}


def drawn_selection(gesture: dict[str, Any] | None) -> Selection:
    """The selection of a box or lasso in the scatter."""
    if not gesture:
        return Selection()
    x, y = gesture["x"], gesture["y"]
    if "range" in gesture:
        spans = {x: gesture["range"]["x"], y: gesture["range"]["y"]}
        return Selection(tuple((name, ((min(span), max(span)),)) for name, span in spans.items()))
    corners = zip(gesture["lasso"]["x"], gesture["lasso"]["y"], strict=True)
    return Selection(lasso=(x, y, tuple((float(a), float(b)) for a, b in corners)))


def brushed(before: Selection, brush: dict[str, Any]) -> Selection:
    """The selection after brushes on axes of the parallel coordinates changed."""
    ranges = dict(before.ranges)
    for name, intervals in brush.items():
        if intervals:
            ranges[name] = tuple((float(low), float(high)) for low, high in intervals)
        else:
            ranges.pop(name, None)
    return Selection(tuple(ranges.items()))


def _choosing(app: Dash, context: Context) -> None:
    board = context.board

    @app.callback(
        Output("design", "data"),
        Input("scatter", "clickData"),
        Input("table", "cellClicked"),
        Input("next-design", "n_clicks"),
        Input("previous-design", "n_clicks"),
        Input("url", "hash"),
        State("design", "data"),
        prevent_initial_call=True,
    )
    def choose(
        click: dict[str, Any] | None,
        cell: dict[str, Any] | None,
        _next: int | None,
        _previous: int | None,
        anchor: str | None,
        before: str | None,
    ) -> Any:
        with board.lock:
            if ctx.triggered_id == "scatter":
                ref = clicked(board, click)
            elif ctx.triggered_id == "table":
                ref = board.reference(str((cell or {}).get("rowId")))
            elif ctx.triggered_id in ("next-design", "previous-design"):
                ref = neighbour(board, board.reference(before), 1 if ctx.triggered_id == "next-design" else -1)
            else:
                ref = board.reference((anchor or "").lstrip("#")) or (None if before else board.knee)
            return no_update if ref is None else board.text(ref)

    @app.callback(
        Output("reference", "data"),
        Input("make-reference", "n_clicks"),
        State("design", "data"),
        prevent_initial_call=True,
    )
    def make_reference(clicks: int | None, design: str | None) -> Any:
        return design if clicks and design else no_update

    @app.callback(
        Output("design-words", "children"),
        Output("open-design", "disabled"),
        Output("compare-now", "disabled"),
        Output("make-reference", "disabled"),
        Input("design", "data"),
        Input("reference", "data"),
        Input("version", "data"),
        prevent_initial_call=True,
    )
    def show_card(design: str | None, reference: str | None, _: str) -> Any:
        with board.lock:
            ref = board.reference(design)
            return [design_words(context, ref, context.reference_of(reference)), *[ref is None] * 3]


def neighbour(board: Board, ref: Ref | None, step: int) -> Ref | None:
    """The next design of the front, in the order of the first objective."""
    front = list(board.front())
    if not front:
        return None
    return front[(front.index(ref) + step) % len(front)] if ref in front else front[0 if step > 0 else -1]


def design_words(context: Context, ref: Ref | None, reference: Ref | None) -> list[Any]:
    """A design in short: objectives, and what differs from the reference."""
    board = context.board
    words: list[Any] = [html.P("Click a point or a row, or walk along the front with j and k.", className="hint")]
    if ref is not None:
        words = [html.Div(plain(line)) for line in difference_lines(board, ref, reference)]
    if reference is not None:
        key = board.table(reference).keys[reference.row][:8]
        words.append(html.P(f"Reference: {key}, {status_text(board, reference)}", className="hint"))
    return words
