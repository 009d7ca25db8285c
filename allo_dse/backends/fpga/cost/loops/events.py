"""Stream operations in a round of a pipelined loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from allo_dse.common.records import Frozen
from allo_dse.compiler.ir.affine import Test, decided
from allo_dse.eval.execute.observed_control import DataTest

Guard = tuple[Test | DataTest, bool]
"""A condition, and the side of it."""


class StreamEvent(Frozen):
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
    return all(isinstance(test, DataTest) or decided(test, copies) in (None, side) for test, side in event.tests)


# Timing of a task as nested parts: waits, pipelined loops, repetitions.


class Wait(Frozen):
    """Nothing but time."""

    cycles: int


class Pipe(Frozen):
    """A pipelined loop: `ops` are (stage, "get" or "put", stream argument)."""

    rounds: int
    ii: int
    depth: int
    ops: tuple[tuple[int, str, int], ...]


class Again(Frozen):
    """Parts that are repeated."""

    count: int
    parts: tuple[Part, ...]


Part: TypeAlias = Wait | Pipe | Again


def cycles_of(parts: Iterable[Part]) -> int:
    """Cycles that parts take without waiting for streams."""
    total = 0
    for part in parts:
        if isinstance(part, Wait):
            total += part.cycles
        elif isinstance(part, Pipe):
            total += (part.rounds - 1) * part.ii + part.depth if part.rounds else 0
        else:
            total += part.count * cycles_of(part.parts)
    return total


def uses_streams(parts: Iterable[Part]) -> bool:
    """Return whether parts contain stream operations."""
    return any(
        (isinstance(part, Pipe) and bool(part.ops)) or (isinstance(part, Again) and uses_streams(part.parts))
        for part in parts
    )


def in_turn(rounds: Sequence[tuple[Part, ...]]) -> tuple[Part, ...]:
    """Return the parts of consecutive rounds: equal neighbours as one repetition, rounds without streams as waits."""
    if not any(uses_streams(parts) for parts in rounds):
        return (Wait(sum(cycles_of(parts) for parts in rounds)),)
    groups: list[tuple[int, tuple[Part, ...]]] = []
    for parts in rounds:
        if groups and groups[-1][1] == parts:
            groups[-1] = (groups[-1][0] + 1, parts)
        else:
            groups.append((1, parts))
    found: list[Part] = []
    for count, parts in groups:
        found += [Again(count, parts)] if count > 1 else parts
    return tuple(found)
