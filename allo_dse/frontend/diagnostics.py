"""The exception for programs that do not compile."""

from ..lang.diagnostics import ProgramError

__all__ = ["ProgramError"]
