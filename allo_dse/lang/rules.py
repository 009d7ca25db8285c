"""How strictly programs are checked: by a region, by a build, or for everything that is compiled from now on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Literal

from .diagnostics import ProgramError

CHECKS = ("compile", "run")


@dataclass(frozen=True)
class Rules:
    """What is an error, and when.

    Attributes:
        strict: whether tokens that are left in a stream are an error; else they are a warning.
        check: when an index that leaves its dimension for certain is an error. "compile": before anything runs. "run":
            it then means the element that lies there in memory, row by row, and must be one of the array as it runs.
        tasks, streams, elements: the most tasks of a kernel, streams of an array and elements of a tensor.
        unrolled: the most iterations that a loop at compile time may have, with those of the loops around it.
    """

    strict: bool = False
    check: str = "compile"
    tasks: int = 1 << 24
    streams: int = 1 << 24
    elements: int = 1 << 40
    unrolled: int = 1 << 14

    def __post_init__(self) -> None:
        if self.check not in CHECKS:
            raise ProgramError(f"check={self.check!r} is not known", hint=f"known: {', '.join(map(repr, CHECKS))}")

    def allow(self, what: Literal["tasks", "streams", "elements", "unrolled"], count: int, owner: str) -> None:
        """Check that something is not so large that it can hardly be meant.

        Raises:
            ProgramError: naming the limit, and how to raise it.
        """
        limit: int = getattr(self, what)
        if count > limit:
            noun = "iterations at compile time" if what == "unrolled" else what
            hint = f"if that is meant, compile inside `with allo_dse.lang.rules({what}={count}):`"
            raise ProgramError(f"{owner} has {count:,} {noun}; the limit is {limit:,}", hint=hint)


_CURRENT: ContextVar[Rules] = ContextVar("rules")


def current_rules() -> Rules:
    """The rules that hold where a region has none of its own."""
    return _CURRENT.get(Rules())


@contextmanager
def rules(*, strict: bool | None = None, check: str | None = None, **limits: int) -> Iterator[Rules]:
    """Other rules for what is compiled inside; None leaves one as it is.

    with allo_dse.lang.rules(check="run", unrolled=100_000):
        program = dse.load_program(top)
    """
    before = current_rules()
    choice = Rules(before.strict if strict is None else strict, before.check if check is None else check)
    after = replace(before, strict=choice.strict, check=choice.check, **limits)
    token = _CURRENT.set(after)
    try:
        yield after
    finally:
        _CURRENT.reset(token)
