"""Callbacks of the table of designs, and of its downloads."""

from __future__ import annotations

from dash import Dash, Input, Output, State, no_update
from dash.dcc.express import send_bytes
from dash.exceptions import PreventUpdate

from allo_dse.common.records import JsonObject

from ..data.grid import ID, MARK, RUN, Query, grid_columns
from ..data.runs import Board
from ..data.selection import Selection, label, text
from ..exports import table_csv
from .context import Context, hidden_runs
from .context import State as Shown

FIRST_ROWS = 0, 50
"""The rows that come with an answer: AG Grid's first block."""


def register(app: Dash, context: Context) -> None:
    board = context.board

    @app.callback(
        Output("table", "columnDefs"),
        Input("hide-equal", "value"),
        Input("version", "data"),
        State("table", "columnDefs"),
        prevent_initial_call=True,
    )
    def columns(hide: list[str], _: str, before: list[JsonObject]) -> object:
        with board.lock:
            made = column_definitions(board, hide_equal="equal" in (hide or ()))
        return no_update if made == before else made

    @app.callback(
        Output("download", "data", allow_duplicate=True),
        Input("export-front", "n_clicks"),
        prevent_initial_call=True,
    )
    def save_front(clicks: int | None) -> object:
        if not clicks:
            raise PreventUpdate
        with board.lock:
            return send_bytes(table_csv(board, board.front()), "pareto.csv")

    @app.callback(
        Output("download", "data", allow_duplicate=True),
        Input("export-table", "n_clicks"),
        State("shown", "data"),
        prevent_initial_call=True,
    )
    def save_table(clicks: int | None, shown: JsonObject) -> object:
        if not clicks:
            raise PreventUpdate
        with board.lock:
            return send_bytes(table_csv(board, context.grid.refs(query_of(context, shown["state"]))), "designs.csv")


def query_of(context: Context, state: Shown) -> Query:
    """Return the table's query. Ticked rows are marked in it; other selections narrow it."""
    chosen = Selection.from_dict(state["selection"])
    return Query(
        state["filter"],
        hidden_runs(context.board, state["runs"]),
        Selection() if chosen.keys else chosen,
        sort=tuple((s["colId"], s["sort"] == "desc") for s in state["sort"]),
    )


def table_rows(context: Context, state: Shown, start: int, end: int) -> JsonObject:
    """Rows of the table, how many there are in all, and that in words.

    Raises:
        FilterError: if the state's filter cannot be understood.
    """
    found, count = context.grid.window(query_of(context, state), start, end)
    total = sum(len(run) for run in context.board.runs)
    # As text: otherwise the browser would parse a format and apply it to every cell.
    rows = [{name: v if name == ID else text(v) for name, v in row.items()} for row in found]
    return {"rows": rows, "count": count, "note": f"{count:,} of {total:,} designs"}


def column_definitions(board: Board, *, hide_equal: bool) -> list[dict[str, object]]:
    """Columns for AG Grid."""
    several = len(board.runs) > 1
    made: list[dict[str, object]] = [
        {"field": MARK, "headerName": "", "width": 72, "pinned": "left"},
        *([dict[str, object](field=RUN, headerName="run")] if several else []),
    ]
    for name, kind, numeric in grid_columns(board, hide_equal=hide_equal):
        column: dict[str, object] = {
            "field": name,
            "headerName": label(name),
            "headerTooltip": f"{name} ({kind})",
            "width": max(100, min(240, 8 * len(label(name)) + 80)),  # room for the arrow of a sorted column
        }
        if numeric:
            column["type"] = "rightAligned"
        made.append(column)
    return made
