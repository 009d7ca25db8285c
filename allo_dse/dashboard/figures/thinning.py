"""Thinning of point clouds: one point per spot that is visible as such on the screen."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.records import Frozen

from ..data.columns import Floats

COLUMNS, ROWS = 150, 110
"""Spots across and up a plot: about as large as the points of a small run."""
Rows = NDArray[np.int64]
Span = tuple[float, float]
Window = tuple[Span, Span]


class Spots(Frozen):
    """A plane cut into equal spots.

    Attributes:
        x, y: edges of the columns and rows (one more than these), ascending, on the scale of the screen.
        first: per row and column the first point there; -1 where there is none.
        counts: per row and column how many points there are.
    """

    x: Floats
    y: Floats
    first: Rows
    counts: Rows

    def cropped(self) -> Spots:
        """Without the empty rows and columns around the points."""
        (top, bottom), (left, right) = ((i.min(), i.max() + 1) for i in np.nonzero(self.counts))
        inside = slice(top, bottom), slice(left, right)
        return Spots(self.x[left : right + 1], self.y[top : bottom + 1], self.first[inside], self.counts[inside])


def on_screen(values: Floats, log: bool) -> Floats:
    """Positions of values on an axis; NaN for values that a logarithmic axis cannot show."""
    if not log:
        return values
    with np.errstate(all="ignore"):
        logs = np.log10(values)
    return np.where(np.isfinite(logs), logs, np.nan)


def window(x: Floats, y: Floats) -> Window:
    """The ranges that hold all points, the outermost in the middle of their spots; an empty range is widened."""
    return _span(x, COLUMNS), _span(y, ROWS)


def _span(values: Floats, count: int) -> Span:
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    if not high - low > 1e-9 * max(abs(low), abs(high)):
        return low - 0.5, high + 0.5
    margin = (high - low) / (count - 1) / 2
    return low - margin, high + margin


def visible(x: Floats, y: Floats, view: Window | None) -> Rows:
    """Positions of the points that have both coordinates and lie in the window."""
    shown = np.isfinite(x) & np.isfinite(y)
    for values, span in zip((x, y), view or (), strict=False):
        shown &= (values >= span[0]) & (values <= span[1])
    return np.flatnonzero(shown)


def spots(x: Floats, y: Floats, view: Window, columns: int = COLUMNS, rows: int = ROWS) -> Spots:
    """Count the points of a window by the spot where they lie.

    Args:
        x, y: finite, on the scale of the screen (logarithms, for a logarithmic axis), and in the window.
    """
    cells = _cells(y, view[1], rows) * columns + _cells(x, view[0], columns)
    first = np.full(rows * columns, -1)
    first[cells[::-1]] = np.arange(len(cells))[::-1]
    edges = [np.linspace(*span, count + 1) for span, count in zip(view, (columns, rows), strict=True)]
    counts = np.bincount(cells, minlength=rows * columns)
    return Spots(edges[0], edges[1], first.reshape(rows, columns), counts.reshape(rows, columns))


def thin(x: Floats, y: Floats, most: int) -> Rows:
    """Positions of at most `most` (at least 8) points, ascending: all of them if they are no more, else one per spot.

    The outermost points in each direction are among them. All have both coordinates.
    """
    if len(x) <= most:
        return np.arange(len(x))
    outermost = [x.argmin(), x.argmax(), y.argmin(), y.argmax()]
    for share in 0.8 ** np.arange(25):  # along a line more spots are found than in a cloud, and may be smaller
        columns, rows = max(1, int(share * COLUMNS)), max(1, int(share * ROWS))
        found = spots(x, y, window(x, y), columns, rows).first
        if np.count_nonzero(found >= 0) <= most - len(outermost):
            break
    return np.unique(np.concatenate([found[found >= 0], outermost]))


def _cells(values: Floats, span: Span, count: int) -> Rows:
    return np.clip((values - span[0]) / (span[1] - span[0]) * count, 0, count - 1).astype(np.int64)
