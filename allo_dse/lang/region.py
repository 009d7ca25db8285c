"""Recorded regions: decorators remember the function and what they were given, and execute nothing."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from .diagnostics import ProgramError


@dataclass(frozen=True, eq=False)
class Region:
    """A function decorated with `@df.region()`: the unit that is compiled and built.

    Attributes:
        function: the decorated function; it is never executed.
        enclosing: the local variables of the functions it was defined in, as they were then. Names that occur only in
            annotations that are not evaluated (string annotations) are not in the closure but are found here.
        arguments: values of its type parameters, in order, when instantiated (`inner[2, 2]`).
    """

    function: FunctionType
    enclosing: Mapping[str, Any] = field(default_factory=dict)
    arguments: tuple[Any, ...] = ()

    @property
    def name(self) -> str:
        return self.function.__name__

    def __getitem__(self, arguments: Any) -> Region:
        """The region with values for its type parameters."""
        values = arguments if isinstance(arguments, tuple) else (arguments,)
        return Region(self.function, self.enclosing, values)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise ProgramError(
            f"region {self.name} cannot be called directly",
            hint=f"build it first: df.build({self.name}, target='simulator')(...)",
        )

    def __repr__(self) -> str:
        return f"<region {self.name}>"


def region(*_args: Any, **_options: Any) -> Callable[[FunctionType], Region]:
    """Decorator: the function is a region."""
    enclosing = _enclosing_names(sys._getframe(1))
    return lambda function: Region(function, enclosing)


def kernel(*_args: Any, **_options: Any) -> Callable[[FunctionType], FunctionType]:
    """Decorator of a kernel, inside a region. The front end reads it from the source; it never runs there."""
    return lambda function: function


def _enclosing_names(frame: Any) -> dict[str, Any]:
    """The local variables of the function that runs in `frame`, and of the functions around its definition.

    An outer function is found while it runs, that is, when the definition is made before it returns.
    """
    names: dict[str, Any] = {}
    caller = frame
    while caller is not None and caller.f_code.co_flags & inspect.CO_NEWLOCALS:
        names = {**caller.f_locals, **names}
        inner = caller.f_code
        caller = caller.f_back
        while caller is not None and inner not in caller.f_code.co_consts:
            caller = caller.f_back
    return names


def as_region(value: Any) -> Region | None:
    """The region that `value` is: ours, or a function wrapped by an installed `allo`'s decorator; else None."""
    if isinstance(value, Region):
        return value
    inner = inspect.unwrap(value) if callable(value) else None
    if inner is not value and isinstance(inner, FunctionType):
        return Region(inner)
    return None
