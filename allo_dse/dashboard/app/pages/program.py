"""The parts of a design's page that need the compiled program: graphs, placement, timeline, mapping primitives."""

from __future__ import annotations

from dash import MATCH, Dash, Input, Output, State, html
from dash.development.base_component import Component

from allo_dse.common.errors import AlloDseError
from allo_dse.eval.backend import backend_of

from ...data.runs import Ref
from ...figures.style import Theme, theme
from ...programs import svg_uri
from ..context import Context
from ..parts import card, hint, labelled, later, of_design, table
from .graphs import graph_controls

MAX_SOURCE = 20_000
_GRAPH_NOTE = "A node is what runs on one core or processing element: tasks, folded onto it. Lines are streams (FIFOs)."
_PRIMITIVES_NOTE = "bundle puts alike tasks on one node, chain tasks that run one after the other."


def register(app: Dash, context: Context) -> None:
    own = {"type": "placement", "design": MATCH}

    @app.callback(Output(own, "children"), Input(own, "id"), State("theme", "data"))
    def placement(target: dict[str, str], look: str | None) -> object:
        return of_design(context.board, target["design"], lambda ref: placement_picture(context, ref, theme(look)))


def program_cards(context: Context, ref: Ref, _look: Theme) -> list[Component]:
    """Graph, placement and timeline, or the button that makes them."""
    if not context.programs.is_loaded(ref.run):
        return [_offer(context, ref)]
    design = context.board.text(ref)

    try:
        candidate = context.programs.candidate(ref).design
        words, source = context.programs.explain(ref), candidate.vmg.mapping_source()
    except AlloDseError as error:
        return [card("Program", html.P(error.with_hint, className="error"))]
    places = backend_of(candidate.device).has_places
    return [
        card("In words", html.P(words)),
        card("Virtual mapping graph", graph_controls(design), wide=True, note=_GRAPH_NOTE),
        *([card("Placement on the array", later("placement", design), wide=True)] if places else []),
        later("timeline", design),
        card("mapping_primitives for Allo", html.Pre(source[:MAX_SOURCE], id="mapping-source"), note=_PRIMITIVES_NOTE),
    ]


def _offer(context: Context, ref: Ref) -> Component:
    file = context.programs.file_of(ref.run)
    if file is None:
        words = "The run does not say which file defines its study; start the dashboard with --study FILE.py."
        return card("Graph, placement and timeline", hint(words))
    return card(
        "Graph, placement and timeline",
        hint(["These need the program: this executes ", html.Code(str(file)), "."]),
        html.Div(
            html.Button("Compile the program", id={"type": "compile", "run": ref.run}, className="primary"),
            className="buttons",
        ),
        html.Div(id="compile-error", className="error", role="alert"),
    )


def placement_picture(context: Context, ref: Ref, look: Theme) -> Component:
    """The design on the array, with routes and the use of every tile's ports and memory."""
    placed = context.programs.placement(ref)
    if placed is None or not placed.placed:
        return html.P(f"Not placed: {placed}", className="error")
    head, *rows = placed.table()
    words = "The placed design"
    picture = html.Img(src=svg_uri(placed.drawn(), look), alt=words)
    return html.Div(
        [
            html.Div(picture, className="svg-box", tabIndex=0, role="group", **labelled(f"{words}, scrollable")),
            html.Details([html.Summary("What each tile uses"), table(head, rows)]),
        ]
    )
