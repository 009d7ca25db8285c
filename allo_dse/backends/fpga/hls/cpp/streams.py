"""Streams in C++: the element of a FIFO, and its access by task functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set

from allo_dse.common.records import Frozen, replace
from allo_dse.compiler.program.compiled import CompiledProgram

from ...cost.memory import BANKS, word_of
from .expressions import Element, element_of_dtype


class Carrier(Frozen):
    """C++ form of an array of streams.

    Attributes:
        block: the shape of a token; empty for single elements.
        by_element: whether a block's elements move one after the other.
        depth: of the FIFO, in what it holds.
        dims: of the array of streams.
        is_buffer: whether it is a ping-pong buffer of blocks.
    """

    element: Element
    block: tuple[int, ...]
    by_element: bool
    depth: int
    dims: tuple[int, ...]
    is_buffer: bool = False

    @property
    def token(self) -> str:
        """C++ type of the FIFO's elements."""
        if self.is_buffer:
            return str(self.element) + "".join(f"[{n}]" for n in self.block)
        if not self.block or self.by_element:
            return str(self.element)
        return f"hls::vector<{self.element}, {math.prod(self.block)}>"

    def holding(self, tokens: int) -> Carrier:
        """The same for FIFOs of another depth."""
        return replace(self, depth=tokens * (math.prod(self.block) if self.by_element else 1))

    @property
    def type(self) -> str:
        """C++ type of one stream in its declaration."""
        if self.is_buffer:
            return f"hls::stream_of_blocks<{self.token}, {BANKS}>"
        return f"hls::stream<{self.token}, {self.depth}>"


class StreamArg(Frozen):
    """A stream, or with `dims` a whole array of streams, that a task function gets."""

    name: str
    carrier: Carrier
    dims: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """Its declaration as a parameter."""
        if self.dims:
            return f"{self.carrier.type} (&{self.name}){''.join(f'[{n}]' for n in self.dims)}"
        kind = self.carrier.type if self.carrier.is_buffer else f"hls::stream< {self.carrier.token} >"
        return f"{kind} &{self.name}"


def carriers(
    program: CompiledProgram, depths: Mapping[str, int], buffered: Set[str] = frozenset()
) -> dict[str, Carrier]:
    """Return the C++ form of each array of streams of a program; `depths` in tokens, by name.

    Args:
        buffered: names of those that are ping-pong buffers.
    """
    polled = {
        op.stream.name
        for kernel in program.kernels
        for task_class in kernel.classes
        for op in task_class.stream_ops
        if not op.blocking
    }
    found = {}
    for array in program.streams:
        words = word_of(array)[1]
        by_element = words > 1 and array.name not in polled  # one poll covers a block
        depth = depths[array.name] * (words if by_element else 1)
        element, is_buffer = element_of_dtype(array.dtype), array.name in buffered
        found[array.name] = Carrier(element, array.block, by_element, depth, array.shape, is_buffer)
    return found
