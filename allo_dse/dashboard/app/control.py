"""Changes that the page makes: notes and stars on designs, stopping and resuming a run.

Only for browsers on this computer: a server that others can reach neither shows nor accepts them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from dash import ALL, Dash, Input, Output, State, ctx, dcc, html, no_update
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from allo_dse.common.errors import AlloDseError, StudyError
from allo_dse.tune.store.rundir import running

from ..data.notes import Notes
from ..data.runs import Board, Ref
from .context import Context
from .parts import hint

OUTPUT = "resumed.log"
"""File in the run directory with the output of a run that the page has resumed."""


def register(app: Dash, context: Context) -> None:
    if not context.local:
        return
    board = context.board

    @app.callback(
        Output("notes-version", "data"),
        Output({"type": "note-error", "design": ALL}, "children"),
        Input({"type": "star", "design": ALL}, "n_clicks"),
        Input({"type": "note-save", "design": ALL}, "n_clicks"),
        State({"type": "note", "design": ALL}, "value"),
        State("notes-version", "data"),
        prevent_initial_call=True,
    )
    def change(stars: list[int | None], saves: list[int | None], texts: list[str | None], version: int) -> object:
        target = ctx.triggered_id
        ref = board.reference(target["design"]) if isinstance(target, dict) else None
        if ref is None or not isinstance(target, dict) or not any((*stars, *saves)):
            raise PreventUpdate
        key, notes = board.key(ref), notes_of(board, ref.run)
        try:
            if target["type"] == "star":
                notes.change(key, star=not notes.of(key).star)
            else:
                notes.change(key, text=str(texts[0] or "") if texts else "")
        except StudyError as error:
            return no_update, [error.message] * len(texts)
        return version + 1, [""] * len(texts)

    @app.callback(
        Output("starred", "children"),
        Input("notes-version", "data"),
        Input("version", "data"),
        Input("url", "pathname"),
    )
    def list_starred(*_: object) -> object:
        with board.lock:
            return starred(board)

    @app.callback(
        Output("control-text", "children"),
        Input({"type": "control", "act": ALL, "run": ALL}, "n_clicks"),
        prevent_initial_call=True,
    )
    def act(clicks: list[int | None]) -> object:
        target = ctx.triggered_id
        if not any(clicks) or not isinstance(target, dict):
            raise PreventUpdate
        try:
            return (stop if target["act"] == "stop" else resume)(board, int(target["run"]))
        except AlloDseError as error:
            return error.with_hint

    @app.callback(
        Output("control-buttons", "children"),
        Input("progress-run", "value"),
        Input("version", "data"),
        Input("alive", "data"),
        Input("control-text", "children"),
    )
    def buttons(number: int | None, *_: object) -> object:
        return control_buttons(board, number or 0)


def control_buttons(board: Board, number: int) -> list[Component]:
    """The button to stop a run, or to resume one that is not running."""
    run = board.runs[number]
    act = "stop" if running(run.path) is not None else "resume" if run.facts.command else ""
    hints = {"stop": "Ends the search as Ctrl-C does: everything is kept", "resume": run.facts.command_line}
    if not act:
        return []
    target = {"type": "control", "act": act, "run": number}
    return [html.Button(act.capitalize(), id=target, className="small", title=hints[act])]


def stop(board: Board, number: int) -> str:
    """Ask the process of a run to end, as Ctrl-C does.

    Raises:
        StudyError: if it is not running here.
    """
    process = running(board.runs[number].path)
    if not process:
        raise StudyError("the run is not running" if process is None else "the process of the run is not known")
    try:
        os.kill(process, signal.SIGTERM)
    except OSError as error:
        raise StudyError(f"cannot stop process {process}: {error.strerror}") from error
    return f"asked process {process} to stop; it verifies nothing more and writes its results"


def resume(board: Board, number: int) -> str:
    """Start the command of a run again, in the folder that its run directory is relative to.

    Raises:
        StudyError: if it is running, was not started by a command, or its study file is not there.
    """
    run = board.runs[number]
    if running(run.path) is not None:
        raise StudyError("the run is running already")
    command = list(run.facts.command)
    if not command:
        raise StudyError("the run was started from Python", hint="run the same program again")
    folder = Path.cwd() if any(word.partition("=")[0] == "--run-dir" for word in command) else run.path.parent.parent
    file = next((folder / word for word in command[1:] if word.endswith(".py")), None)
    if file is None or not file.is_file():
        raise StudyError(f"there is no {file}", hint=f"in the folder where it began: {run.facts.command_line}")
    with (run.path / OUTPUT).open("ab") as output:
        subprocess.Popen(
            [sys.executable, "-m", "allo_dse", *command[1:]], cwd=folder, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    return f"started; its output is in {run.path / OUTPUT}. A run whose trials are done needs more: --trials"


def notes_of(board: Board, number: int) -> Notes:
    """The notes of a run."""
    return Notes(board.runs[number].path)


def note_controls(context: Context, ref: Ref) -> list[Component]:
    """Star and note of a design: editable on this computer, read-only from others."""
    board = context.board
    note = notes_of(board, ref.run).of(board.key(ref))
    if not context.local:
        said = f"{'★ ' if note.star else ''}{note.text or ''}"
        return [hint(said)] if said else []
    own = {"design": board.text(ref)}
    star = html.Button(
        "★ starred" if note.star else "☆ star", id={"type": "star", **own}, className="small", title="Mark this design"
    )
    text = dcc.Textarea(
        id={"type": "note", **own}, value=note.text or "", placeholder="note on this design", className="note",
        title="Note on this design",
    )  # fmt: skip
    save = html.Button("Save note", id={"type": "note-save", **own}, className="small")
    error = html.Span(id={"type": "note-error", **own}, className="error", role="alert")
    return [html.Div([star, text, save, error], className="notes")]


def starred(board: Board) -> list[Component]:
    """Links to the designs with a star or a note."""
    found: list[Component] = []
    for number, run in enumerate(board.runs):
        for key, note in notes_of(board, number).all().items():
            if key in run.row_of:
                name = f"{'★ ' if note.star else ''}{key[:8]}"
                link = dcc.Link(name, href=f"/design?design={board.text(Ref(number, run.row_of[key]))}")
                found.append(html.Li([link, f" {(note.text or '').partition(chr(10))[0][:80]}"]))
    return [html.H3("Starred and noted"), html.Ul(found, className="starred")] if found else []
