"""The words about a design: on hovering, and on its card."""

from __future__ import annotations

from typing import Any

from dash import Dash, Input, Output, State, html, no_update
from dash.development.base_component import Component

from ..data.analysis import difference_lines, status_text
from ..data.runs import Board, Ref
from ..figures.scatter import point_ref
from .context import Context
from .parts import hint


def register(app: Dash, context: Context) -> None:
    board = context.board

    @app.callback(
        Output("tooltip", "show"),
        Output("tooltip", "bbox"),
        Output("tooltip", "children"),
        Input("scatter", "hoverData"),
        State("shown", "data"),
        prevent_initial_call=True,
    )
    def hover(data: dict[str, Any] | None, shown: dict[str, Any]) -> object:
        state = shown["state"]
        point = data["points"][0] if data and data["points"] else {}
        ref = pointed(board, point.get("customdata"))
        if ref is None:
            return False, no_update, no_update
        with board.lock:
            lines = difference_lines(board, ref, context.reference_of(state["reference"]))
        # z counts the designs of a spot, unless it is the value that colours the spot.
        here = 1 if state["color"] else int(point.get("z") or 1)
        words = [html.Div(line) for line in lines]
        words += [html.Div(f"… and {here - 1:,} more in this spot", className="hint")] if here > 1 else []
        return True, point.get("bbox"), html.Div(words, className="tooltip-text")


def pointed(board: Board, number: Any) -> Ref | None:
    """The design of a point that was clicked or hovered."""
    try:
        ref = point_ref(int(number))
    except (TypeError, ValueError):
        return None
    return ref if 0 <= ref.run < len(board.runs) and 0 <= ref.row < len(board.runs[ref.run]) else None


def unknown_text(design: str) -> str:
    """Return the message for an address that names an unknown design."""
    return f"There is no design {design} in what this page shows: it may be from another run."


def design_words(
    context: Context, ref: Ref | None, reference: Ref | None, unknown: str | None = None
) -> list[Component]:
    """A design in short: objectives, and differences from the reference; or that no design has that name."""
    board = context.board
    words: list[Component] = [hint("Click a point or a row, or walk along the front with j and k.")]
    if ref is not None:
        words = [html.Div(line) for line in difference_lines(board, ref, reference)]
    elif unknown is not None:
        words.insert(0, html.P(unknown_text(unknown)))
    if reference is not None:
        key = board.key(reference)[:8]
        words.append(hint(f"Reference: {key}, {status_text(board, reference)}"))
    return words
