"""Values that a test knows to be there."""

from __future__ import annotations

from typing import TypeVar

Value = TypeVar("Value")


def present(value: Value | None) -> Value:
    """The value, of which only its type says that it may be missing."""
    assert value is not None
    return value
