"""Recorded regions: decorators record the function and their arguments, and execute nothing."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import CodeType, FrameType, FunctionType
from typing import Any, NoReturn

from allo_dse.common.errors import ProgramError

from .rules import Rules, current_rules


@dataclass(frozen=True, eq=False)
class Region:
    """A function decorated with `@df.region()`: the unit that is compiled and built.

    Attributes:
        function: the decorated function; it is never executed.
        enclosing: the local variables of the enclosing functions at its definition. The closure lacks names that occur
            only in string annotations; they are found here.
        arguments: values of its type parameters, in order, when instantiated (`inner[2, 2]`).
        options: options of its decorator: `strict` and `check` (see `rules.py`).
    """

    function: FunctionType
    enclosing: Mapping[str, object] = field(default_factory=dict)
    arguments: tuple[object, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.function.__name__

    def __getitem__(self, arguments: object) -> Region:
        """Return the region with values for its type parameters."""
        return replace(self, arguments=arguments if isinstance(arguments, tuple) else (arguments,))

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise ProgramError(
            f"region {self.name} cannot be called directly",
            hint=f"build it first: df.build({self.name}, target='simulator')(...)",
        )

    def __repr__(self) -> str:
        return f"<region {self.name}>"


@dataclass(frozen=True, eq=False)
class Instance:
    """A function of the language with values for its type parameters: `gemm[float32, 32, 32]`.

    Attributes:
        around: variables of the functions of its module that were running when its schedule was made. It and the
            functions it calls may use these names if they are defined nowhere else.
    """

    function: FunctionType
    arguments: tuple[object, ...]
    around: Mapping[str, object] = field(default_factory=dict)


def region(
    *_args: object, strict: bool | None = None, check: str | None = None, **_options: object
) -> Callable[[FunctionType], Region]:
    """Decorate a function as a region. `strict` and `check` are those of `Rules`."""
    frame = sys._getframe(1)
    own = {name: value for name, value in (("strict", strict), ("check", check)) if value is not None}

    def decorate(function: FunctionType) -> Region:
        if not isinstance(function, FunctionType):
            raise ProgramError(
                f"df.region() stands above a function, not {function!r}", hint="write it once per region"
            )
        return Region(function, enclosing_names(function.__code__, frame), options=own)

    return decorate


def kernel(*_args: object, **_options: object) -> Callable[[FunctionType], FunctionType]:
    """Decorate a kernel inside a region. The front end reads it from the source; it never runs there."""
    return lambda function: function


def enclosing_names(code: CodeType, frame: FrameType | None) -> dict[str, object]:
    """Return the current local variables of the functions around the definition of `code`.

    They are found only while these functions run; `frame` is the innermost running one.
    """
    names: dict[str, object] = {}
    while True:
        while frame is not None and code not in frame.f_code.co_consts:
            frame = frame.f_back
        if frame is None or not frame.f_code.co_flags & inspect.CO_NEWLOCALS:
            return names
        names = {**frame.f_locals, **names}
        code, frame = frame.f_code, frame.f_back


def variables_around(function: FunctionType) -> dict[str, object]:
    """Return the variables of the running functions of a function's module, the innermost first."""
    found: dict[str, object] = {}
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals is function.__globals__ and frame.f_locals is not frame.f_globals:
            found = {**frame.f_locals, **found}
        frame = frame.f_back
    return found


def rules_of(region: Region | None) -> Rules:
    """Return the rules for a region: its own, else the current ones."""
    return replace(current_rules(), **({} if region is None else region.options))


def as_region(value: object) -> Region | None:
    """Return the region that `value` is, from this package or an installed `allo`'s decorator; else None."""
    if isinstance(value, Region):
        return value
    inner = inspect.unwrap(value) if callable(value) else None
    if inner is not value and isinstance(inner, FunctionType):
        return Region(inner)
    return None
