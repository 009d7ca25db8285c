"""A scheduled program as MLIR text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from allo_dse.program.directive import Directive

from .body import Body


@dataclass(frozen=True)
class PrintedModule:
    """A module whose text is MLIR: one function per task class."""

    text: str

    @staticmethod
    def of(bodies: Sequence[Body], directives: Sequence[Directive], top: str) -> PrintedModule:
        """The bodies of a program."""
        parts = [line for body in bodies for line in body.text().splitlines()]
        return PrintedModule("\n".join(["module {", *(f"  {line}" for line in parts if line), "}"]))

    def __str__(self) -> str:
        return self.text
