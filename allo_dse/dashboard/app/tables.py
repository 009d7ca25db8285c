"""Callbacks of the table of designs, and of what saves designs as tables."""

from __future__ import annotations

from typing import Any

from dash import Dash, Input, Output, State, dcc, no_update
from dash.exceptions import PreventUpdate

from ..data.board import Board
from ..data.filters import FilterError
from ..data.grid import ID, MARK, RUN, grid_columns
from ..data.units import label, text
from ..exports import table_csv
from .context import Context, hidden_runs


def register(app: Dash, context: Context) -> None:
    _table(app, context)
    _saving(app, context)


def _saving(app: Dash, context: Context) -> None:
    board = context.board

    @app.callback(
        Output("download", "data", allow_duplicate=True),
        Input("export-front", "n_clicks"),
        prevent_initial_call=True,
    )
    def save_front(clicks: int | None) -> Any:
        if not clicks:
            raise PreventUpdate
        with board.lock:
            return dcc.send_bytes(table_csv(board, board.front()), "pareto.csv")

    @app.callback(
        Output("download", "data", allow_duplicate=True),
        Input("export-table", "n_clicks"),
        State("table", "getRowsRequest"),
        State("filter-applied", "data"),
        State("selection", "data"),
        State("runs", "value"),
        prevent_initial_call=True,
    )
    def save_table(
        clicks: int | None,
        request: dict[str, Any] | None,
        source: str,
        selection: dict[str, Any] | None,
        shown: list[int],
    ) -> Any:
        if not clicks:
            raise PreventUpdate
        with board.lock:
            query = context.query(source, selection, list(hidden_runs(board, shown)), request)
            return dcc.send_bytes(table_csv(board, context.grid.refs(query)), "designs.csv")


def _table(app: Dash, context: Context) -> None:
    board = context.board

    @app.callback(
        Output("table", "columnDefs"),
        Input("hide-equal", "value"),
        Input("version", "data"),
        State("table", "columnDefs"),
        prevent_initial_call=True,
    )
    def columns(hide: list[str], _: str, before: list[dict[str, Any]]) -> Any:
        with board.lock:
            made = column_definitions(board, hide_equal="equal" in (hide or ()))
        return no_update if made == before else made

    @app.callback(
        Output("table", "getRowsResponse"),
        Output("table-note", "children"),
        Input("table", "getRowsRequest"),
        State("filter-applied", "data"),
        State("selection", "data"),
        State("runs", "value"),
    )
    def rows(request: dict[str, Any] | None, source: str, selection: dict[str, Any] | None, shown: list[int]) -> Any:
        if not request:
            raise PreventUpdate
        with board.lock:
            query = context.query(source, selection, list(hidden_runs(board, shown)), request)
            try:
                found, count = context.grid.window(query, request["startRow"], request["endRow"])
            except FilterError:
                raise PreventUpdate from None
        total = sum(len(run) for run in board.runs)
        # As text: the browser would take the formats apart and compute them for every cell.
        shown_rows = [{name: v if name == ID else text(v) for name, v in row.items()} for row in found]
        return {"rowData": shown_rows, "rowCount": count}, f"{count:,} of {total:,} designs"


def column_definitions(board: Board, *, hide_equal: bool) -> list[dict[str, Any]]:
    """Columns for AG Grid."""
    several = len(board.runs) > 1
    made: list[dict[str, Any]] = [
        {"field": MARK, "headerName": "", "width": 72, "pinned": "left", "filter": False},
        *([{"field": RUN, "headerName": "run", "filter": False}] if several else []),
    ]
    for name, kind, numeric in grid_columns(board, hide_equal=hide_equal):
        column: dict[str, Any] = {
            "field": name,
            "headerName": label(name),
            "headerTooltip": f"{name} ({kind})",
            "filter": "agNumberColumnFilter" if numeric else "agTextColumnFilter",
            "width": max(90, min(220, 7 * len(label(name)) + 62)),
        }
        if numeric:
            column["type"] = "rightAligned"
        made.append(column)
    return made
