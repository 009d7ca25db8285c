"""The app, ready to be served."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dash import Dash
from dash.dash import _default_index

from . import compare, design, front, program, progress, shell, tables
from .context import Context
from .layout import page

ASSETS = Path(__file__).resolve().parents[1] / "assets"


_EARLY = (
    "plotly/package_data/plotly.min.js",
    "dash/dcc/async-graph.js",
    "dash/dcc/async-dropdown.js",
    "dash_ag_grid/async-community.js",
)
"""Scripts that Dash asks for only when it draws; asked for with the page, they come while others are compiled."""


def _index() -> str:
    """Dash's own page, with `_EARLY` in its head."""
    links = "".join(f'<link rel="preload" as="script" href="/_dash-component-suites/{path}">' for path in _EARLY)
    return _default_index.replace("{%favicon%}", f"{{%favicon%}}{links}")


def _locked_page(context: Context) -> Any:
    with context.board.lock:
        return page(context.board)


def make_app(context: Context) -> Dash:
    """The web app on a board. Everything it needs comes from this computer."""
    app = Dash(
        "allo-dse",
        title="allo-dse",
        assets_folder=str(ASSETS),
        serve_locally=True,
        update_title="",
        suppress_callback_exceptions=True,
        compress=False,
        index_string=_index(),
    )
    app.layout = lambda: _locked_page(context)
    for part in (shell, front, progress, design, program, compare, tables):
        part.register(app, context)
    return app
