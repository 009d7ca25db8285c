"""Designs as points in the plane of two objectives."""

from __future__ import annotations

from collections.abc import Sequence

from .canvas import COLORS, Canvas, Point

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
    """Where a value is on an axis, a little away from its ends."""
    share = (value - low) / (high - low) if high > low else 0.5
    return start + (0.05 + 0.9 * share) * (end - start)
