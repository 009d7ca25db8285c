"""The exception for programs that do not compile."""

from allo_dse.lang.diagnostics import ProgramError

__all__ = ["ProgramError"]
