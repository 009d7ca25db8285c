"""Streams as arguments of task functions."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .elements import Element


@dataclass(frozen=True)
class StreamArg:
    """A stream, or a whole array of streams, that a task function gets.

    Attributes:
        block: the shape of a token; empty for single elements.
        dims: of an array of streams.
    """

    name: str
    element: Element
    block: tuple[int, ...]
    dims: tuple[int, ...] = ()

    @property
    def token(self) -> str:
        """The C++ type of a token."""
        return token_type(self.element, self.block)


def token_type(element: Element, block: tuple[int, ...]) -> str:
    """The C++ type of a stream's tokens; a block moves as one word."""
    return f"hls::vector<{element}, {math.prod(block)}>" if block else str(element)
