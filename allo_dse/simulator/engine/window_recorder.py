"""Recording what happens in a part of a run's time, and nothing else, in bounded memory.

Processes are executed with clocks of their own, so operations of a window come in between those of other times: all are
looked at, and those that touch the window are kept. It is complete as soon as the clock of everybody who can go on lies
beyond its end, since whoever waits for them goes on later still.
"""

from __future__ import annotations

import numpy as np

from ..codegen.run_time.record_fields import STATE_BITS, Code, Event, Node, Op, State, Stream
from ..network.arena import Arena
from ..network.network import IntArray, Network
from .recording import Columns, Events, Recorder, Waits, Window, events_of, joined, operation_numbers, service_cycles

BUFFER_EVENTS = 1 << 18
"""Enough that compiled code seldom returns between two looks at what repeats."""
REQUESTED, COMPLETED = 4, 5
"""Columns of events."""


class WindowRecorder(Recorder):
    """Keeps the events of a window of time.

    Args:
        limit: events to keep, and up to a buffer more; the end of a window with yet more is brought forward.
        start, end: cycles.
    """

    def __init__(self, network: Network, arena: Arena, limit: int, start: int, end: int) -> None:
        super().__init__(network, arena, max(1, limit), buffer=BUFFER_EVENTS)
        self._start, self._end = start, max(start, end)
        self._slack = _longest_service(network)
        self._late = np.zeros((2, network.stream_count), np.int64)

    def _keep(self, rows: IntArray) -> None:
        late = rows[:, Event.COMPLETED] - self._start
        served = (late >= -self._slack) & (rows[:, Event.WHAT] % (1 << STATE_BITS) == State.REQUEST)
        self._add(self._columns(rows[(late >= 0) | served]))

    def _add(self, columns: Columns) -> None:
        """Take those that begin before the window's end, and count the others.

        Requests that neither wait nor are served for a cycle show nowhere; one cycle can hold any number of them.
        """
        slot, kind, op, _, requested, completed = columns
        shows = (kind != State.REQUEST) | (completed > requested)
        shows |= service_cycles(self._network, slot, kind, op) > 0
        columns = tuple(column[shows] for column in columns)
        late = columns[REQUESTED] > self._end
        for side, state in enumerate((State.PUT, State.GET)):
            on = columns[3][late & (columns[1] == state)]
            self._late[side] += np.bincount(on, minlength=self._network.stream_count)
        self._chunks.append(tuple(column[~late] for column in columns))
        self._kept += len(late) - int(late.sum())

    def is_done(self) -> bool:
        come = int(self._arena.runnable_clocks().min(initial=np.iinfo(np.int64).max))
        if self._kept > self._limit:
            self._shorten(come)
        return come > self._end

    def _shorten(self, come: int) -> None:
        """Bring the end forward: to what is complete, or to where most of the events are that there may be."""
        columns = joined(self._chunks)
        most = self._limit * 7 // 8  # leave room, so that this rarely runs: it sorts all kept rows
        last = int(np.partition(columns[REQUESTED], most)[most])
        self._end = max(self._start, min(self._end, max(last, come - 1)))
        self._chunks, self._kept = [], 0
        self._add(columns)

    def events(self) -> Events:
        self.drain()
        return events_of(self._chunks, is_complete=True)

    def window(self) -> Window:
        arena, columns = self._arena, joined(self._chunks)
        count = self._network.stream_count
        kept = [np.bincount(columns[3][columns[1] == s], minlength=count) for s in (State.PUT, State.GET)]
        first_put = arena.streams[:, Stream.TAIL] - self._late[0] - kept[0]
        first_get = arena.streams[:, Stream.HEAD] - self._late[1] - kept[1]
        end = min(self._end, int(arena.nodes[:, Node.CLOCK].max(initial=0)))
        return Window(min(self._start, end), end, first_put, first_get, self._waits())

    def _waits(self) -> Waits:
        """Return the nodes that are blocked at a stream."""
        arena, network = self._arena, self._network
        on = np.flatnonzero(arena.streams[:, Stream.WAITER])
        node = arena.node_number(arena.streams[on, Stream.WAITER])
        state = arena.nodes[node, Node.WAITS_IN] % (1 << STATE_BITS)
        task = network.order[arena.current_slot()[node]]
        op = operation_numbers(network, task, arena.nodes[node, Node.WAITS_IN])
        return Waits(node, state, on, op, arena.nodes[node, Node.CLOCK])


def _longest_service(network: Network) -> int:
    """Cycles that a request can be served for, at most: so much later than an event something may end."""
    rows = network.rows.reshape(-1, Op.SIZE)
    return int(rows[rows[:, Op.CODE] == Code.REQUEST, Op.VALUE].max(initial=0))
