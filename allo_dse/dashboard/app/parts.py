"""Building blocks of the pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from types import new_class
from typing import Any, TypeAlias

import flask
from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component

from allo_dse.common.errors import AlloDseError, StudyError
from allo_dse.tune.store.rundir import running

from ..data.progress import statuses
from ..data.runs import Board, Ref
from ..data.selection import text
from ..figures.style import Figure, Spec
from .context import PAGES, Context

Text: TypeAlias = str | int | float
Child: TypeAlias = Text | Component | None
"""Children of a component."""
GRAPH_CONFIG: dcc.Graph.Config = {
    "displaylogo": False,
    "responsive": True,
    "scrollZoom": False,
    # Our own buttons save pictures. No slip of the mouse may send a run's data to another computer.
    "modeBarButtonsToRemove": ["toImage", "sendChartToCloud", "sendDataToCloud"],
    "plotlyServerURL": "",
}


def _component(kind: str, *properties: str) -> Callable[..., Component]:
    """A component that assets/app.js defines."""
    without = ("_valid_wildcard_attributes", "available_wildcard_properties")
    own = {"__module__": __name__, "_namespace": "allo_dse", "_type": kind, "_prop_names": list(properties)}
    return new_class(kind, (Component,), exec_body=lambda body: body.update(own, **{name: [] for name in without}))


# Each of Dash's own components inspects the whole page at every change. Frequent combinations are one component here.
_Card = _component("Card", "children", "id", "title", "note", "tools", "wide")
_Facts = _component("Facts", "pairs")
_Save = _component("Save", "graph")
_Table = _component("Table", "head", "rows", "classes")


def card(
    title: str, *children: Child, id: str | None = None, tools: Sequence[Child] = (), note: str = "", wide: bool = False
) -> Component:
    """A titled box."""
    extra: dict[str, Any] = {"id": id} if id else {}
    return _Card(children=[*tools, *children], title=title, note=note, tools=len(tools), wide=wide, **extra)


_NOTHING = {
    "xaxis": {"visible": False},
    "yaxis": {"visible": False},
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
}
"""Before a plot is drawn, and in either theme."""


def labelled(words: str) -> dict[str, Any]:
    """Return a component's label for screen readers, as a keyword argument."""
    return {"aria-label": words}


def graph(
    name: str,
    *,
    height: str = "",
    label: str,
    figure: Spec | None = None,
    style: dict[str, str] | None = None,
) -> Component:
    """A plot that fills its card; `label` is for screen readers."""
    return html.Div(
        dcc.Graph(
            id=name,
            figure=figure or {"data": [], "layout": _NOTHING},
            config=GRAPH_CONFIG,
            clear_on_unhover=True,
            style=style or {"height": "100%"},
            className="graph",
        ),
        className=f"graph-box {height}",
        role="img",
        **labelled(label),
    )


def save_button(name: str) -> Component:
    """Save a plot as PNG or SVG."""
    return _Save(graph=name)


def plot_card(
    title: str,
    name: str,
    *,
    note: str = "",
    height: str = "",
    wide: bool = False,
    style: dict[str, str] | None = None,
) -> Component:
    """A card with a plot."""
    plot = graph(name, height=height, label=title, style=style)
    return card(title, plot, tools=[save_button(name)], note=note, wide=wide)


def field(label: str, control: Component) -> Component:
    """A control with its label."""
    return html.Label([label, control], className="field")


def select(
    name: str,
    *,
    value: str | int | None = None,
    clearable: bool = False,
    placeholder: str = "",
    options: Sequence[object] | None = None,
) -> Component:
    """A list to choose one from; without options here, a callback sets them."""
    return dcc.Dropdown(id=name, value=value, clearable=clearable, placeholder=placeholder, options=options or [])


def checks(name: str, options: dict[str, str], value: list[str]) -> Component:
    return dcc.Checklist(
        id=name,
        options=[{"label": text, "value": key} for key, text in options.items()],
        value=value,
        inline=True,
        className="checks",
    )


def facts(pairs: Iterable[tuple[str, Text]]) -> Component:
    """Names and values."""
    return _Facts(pairs=list(pairs))


def table(head: Sequence[str], rows: Iterable[Sequence[Text]], *, classes: Sequence[str] = ()) -> Component:
    """A plain table; `classes` of its rows."""
    return _Table(head=list(head), rows=[list(row) for row in rows], classes=list(classes))


def empty(text: str) -> Component:
    return html.P(text, className="empty")


def of_design(board: Board, design: str, made: Callable[[Ref], Component]) -> Component:
    """Return a part of a design's page, or a text on why there is none."""
    ref = board.reference(design)
    if ref is None:
        return empty("This design is not in the run any more.")
    try:
        return made(ref)
    except AlloDseError as error:
        return html.P(error.with_hint, className="error")


def hint(words: Any) -> Component:
    """A line of small text."""
    return html.P(words, className="hint")


def later(kind: str, design: str) -> Component:
    """The place of a part of a design's page that a callback makes."""
    return dcc.Loading(html.Div(id={"type": kind, "design": design}, className="later"), type="dot")


def figure_card(
    title: str,
    name: str,
    figure: Figure,
    words: str = "",
    *,
    label: str = "",
    height_px: int = 320,
    scrolling: bool = False,
    wide: bool = False,
) -> Component:
    """A card with words and a figure in its own height; one that scrolls is too wide for some windows.

    Args:
        label: for screen readers; the title by default.
        height_px: of a figure without one.
    """
    style = {"height": f"{figure['layout'].get('height', height_px)}px"}
    drawn = dcc.Graph(id=name, figure=figure, config=GRAPH_CONFIG, style=style, className="graph")
    box = html.Div(drawn, role="img", className="scrolling" if scrolling else "", **labelled(label or title))
    return card(title, *([hint(words)] if words else []), box, tools=[save_button(name)], wide=wide)


# Callbacks of the frame around the pages: growing runs, navigation, theme, status and filter.


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
