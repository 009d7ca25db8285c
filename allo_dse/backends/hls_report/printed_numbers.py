"""Numbers as the reports print them."""

from __future__ import annotations

import re

from .parts import Cycles

_WHOLE = re.compile(r"~?([0-9]{1,18})\Z")
_RANGE = re.compile(r"([0-9]{1,18}|\?|undef)\s*(?:~|-)\s*([0-9]{1,18}|\?|undef|inf)\Z")
_REAL = re.compile(r"-?[0-9]{1,12}(?:\.[0-9]{1,12})?")


def whole(text: str | None) -> int | None:
    """`1234`, or `~0`; None for `undef`, `?`, `-`, `inf`, `NA` and everything that is not a whole number."""
    match = _WHOLE.match((text or "").strip())
    return int(match.group(1)) if match else None


def real(text: str | None) -> float | None:
    """The number a text such as `3.33 ns` begins with."""
    match = _REAL.match((text or "").strip())
    return float(match.group()) if match else None


def cycles(text: str | None) -> Cycles:
    """`128`, `0 ~ 512` or `undef`."""
    match = _RANGE.match((text or "").strip())
    if match:
        return Cycles(min=whole(match.group(1)), max=whole(match.group(2)))
    exact = whole(text)
    return Cycles(min=exact, max=exact)
