"""Collecting the event log of a recorded run: the buffer that compiled code fills, and what Python keeps of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...ir.layout import STATE_BITS, WORD, Event, Header, Op, State
from .arena import Arena
from .network import IntArray, Network

BUFFER_EVENTS = 1 << 15
"""Events between two visits to Python: 1.3 MB, which a processor's cache holds."""
MAX_EVENTS = 10_000_000
"""Events kept by default, 29 bytes each."""


@dataclass(frozen=True)
class Events:
    """The operations of a run, one per entry; those of one task, of one side of a stream and of one resource in order.

    Attributes:
        slot: the task, as its position in the network's order of execution.
        state: what it did (`State.GET`, `PUT` or `REQUEST`).
        op: the operation's number: its `op` attribute in a task body, its row in an operation table.
        on: the stream or resource.
        requested: the clock at which the task was ready for it.
        completed: the clock after it; of a request, when its service begins.
        is_complete: whether all events were kept.
    """

    slot: NDArray[np.int32]
    state: NDArray[np.int8]
    op: NDArray[np.int32]
    on: NDArray[np.int32]
    requested: IntArray
    completed: IntArray
    is_complete: bool

    def __len__(self) -> int:
        return len(self.slot)


class Recorder:
    """Fills `Events` from the arena's log while a run goes on.

    Args:
        limit: events to keep; the rest is dropped, unless it `keeps_all` (of a run that ends soon after).
    """

    def __init__(self, network: Network, arena: Arena, limit: int, *, keeps_all: bool = False) -> None:
        self._network, self._arena = network, arena
        self._left, self._keeps_all = limit, keeps_all
        self._buffer = np.empty((BUFFER_EVENTS, Event.SIZE), np.int64)
        self._chunks: list[tuple[NDArray[np.generic], ...]] = []
        self._base = self._buffer.ctypes.data
        header = arena.header
        header[Header.EVENT] = self._base
        header[Header.EVENT_END] = self._base + self._buffer.nbytes
        header[Header.EVENT_STEP] = WORD * Event.SIZE if limit > 0 else 0

    @property
    def is_full(self) -> bool:
        """Whether as many events were kept as there may be."""
        return self._left <= 0

    def drain(self) -> bool:
        """Take over what is in the buffer. Returns whether it was full."""
        header = self._arena.header
        if header[Header.EVENT_STEP] == 0:
            return False
        count = int(header[Header.EVENT] - self._base) // (WORD * Event.SIZE)
        self._chunks.append(self._columns(self._buffer[: count if self._keeps_all else min(count, self._left)]))
        self._left -= count
        header[Header.EVENT] = self._base
        if self._left < 0 and not self._keeps_all:
            header[Header.EVENT_STEP] = 0
        return count == BUFFER_EVENTS

    def _columns(self, rows: IntArray) -> tuple[NDArray[np.generic], ...]:
        arena = self._arena
        slot = arena.slot_number(rows[:, Event.SLOT])
        state = rows[:, Event.WHAT] % (1 << STATE_BITS)
        op = operation_numbers(self._network, self._network.order[slot], rows[:, Event.WHAT])
        requests = state == State.REQUEST
        on = np.where(requests, arena.resource_number(rows[:, Event.ON]), arena.stream_number(rows[:, Event.ON]))
        narrow = (slot.astype(np.int32), state.astype(np.int8), op.astype(np.int32), on.astype(np.int32))
        return (*narrow, rows[:, Event.REQUESTED].copy(), rows[:, Event.COMPLETED].copy())

    def events(self) -> Events:
        """Everything recorded; to be called once, after the run."""
        self.drain()
        slot, state, op, on, requested, completed = (
            np.concatenate(column) for column in zip(*self._chunks, strict=True)
        )
        return Events(slot, state, op, on, requested, completed, is_complete=self._left >= 0 or self._keeps_all)


def operation_numbers(network: Network, tasks: IntArray, words: IntArray) -> IntArray:
    """The numbers of stream operations from what nodes note about them (`Node.WAITS_IN`).

    They are the `op` attribute in a task body, the row in an operation table.
    """
    first = network.first_row[tasks]
    numbers = words >> STATE_BITS
    rows = ((numbers << STATE_BITS) - network.rows.ctypes.data) // (WORD * Op.SIZE) - first
    return np.where(first >= 0, rows, numbers)
