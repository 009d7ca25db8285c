"""The app, ready to be served."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import flask
from dash import Dash, html
from dash.development.base_component import Component
from plotly.offline import get_plotlyjs, get_plotlyjs_version

from ..figures.style import theme
from . import design_texts as front
from .context import Context
from .pages import compare, design, program, progress, timeline
from .pages.page import error_page, page, title_of
from .wiring import design_table, gestures, plots, shell

_HERE = Path(__file__).resolve().parents[1]
ASSETS = _HERE / "assets"
_OPENING = _HERE / "templates" / "opening.html"
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
const first = (name, more) => document.head.append(Object.assign(document.createElement(name), more));
window.Plotly = new Promise((done) =>
  first("script", {{ src: "{plotly}", fetchPriority: "high", onload: () => done() }}));
for (const href of ["/_dash-layout", "/_dash-dependencies"])
  first("link", {{ rel: "preload", as: "fetch", crossOrigin: "anonymous", href }});
window.alloGrid = "{grid}";
</script>
<link rel="preload" as="script" href="{graph}">"""
"""The theme goes to the server with the question for the layout; plotly.js, which takes longest, is asked for first."""


class _App(Dash):
    """Dash with a page that asks for what the scatter needs first; the table's script comes after it has been drawn.

    Dash waits for `window.Plotly` where that is a promise, and would load plotly.js after all other scripts otherwise.
    """

    opening_html = ""
    """What is shown until there is a page."""

    def interpolate_index(self, **parts: str) -> str:  # type: ignore[override]  # all are text, and Dash names them
        parts["app_entry"] = self.opening_html + parts["app_entry"]
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
    app.opening_html = Template(_OPENING.read_text()).substitute(title=escape(title_of(context.board)))
    script = (_COMPILE_NOW + get_plotlyjs()).encode()

    @app.server.route(PLOTLY)
    def plotly() -> flask.Response:
        kept = {"Cache-Control": "public, max-age=31536000, immutable"}
        return flask.Response(script, mimetype="text/javascript", headers=kept)

    @app.server.before_request
    def refuse_nonsense() -> None:
        """What Dash would fail over: a question that no page of this app asks."""
        if flask.request.path == "/_dash-update-component":
            asked = flask.request.get_json()
            known = isinstance(asked, dict) and str(asked.get("output")) in app.callback_map
            if not known or not isinstance(asked.get("inputs"), list):
                flask.abort(400, "not a request of this page")

    @app.server.route("/opening")
    def opening() -> flask.Response:
        return flask.jsonify(opening_state(context))

    def first_page() -> Component:
        if context.opening is not None and not context.opening.done:
            return html.Div(id="root")  # for Dash, which looks at the layout before its first answer, whatever that is
        if context.opening is not None and context.opening.error is not None:
            return error_page(context.board, context.opening.error)
        with context.board.lock:
            return page(context, theme(flask.request.cookies.get("theme")))

    app.layout = first_page
    for part in (shell, gestures, plots, front, progress, design, program, timeline, compare, design_table):
        part.register(app, context)
    return app


def opening_state(context: Context) -> dict[str, Any]:
    """What is said while the runs are being read: how much has been, and how many designs that are."""
    opening = context.opening
    designs = sum(len(run) for run in context.board.runs)
    if opening is None or opening.done:
        return {"done": True, "share": 1.0, "words": f"drawing {designs:,} designs"}
    share = opening.share
    words = f"reading: {100 * share:.0f} %, {designs:,} designs" if share < 1 else f"preparing {designs:,} designs"
    return {"done": False, "share": share, "words": words}
