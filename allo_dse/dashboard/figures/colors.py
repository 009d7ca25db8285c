"""Designs coloured by what a column says of them."""

from __future__ import annotations

import numpy as np

from allo_dse.tune.store.texts import shortened

from ..data.board import Axis
from ..data.units import label
from .style import Spec, Theme

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


def color_axis(axis: Axis, look: Theme) -> Spec:
    """The scale of designs that are coloured by a column."""
    bar: Spec = {"title": {"text": label(axis.name), "side": "right"}, "thickness": 12, "outlinewidth": 0}
    bar["tickfont"] = {"color": look.muted, "size": 11}
    if axis.ticks is not None:
        words = [shortened(tick, MOST_TICK) for tick in axis.ticks]
        bar |= {"tickvals": list(range(len(words))), "ticktext": words}
    return {"colorscale": scale(look), "colorbar": bar}
