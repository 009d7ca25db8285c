"""Divisors of a number, which every way to cut an axis into equal parts begins with."""

from __future__ import annotations

import math


def divisors_of(number: int) -> tuple[int, ...]:
    """All divisors of a positive number, ascending."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))
