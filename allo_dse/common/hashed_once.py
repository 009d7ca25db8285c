"""Hashes of objects that are looked up often."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")


def hashed_once(kind: type[T]) -> type[T]:
    """A frozen dataclass that computes the hash of each of its objects once.

    Other processes are handed the fields alone: texts have other hashes there.
    """
    computed = kind.__hash__

    def hashed(self: Any) -> int:
        known = self.__dict__.get("_hash")
        if known is None:
            known = self.__dict__["_hash"] = computed(self)
        return known  # type: ignore[no-any-return]

    def state(self: Any) -> dict[str, Any]:
        return {own.name: getattr(self, own.name) for own in fields(self)}

    kind.__hash__ = hashed  # type: ignore[method-assign]
    kind.__getstate__ = state  # type: ignore[method-assign]
    return kind
