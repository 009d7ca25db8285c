"""What a task in compilation keeps of its blocks: stream ports, names, loops, and where jumps go."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any, Literal

from allo_dse.program.index_maps import IntArray
from allo_dse.program.streams import StreamArray

from ..model.index_forms import Form
from ..model.pid_values import Meta
from ..model.values import Value

# How often something happens in each task: a number, a value per task, or None when it depends on data.
Count = int | IntArray | None


@dataclass(eq=False)
class PortUse:
    """A stream argument of the body under construction.

    Attributes:
        index: per dimension of the stream array its index, or None where the body computes the index at run time.
        tokens: tokens that move.
        parts: where the body computes the index, the streams that it can reach.
        certain: whether all tasks surely use the stream.
        last: the last operation on it.
    """

    stream: StreamArray
    direction: Literal["get", "put"]
    ssa: str
    index: tuple[Meta, ...] | None
    node: ast.AST
    tokens: Count = 0
    parts: dict[Any, PortUse] = field(default_factory=dict)
    certain: bool = True
    last: ast.AST | None = None

    @property
    def fixed(self) -> list[PortUse]:
        """The ports with known indices that this stands for."""
        return [self] if self.index is not None else list(self.parts.values())

    def add(self, tokens: Count, node: ast.AST) -> None:
        """Count more tokens, which `node` moves."""
        self.last = node
        self.tokens = None if self.tokens is None or tokens is None else self.tokens + tokens


@dataclass(eq=False)
class Scope:
    """Names declared in one block.

    Attributes:
        helper: whether it is the outermost block of an inlined function, which sees no names around it.
        hidden: names that a function defined inside a kernel assigns: they are its own.
        fixed: variables of loops: they cannot be assigned.
        chosen: names that the taken branches of compile-time conditions declared.
    """

    names: dict[str, Value] = field(default_factory=dict)
    helper: bool = False
    hidden: frozenset[str] = frozenset()
    fixed: set[str] = field(default_factory=set)
    chosen: set[str] = field(default_factory=set)


@dataclass(eq=False)
class Frame:
    """Where `break`, `continue` or `return` go: a loop, or the function itself.

    Attributes:
        loop: whether it is a loop.
        loops, guards: how many loops and data-dependent conditions surround it.
        skip: the flag that the rest of the iteration (or function) is not executed.
        stop: the flag that the loop is left.
        jumps: how many jumps to it have been written so far.
        unrolled: whether it is a loop at compile time.
        ended: whether such a loop has been left at compile time.
        returns: the declared type of a helper function's result, if it has one.
        result: what it returned at its end.
        slots: where results of conditional returns are kept.
    """

    loop: bool
    loops: int
    guards: int
    skip: str | None = None
    stop: str | None = None
    jumps: int = 0
    unrolled: bool = False
    ended: bool = False
    returns: Any = None
    result: Value | None = None
    slots: Value | None = None


@dataclass(eq=False)
class Loop:
    """What a loop contains: scalar work and looks at streams directly, and other loops.

    Attributes:
        variable: the loop's own, where it has one.
    """

    has_scalar_work: bool = False
    has_loops: bool = False
    polls: bool = False
    variable: Form | None = None
