"""Streams in C++: the element of a FIFO, and its access by task functions."""

from __future__ import annotations

import math
from collections.abc import Mapping

from allo_dse.common.records import Frozen, replace
from allo_dse.compiler.program.compiled import CompiledProgram

from ...cost.memory import word_of
from .expressions import Element, element_of_dtype


class Carrier(Frozen):
    """C++ form of an array of streams.

    Attributes:
        block: the shape of a token; empty for single elements.
        by_element: whether a block's elements move one after the other.
        depth: of the FIFO, in what it holds.
        dims: of the array of streams.
    """

    element: Element
    block: tuple[int, ...]
    by_element: bool
    depth: int
    dims: tuple[int, ...]

    @property
    def token(self) -> str:
        """C++ type of the FIFO's elements."""
        if not self.block or self.by_element:
            return str(self.element)
        return f"hls::vector<{self.element}, {math.prod(self.block)}>"

    def holding(self, tokens: int) -> Carrier:
        """The same for FIFOs of another depth."""
        return replace(self, depth=tokens * (math.prod(self.block) if self.by_element else 1))

    @property
    def type(self) -> str:
        """C++ type of one stream in its declaration."""
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
        return f"hls::stream< {self.carrier.token} > &{self.name}"


def carriers(program: CompiledProgram, depths: Mapping[str, int]) -> dict[str, Carrier]:
    """Return the C++ form of each array of streams of a program; `depths` in tokens, by name."""
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
        found[array.name] = Carrier(element_of_dtype(array.dtype), array.block, by_element, depth, array.shape)
    return found
