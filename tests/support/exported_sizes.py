"""Module that an exported program imports from another folder of its project."""

from __future__ import annotations

from . import exported_units
from .exported_units import UNIT

HALF = 0.5


def sizes(dimensions: int) -> tuple[int, ...]:
    return (exported_units.UNIT,) * (dimensions - 1) + (UNIT,)
