"""Collecting the event log of a recorded run: the buffer that compiled code fills, and what Python keeps of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from allo_dse.common.aliases import Array

from ..codegen.run_time.record_fields import STATE_BITS, WORD, Event, Header, Node, Op, State
from ..network.arena import Arena
from ..network.network import IntArray, Network

BUFFER_EVENTS = 1 << 15
"""Events between two visits to Python: 1.3 MB, which a processor's cache holds."""
MAX_EVENTS = 10_000_000
"""Events kept by default, 29 bytes each."""


Columns = tuple[Array, ...]
"""Slot, state, op, on, requested, completed, as in `Events`."""


class Waits(Struct, frozen=True):
    """Nodes that wait for a stream when a recording ends, one per entry: node, `State`, stream, operation, clock."""

    node: IntArray
    state: IntArray
    on: IntArray
    op: IntArray
    since: IntArray


class Window(Struct, frozen=True):
    """The part of a run that a recording is of.

    Attributes:
        start, end: cycles; what lies in between was kept.
        first_put, first_get: per stream how many tokens were put (those it started with included) and taken before the
            first that was kept.
        waits: of a part of a run who waits at the end, which no event tells; None of a whole run.
    """

    start: int
    end: int
    first_put: IntArray
    first_get: IntArray
    waits: Waits | None


class Events(Struct, frozen=True):
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
        limit: events to keep; the rest is dropped.
        buffer: events between two visits to Python.
    """

    def __init__(self, network: Network, arena: Arena, limit: int, *, buffer: int = BUFFER_EVENTS) -> None:
        self._network, self._arena = network, arena
        self._limit, self._kept = limit, 0
        self._buffer = np.empty((buffer, Event.SIZE), np.int64)
        self._chunks: list[Columns] = []
        self._base = self._buffer.ctypes.data
        header = arena.header
        header[Header.EVENT] = self._base
        header[Header.EVENT_END] = self._base + self._buffer.nbytes
        header[Header.EVENT_STEP] = WORD * Event.SIZE if limit > 0 else 0

    def drain(self) -> bool:
        """Take over what is in the buffer. Returns whether it was full."""
        header = self._arena.header
        if header[Header.EVENT_STEP] == 0:
            return False
        count = int(header[Header.EVENT] - self._base) // (WORD * Event.SIZE)
        self._keep(self._buffer[:count])
        header[Header.EVENT] = self._base
        return count == len(self._buffer)

    def is_done(self) -> bool:
        """Return whether the run may stop because nothing more is to be kept; to be asked after `drain`."""
        return False

    def _keep(self, rows: IntArray) -> None:
        self._chunks.append(self._columns(rows[: max(0, self._limit - self._kept)]))
        self._kept += len(rows)
        if self._kept > self._limit:
            self._arena.header[Header.EVENT_STEP] = 0

    def _columns(self, rows: IntArray) -> Columns:
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
        return events_of(self._chunks, is_complete=self._kept <= self._limit)

    def window(self) -> Window:
        """The time that the events are of; to be called after `events`."""
        network = self._network
        end = int(self._arena.nodes[:, Node.CLOCK].max(initial=0))
        return Window(0, end, network.initial, np.zeros_like(network.initial), None)


def joined(chunks: list[Columns]) -> Columns:
    """Columns of several chunks, one after the other."""
    return tuple(np.concatenate(column) for column in zip(*chunks, strict=True))


def events_of(chunks: list[Columns], *, is_complete: bool) -> Events:
    """The events of several chunks."""
    slot, state, op, on, requested, completed = joined(chunks)
    return Events(slot, state, op, on, requested, completed, is_complete)


def service_cycles(network: Network, slot: NDArray[Any], state: NDArray[Any], op: NDArray[Any]) -> IntArray:
    """Per event the cycles of service that follow it; 0 for stream operations."""
    result = np.zeros(len(slot), np.int64)
    asked = np.flatnonzero(state == State.REQUEST)
    row = network.first_row[network.order[slot[asked]]] + op[asked]
    result[asked] = network.rows.reshape(-1, Op.SIZE)[row, Op.VALUE]
    return result


def operation_numbers(network: Network, tasks: IntArray, words: IntArray) -> IntArray:
    """The numbers of stream operations from what nodes note about them (`Node.WAITS_IN`).

    They are the `op` attribute in a task body, the row in an operation table.
    """
    first = network.first_row[tasks]
    numbers = words >> STATE_BITS
    rows = ((numbers << STATE_BITS) - network.rows.ctypes.data) // (WORD * Op.SIZE) - first
    return np.where(first >= 0, rows, numbers)
