"""Arrays of streams, and how the tasks of a class use them."""

from __future__ import annotations

import math
from typing import Literal

from msgspec import Struct

from allo_dse.lang.types import DType

from .index_maps import IndexMap
from .locations import SourceLocation


class StreamArray(Struct, frozen=True):
    """A declared stream or array of streams; a token is one element (`block == ()`) or a block of elements."""

    name: str
    dtype: DType
    block: tuple[int, ...]
    depth: int
    shape: tuple[int, ...]
    location: SourceLocation | None = None

    @property
    def token_bytes(self) -> int:
        return max(1, math.prod(self.block) * self.dtype.bits // 8)

    @property
    def count(self) -> int:
        """How many streams the array has (1 for a single stream)."""
        return math.prod(self.shape)


class StreamPort(Struct, frozen=True):
    """A stream that tasks of a class get from or put to.

    Attributes:
        index: which stream of the array, as a function of the pid.
        tokens: how many tokens one task moves through it, or None where that is data-dependent.
    """

    stream: StreamArray
    direction: Literal["get", "put"]
    index: IndexMap
    tokens: int | None
    location: SourceLocation | None = None


class StreamOp(Struct, frozen=True):
    """One stream operation in the source: `TaskBody` operations carry its position in `TaskClass.stream_ops`.

    Attributes:
        blocking: False for `try_get`, `try_put`, `empty` and `full`, which look at how many tokens a stream holds.
        copy: as of a tile operation (`TileUse`).
    """

    stream: StreamArray
    direction: Literal["get", "put"]
    location: SourceLocation
    blocking: bool = True
    copy: tuple[int, ...] = ()
