"""Finding room for texts beside lines: on no box, on no other text, and across as few lines as can be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from .canvas import Canvas, Point, text_width

Area = tuple[float, float, float, float]
"""Left, top, right and bottom."""

SIZE = 9.5
_SWATCH = 9.0
_MARGIN = 3.0
_MOST_CROSSED = 1
_STEP = 4.0


def curve(points: Sequence[Point], bend: float) -> list[Point]:
    """Points a few pixels apart on what `Canvas.path` draws."""
    found: list[Point] = []
    for (x1, y1), (x2, y2) in pairwise(points):
        count = max(2, int((abs(x2 - x1) + abs(y2 - y1)) / _STEP))
        for n in range(count + 1):
            t = n / count
            a, b, c, d = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3
            found.append(((a + b) * x1 + (c + d) * x2, a * y1 + b * (y1 + bend) + c * (y2 - bend) + d * y2))
    return found


def straight(points: Sequence[Point]) -> list[Point]:
    """Points a few pixels apart on straight lines from point to point."""
    found: list[Point] = []
    for (x1, y1), (x2, y2) in pairwise(points):
        count = max(1, int((abs(x2 - x1) + abs(y2 - y1)) / _STEP))
        found += [(x1 + (x2 - x1) * n / count, y1 + (y2 - y1) * n / count) for n in range(count + 1)]
    return found


def beside(line: Sequence[Point]) -> list[Point]:
    """Places for a text right of a line, those near its middle first."""
    middle = len(line) / 2
    order = sorted(range(len(line)), key=lambda n: abs(n - middle))
    return [(line[n][0] + 5, line[n][1] + SIZE / 3) for n in order]


class LineTexts:
    """Texts on a canvas that keep clear of what is there already."""

    def __init__(self, canvas: Canvas, boxes: Iterable[Area]) -> None:
        self._canvas = canvas
        self._taken = list(boxes)
        self._lines: list[Point] = []

    def avoid(self, line: Iterable[Point]) -> None:
        """A line that texts should not cross."""
        self._lines += line

    def write(self, text: str, places: Iterable[Point], color: str) -> bool:
        """Write a text, with its line's colour in front, at the best of some places; not at all where none is free.

        Args:
            places: where the text may begin, on its base line, the preferred one first; it may also end at its line.
        """
        width = _SWATCH + text_width(text, SIZE)
        best: tuple[int, float, float] | None = None
        for x, y in places:
            for left in (x, x - 10 - width):
                crossed = self._crossed(left, y, width)
                if crossed is not None and (best is None or crossed < best[0]):
                    best = crossed, left, y
            if best is not None and best[0] == 0:
                break
        if best is None or best[0] > _MOST_CROSSED:
            return False
        _, left, y = best
        self._taken.append(_area(left, y, width))
        self._canvas.fill(left, y - 6.5, 6, 6, color)
        self._canvas.text(left + _SWATCH, y, text, size=SIZE)
        return True

    def _crossed(self, left: float, y: float, width: float) -> int | None:
        """How many points of lines a text there would cover; None where it is not free."""
        x1, y1, x2, y2 = _area(left, y, width)
        if x1 < 0 or any(x1 < right and own < x2 and y1 < low and top < y2 for own, top, right, low in self._taken):
            return None
        return sum(x1 < x < x2 and y1 < own < y2 for x, own in self._lines)


def _area(left: float, y: float, width: float) -> Area:
    return left - _MARGIN, y - SIZE - 1, left + width + _MARGIN, y + _MARGIN
