"""Callbacks that save tables."""

from __future__ import annotations

from typing import Any

from dash import Dash, Input, Output, State, dcc
from dash.exceptions import PreventUpdate

from ..exports import table_csv
from .context import Context
from .front import hidden_runs


def register(app: Dash, context: Context) -> None:
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
