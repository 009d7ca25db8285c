"""Primitives of schedules, and how they name what they work on: loops, nests of loops and arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from .diagnostics import ProgramError, running_line


class Partition:
    """Ways to split an array into banks."""

    Complete = "complete"
    Block = "block"
    Cyclic = "cyclic"


@dataclass(frozen=True)
class Primitive:
    """One customization: its name and arguments as the program gave them, and its line there."""

    name: str
    args: tuple[object, ...]
    options: tuple[tuple[str, object], ...]
    line: tuple[str, int] | tuple[None, None] = field(default_factory=running_line, compare=False, repr=False)

    def in_function(self, function: str) -> Primitive:
        """The same primitive, its names those of a function."""
        own = {"to": 1, "dataflow": 0, "inline": 0}.get(self.name, len(self.args))  # the others name functions
        args = tuple(_in_function(arg, function) if n < own else arg for n, arg in enumerate(self.args))
        options = tuple((k, _in_function(v, function) if k == "axis" else v) for k, v in self.options)
        return Primitive(self.name, args, options)

    def for_call(self, function: str, suffix: str) -> Primitive:
        """The same primitive for one of several calls of its function, which has a name of its own."""

        def renamed(arg: object) -> object:
            if isinstance(arg, (Axis, Array)) and arg.function == function:
                return replace(arg, function=function + suffix)
            if isinstance(arg, str) and (arg == function or arg.startswith(f"{function}:")):
                return function + suffix + arg.removeprefix(function)
            return arg

        args = tuple(renamed(arg) for arg in self.args)
        return Primitive(self.name, args, tuple((k, renamed(v) if k == "axis" else v) for k, v in self.options))


def _in_function(arg: object, function: str) -> object:
    return f"{function}:{arg}" if isinstance(arg, str) and ":" not in arg and arg != function else arg


@dataclass(frozen=True)
class Axis:
    """A loop: the function and the nest that it stands in, and its name."""

    function: str
    band: str
    name: str

    def __str__(self) -> str:
        return f"{self.function}:{self.band}.{self.name}"


@dataclass(frozen=True)
class Array:
    """An array: the function that it belongs to, and its name there."""

    function: str
    name: str

    def __str__(self) -> str:
        return f"{self.function}:{self.name}"


class Bands:
    """Loops by name, or nests (bands) of loops by name: `loops["S_i_j_0"]["j"]` or `loops.S_i_j_0.j`."""

    def __init__(self, loops: dict[str, Any]) -> None:
        self.loops = loops

    def __getitem__(self, name: str) -> Any:
        if name not in self.loops:
            raise ProgramError(f"there is no loop or nest {name!r}", hint=f"known: {', '.join(self.loops)}")
        return self.loops[name]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self.loops.items())

    def __repr__(self) -> str:
        return f"LoopBand({list(self.loops)})"
