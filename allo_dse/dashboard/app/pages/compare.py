"""The page that sets two designs side by side."""

from __future__ import annotations

from collections.abc import Sequence

from dash import Dash, Input, Output, State, ctx, html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from allo_dse.common.records import JsonObject

from ...data.analysis import change_text, differences, status_text
from ...data.grid import ID
from ...data.progress import why_none
from ...data.runs import Board, Ref
from ...data.selection import label, text
from ...figures.design import compare_figure
from ...figures.style import note, theme
from ..context import Context, page_of
from ..parts import card, empty, table

MAX_OPTIONS = 200
EMPTY_PX = 200
"""Height of a plot without bars."""


def register(app: Dash, context: Context) -> None:
    board = context.board

    @app.callback(
        output=[
            Output("compare-a", "options"),
            Output("compare-b", "options"),
            Output("compare-a", "value"),
            Output("compare-b", "value"),
            Output("compare-of", "data"),
        ],
        inputs={
            "path": Input("url", "pathname"),
            "clicks": Input("compare-picked", "n_clicks"),
            "opened": [Input("design", "data"), Input("reference", "data")],
        },
        state={
            "pair": [State("compare-a", "value"), State("compare-b", "value")],
            "rows": State("table", "selectedRows"),
            "shown": State("shown", "data"),
            "of": State("compare-of", "data"),
        },
    )
    def choose(
        path: str | None,
        clicks: int | None,
        opened: list[str | None],
        pair: list[str | None],
        rows: list[JsonObject] | None,
        shown: JsonObject,
        of: list[str | None] | None,
    ) -> object:
        """Two designs: those that were picked here, until another one is opened or made the reference."""
        picked = "compare-picked.n_clicks" in ctx.triggered_prop_ids
        if page_of(path) != "compare" and not picked:
            raise PreventUpdate  # opening the page repeats the call
        (design, reference), (first, second) = opened, pair
        with board.lock:
            base = context.reference_of(reference)
            if picked:
                # Designs whose rows the table has not loaded come last.
                known = (shown["state"]["selection"] or {}).get("keys", ())
                first, second = list(dict.fromkeys([*(row[ID] for row in rows or ()), *known]))[:2]
            elif of != list(opened) or not first or not second:
                first = board.text(base) if base is not None else first
                second = design or second or (None if board.knee is None else board.text(board.knee))
            options = design_options(board, [first, second])
        return options, options, first, second, list(opened)

    @app.callback(
        Output("compare-page", "children"),
        Output("compare-plot", "figure"),
        Output("compare-plot", "style"),
        Input("url", "pathname"),
        Input("compare-a", "value"),
        Input("compare-b", "value"),
        Input("theme", "data"),
    )
    def show(path: str | None, first: str | None, second: str | None, look: str | None) -> object:
        if page_of(path) != "compare" or not look:
            raise PreventUpdate
        with board.lock:
            a, b = board.reference(first), board.reference(second)
            if a is None or b is None:
                words = why_none(board) if board.knee is None else "Choose two designs."
                shown: object = empty(words)
                figure = note(theme(look), words)
            else:
                shown = comparison(board, a, b)
                figure = compare_figure(differences(board.table(a), a.row, board.table(b), b.row), theme(look))
        # Plotly forgets a figure's height when a page is shown, and reads it from the element instead.
        return shown, figure, {"height": f"{figure['layout'].get('height', EMPTY_PX)}px"}


def design_options(board: Board, extra: Sequence[str | None]) -> list[dict[str, str]]:
    """Designs to choose from: the fronts, the reference, and the chosen designs."""
    refs = list(board.front())[:MAX_OPTIONS]
    chosen = (board.reference(text) for text in extra)
    default = board.default_reference
    refs += [r for r in dict.fromkeys([*chosen, default]) if r is not None and r not in refs]
    names = {board.text(ref): design_name(board, ref) for ref in refs}
    return [{"label": name, "value": value, "title": name} for value, name in names.items()]


def design_name(board: Board, ref: Ref) -> str:
    """A design by its key and objectives; its run last, because long names are cut off."""
    run = board.table(ref)
    values = ", ".join(f"{label(n)} {text(run.columns[n].value(ref.row))}" for n in run.names("objective"))
    several = f" ({board.names[ref.run]})" if len(board.runs) > 1 else ""
    return f"{run.keys[ref.row][:8]}: {values}{several}"


def comparison(board: Board, a: Ref, b: Ref) -> list[Component]:
    """Show the differences between two designs, and their effect on the metrics."""
    found = differences(board.table(a), a.row, board.table(b), b.row)
    decided = [d for d in found if d.kind in ("parameter", "mapping")]
    reached = [d for d in found if d.kind in ("objective", "metric")]
    first, second = (f"{board.key(ref)[:8]}{f' ({board.names[ref.run]})' if a.run != b.run else ''}" for ref in (a, b))
    head = ["", first, second]
    what = [[label(d.name), text(d.first), text(d.second)] for d in decided]
    classes = ["" if d.better is None else "better" if d.better else "worse" for d in reached]
    changes = [", ".join(filter(None, (change_text(d), verdict))) for d, verdict in zip(reached, classes, strict=True)]
    did = [[label(d.name), text(d.first), text(d.second), c] for d, c in zip(reached, changes, strict=True)]
    state = html.P([f"{first}: {status_text(board, a)}; {second}: {status_text(board, b)}"], className="hint below")
    if a == b:
        return [empty("This is the same design twice: choose another one.")]
    return [
        state,
        html.Div(
            [
                card("What differs", table(head, what) if what else empty("No parameter and no part of the mapping.")),
                card("What that did", table([*head, "change"], did, classes=classes) if did else empty("Nothing.")),
            ],
            className="tiles",
        ),
    ]
