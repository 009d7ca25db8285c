"""Task bodies as their callers see them: the text to compile, the machine code, and the parameters of its functions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from allo_dse.common.errors import SimulationError
from allo_dse.common.records import Frozen

IntArray = NDArray[np.int64]
ANY_TOKEN = -1
"""In place of a size: a body that only asks how full a stream is does not know its tokens."""


class Body(Frozen):
    """A task body to compile: the text of a `func.func` (and helpers without stream operations), and its symbol."""

    symbol: str
    mlir: str


class Tiles(Frozen):
    """The tiles that tasks get for a tensor parameter: a position in `base` per task, and common strides.

    Attributes:
        base: the array that holds the tiles; written in place.
        offset: per task (or one for all) the position of the tile's first element, in elements.
        strides: per dimension of the tile, in elements.
    """

    base: NDArray[np.generic]
    offset: ArrayLike
    strides: tuple[int, ...]


class Parameter(Frozen):
    """A parameter of a task body.

    Attributes:
        kind: "index" (a pid or a stream number) or "tensor".
        shape, element_bytes: of tensors.
        gets, puts: whether the body gets from, or puts to, the stream whose number the index is.
        computed: the stream's number is not the index itself but computed from it (a whole array of streams).
        token_bytes: of such a stream, the bytes that a token takes in memory, or `ANY_TOKEN`.
    """

    kind: Literal["index", "tensor"]
    shape: tuple[int, ...] = ()
    element_bytes: int = 0
    gets: bool = False
    puts: bool = False
    computed: bool = False
    token_bytes: int = 0

    @property
    def is_stream(self) -> bool:
        """Return whether it is the number of one stream."""
        return (self.gets or self.puts) and not self.computed

    @property
    def words(self) -> int:
        """Words that the parameter takes in a task's arguments: address and strides, or a number."""
        return 1 + len(self.shape) if self.kind == "tensor" else 1


class Signature(Frozen, dict=True):
    """A compiled task body: its parameters in order, and the words in which a task's arguments are passed.

    Attributes:
        cost_sites: how many cost sites it refers to.
        polls: whether it tests the fill of its streams, so that its behaviour depends on token times.
    """

    symbol: str
    parameters: tuple[Parameter, ...]
    cost_sites: int = 0
    polls: bool = False

    @cached_property
    def width(self) -> int:
        """Words per task: the first cost site, then the parameters."""
        return 1 + sum(p.words for p in self.parameters)

    @cached_property
    def columns(self) -> list[int]:
        """The first word of each parameter."""
        return [*accumulate((p.words for p in self.parameters), initial=1)][:-1]

    def words(self, count: int, arguments: Sequence[ArrayLike | Tiles], *, cost_site: ArrayLike = 0) -> IntArray:
        """Arguments of `count` tasks, of shape (count, width).

        Args:
            arguments: one per parameter: numbers (one per task, or one for all) or `Tiles`.
            cost_site: the network's number of the body's cost site 0.

        Raises:
            SimulationError: if an argument does not suit its parameter.
        """
        if len(arguments) != len(self.parameters):
            raise SimulationError(
                f"task body {self.symbol!r} takes {len(self.parameters)} arguments, {len(arguments)} are given"
            )
        words = np.empty((count, self.width), np.int64)
        words[:, 0] = cost_site
        argument: Any
        for column, parameter, argument in zip(self.columns, self.parameters, arguments, strict=True):
            if parameter.kind == "index":
                words[:, column] = argument
            else:
                self._tensor_words(words[:, column : column + parameter.words], parameter, argument)
        return words

    def _tensor_words(self, words: IntArray, parameter: Parameter, argument: ArrayLike | Tiles) -> None:
        if not isinstance(argument, Tiles) or len(argument.strides) != len(parameter.shape):
            raise SimulationError(
                f"task body {self.symbol!r} needs tiles of shape {parameter.shape}, given {argument!r}"
            )
        base = argument.base
        if base.itemsize != parameter.element_bytes:
            raise SimulationError(
                f"task body {self.symbol!r} has elements of {parameter.element_bytes} bytes, the array is {base.dtype}"
            )
        offset = np.asarray(argument.offset, np.int64)
        first = last = 0
        for size, stride in zip(parameter.shape, argument.strides, strict=True):
            first, last = first + min(0, (size - 1) * stride), last + max(0, (size - 1) * stride)
        outside = offset.size and (first + int(offset.min()) < 0 or last + int(offset.max()) >= base.size)
        if not base.flags.c_contiguous or outside:
            raise SimulationError(
                f"tiles of shape {parameter.shape} for task body {self.symbol!r} do not lie in an array of "
                f"{base.size} contiguous elements"
            )
        words[:, 0] = base.__array_interface__["data"][0] + base.itemsize * offset
        words[:, 1:] = argument.strides


class CompiledBodies(Frozen):
    """An object file, and the signatures of its bodies: in the run time they have the numbers from 1 on."""

    object_file: bytes
    signatures: tuple[Signature, ...]
