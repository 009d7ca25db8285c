"""Strategies that are made once, which takes longer than drawing from them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


@lru_cache(maxsize=None, typed=True)
def of(*values: Any) -> st.SearchStrategy[Any]:
    """One of some values."""
    return st.sampled_from(values)


@lru_cache(maxsize=None, typed=True)
def lists_of(*values: Any, most: int) -> st.SearchStrategy[list[Any]]:
    """At most so many of some values."""
    return st.lists(st.sampled_from(values), max_size=most)


@cache
def orders(count: int) -> st.SearchStrategy[list[int]]:
    """So many numbers from zero on, in any order."""
    return st.permutations(range(count))


def shuffled(draw: st.DrawFn, items: Sequence[T]) -> list[T]:
    """The items in any order."""
    return [items[i] for i in draw(orders(len(items)))]
