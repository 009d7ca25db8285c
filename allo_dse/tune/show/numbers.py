"""How numbers are written for people."""

from __future__ import annotations


def format_value(value: float | None) -> str:
    """Four significant digits, without an exponent where that can be read."""
    if value is None:
        return "-"
    if value == int(value) and abs(value) < 1e9:
        return f"{int(value):,}"
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def front_title(designs: int) -> str:
    """Above the table of so many designs."""
    return f"Pareto front: {designs} design{'' if designs == 1 else 's'}"


def format_duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
    return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min"
