"""The graph of a design's page: zoomed, searched and clicked; dash-cytoscape lays it out and draws it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import dash_cytoscape
from dash import MATCH, Dash, Input, Output, State, ctx, dcc, html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from allo_dse.common.errors import SimulationError

from ...data.runs import Ref
from ...figures.graph import arrangement, box_facts, elements, flow_facts, stylesheet
from ...figures.style import Theme, theme
from ..context import Context
from ..parts import facts, field, hint, labelled, later, of_design

if TYPE_CHECKING:
    from allo_dse.drawing.summary import Summary

_CLICK = "Click a node or a stream to read what it holds, does and waits for. Drag moves the graph, the wheel zooms."
Which = Literal["after", "before"]
TALLEST_PX = 480
"""Of a graph with many boxes; one with few takes less."""


def register(app: Dash, context: Context) -> None:
    def own(kind: str) -> dict[str, Any]:
        return {"type": kind, "design": MATCH}

    @app.callback(
        Output(own("graph-box"), "children"),
        Input(own("graph-which"), "value"),
        State(own("graph-which"), "id"),
        State("theme", "data"),
    )
    def draw(which: Which, target: dict[str, str], look: str | None) -> object:
        return of_design(context.board, target["design"], lambda ref: graph_view(context, ref, which, theme(look)))

    @app.callback(
        Output(own("graph"), "stylesheet"),
        Input(own("graph-search"), "value"),
        State("theme", "data"),
        prevent_initial_call=True,
    )
    def search(wanted: str | None, look: str | None) -> object:
        return stylesheet(theme(look), wanted or "")

    @app.callback(
        Output(own("graph-facts"), "children"),
        Input(own("graph"), "tapNodeData"),
        Input(own("graph"), "tapEdgeData"),
        prevent_initial_call=True,
    )
    def clicked(*_: object) -> object:
        data = ctx.triggered[0]["value"]
        if not data:
            raise PreventUpdate
        return [html.H3(data["title"]), facts([(name, value) for name, value in data["facts"]])]

    app.clientside_callback(
        "(pressed, layout) => ({...layout, pressed})",
        Output(own("graph"), "layout"),
        Input(own("graph-fit"), "n_clicks"),
        State(own("graph"), "layout"),
        prevent_initial_call=True,
    )


def graph_controls(design: str) -> Component:
    """Controls of a graph, and an empty container for the graph itself."""

    def own(kind: str) -> dict[str, str]:
        return {"type": kind, "design": design}

    options = [{"label": "on the device", "value": "after"}, {"label": "as written", "value": "before"}]
    search = dcc.Input(
        id=own("graph-search"), type="text", debounce=0.2, placeholder="node or stream", spellCheck=False
    )
    return html.Div(
        [
            html.Div(
                [
                    dcc.RadioItems(
                        id=own("graph-which"), options=options, value="after", inline=True, className="checks"
                    ),
                    field("find", search),
                    html.Button("Whole graph", id=own("graph-fit"), className="small"),
                ],
                className="controls",
            ),
            later("graph-box", design),
            html.Div(hint(_CLICK), id=own("graph-facts"), role="status", className="graph-facts"),
        ]
    )


def counted(summary: Summary) -> str:
    """Count boxes and streams, and also lines if there are fewer lines than streams."""
    streams, lines = sum(flow.streams for flow in summary.flows), len(summary.flows)
    drawn = f" in {lines:,} lines" if lines < streams else ""
    return f"{len(summary.boxes):,} boxes ({summary.level}s), {streams:,} streams{drawn}"


def graph_view(context: Context, ref: Ref, which: Which, look: Theme) -> Component:
    """The graph as written or as folded; the folded one with the activity of its nodes and streams in a run."""
    from allo_dse.drawing.summary import summarise

    design, run, placed, note = context.programs.candidate(ref).design, None, None, ""
    summary = summarise(design.vmg if which == "after" else design.program.vmg)
    if which == "after":
        try:
            run = context.programs.recorded(ref)
        except SimulationError as error:
            note = f"Waits and tokens are not known: {error.message}"
        found = context.programs.placement(ref)
        placed = found if found is not None and found.placed else None
    key = {"type": "graph", "design": context.board.text(ref)}
    drawn = dash_cytoscape.Cytoscape(
        id=key,
        elements=elements(summary, box_facts(summary, run, placed), flow_facts(summary, run)),
        layout=arrangement(summary),
        stylesheet=stylesheet(look),
        style={"width": "100%", "height": "100%"},
        wheelSensitivity=0.2,
        minZoom=0.05,
        maxZoom=4,
    )
    what = "The graph on the device" if which == "after" else "The graph as written"
    counts = counted(summary)
    return html.Div(
        [
            html.Div(
                drawn,
                className="graph-box",
                style={"height": f"{min(TALLEST_PX, 160 + 50 * len(summary.boxes))}px"},
                role="img",
                **labelled(f"{what}: {counts}"),
            ),
            hint(" · ".join(filter(None, [counts, note]))),
        ]
    )
