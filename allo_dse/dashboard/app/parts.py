"""Building blocks of the pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from dash import dcc, html
from dash.development.base_component import Component

from ..figures.style import Spec

Child: TypeAlias = str | int | float | Component | None
Children: TypeAlias = Child | Sequence[Child]
"""What may stand in a component."""
GRAPH_CONFIG: dcc.Graph.Config = {
    "displaylogo": False,
    "responsive": True,
    "scrollZoom": False,
    # Pictures are saved by buttons of our own; and nothing of a run is to leave this computer by a slip of the mouse.
    "modeBarButtonsToRemove": ["toImage", "sendChartToCloud", "sendDataToCloud"],
    "plotlyServerURL": "",
}


def card(
    title: str, *children: Child, id: str | None = None, tools: Sequence[Child] = (), note: str = "", wide: bool = False
) -> Component:
    """A titled box."""
    head = html.Div(
        [html.H2(title), *([html.P(note, className="hint")] if note else []), html.Div(tools, className="tools")],
        className="card-head",
    )
    extra: dict[str, Any] = {"id": id} if id else {}
    return html.Section([head, *children], className="card wide" if wide else "card", **extra)


_NOTHING = {
    "xaxis": {"visible": False},
    "yaxis": {"visible": False},
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
}
"""Before a plot is drawn, and in either theme."""


def labelled(words: str) -> dict[str, Any]:
    """What a screen reader says of a component, as one of its keyword arguments."""
    return {"aria-label": words}


def graph(
    name: str,
    *,
    height: str = "",
    label: str,
    config: dcc.Graph.Config | None = None,
    figure: Spec | None = None,
    style: dict[str, str] | None = None,
) -> Component:
    """A plot that fills its card; `label` is what a screen reader says."""
    return html.Div(
        dcc.Graph(
            id=name,
            figure=figure or {"data": [], "layout": _NOTHING},
            config=config or GRAPH_CONFIG,
            clear_on_unhover=True,
            style=style or {"height": "100%"},
            className="graph",
        ),
        className=f"graph-box {height}",
        role="img",
        **labelled(label),
    )


def image_buttons(name: str) -> list[Component]:
    """Save a plot as PNG or SVG."""
    return [
        html.Button(
            kind.upper(),
            id={"type": "image", "graph": name, "format": kind},
            className="small",
            title=f"Save this plot as {kind.upper()}",
        )
        for kind in ("png", "svg")
    ]


def plot_card(
    title: str,
    name: str,
    *,
    note: str = "",
    height: str = "",
    tools: Sequence[Child] = (),
    wide: bool = False,
    style: dict[str, str] | None = None,
) -> Component:
    """A card with a plot."""
    plot = graph(name, height=height, label=title, style=style)
    return card(title, plot, tools=[*tools, *image_buttons(name)], note=note, wide=wide)


def field(label: str, control: Component, *, narrow: bool = False) -> Component:
    """A control with its label."""
    return html.Label([html.Span(label), control], className="field narrow" if narrow else "field")


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


def facts(pairs: Sequence[tuple[str, Children]]) -> Component:
    """Names and values."""
    return html.Dl([html.Div([html.Dt(name), html.Dd(value)]) for name, value in pairs], className="facts")


def table(
    head: Sequence[Children], rows: Sequence[Sequence[Children]], *, classes: list[str] | None = None
) -> Component:
    """A plain table; `classes` of its rows."""
    names = classes or [""] * len(rows)
    return html.Div(
        html.Table(
            [
                html.Thead(html.Tr([html.Th(cell, scope="col") for cell in head])),
                html.Tbody(
                    [html.Tr([html.Td(c) for c in row], className=n) for row, n in zip(rows, names, strict=True)]
                ),
            ]
        ),
        className="table-box",
    )


def empty(text: str) -> Component:
    return html.P(text, className="empty")
