"""Stream operations in a round of a pipelined loop."""

from __future__ import annotations

from msgspec import Struct

from allo_dse.ir.linear import Test, decided

from ..observed import Asked

Guard = tuple[Test | Asked, bool]
"""A condition, and the side of it."""


class StreamEvent(Struct, frozen=True):
    """A stream operation in a round.

    Attributes:
        stage: cycles after the round begins.
        tests: conditions under which it happens, with the side of each it is on.
        copies: values of the unrolled loops' variables.
        path: the same conditions by their value numbers, with sides.
    """

    stage: int
    kind: str
    stream: int
    op: int
    tests: tuple[Guard, ...] = ()
    copies: tuple[tuple[int, int], ...] = ()
    level: int = 0
    after: bool = False
    path: tuple[tuple[int, bool], ...] = ()


def may_happen(event: StreamEvent) -> bool:
    """Return whether conditions on the variables of unrolled loops allow a stream operation in its copy."""
    copies = dict(event.copies)
    return all(isinstance(test, Asked) or decided(test, copies) in (None, side) for test, side in event.tests)
