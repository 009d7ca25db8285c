"""How strictly programs are checked: by a region, by a build, or for everything that is compiled from now on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from .diagnostics import ProgramError

CHECKS = ("compile", "run")


@dataclass(frozen=True)
class Rules:
    """What is an error, and when.

    Attributes:
        strict: whether tokens that are left in a stream are an error; else they are a warning.
        check: when an index that leaves its dimension for certain is an error. "compile": before anything runs. "run":
            it then means the element that lies there in memory, row by row, and must be one of the array as it runs.
    """

    strict: bool = False
    check: str = "compile"

    def __post_init__(self) -> None:
        if self.check not in CHECKS:
            raise ProgramError(f"check={self.check!r} is not known", hint=f"known: {', '.join(map(repr, CHECKS))}")


_CURRENT: ContextVar[Rules] = ContextVar("rules")


def current_rules() -> Rules:
    """The rules that hold where a region has none of its own."""
    return _CURRENT.get(Rules())


@contextmanager
def rules(*, strict: bool | None = None, check: str | None = None) -> Iterator[Rules]:
    """Other rules for what is compiled inside; None leaves one as it is.

    with allo_dse.lang.rules(check="run"):
        program = dse.load_program(top)
    """
    before = current_rules()
    after = Rules(before.strict if strict is None else strict, before.check if check is None else check)
    token = _CURRENT.set(after)
    try:
        yield after
    finally:
        _CURRENT.reset(token)
