"""Strictness of checks on programs: for a region, for a build, or for all further compilation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Literal

from allo_dse.common.errors import ProgramError

CHECKS = ("compile", "run")


@dataclass(frozen=True)
class Rules:
    """Strictness of checks, and limits of sizes.

    Attributes:
        strict: whether tokens that are left in a stream are an error rather than a warning.
        check: the time at which an index that is certain to leave its dimension is an error. "compile": before anything
            runs. "run": such an index means the element at that place in row-major memory; only leaving the array is
            an error, as it runs.
        tasks, streams, elements: the most tasks of a kernel, streams of an array and elements of a tensor.
        unrolled: the most iterations of a compile-time loop, multiplied by those of the loops around it.
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
        """Check that a size is within its limit; a larger one is probably a mistake.

        Raises:
            ProgramError: with the limit, and how to raise it.
        """
        limit: int = getattr(self, what)
        if count > limit:
            noun = "iterations at compile time" if what == "unrolled" else what
            hint = f"if that is meant, compile inside `with allo_dse.lang.rules({what}={count}):`"
            raise ProgramError(f"{owner} has {count:,} {noun}; the limit is {limit:,}", hint=hint)


_CURRENT: ContextVar[Rules] = ContextVar("rules")


def current_rules() -> Rules:
    """Return the rules for regions without their own."""
    return _CURRENT.get(Rules())


@contextmanager
def rules(*, strict: bool | None = None, check: str | None = None, **limits: int) -> Iterator[Rules]:
    """Change the rules for everything compiled within the context; None keeps one as it is.

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
