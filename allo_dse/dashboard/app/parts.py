"""Building blocks of the pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import new_class
from typing import Any, TypeAlias

from dash import dcc, html
from dash.development.base_component import Component

from ..figures.style import Spec

Text: TypeAlias = str | int | float
Child: TypeAlias = Text | Component | None
"""What may stand in a component."""
GRAPH_CONFIG: dcc.Graph.Config = {
    "displaylogo": False,
    "responsive": True,
    "scrollZoom": False,
    # Pictures are saved by buttons of our own; and nothing of a run is to leave this computer by a slip of the mouse.
    "modeBarButtonsToRemove": ["toImage", "sendChartToCloud", "sendDataToCloud"],
    "plotlyServerURL": "",
}


def _component(kind: str, *properties: str) -> Callable[..., Component]:
    """A component that assets/app.js defines."""
    without = ("_valid_wildcard_attributes", "available_wildcard_properties")
    own = {"__module__": __name__, "_namespace": "allo_dse", "_type": kind, "_prop_names": list(properties)}
    return new_class(kind, (Component,), exec_body=lambda body: body.update(own, **{name: [] for name in without}))


# Each of Dash's own components looks at the whole page at every change: of those that are often there, one does for
# what several would make.
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


def save_button(name: str) -> Component:
    """Save a plot as PNG or SVG."""
    return _Save(graph=name)


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
    return card(title, plot, tools=[*tools, save_button(name)], note=note, wide=wide)


def field(label: str, control: Component, *, narrow: bool = False) -> Component:
    """A control with its label."""
    return html.Label([label, control], className="field narrow" if narrow else "field")


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
