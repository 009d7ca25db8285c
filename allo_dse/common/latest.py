"""What was found lately, for as long as it may be asked for again."""

from __future__ import annotations

from typing import TypeVar

MOST_KEPT = 1024

K = TypeVar("K")
V = TypeVar("V")


def keep(known: dict[K, V], key: K, value: V, most: int = MOST_KEPT) -> V:
    """The value, kept under its key; of more than so many the one that was kept first goes."""
    if len(known) >= most:
        del known[next(iter(known))]
    known[key] = value
    return value
