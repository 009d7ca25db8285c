"""The timeline of a design's page: the whole run at a glance, and any part of it in detail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import MATCH, Dash, Input, Output, State, ctx, dcc, html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from ...data.runs import Ref
from ...figures.style import Figure, Theme, theme
from ..context import Context
from ..parts import GRAPH_CONFIG, card, figure_card, hint, labelled, later, of_design, save_button, table

if TYPE_CHECKING:  # the simulator is loaded with the first program
    from allo_dse.eval.recording import Part, Recorded, Span

_NAMES = {"first": "Beginning", "middle": "Middle", "last": "End"}
_MOVES = {"earlier": -1, "later": 1}
_OVERVIEW_CONFIG: dcc.Graph.Config = {**GRAPH_CONFIG, "displayModeBar": False}

_STAYS = {"visibility": "visible", "opacity": 0.6}
"""Keeps the shown part until the next one is there."""


def register(app: Dash, context: Context) -> None:
    own = {"type": "timeline", "design": MATCH}

    @app.callback(Output(own, "children"), Input(own, "id"), State("theme", "data"), State("part-shown", "data"))
    def timeline(target: dict[str, str], look: str | None, shown: dict[str, Any] | None) -> object:
        design = target["design"]

        def made(ref: Ref) -> Component:
            found = context.programs.recorded(ref)
            kept = shown["span"] if shown is not None and shown["design"] == design else None
            part = context.programs.part(ref, found.span(*kept) if kept else found.opening)
            return timeline_cards(found, part, design, theme(look))

        return of_design(context.board, design, made)

    @app.callback(
        Output({"type": "helps", "design": MATCH}, "children"), Input({"type": "helps", "design": MATCH}, "id")
    )
    def helps(target: dict[str, str]) -> object:
        from ...figures.timeline import HELP_HEAD, help_rows

        recorded = context.programs.recorded
        return of_design(context.board, target["design"], lambda ref: table(HELP_HEAD, help_rows(recorded(ref))))

    @app.callback(
        Output("part", "children"),
        Output("overview-plot", "figure"),
        Output("part-from", "value"),
        Output("part-to", "value"),
        Output("part-shown", "data"),
        *[Input(f"part-{name}", "n_clicks") for name in (*_NAMES, *_MOVES, "show")],
        Input("part-from", "n_submit"),
        Input("part-to", "n_submit"),
        Input("overview-plot", "selectedData"),
        Input("overview-plot", "clickData"),
        State("part-from", "value"),
        State("part-to", "value"),
        State("part-of", "data"),
        State("theme", "data"),
        prevent_initial_call=True,
    )
    def move(*values: Any) -> object:
        *_, selected, clicked, start, end, design, look = values
        used = next((hit["prop_id"] for hit in ctx.triggered if hit["value"]), None)
        ref = context.board.reference(design)
        if used is None or ref is None:  # as when the page is drawn
            raise PreventUpdate
        found = context.programs.recorded(ref)
        span = moved(found, used, (start, end), selected, clicked)
        if span is None:
            raise PreventUpdate
        part = context.programs.part(ref, span)
        style = theme(look)
        low, high = found.shown(part)
        keep = {"design": design, "span": [low, high]}
        return part_cards(found, part, style), overview(found, part, style), low, high, keep


def moved(
    found: Recorded,
    used: str,
    now: tuple[Any, Any],
    selected: dict[str, Any] | None,
    clicked: dict[str, Any] | None,
) -> Span | None:
    """The part that the user wants to see next, in ticks; None for none.

    Args:
        used: what was used, and which property of it has changed, as Dash calls it.
        now: the values of the two fields, in cycles.
        selected, clicked: in the picture of the whole run.
    """
    per = found.ticks_per_cycle
    if used == "overview-plot.selectedData":
        area = (selected or {}).get("range", {}).get("x")
        return None if area is None else found.span(*area)
    if used == "overview-plot.clickData":
        points = (clicked or {}).get("points")
        half = found.length / per / 2
        return found.span(points[0]["x"] - half, points[0]["x"] + half) if points else None
    name = used.partition(".")[0].removeprefix("part-")
    if name in _NAMES:
        return found.place(name)
    start, end = now
    if start is None or end is None:
        return None
    length = end - start
    step = _MOVES.get(name, 0) * length
    step = min(max(step, -start), found.cycles - end)
    return found.span(start + step, end + step)


def timeline_cards(found: Recorded, part: Part, design: str, look: Theme) -> Component:
    """The whole run, and a part of it in detail."""
    from ...figures.timeline import HELD_HEAD, HELP_WORDS, held_rows, totals_figure, totals_words, whole_words

    low, high = found.shown(part)
    return html.Div(
        [
            dcc.Store(id="part-of", data=design),
            card(
                "The whole run",
                hint(whole_words(found)),
                html.Div(
                    dcc.Graph(
                        id="overview-plot",
                        figure=overview(found, part, look),
                        config=_OVERVIEW_CONFIG,
                        className="graph",
                    ),
                    role="img",
                    **labelled("What the elements of each kind do over the whole run"),
                ),
                _chooser(found, low, high),
                tools=[save_button("overview-plot")],
                wide=True,
            ),
            dcc.Loading(
                html.Div(part_cards(found, part, look), id="part"), type="dot", delay_show=300, overlay_style=_STAYS
            ),
            html.Div(
                [
                    figure_card(
                        "Where the time goes",
                        "totals-plot",
                        totals_figure(found.totals, look),
                        totals_words(found),
                        label="Shares of the time by kind",
                    ),
                    card("What would help", hint(HELP_WORDS), later("helps", design)),
                    card(
                        "Buffers over the whole run",
                        hint("The most that one of them has held at a time, the fullest first."),
                        table(HELD_HEAD, held_rows(found)),
                    ),
                ],
                className="tiles",
            ),
        ]
    )


def overview(found: Recorded, part: Part, look: Theme) -> Figure:
    """The picture of the whole run, with a frame around a part."""
    from ...figures.timeline import overview_figure

    return overview_figure(found, look, (part.timeline.start, part.timeline.end))


def _chooser(found: Recorded, low: int, high: int) -> Component:
    """Buttons and fields that say which part is shown in detail."""

    def number(end: str, value: int) -> Component:
        field = dcc.Input(
            id=f"part-{end}", type="number", value=value, min=0, max=int(found.cycles) + 1, step=1, className="cycles"
        )
        return html.Label([html.Span(end), field], className="field")

    def button(name: str, text: str, title: str, *, hidden: bool = False) -> Component:
        return html.Button(text, id=f"part-{name}", className="small", title=title, hidden=hidden)

    fits = found.length >= found.recording.cycles
    names = {**_NAMES, "middle": "Whole run"} if fits else _NAMES
    starts = [
        button(name, text, f"The {text.lower()} in detail", hidden=fits and name != "middle")
        for name, text in names.items()
    ]
    return html.Div(
        [
            html.Span("In detail:", className="hint"),
            *starts,
            button("earlier", "◀ Earlier", "What comes before"),
            button("later", "Later ▶", "What comes after"),
            number("from", low),
            number("to", high),
            button("show", "Show", "These cycles in detail"),
            html.Span("or drag over the picture, or click in it", className="hint"),
        ],
        className="controls chooser",
    )


def part_cards(found: Recorded, part: Part, look: Theme) -> list[Component]:
    """Timeline with stalls and critical path, and buffers, of a part of a run."""
    from ...figures.timeline import occupancy_figure, part_words, path_rows, path_title, path_words, timeline_figure

    return [
        figure_card(
            "Timeline",
            "timeline-plot",
            timeline_figure(found, part, look),
            part_words(found, part),
            label="What each processing element does over time",
            scrolling=True,
            wide=True,
        ),
        html.Div(
            [
                card(
                    path_title(part),
                    hint(path_words(part)),
                    table(["who", "cycles", "share"], path_rows(found, part)),
                ),
                figure_card(
                    "Buffers waited for most",
                    "occupancy-plot",
                    occupancy_figure(found, part, look),
                    "Tokens in each over this time, up to as many as it holds.",
                    label="Tokens in the buffers that are waited for most, over time",
                    scrolling=True,
                ),
            ],
            className="tiles",
        ),
    ]
