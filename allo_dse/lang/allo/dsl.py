"""Names that programs use as `allo.<name>`: loops, compile-time conditions and operations on whole tiles."""

from __future__ import annotations

from ..intrinsics import INTRINSICS

_ELSEWHERE = ("max", "min", "constant", "gather", "scatter")  # Python's own, or names of other modules
globals().update({name: meaning for name, meaning in INTRINSICS.items() if name not in _ELSEWHERE})
