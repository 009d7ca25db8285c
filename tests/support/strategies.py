"""Strategies that are made once, which takes longer than drawing from them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from hypothesis import strategies as st


@lru_cache(maxsize=None, typed=True)
def of(*values: Any) -> st.SearchStrategy[Any]:
    """One of some values."""
    return st.sampled_from(values)


@lru_cache(maxsize=None, typed=True)
def lists_of(*values: Any, most: int) -> st.SearchStrategy[list[Any]]:
    """At most so many of some values."""
    return st.lists(st.sampled_from(values), max_size=most)
