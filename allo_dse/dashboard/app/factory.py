"""The app, ready to be served."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import dash_ag_grid
import dash_cytoscape
import flask
from dash import Dash, dash_table, html
from dash.development.base_component import Component
from dash.exceptions import DependencyException
from dash.fingerprint import build_fingerprint
from plotly.offline import get_plotlyjs, get_plotlyjs_version

from ..figures.style import theme
from . import control, design_table, front_plots, interactions, networks, parts
from . import design_texts as front
from .context import Context
from .pages import compare, design, graphs, program, progress, timeline
from .pages.page import page

ASSETS = Path(__file__).resolve().parents[1] / "assets"
PLOTLY = f"/plotly-{get_plotlyjs_version()}.js"
"""Address of plotly.js, with its version, so that a browser may keep it together with its compiled code."""

_COMPILE_NOW = "//# allFunctionsCalledOnLoad\n"
"""Makes Chromium compile the functions of a script while it arrives, on another thread than the one that draws."""
_GRAPH = "/_dash-component-suites/dash/dcc/async-graph.js"
_HEAD = """<script>
document.documentElement.dataset.theme =
  localStorage.alloTheme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
document.cookie = "theme=" + document.documentElement.dataset.theme + ";path=/;samesite=strict";
const first = (name, more) => document.head.append(Object.assign(document.createElement(name), more));
window.Plotly = new Promise((done) =>
  first("script", {{ src: "{plotly}", fetchPriority: "high", onload: () => done() }}));
for (const href of ["/_dash-layout", "/_dash-dependencies"])
  first("link", {{ rel: "preload", as: "fetch", crossOrigin: "anonymous", href }});
window.alloScripts = {{ dash_ag_grid: "{dash_ag_grid}", dash_cytoscape: "{dash_cytoscape}" }};
</script>
<link rel="preload" as="script" href="{graph}">"""
"""The theme goes to the server with the question for the layout; plotly.js, which takes longest, is asked for first."""


def _not_first(library: ModuleType) -> list[dict[str, Any]]:
    """Tells Dash to serve the scripts of a component library, but not to load them with the page; returns them."""
    scripts = [script for script in library._js_dist if not script.get("dynamic")]
    for script in scripts:
        script["async"] = "lazy"
    return scripts


def _script_later(library: ModuleType) -> str:
    """The address of the script of a component library that is not loaded with the page."""
    path, folder = _not_first(library)[0]["relative_package_path"], Path(str(library.__file__)).parent
    modified = int((folder / path).stat().st_mtime)
    fingerprint = build_fingerprint(path, library.__version__, modified)
    return f"/_dash-component-suites/{library.__name__}/{fingerprint}"


dash_cytoscape.load_extra_layouts()  # dagre
_not_first(dash_table)  # used by no page
LATER = {library.__name__: _script_later(library) for library in (dash_ag_grid, dash_cytoscape)}
"""Scripts that are large and not needed for the first picture: assets/app.js loads each when its component is drawn."""


class _App(Dash):
    """Dash with a page that loads the scripts of the scatter plot first, and the table's after it has been drawn.

    Dash waits for `window.Plotly` where that is a promise, and would load plotly.js after all other scripts otherwise.
    """

    def interpolate_index(self, **parts: str) -> str:  # type: ignore[override]  # all are text, and Dash names them
        parts["favicon"] += _HEAD.format(plotly=PLOTLY, graph=_GRAPH, **LATER)
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

    @app.server.before_request
    def refuse_nonsense() -> None:
        """Reject a request that no page of this app makes, on which Dash would fail."""
        if flask.request.path == "/_dash-update-component":
            asked = flask.request.get_json()
            known = isinstance(asked, dict) and str(asked.get("output")) in app.callback_map
            if not known or not isinstance(asked.get("inputs"), list):
                flask.abort(400, "not a request of this page")

    @app.server.errorhandler(DependencyException)
    def no_such_script(error: DependencyException) -> tuple[str, int]:
        return "not a script of this page", 404

    def first_page() -> Component:
        if not context.board.runs:
            return html.Div(id="root")  # there are networks only, which have pages of their own
        with context.board.lock:
            query = urlsplit(flask.request.referrer or "").query
            return page(context, theme(flask.request.cookies.get("theme")), query)

    networks.register(app, context.board)
    for part in (
        parts,
        interactions,
        front_plots,
        front,
        progress,
        design,
        program,
        graphs,
        timeline,
        compare,
        design_table,
        control,
    ):
        part.register(app, context)
    # Run the set-up that Dash does in its first request. Two requests may come at once, as from a page that was open
    # before the server was restarted. The second one would not wait for the set-up.
    app.layout = html.Div(id="root")
    with app.server.test_request_context():
        app.server.preprocess_request()
    app.layout = first_page
    return app
