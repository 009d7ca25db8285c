"""Records: immutable values with names.

They are structs of msgspec: compiled code creates, compares and hashes their values, and a class is created 50 times
faster than a dataclass, which took a fifth of a small run. Dataclasses remain where a comparison leaves out a field,
where code looks at fields by name, and where users derive from a class.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, dataclass_transform

from msgspec import Struct, field, structs

if TYPE_CHECKING:
    from numpy.typing import NDArray

_R = TypeVar("_R")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Frozen(Struct, frozen=True):
    """An immutable record: a struct of msgspec, whose fields are those of its class."""


def replace(record: _R, /, **changes: Any) -> _R:
    """A record of either kind with other values of some fields."""
    if isinstance(record, Struct):
        return structs.replace(record, **changes)
    return dataclasses.replace(record, **changes)  # type: ignore[type-var]


# Types of data from JSON decoders and NumPy, whose contents are known at run time only.


Array: TypeAlias = "NDArray[Any]"
"""An array of any element type; a text at run time, so that commands without numbers do without NumPy."""
Ints: TypeAlias = tuple[int, ...]
"""A shape, a mesh, an index or a process id: a number per dimension."""
JsonObject: TypeAlias = dict[str, Any]
"""A JSON object as it is written and read; whoever reads it checks what is in it."""


def divisors_of(number: int) -> tuple[int, ...]:
    """All divisors of a positive number, ascending."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


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


MOST_KEPT, MOST_SMALL_KEPT = 1 << 10, 1 << 13
"""Values in a cache: the costs of a schedule, say, and smaller ones such as a fold."""

K = TypeVar("K")
V = TypeVar("V")


def keep(known: dict[K, V], key: K, value: V, most: int = MOST_KEPT) -> V:
    """Store a value under its key and return it; the oldest entry is dropped beyond `most`."""
    if len(known) >= most:
        del known[next(iter(known))]
    known[key] = value
    return value


def once(known: dict[K, V], key: K, made: Callable[[], V], most: int = MOST_KEPT) -> V:
    """Return the value kept under a key, made and kept when it is first asked for; None is made each time."""
    value = known.get(key)
    return keep(known, key, made(), most) if value is None else value


# Texts of data for hashing: equal in every process.


def array_text(array: Array) -> str:
    """Return type, shape and digest of an array."""
    content = repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
    return f"{array.dtype}{array.shape}{hashlib.sha256(content).hexdigest()}"


def collection_text(value: Any, text: Callable[[Any], str]) -> str | None:
    """Return the text of an array, a mapping or a sequence; None for anything else.

    Args:
        text: gives the text of an item of a mapping or sequence.
    """
    numpy = sys.modules.get("numpy")  # without it there are no arrays
    if numpy is not None and isinstance(value, numpy.ndarray):
        return array_text(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{text(key)}: {text(one)}" for key, one in value.items()) + "}"
    if isinstance(value, (tuple, list)):
        return "(" + ", ".join(map(text, value)) + ")"
    return None
