"""The app, ready to be served."""

from __future__ import annotations

from pathlib import Path

from dash import Dash

from . import compare, design, front, program, progress, shell, tables
from .context import Context
from .layout import page

ASSETS = Path(__file__).resolve().parents[1] / "assets"


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
    )
    app.layout = lambda: page(context.board)
    for part in (shell, front, progress, design, program, compare, tables):
        part.register(app, context)
    return app
