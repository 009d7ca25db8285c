"""Callbacks of the progress page."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from allo_dse.eval.calibrate.correction import Correction
from allo_dse.tune.store.certificate import Certificate
from allo_dse.tune.store.run_info import failure_kind

from ...data.analysis import importance, sample
from ...data.progress import measured, statuses, timeline
from ...data.runs import Board, Ref
from ...data.selection import label, text
from ...data.table import RunTable
from ...figures import progress as figures
from ...figures.design import measured_figure
from ...figures.parallel import pairs_figure
from ...figures.style import theme
from ..context import Context, hidden_runs, page_of
from ..parts import card
from .page import certificate_of, progress_page, proofs

MAX_FAILED, MAX_MESSAGES, MAX_MESSAGE = 100, 8, 160
"""Failures whose messages are read, messages that are shown, and characters of each."""
SHOWN = Input("url", "pathname"), Input("version", "data"), Input("theme", "data")
"""Changes after which every figure is drawn anew."""


def register(app: Dash, context: Context) -> None:
    board = context.board

    @app.callback(Output("proofs", "children"), Input("version", "data"), prevent_initial_call=True)
    def proven(_: str) -> object:
        with board.lock:
            return proofs(board)

    @app.callback(Output("page-progress", "children"), Input("url", "pathname"), State("page-progress", "children"))
    def build(path: str | None, before: object) -> object:
        """Its plots cost the browser time, so they are made when the page is shown for the first time."""
        if before or page_of(path) != "progress":
            return no_update
        return [*progress_page(board), html.Div(id="failed-messages")]

    @app.callback(
        Output("failed-messages", "children"),
        Output("numbers", "children"),
        Output("measured", "figure"),
        Output("measured-card", "hidden"),
        Output("pairs", "figure"),
        Output("pairs-card", "hidden"),
        Output("designs-time", "figure"),
        Output("lost", "figure"),
        Output("workers", "figure"),
        *SHOWN,
        Input("progress-run", "value"),
    )
    def draw(path: str | None, _: str, look: str | None, number: int) -> object:
        if page_of(path) != "progress" or not look:
            raise PreventUpdate
        paint = theme(look)
        with board.lock:
            run = board.runs[number or 0]
            spans, correction = timeline(run), measured(run)
            return (
                failed_card(board, number or 0),
                [*key_numbers(run), *decided(certificate_of(run)), *learned(correction)],
                measured_figure(correction, paint),
                not correction.pairs,
                pairs_figure(run, paint),
                len(run.names("objective")) < 3,
                figures.designs_figure(spans, paint),
                figures.lost_figure(run, paint),
                figures.workers_figure(spans, paint),
            )

    @app.callback(
        Output("history", "figure"),
        Output("hypervolume", "figure"),
        *SHOWN,
        Input("progress-objective", "value"),
        Input("against", "value"),
        Input("runs", "value"),
    )
    def histories(
        path: str | None, _: str, look: str | None, objective: str | None, against: str, shown: list[int]
    ) -> object:
        if page_of(path) != "progress" or not look or not objective:
            raise PreventUpdate
        hidden = hidden_runs(board, shown)
        with board.lock:
            return (
                figures.history_figure(board, objective, theme(look), against=against, hidden=hidden),
                figures.hypervolume_figure(board, theme(look), against=against, hidden=hidden),
            )

    @lru_cache(maxsize=16)
    def shares(run: int, objective: str, _size: int) -> dict[str, float]:
        with board.lock:
            found = sample(board.runs[run], objective)
        return importance(found)

    @app.callback(
        Output("progress-objective", "options"),
        Output("progress-objective", "value"),
        Input("progress-run", "value"),
        State("progress-objective", "value"),
    )
    def objectives(number: int, chosen: str | None) -> object:
        names = board.runs[number or 0].objectives
        options = [{"label": label(n), "value": n} for n in names]
        return options, chosen if chosen in names else names[0]

    @app.callback(
        Output("importance", "figure"),
        *SHOWN,
        Input("progress-run", "value"),
        Input("progress-objective", "value"),
    )
    def importances(path: str | None, _: str, look: str | None, number: int, objective: str | None) -> object:
        if page_of(path) != "progress" or not look or not objective:
            raise PreventUpdate
        with board.lock:
            size = len(board.runs[number or 0])
            # While a run grows, the order of its parameters changes slowly: update it every few percent.
            step = max(20, 1 << max(0, size.bit_length() - 4))
        return figures.importance_figure(shares(number or 0, objective, size // step), theme(look))


def failed_card(board: Board, number: int) -> list[object]:
    """Group the latest failures by message, with counts and one design each; empty if none failed."""
    run = board.runs[number]
    status = run.column("status")
    if status is None or "failed" not in status.categories:
        return []
    rows = np.flatnonzero(status.codes == status.categories.index("failed"))
    said: dict[str, list[tuple[str, int]]] = {}
    for row in rows[-MAX_FAILED:].tolist():
        message = str(run.record(row).get("error") or "failed").strip()
        said.setdefault(failure_kind(message), []).append((message.partition("\n")[0][:MAX_MESSAGE], row))
    ranked = sorted(said.values(), key=len, reverse=True)[:MAX_MESSAGES]
    # A table of Dash components, because its cells hold links, which are components too.
    head = html.Tr([html.Th(name, scope="col") for name in ("message", "designs", "for instance")])
    body = [
        html.Tr([html.Td(own[-1][0]), html.Td(text(len(own))), html.Td(_link(board, Ref(number, own[-1][1])))])
        for own in ranked
    ]
    latest = f"of the latest {MAX_FAILED} failures" if len(rows) > MAX_FAILED else ""
    shown = html.Div(html.Table([html.Thead(head), html.Tbody(body)]), className="table-box")
    return [card("What failed evaluations said", shown, note=latest)]


def _link(board: Board, ref: Ref) -> Component:
    """To a design's page."""
    return dcc.Link(board.key(ref)[:8], href=f"/design?design={board.text(ref)}")


def key_numbers(run: RunTable) -> list[object]:
    """The state of a run in numbers."""
    counts = statuses(run)
    seconds, proposed = run.seconds, len(run) + counts["violation"]
    last = run.ticks[-1] if run.ticks else None
    cached = run.column("cached")
    hits = last.cache_hits if last else (0 if cached is None else float((cached.codes >= 0).sum()))
    volume = run.hypervolume[-1] if len(run) else float("nan")
    numbers = {
        "designs evaluated": text(len(run)),
        "wall time (s)": text(round(seconds, 1)),
        "designs per second": text(len(run) / seconds) if seconds else "–",
        "feasible": f"{100 * counts['ok'] / proposed:.1f} %" if proposed else "–",
        "ruled out by limits": text(counts["violation"]),
        "constraints violated": text(counts["infeasible"]),
        "failed": text(counts["failed"]),
        "cache hits": text(hits),
        "repeats": text(last.repeats if last else 0),
        "on the front": text(len(run.front)),
        f"hypervolume ({figures.hypervolume_unit(run)})": text(round(volume, 4)),
    }
    return _told(numbers)


def _told(numbers: dict[str, str]) -> list[object]:
    return [html.Div([html.B(value), html.Span(name)], className="number") for name, value in numbers.items()]


def decided(certificate: Certificate | None) -> list[object]:
    """Show how much of the space is decided, as at the end of a run; nothing without proofs."""
    if certificate is None:
        return []
    done = certificate.designs - certificate.open
    of = f"{done:,} of {certificate.designs:,} designs decided"
    return [html.Div([html.B(of), html.Span(str(certificate))], className="number long")]


def learned(correction: Correction) -> list[object]:
    """Show the errors of predictions before and after correction from measured designs; empty if none are measured."""
    if not correction.pairs:
        return []
    errors = correction.errors
    numbers = {
        "designs measured": text(len(correction.pairs)),
        "predicted, off (median)": f"{100 * errors['predicted'][0]:.1f} %",
        "corrected, off (median)": f"{100 * errors['corrected'][0]:.1f} %",
    }
    return _told(numbers)
