"""A few shapes as SVG text, readable on light and dark pages alike.

Lines and text take the colour of the page around them (`currentColor`); opened on its own, a picture follows the
browser's light or dark scheme. Data has colours that the colour-blind can tell apart, on either ground.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from allo_dse.common.quoting import html_text

# The colours of Okabe and Ito, the light ones darkened to a contrast of 3:1 with white.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#b65c94", "#b8860b", "#3a9bd9")
BOLD = 1.2
"""Largest ratio of the width of bold text to `text_width`."""
GREY = "#808080"
DASHES = ("", "6 3", "2 2", "8 3 2 3")

_STYLE = ":root.allo-picture{color-scheme:light dark;color:CanvasText}"

Point = tuple[float, float]


class Canvas:
    """Collects shapes; `text()` is the picture."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.parts: list[str] = []
        self.width = 0.0
        self.height = 0.0

    def _reach(self, x: float, y: float) -> None:
        self.width, self.height = max(self.width, x), max(self.height, y)

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        tip: str = "",
        radius: float = 4,
        opacity: float = 0.12,
    ) -> None:
        """A rectangle that shades the page."""
        self._reach(x + width, y + height)
        shape = f'x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" rx="{_n(radius)}"'
        style = f'fill="{GREY}" fill-opacity="{opacity}" stroke="{GREY}"'
        self.parts.append(f"<rect {shape} {style}>{_tip(tip)}</rect>" if tip else f"<rect {shape} {style}/>")

    def fill(self, x: float, y: float, width: float, height: float, color: str, tip: str = "") -> None:
        """A filled rectangle without an outline."""
        self._reach(x + width, y + height)
        shape = f'x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}"'
        self.parts.append(f'<rect {shape} fill="{color}">{_tip(tip)}</rect>')

    def dot(self, x: float, y: float, radius: float, color: str, tip: str) -> None:
        """A filled circle."""
        self._reach(x + radius, y + radius)
        self.parts.append(f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}" fill="{color}">{_tip(tip)}</circle>')

    def line(
        self,
        points: Sequence[Point],
        color: str,
        *,
        width: float = 1.4,
        dash: str = "",
        tip: str = "",
        arrow: bool = False,
    ) -> None:
        """Straight lines from point to point."""
        path = "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in points)
        self._path(path, color, width, dash, tip)
        if arrow:
            self._arrow(points[-2], points[-1], color)

    def path(self, points: Sequence[Point], bend: float, color: str, *, dash: str = "", tip: str = "") -> None:
        """A curve with an arrowhead, downwards from point to point and vertical at each; `bend` is its stiffness."""
        path = f"M{_n(points[0][0])} {_n(points[0][1])}"
        for (x1, y1), (x2, y2) in pairwise(points):
            path += f"C{_n(x1)} {_n(y1 + bend)} {_n(x2)} {_n(y2 - bend)} {_n(x2)} {_n(y2)}"
        self._path(path, color, 1.6, dash, tip)
        x, y = points[-1]
        self._arrow((x, y - 1), (x, y), color)

    def _path(self, path: str, color: str, width: float, dash: str, tip: str) -> None:
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<path d="{path}" fill="none" stroke="{color}" stroke-width="{_n(width)}"{dashed}>{_tip(tip)}</path>'
        )

    def _arrow(self, before: Point, tip: Point, color: str) -> None:
        (x1, y1), (x2, y2) = before, tip
        length = max(1e-9, ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5)
        dx, dy = (x2 - x1) / length, (y2 - y1) / length
        corners = [
            (x2, y2),
            (x2 - 7 * dx - 3.5 * dy, y2 - 7 * dy + 3.5 * dx),
            (x2 - 7 * dx + 3.5 * dy, y2 - 7 * dy - 3.5 * dx),
        ]
        points = " ".join(f"{_n(x)},{_n(y)}" for x, y in corners)
        self.parts.append(f'<polygon points="{points}" fill="{color}"/>')

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 11,
        anchor: str = "start",
        bold: bool = False,
        faint: bool = False,
        color: str = "",
    ) -> None:
        """One line of text; `y` is its base line."""
        self._reach(x + (text_width(text, size) if anchor == "start" else 0), y + size / 3)
        style = f' text-anchor="{anchor}"' if anchor != "start" else ""
        style += ' font-weight="600"' if bold else ""
        style += ' fill-opacity="0.72"' if faint else ""
        style += f' fill="{color}"' if color else ""
        self.parts.append(f'<text x="{_n(x)}" y="{_n(y)}" font-size="{_n(size)}"{style}>{html_text(text)}</text>')

    def legend(self, x: float, y: float, entries: Iterable[tuple[str, str, str]], most: float = 900) -> float:
        """(name, color, dash) side by side, in lines of at most `most`; returns the bottom."""
        left = x
        for name, color, dash in entries:
            if x > left and x + 40 + text_width(name) > left + most:
                x, y = left, y + 18
            self.line([(x, y), (x + 22, y)], color, width=3, dash=dash)
            self.text(x + 28, y + 4, name)
            x += 48 + text_width(name)
        return y + 12

    def __str__(self) -> str:
        width, height = _n(self.width + 12), _n(self.height + 12)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="allo-picture" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" font-family="system-ui, sans-serif" fill="currentColor" role="img">'
        )
        return "\n".join([head, f"<style>{_STYLE}</style>", _tip(self.title), *self.parts, "</svg>\n"])


def styles(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """A colour and a dash pattern for each name; no two alike among the first 24."""
    known = list(dict.fromkeys(names))
    return {name: (COLORS[i % len(COLORS)], DASHES[i // len(COLORS) % len(DASHES)]) for i, name in enumerate(known)}


def text_width(text: str, size: float = 11) -> float:
    """About how wide a text is: fonts differ."""
    narrow = sum(character in "il.,:;|()[]'·- " for character in text)
    return size * (0.6 * (len(text) - narrow) + 0.34 * narrow)


def fit(text: str, width: float, size: float = 11) -> str:
    """A text, shortened in the middle to a width."""
    if text_width(text, size) <= width:
        return text
    keep = len(text)
    while keep > 3 and text_width(text[:keep], size) + size > width:
        keep -= 1
    return text[: keep - keep // 3] + "…" + text[len(text) - keep // 3 :]


def _n(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _tip(text: str) -> str:
    return f"<title>{html_text(text)}</title>" if text else ""


# Scatter plot of designs over two objectives.


_WIDTH, _HEIGHT = 380.0, 210.0
_LEFT, _TOP = 70.0, 14.0
_RADIUS = 4.0


def points_svg(points: Sequence[Point], x_name: str, y_name: str, tips: Sequence[str]) -> str:
    """The picture; each point says its tip."""
    canvas = Canvas(f"{y_name} against {x_name}")
    right, bottom = _LEFT + _WIDTH, _TOP + _HEIGHT
    canvas.line([(_LEFT, _TOP), (_LEFT, bottom), (right, bottom)], "currentColor", width=1)
    (x_low, x_high), (y_low, y_high) = _span([x for x, _ in points]), _span([y for _, y in points])
    for value in dict.fromkeys((x_low, x_high)):
        canvas.text(_at(value, x_low, x_high, _LEFT, right), bottom + 16, _said(value), size=10, anchor="middle")
    for value in dict.fromkeys((y_low, y_high)):
        canvas.text(_LEFT - 6, _at(value, y_low, y_high, bottom, _TOP) + 4, _said(value), size=10, anchor="end")
    canvas.text((_LEFT + right) / 2, bottom + 32, x_name, anchor="middle")
    canvas.text(_LEFT, _TOP - 4, y_name)
    for (x, y), tip in zip(points, tips, strict=True):
        centre = _at(x, x_low, x_high, _LEFT, right), _at(y, y_low, y_high, bottom, _TOP)
        canvas.dot(*centre, _RADIUS, COLORS[0], tip)
    return str(canvas)


def _said(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _span(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def _at(value: float, low: float, high: float, start: float, end: float) -> float:
    """Return the position of a value on an axis, a little away from its ends."""
    share = (value - low) / (high - low) if high > low else 0.5
    return start + (0.05 + 0.9 * share) * (end - start)
