"""Colours, and how figures are put together.

The colours are those of Okabe and Ito (2008), which people with any form of colour blindness can tell apart; what
matters is also told by a marker's shape.
"""

from __future__ import annotations

import base64
import textwrap
from html import escape
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.records import Frozen
from allo_dse.tune.store.run_info import shortened

from ..data.runs import ColumnAxis
from ..data.selection import label

BLUE, SKY, GREEN, ORANGE, VERMILLION, PURPLE, YELLOW = (
    "#0072B2",
    "#56B4E9",
    "#009E73",
    "#E69F00",
    "#D55E00",
    "#CC79A7",
    "#F0E442",
)
SERIES = (BLUE, ORANGE, GREEN, PURPLE, VERMILLION, SKY, YELLOW)
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif'

NAME = 34
"""Characters of a name that leave room for the plot beside it."""
LINE = 46
"""Characters of a line that fits a phone."""

Spec: TypeAlias = dict[str, Any]
"""A part of a Plotly figure, as plain data: a trace, an axis, a layout."""
Figure: TypeAlias = Spec


POINTS: Spec = {"type": "scatter", "mode": "markers"}
CURVES: Spec = {"type": "scatter", "mode": "lines"}
BARS: Spec = {"type": "bar", "orientation": "h"}
"""Beginnings of traces."""


class Theme(Frozen):
    """Colours of a figure's surroundings."""

    name: str
    text: str
    muted: str
    grid: str
    panel: str
    front: str
    dominated: str
    series: tuple[str, ...] = SERIES


LIGHT = Theme("light", "#1b1f24", "#5b6470", "#e2e6eb", "#ffffff", BLUE, "#a9b2bd")
DARK = Theme(
    "dark",
    "#e8ebf0",
    "#9aa4b1",
    "#333a44",
    "#1d2129",
    SKY,
    "#667180",
    (SKY, ORANGE, GREEN, PURPLE, VERMILLION, BLUE, YELLOW),
)


def theme(name: str | None) -> Theme:
    return DARK if name == "dark" else LIGHT


def mixed(first: str, second: str, share: float) -> str:
    """A colour between two, with a share of the second."""
    parts = ((int(first[i : i + 2], 16), int(second[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in parts)


def packed(values: NDArray[np.generic] | list[object]) -> Any:
    """Numbers, in one or two dimensions, as Plotly reads them fastest: base64 of the array's bytes."""
    array = np.ascontiguousarray(values)
    if array.dtype.kind not in "fiu" or not array.size:
        return array.tolist()
    code = {"f4": "f4", "i2": "i2", "i1": "i1"}.get(array.dtype.str[1:], "f8")
    if code == "f8":  # whole numbers take half as much, or a quarter
        largest = abs(array).max() if (array == np.rint(array)).all() else np.inf
        code = "i2" if largest < 1 << 15 else "i4" if largest < 1 << 31 else "f8"
    made = {"dtype": code, "bdata": base64.b64encode(array.astype(f"<{code}").tobytes()).decode()}
    return made if array.ndim == 1 else {**made, "shape": ", ".join(map(str, array.shape))}


def axis(look: Theme, title: str, **options: Any) -> Spec:
    """An axis with its title."""
    return {
        "title": {"text": title, "standoff": 8},
        "gridcolor": look.grid,
        "zerolinecolor": look.grid,
        "linecolor": look.grid,
        "tickfont": {"color": look.muted},
        "automargin": True,
        "minorloglabels": "complete",  # "3000" between "2000" and "4000", and not "3"
        **options,
    }


def number_axis(look: Theme, title: str, *, log: bool = False, ticks: list[str] | None = None) -> Spec:
    """An axis of numbers, linear or logarithmic; of texts when there are ticks."""
    if ticks is not None:
        return axis(look, title, tickvals=list(range(len(ticks))), ticktext=ticks, range=[-0.5, len(ticks) - 0.5])
    if log:
        return axis(look, title, type="log", minor={"showgrid": True, "gridcolor": look.grid, "griddash": "dot"})
    return axis(look, title, type="linear")


def layout(look: Theme, **options: Any) -> Spec:
    """A figure's layout: no background of its own, the page's fonts, no animation that would slow down updates."""
    return {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 12, "color": look.text},
        "margin": {"l": 60, "r": 16, "t": 12, "b": 48},
        "hoverlabel": {"bgcolor": look.panel, "bordercolor": look.grid, "font": {"color": look.text}},
        "legend": {
            "orientation": "h",
            "y": 1.02,
            "yanchor": "bottom",
            "x": 0,
            "font": {"size": 11},
            "traceorder": "normal",
        },
        "colorway": list(look.series),
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": look.muted, "activecolor": look.front},
        **options,
    }


def hatching(number: int) -> dict[str, object]:
    """A pattern over a bar's colour, one per number, so that bars differ by more than colour."""
    shape = ("", "/", "\\", ".", "x", "-", "+")[number % 7]
    return {
        "fillmode": "overlay",
        "fgcolor": "#ffffff",
        "fgopacity": 0.6,
        "size": 6,
        "solidity": 0.25,
        "shape": shape,
    }


def figure_of(look: Theme, data: list[Spec], **options: Any) -> Figure:
    """Return traces with their layout; see `layout` for the options."""
    return {"data": data, "layout": layout(look, **options)}


def note(look: Theme, text: str) -> Figure:
    """A figure that says why there is nothing to see."""
    lines = "<br>".join(escape(line, quote=False) for line in textwrap.wrap(text, LINE))
    words = {"text": lines, "showarrow": False, "xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5}
    hidden = {"visible": False}
    return {
        "data": [],
        "layout": layout(
            look, xaxis=hidden, yaxis=hidden, annotations=[{**words, "font": {"color": look.muted, "size": 14}}]
        ),
    }


CIVIDIS = (
    "#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838",
)  # fmt: skip
"""The scale of Nuñez, Anderton and Renslow (2018), which the colour-blind can read too."""
NO_VALUE = "no value"
MOST_TICK = 14
"""Characters of a text on the scale."""


def scale(look: Theme, start: float = 0.0) -> list[tuple[float, str]]:
    """Colours from `start` to 1. In the dark without those that can hardly be told from what is behind them."""
    colors = CIVIDIS if look.name == "light" else CIVIDIS[3:]
    return list(zip(np.linspace(start, 1, len(colors)).tolist(), colors, strict=True))


def color_axis(axis: ColumnAxis, look: Theme) -> Spec:
    """The scale of designs that are coloured by a column."""
    bar: Spec = {"title": {"text": label(axis.name), "side": "right"}, "thickness": 12, "outlinewidth": 0}
    bar["tickfont"] = {"color": look.muted, "size": 11}
    if axis.ticks is not None:
        words = [shortened(tick, MOST_TICK) for tick in axis.ticks]
        bar |= {"tickvals": list(range(len(words))), "ticktext": words}
    return {"colorscale": scale(look), "colorbar": bar}
