"""The app, ready to be served."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import flask
from dash import Dash
from plotly.offline import get_plotlyjs, get_plotlyjs_version

from ..figures.style import theme
from . import compare, design, front, plots, program, progress, shell, tables
from .context import Context
from .layout import page

ASSETS = Path(__file__).resolve().parents[1] / "assets"
PLOTLY = f"/plotly-{get_plotlyjs_version()}.js"
"""Where plotly.js is served: an address with its version, which a browser may keep together with its compiled code."""

_COMPILE_NOW = "//# allFunctionsCalledOnLoad\n"
"""Makes Chromium compile the functions of a script while it arrives, on another thread than the one that draws."""
_GRAPH = "/_dash-component-suites/dash/dcc/async-graph.js"
_NOT_FIRST = re.compile(r'<script src="([^"]*/(?:dash_ag_grid|dash_table)/[^"]*)"></script>\n?')
_HEAD = """<script>
document.documentElement.dataset.theme =
  localStorage.alloTheme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
document.cookie = "theme=" + document.documentElement.dataset.theme + ";path=/;samesite=strict";
window.alloGrid = "{grid}";
window.Plotly = new Promise((done) => document.head.append(
  Object.assign(document.createElement("script"), {{ src: "{plotly}", onload: () => done() }})));
</script>
<link rel="preload" as="script" href="{graph}">"""


class _App(Dash):
    """Dash with a page that asks for what the scatter needs first; the table's script comes after it has been drawn.

    Dash waits for `window.Plotly` where that is a promise, and would load plotly.js after all other scripts otherwise.
    """

    def interpolate_index(self, **parts: Any) -> str:
        late = _NOT_FIRST.findall(parts["scripts"])
        parts["scripts"] = _NOT_FIRST.sub("", parts["scripts"])
        grid = next((source for source in late if "dash_ag_grid" in source), "")
        parts["favicon"] += _HEAD.format(grid=grid, plotly=PLOTLY, graph=_GRAPH)
        return str(super().interpolate_index(**parts))


def make_app(context: Context) -> Dash:
    """The web app on a board. Everything it needs comes from this computer."""
    app = _App(
        "allo-dse",
        title="allo-dse",
        assets_folder=str(ASSETS),
        serve_locally=True,
        update_title="",
        suppress_callback_exceptions=True,
        compress=False,
    )
    script = (_COMPILE_NOW + get_plotlyjs()).encode()

    @app.server.route(PLOTLY)
    def plotly() -> flask.Response:
        kept = {"Cache-Control": "public, max-age=31536000, immutable"}
        return flask.Response(script, mimetype="text/javascript", headers=kept)

    def first_page() -> Any:
        with context.board.lock:
            return page(context, theme(flask.request.cookies.get("theme")))

    app.layout = first_page
    for part in (shell, plots, front, progress, design, program, compare, tables):
        part.register(app, context)
    return app
