"""States of a run that repeat, and moving a run on by whole periods; see `extrapolate` for why this is exact."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from ..codegen.run_time.record_fields import Header, Node, Process, Resource, Stream
from ..network.arena import Arena
from ..network.network import IntArray
from .independent_parts import Part, token_entries

COMPARED = 32
"""States of one key that a new one is compared with."""


class State(Struct, frozen=True, eq=False):
    """A state of a part, and what adds up on the way to it.

    Attributes:
        key: equal for states that lead to the same, later by the difference of their references.
        clock, stalls: per node. counters: per node and nesting level, with the counts of these repeats (`counts`).
        puts: per stream. served: per resource.
    """

    key: bytes
    reference: int
    clock: IntArray
    stalls: IntArray
    counters: IntArray
    counts: IntArray
    puts: IntArray
    served: IntArray

    @property
    def size(self) -> int:
        """Bytes that it takes, about."""
        return 200 + sum(a.nbytes for a in (self.clock, self.stalls, self.counters, self.counts, self.puts))


class Period(Struct, frozen=True):
    """A part of a run, from `since` until now, that happens `times` more times."""

    since: State
    times: int


def find_period(known: Sequence[State], now: State, until: int | None = None) -> Period | None:
    """The earlier state of the same key from which on most is repeated.

    Args:
        until: a clock that no node is to be moved past.
    """
    best = None
    # A short period repeats more often, but only a long one may be exact: choose by the amount skipped.
    for since in known[: -COMPARED - 1 : -1]:
        late = now.reference - since.reference
        times = _repetitions(since, now)
        if until is not None:
            times = min(times, (until - int(now.clock.max())) // max(1, late))
        # Worth: stream operations that are not executed, and cycles where there are hardly any.
        gain = times * int((now.puts - since.puts).sum() + late)
        if times > 0 and (best is None or gain > best[0]):
            best = gain, Period(since, times)
    return None if best is None else best[1]


def _repetitions(since: State, now: State) -> int:
    """Return how often everything from `since` to `now` can be repeated before a repeat ends; 0 if it is no period."""
    advance = now.counters - since.counters
    changed = advance != 0
    # Several counters of a node, or one that fell: an outer repeat has gone on, and its inner ones began anew.
    if (changed.sum(axis=1) > 1).any() or (advance < 0).any():
        return 0
    moved = changed.any(axis=1)
    late = now.clock - since.clock
    # All that moved must be late by the same: otherwise some would run ahead of others, and later rounds would differ.
    if not moved.any() or (late[moved] != now.reference - since.reference).any():
        return 0
    # The last round of a repeat is executed, not skipped: the period does not show what follows it.
    left = (now.counts - 1 - now.counters)[changed]
    return int((left // advance[changed]).min())


def jump(part: Part, arena: Arena, now: State, period: Period) -> int:
    """Move a part on by the period as often as it repeats; returns the stream operations skipped."""
    since, times = period.since, period.times
    late = times * (now.reference - since.reference)
    advance = now.counters - since.counters
    moved = advance.any(axis=1)
    nodes = part.nodes
    # Nodes that did not move are blocked or done: their clocks are equal in both states up to what cannot matter.
    arena.nodes[nodes[moved], Node.CLOCK] += late
    arena.nodes[nodes[moved], Node.KEY] += late
    for column, what in enumerate((Node.STALL_GET, Node.STALL_PUT, Node.STALL_REQUEST)):
        arena.nodes[nodes, what] += times * (now.stalls - since.stalls)[:, column]
    process = part.processes(arena)[moved]
    arena.processes[process, Process.COUNTERS : Process.COUNTERS + advance.shape[1]] += times * advance[moved]
    tokens = times * (now.puts - since.puts)
    _move_tokens(part, arena, tokens, late)
    served = now.served - since.served
    # A server without requests keeps its free time: the states are equal if it is free in both.
    used = part.resources[served[:, 1] > 0]
    arena.resources[used, Resource.FREE] += late
    arena.resources[part.resources, Resource.BUSY] += times * served[:, 0]
    arena.resources[part.resources, Resource.REQUESTS] += times * served[:, 1]
    _order_requests(arena)
    return 2 * int(tokens.sum())


def _move_tokens(part: Part, arena: Arena, tokens: IntArray, late: int) -> None:
    """Let streams carry so many tokens more; what lies in them is later."""
    # Head and tail move around the ring, so what lies between them is read before and written after.
    entry, _ = token_entries(part, arena, arena.streams[part.streams])
    values = np.stack([arena.rings[entry], arena.rings[entry + 1]])
    arena.streams[part.streams, Stream.TAIL] += tokens
    arena.streams[part.streams, Stream.HEAD] += tokens
    entry, _ = token_entries(part, arena, arena.streams[part.streams])
    values += part.per_entry(np.where(tokens > 0, late, 0))
    arena.rings[entry], arena.rings[entry + 1] = values


def _order_requests(arena: Arena) -> None:
    """A sorted heap is a heap."""
    heap = arena.heap[: int(arena.header[Header.PENDING_COUNT])]
    if len(heap) > 1:
        key = arena.nodes[arena.node_number(heap), Node.KEY]
        heap[:] = heap[np.lexsort((heap, key))]
