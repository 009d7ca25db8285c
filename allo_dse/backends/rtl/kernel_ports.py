"""A kernel on its way to a circuit: its text for CIRCT, its ports, and what can go wrong with it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from allo_dse.common.errors import AlloDseError

Kind = Literal["load", "store", "get", "put"]


class RtlError(AlloDseError):
    """A program that the open RTL flow cannot make a circuit of, a tool that is missing or failed, a wrong argument."""


class Site(Struct, frozen=True):
    """A place in a kernel that accesses memory or a stream: one port of the circuit.

    Attributes:
        target: position of the tensor or stream among the kernel's, or of the local array.
        space: what `target` counts.
        width: bits of an element. words: elements of the array (1 for streams).
    """

    kind: Kind
    space: Literal["tensor", "local", "stream"]
    target: int
    width: int
    words: int


class LocalArray(Struct, frozen=True):
    """An array that lives in a task: bits of an element, number of elements, and what they are at first if known."""

    width: int
    words: int
    initial: tuple[int, ...] = ()


class RtlKernel(Struct, frozen=True):
    """A task class ready for CIRCT.

    Attributes:
        mlir: text of a module with one function `symbol`: the pid, then one array per site.
        index_bits: width of the pid arguments. pids: their number.
        arrays: those that live in a task.
    """

    symbol: str
    mlir: str
    index_bits: int
    pids: int
    sites: tuple[Site, ...]
    arrays: tuple[LocalArray, ...]
