"""Callbacks of everything around the pages: growth of the runs, pages, theme, status, filter."""

from __future__ import annotations

from contextlib import suppress

import flask
from dash import ClientsideFunction, Dash, Input, Output, State, html

from allo_dse.common.errors import StudyError
from allo_dse.tune.store.rundir import running

from ...data.progress import statuses
from ...data.units import text
from ..context import PAGES, Context
from ..parts import Child


def register(app: Dash, context: Context) -> None:
    _clientside(app)
    board = context.board

    @app.server.get("/growth")
    def growth() -> flask.Response:
        """Reads what was added to the logs. Asked every second by gestures.js, and not by Dash, which would spend as
        long on the question as on a gesture."""
        with board.lock:
            with suppress(StudyError):  # the run's notes have it
                board.refresh()
            version = board.version
        return flask.jsonify(version=version, alive=any(running(run.path) is not None for run in board.runs))

    @app.callback(
        Output("status", "children"), Input("version", "data"), Input("alive", "data"), prevent_initial_call=True
    )
    def status(_: str, _alive: bool) -> object:
        with board.lock:
            return status_line(context)


def status_line(context: Context) -> list[Child]:
    """The state of the runs in one line."""
    runs = context.board.runs
    counts = [statuses(run) for run in runs]
    designs = sum(len(run) for run in runs)
    ok = sum(c["ok"] for c in counts)
    proposed = designs + sum(c["violation"] for c in counts)
    parts = [f"{designs:,} design{'' if designs == 1 else 's'}"]
    if proposed:
        parts.append(f"{100 * ok / proposed:.1f} % feasible")
    parts.append(f"front {', '.join(str(len(run.front)) for run in runs)}")
    volumes = [run.hypervolume[-1] for run in runs if len(run) and run.hypervolume[-1] == run.hypervolume[-1]]
    if volumes:
        parts.append(f"hypervolume {', '.join(text(v) for v in volumes)}")
    alive = any(running(run.path) is not None for run in runs)
    return [
        html.Span("● running · ", className="live") if alive else "",
        html.Span(" · ".join(parts)),
        *[html.Div(note, className="error") for run in runs for note in run.notes],
    ]


def _clientside(app: Dash) -> None:
    def run(name: str, *arguments: object, **options: object) -> None:
        app.clientside_callback(ClientsideFunction("allo", name), *arguments, **options)

    run(
        "theme",
        Output("theme", "data"),
        Input("theme-button", "n_clicks"),
        State("theme", "data"),
    )
    run(
        "page",
        *[Output(f"page-{name}", "style") for name in PAGES],
        Output("design", "data"),
        Output("reference", "data"),
        Input("url", "pathname"),
    )
    run(
        "swap",
        *[Output(f"compare-{side}", "value", allow_duplicate=True) for side in "ab"],
        Input("compare-swap", "n_clicks"),
        *[State(f"compare-{side}", "value") for side in "ab"],
        prevent_initial_call=True,
    )
    run(
        "help",
        Output("help", "title"),
        Input("help-button", "n_clicks"),
        Input("help-close", "n_clicks"),
        prevent_initial_call=True,
    )
