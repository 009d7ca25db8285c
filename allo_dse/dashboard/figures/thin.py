"""Drawing a cloud of many points with few: one per cell of a grid fine enough that the picture stays the same."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..data.columns import Floats

COLUMNS, ROWS = 150, 110
MOST = 6_000


def thin(x: Floats, y: Floats, *, view: tuple[Floats, Floats] | None = None, most: int = MOST) -> NDArray[np.int64]:
    """Positions of the points to draw, in ascending order; points without a coordinate are left out.

    Args:
        x, y: on the scale of the screen (logarithms, for a logarithmic axis).
        view: the ranges (low, high) of x and y that are shown; all of them by default. Points outside are left out.
        most: how many at most.
    """
    usable = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    if view is not None:
        (x0, x1), (y0, y1) = view
        shown = (x[usable] >= x0) & (x[usable] <= x1) & (y[usable] >= y0) & (y[usable] <= y1)
        usable = usable[shown]
    if len(usable) <= most // 2:
        return usable
    cells = _cells(x[usable], COLUMNS) * ROWS + _cells(y[usable], ROWS)
    _, first = np.unique(cells, return_index=True)
    kept = np.sort(usable[first])
    return kept if len(kept) <= most else kept[np.linspace(0, len(kept) - 1, most).astype(np.int64)]


def _cells(values: Floats, count: int) -> NDArray[np.int64]:
    low, high = values.min(), values.max()
    return ((values - low) / max(high - low, 1e-300) * (count - 1)).astype(np.int64)
