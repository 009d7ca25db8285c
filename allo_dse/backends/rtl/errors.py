"""What can go wrong on the way to a circuit."""

from __future__ import annotations

from allo_dse.common.errors import AlloDseError


class RtlError(AlloDseError):
    """A program that the open RTL flow cannot make a circuit of, a tool that is missing or failed, a wrong argument."""
