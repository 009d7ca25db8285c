"""Designs coloured by what a column says of them."""

from __future__ import annotations

from allo_dse.tune.store.texts import shortened

from ..data.board import Axis
from ..data.units import label
from .style import Spec, Theme

SCALE = "Cividis"
NO_VALUE = "no value"
MOST_TICK = 14
"""Characters of a text on the scale."""


def color_axis(axis: Axis, look: Theme) -> Spec:
    """The scale of designs that are coloured by a column, which the colour-blind can read too."""
    bar: Spec = {"title": {"text": label(axis.name), "side": "right"}, "thickness": 12, "outlinewidth": 0}
    bar["tickfont"] = {"color": look.muted, "size": 11}
    if axis.ticks is not None:
        words = [shortened(tick, MOST_TICK) for tick in axis.ticks]
        bar |= {"tickvals": list(range(len(words))), "ticktext": words}
    return {"colorscale": SCALE, "colorbar": bar}
