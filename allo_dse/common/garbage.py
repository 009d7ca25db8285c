"""Garbage collection during a search."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


def collect_rarely() -> None:
    """Look for reference cycles seldom: a search makes many objects but hardly any cycles, and looking takes time."""
    gc.freeze()
    gc.set_threshold(200_000, 20, 50)


@contextmanager
def rare_collections() -> Iterator[None]:
    """The same for a while."""
    before = gc.get_threshold()
    collect_rarely()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@contextmanager
def no_collections() -> Iterator[None]:
    """While much is read that stays: looking for cycles in it again and again takes up to a fifth of the time."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if before:
            gc.enable()
