"""Building blocks of the pages."""

from __future__ import annotations

from typing import Any

from dash import dcc, html

GRAPH_CONFIG: dict[str, Any] = {
    "displaylogo": False,
    "responsive": True,
    "scrollZoom": False,
    # Pictures are saved by buttons of our own; and nothing of a run is to leave this computer by a slip of the mouse.
    "modeBarButtonsToRemove": ["toImage", "sendChartToCloud", "sendDataToCloud"],
    "plotlyServerURL": "",
}


def card(title: str, *children: Any, id: str | None = None, tools: Any = (), note: str = "", wide: bool = False) -> Any:
    """A titled box."""
    head = html.Div(
        [html.H2(title), *([html.P(note, className="hint")] if note else []), html.Div(tools, className="tools")]
    )
    head.className = "card-head"
    extra = {"id": id} if id else {}
    return html.Section([head, *children], className="card wide" if wide else "card", **extra)


_NOTHING = {
    "xaxis": {"visible": False},
    "yaxis": {"visible": False},
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
}
"""Before a plot is drawn, and in either theme."""


def graph(
    name: str,
    *,
    height: str = "",
    label: str,
    config: dict[str, Any] | None = None,
    figure: Any = None,
    style: dict[str, str] | None = None,
) -> Any:
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
        **{"aria-label": label},
    )


def image_buttons(name: str) -> list[Any]:
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
    title: str, name: str, *, note: str = "", height: str = "", tools: Any = (), wide: bool = False, style: Any = None
) -> Any:
    """A card with a plot."""
    plot = graph(name, height=height, label=title, style=style)
    return card(title, plot, tools=[*tools, *image_buttons(name)], note=note, wide=wide)


def field(label: str, control: Any, *, narrow: bool = False) -> Any:
    """A control with its label."""
    return html.Label([html.Span(label), control], className="field narrow" if narrow else "field")


def select(
    name: str, *, value: Any = None, clearable: bool = False, placeholder: str = "", options: list[Any] | None = None
) -> Any:
    """A list to choose one from; without options here, a callback sets them."""
    return dcc.Dropdown(id=name, value=value, clearable=clearable, placeholder=placeholder, options=options or [])


def checks(name: str, options: dict[str, str], value: list[str]) -> Any:
    return dcc.Checklist(
        id=name,
        options=[{"label": text, "value": key} for key, text in options.items()],
        value=value,
        inline=True,
        className="checks",
    )


def facts(pairs: list[tuple[str, Any]]) -> Any:
    """Names and values."""
    return html.Dl([html.Div([html.Dt(name), html.Dd(value)]) for name, value in pairs], className="facts")


def table(head: list[Any], rows: list[list[Any]], *, classes: list[str] | None = None) -> Any:
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


def empty(text: str) -> Any:
    return html.P(text, className="empty")
