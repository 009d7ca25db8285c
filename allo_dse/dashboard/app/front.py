"""Callbacks of the front page: what is hovered, selected in all views, and opened."""

from __future__ import annotations

from typing import Any

from dash import Dash, Input, Output, State, ctx, html, no_update
from dash.exceptions import PreventUpdate

from ..data.board import Board, Ref
from ..data.selection import Selection
from ..figures.scatter import point_ref
from ..figures.words import difference_lines, status_text
from .context import Context, hidden_runs


def register(app: Dash, context: Context) -> None:
    _hovering(app, context)
    _selecting(app, context)
    _choosing(app, context)


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
