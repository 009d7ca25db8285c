"""The page of one design: its decisions, its resources and objectives, and its exports."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dash import ALL, Dash, Input, Output, State, ctx, dcc, html, no_update
from dash.dcc.express import send_bytes
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from allo_dse.common.errors import AlloDseError
from allo_dse.tune.results.front_code import read_front_code
from allo_dse.tune.show.output import HEADINGS, predicted_reported_rows
from allo_dse.tune.store.rundir import LOGS

from ...data.analysis import (
    change_text,
    comparable,
    difference_lines,
    differences,
    fastest_words,
    known,
    project_folder,
    rung_table,
    status_text,
    uses,
)
from ...data.progress import why_none
from ...data.runs import Board, Ref
from ...data.selection import label, text
from ...exports import exported, reproduce_text
from ...figures.design import bound_figure, resources_figure
from ...figures.style import Theme, theme
from ..context import Context, page_of
from ..control import note_controls
from ..design_texts import unknown_text
from ..parts import card, empty, facts, figure_card, hint, table
from .program import MAX_SOURCE, program_cards

MAX_PRINTED = 64 << 10
_LOOP_COLUMNS = ("task", "loop", "trips", "ii", "depth", "cycles", "times", "limit")
_EXPORTS = (
    ("primitives", "mapping_primitives", "A Python module whose mapping_primitives() returns what Allo takes"),
    ("json", "JSON", "Everything the log says about the design"),
    ("build", "Build files", "Mapping, parameters, metrics and a build script, zipped"),
)


def register(app: Dash, context: Context) -> None:
    board = context.board

    @app.callback(
        Output("design-page", "children"),
        Input("url", "pathname"),
        Input("design", "data"),
        Input("reference", "data"),
        Input("theme", "data"),
        Input("program-version", "data"),
        Input("notes-version", "data"),
        Input("design-known", "data"),
    )
    def show(path: str | None, design: str | None, reference: str | None, look: str | None, *_: object) -> object:
        if page_of(path) != "design" or not look:
            raise PreventUpdate
        with board.lock:
            ref = board.reference(design) if design else board.knee
            if ref is None:
                return empty(unknown_text(design) if design else why_none(board))
            return design_page(context, ref, context.reference_of(reference), theme(look))

    @app.callback(
        Output("design-known", "data"),
        Input("version", "data"),
        State("url", "pathname"),
        State("design", "data"),
        State("design-known", "data"),
        prevent_initial_call=True,
    )
    def know(_: str, path: str | None, design: str | None, before: str | None) -> object:
        """Changes when another evaluator has measured the open design, or it was verified."""
        with board.lock:
            ref = board.reference(design) if design else board.knee
            if page_of(path) != "design" or ref is None:
                raise PreventUpdate
            run = board.table(ref)
            key = run.keys[ref.row]
            known = f"{key} {len(run.rungs(key))} {run.verified.get(key)}"
        if known == before:
            raise PreventUpdate
        return known

    @app.callback(
        Output("download", "data"),
        Output("export-error", "children"),
        Input({"type": "export", "kind": ALL, "design": ALL}, "n_clicks"),
        prevent_initial_call=True,
    )
    def export(clicks: list[int | None]) -> object:
        target = ctx.triggered_id
        if not any(clicks) or not isinstance(target, dict):
            raise PreventUpdate
        with board.lock:
            ref = board.reference(target["design"])
            if ref is None:
                raise PreventUpdate
            try:
                name, content = exported(board, context.programs, ref, target["kind"])
            except AlloDseError as error:
                return no_update, error.with_hint
        return send_bytes(content, name), ""

    @app.callback(
        Output("program-version", "data"),
        Output("compile-error", "children"),
        Input({"type": "compile", "run": ALL}, "n_clicks"),
        State("program-version", "data"),
        prevent_initial_call=True,
        running=[(Output({"type": "compile", "run": ALL}, "disabled"), True, False)],
    )
    def compile_program(clicks: list[int | None], version: int) -> object:
        target = ctx.triggered_id
        if not any(clicks) or not isinstance(target, dict):
            raise PreventUpdate
        try:
            context.programs.load(int(target["run"]))
        except AlloDseError as error:
            return no_update, error.with_hint
        return version + 1, ""


def design_page(context: Context, ref: Ref, reference: Ref | None, look: Theme) -> list[Component]:
    """Everything about a design."""
    board = context.board
    run = board.table(ref)
    metrics = known(run, ref.row)
    return [
        _head(context, ref, reference),
        *failure_cards(board, ref),
        html.Div(
            [
                card("Parameters and mapping", _decisions(board, ref)),
                card("Metrics by evaluator", _rungs(board, ref)),
                figure_card(
                    "Resources against the device's limits",
                    "resources",
                    resources_figure(uses(run.facts.device_name, metrics), look),
                    height_px=260,
                ),
                figure_card(
                    "How busy what was", "bound", bound_figure(metrics.get("bound") or {}, look), height_px=260
                ),
            ],
            className="tiles",
        ),
        *model_against_tool(metrics),
        *code_cards(run.path, run.keys[ref.row]),
        html.Div(program_cards(context, ref, look), className="program"),
        card(
            "Reproduce",
            html.Pre(reproduce_text(board, context.programs, ref), id="reproduce"),
            tools=[dcc.Clipboard(target_id="reproduce", title="Copy", className="copy")],
        ),
        html.Details(
            [html.Summary("Log entry"), html.Pre(json.dumps(run.record(ref.row), indent=2, ensure_ascii=False))],
            className="card",
        ),
    ]


def model_against_tool(metrics: Mapping[str, Any]) -> list[Component]:
    """Return a card that compares predicted loops and resources with the HLS tool's report, if any."""
    rows = predicted_reported_rows(metrics)
    return [card("Model against the HLS tool", table(HEADINGS, rows))] if rows else []


def code_cards(run_dir: Path, key: str) -> list[Component]:
    """The loops of a design on an FPGA and the source of the program, as the run has kept them."""
    found = read_front_code(run_dir)
    loops, source = (found.get("loops") or {}).get(key) or [], str(found.get("source") or "")
    cards: list[Component] = []
    if loops:
        head = ["task", "loop", "trips", "II", "depth", "cycles", "times", "II limited by"]
        rows = [[text(loop.get(name)) for name in _LOOP_COLUMNS] for loop in loops]
        cards.append(card("Pipelined loops", table(head, rows), note="as the model schedules them"))
    if source:
        cards.append(
            card("Program", html.Pre(source[:MAX_SOURCE]), note="as written; the design folds and schedules it")
        )
    return [html.Div(cards, className="tiles beside")] if cards else []


def failure_cards(board: Board, ref: Ref) -> list[Component]:
    """A card per failed evaluator, with its message and the end of its output."""
    run = board.table(ref)
    cards: list[Component] = []
    for position, rung in enumerate(run.rungs(run.keys[ref.row])):
        record = run.record(ref.row, position)
        if record.get("error"):
            parts: list[Component] = [html.Pre(str(record["error"]))]
            printed = printed_text(run.path, str(record.get("log") or ""))
            if printed:
                parts.append(html.Details([html.Summary("What it printed"), html.Pre(printed)]))
            cards.append(card(f"Failed: {rung.evaluator or 'evaluator'}", *parts))
    return cards


def printed_text(run: Path, name: str) -> str:
    """The end of a file of the run's directory `logs` by the name that a record gives it; empty where there is none."""
    path = run / name
    if not name or path.resolve().parent != (run / LOGS).resolve() or not path.is_file():
        return ""
    return path.read_bytes()[-MAX_PRINTED:].decode(errors="replace")


def _head(context: Context, ref: Ref, reference: Ref | None) -> Component:
    """Return the top of the page: the design's title, its objectives and its export buttons."""
    board = context.board
    run = board.table(ref)
    verification = run.verified.get(run.keys[ref.row])
    message = [html.P(verification.message, className="hint below")] if verification is not None else []
    changes = changes_of(board, ref, reference)
    objectives = [
        html.Div(
            [
                html.B(text(run.columns[n].value(ref.row))),
                html.Span(" · ".join(filter(None, [label(n), changes.get(n)]))),
            ],
            className="number",
        )
        for n in run.names("objective")
    ]
    folder, design = project_folder(run.facts.device_name), board.text(ref)
    project = [("project", f"{folder.upper()} project", "sources and scripts, zipped")] if folder else []
    buttons = [
        html.Button(name, id={"type": "export", "kind": kind, "design": design}, className="small", title=tip)
        for kind, name, tip in (*_EXPORTS, *project)
    ]
    return html.Section(
        [
            html.Div(_title(board, ref), className="card-head"),
            *message,
            html.Div(objectives, className="numbers"),
            html.Div(buttons, className="buttons"),
            *note_controls(context, ref),
            html.Div(id="export-error", className="error", role="alert"),
            _against(board, ref, reference),
        ],
        className="card",
    )


def changes_of(board: Board, ref: Ref, reference: Ref | None) -> dict[str, str]:
    """Return the change of each objective against the reference; empty for the reference itself."""
    if reference is None or reference == ref or not comparable(board, ref, reference):
        return {}
    found = differences(board.table(reference), reference.row, board.table(ref), ref.row, ("objective",))
    return {d.name: f"{change_text(d)} against the reference" for d in found if d.change is not None}


def _title(board: Board, ref: Ref) -> list[Component]:
    """The design's key, its status, and its origin."""
    run = board.table(ref)
    key, state = run.keys[ref.row], status_text(board, ref)
    kind = "good" if "front" in state else "plain" if state.startswith(("dominated", "not measured")) else "bad"
    verification = run.verified.get(key)
    checked: Component = html.Span("not verified", className="badge plain")
    if verification is not None:
        how = "good" if verification.ok else "bad"
        checked = html.Span(verification.words, className=f"badge {how}", title=verification.message)
    where = f"{board.names[ref.run]} · trial {run.columns['number'].value(ref.row)} · {run.facts.device_name}"
    badge = html.Span(state, className=f"badge {kind}")
    return [html.H2(["Design ", html.Code(key)]), badge, checked, html.Span(where, className="hint")]


def _against(board: Board, ref: Ref, reference: Ref | None) -> Component:
    if reference is None or reference == ref:
        return hint("This is the reference design.")
    if not comparable(board, ref, reference):
        return hint("The reference is a design of another device.")
    lines = difference_lines(board, ref, reference)[1:]
    return html.Details(
        [
            html.Summary(f"What differs from the reference {board.key(reference)[:8]}"),
            html.Ul([html.Li(line) for line in lines]),
        ]
    )


def _decisions(board: Board, ref: Ref) -> Component:
    """Parameters and mapping, those that the study varies first."""
    run = board.table(ref)
    found = {n: (run.columns[n].varies, text(run.columns[n].value(ref.row))) for n in run.names("parameter", "mapping")}
    varying, fixed = (
        facts([(n, said) for n, (varies, said) in found.items() if varies is own]) for own in (True, False)
    )
    return html.Div([varying, html.H3("The same in all designs"), fixed])


def _rungs(board: Board, ref: Ref) -> Component:
    """Metrics, one column per evaluator that has measured the design."""
    run = board.table(ref)
    head, rows = rung_table(run, run.keys[ref.row])
    if not rows:
        return empty("No evaluator has measured this design.")
    near = fastest_words(run, ref.row)
    return html.Div([table(head, [list(row) for row in rows]), *([hint(near)] if near else [])])
