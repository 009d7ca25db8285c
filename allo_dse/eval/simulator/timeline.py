"""What every processing element and every FIFO did over time, from the events of a recorded run."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...ir.layout import Op, State
from .network import IntArray, Network
from .recording import Events

START, END = State.READY, State.FINISHED
"""Kinds of the rows that stand for the beginning and the end of a task."""


class Activity(IntEnum):
    """What a processing element does in an interval of time."""

    WORK = 0
    WAIT_GET = 1
    """Waits for a token, read latency included."""
    WAIT_PUT = 2
    """Waits for room."""
    WAIT_RESOURCE = 3
    SERVICE = 4
    """Is served by a resource."""


WAITING = {State.GET: Activity.WAIT_GET, State.PUT: Activity.WAIT_PUT, State.REQUEST: Activity.WAIT_RESOURCE}


@dataclass(frozen=True)
class Rows:
    """Events with the beginning and end of each task, node after node, in order of execution; one entry per row.

    Attributes:
        slot, node, kind, op, on: as in `Events`; `kind` is a `State`, or `START` or `END`.
        requested, completed: clocks; between the row before (of the same node) and `requested` the node works.
        end: `completed`, and for requests the end of the service.
        of_event: per event its row.
    """

    slot: IntArray
    node: IntArray
    kind: IntArray
    op: IntArray
    on: IntArray
    requested: IntArray
    completed: IntArray
    end: IntArray
    of_event: IntArray

    def __len__(self) -> int:
        return len(self.slot)

    @cached_property
    def before(self) -> IntArray:
        """The row before of the same node, or -1."""
        before = np.arange(-1, len(self) - 1)
        before[np.concatenate(([True], self.node[1:] != self.node[:-1]))[: len(self)]] = -1
        return before

    @cached_property
    def idle_since(self) -> IntArray:
        """Clock after the row before: the work that leads to a row takes from then until it is requested."""
        return np.where(self.before >= 0, self.end[self.before], 0)


@dataclass(frozen=True)
class Occupancy:
    """Tokens in a FIFO over time: from cycle `time[i]` on it holds `tokens[i]`.

    As in `RunResult.occupancy`, a token counts from the cycle of its put to the cycle of its get, both included.
    """

    time: IntArray
    tokens: IntArray


@dataclass(frozen=True)
class Timeline:
    """Everything that happened in a run, over time; all times are cycles.

    Attributes:
        started, ended: per slot (a task at its place in the order of execution), whether it has.
        slot_start, slot_end, node_end: clocks.
    """

    network: Network
    events: Events
    started: NDArray[np.bool_]
    ended: NDArray[np.bool_]
    slot_start: IntArray
    slot_end: IntArray
    node_end: IntArray = field(repr=False)

    @property
    def cycles(self) -> int:
        return int(self.node_end.max(initial=0))

    @cached_property
    def slot_node(self) -> IntArray:
        return np.repeat(np.arange(self.network.node_count), np.diff(self.network.first))

    @cached_property
    def rows(self) -> Rows:
        """Events and the tasks' beginnings and ends, in order."""
        events = self.events
        starts, ends = np.flatnonzero(self.started), np.flatnonzero(self.ended)
        slot = np.concatenate([starts, events.slot, ends])
        order = np.argsort(slot, kind="stable")
        position = np.empty(len(order), np.int64)
        position[order] = np.arange(len(order))

        def column(at_start: IntArray | int, of_events: NDArray[np.generic], at_end: IntArray | int) -> IntArray:
            parts = [np.broadcast_to(at_start, starts.shape), of_events, np.broadcast_to(at_end, ends.shape)]
            return np.concatenate(parts).astype(np.int64)[order]

        begun, over = self.slot_start[starts], self.slot_end[ends]
        return Rows(
            slot=slot[order],
            node=self.slot_node[slot[order]],
            kind=column(START, events.state, END),
            op=column(-1, events.op, -1),
            on=column(-1, events.on, -1),
            requested=column(begun, events.requested, over),
            completed=column(begun, events.completed, over),
            end=column(begun, events.completed + self._service(), over),
            of_event=position[len(starts) : len(starts) + len(events)],
        )

    def _service(self) -> IntArray:
        """Per event the cycles of service that follow it."""
        result = np.zeros(len(self.events), np.int64)
        asked = np.flatnonzero(self.events.state == State.REQUEST)
        row = self.network.first_row[self.network.order[self.events.slot[asked]]] + self.events.op[asked]
        result[asked] = self.network.rows.reshape(-1, Op.SIZE)[row, Op.VALUE]
        return result

    @cached_property
    def intervals(self) -> pd.DataFrame:
        """What nodes did: columns node, task, activity (`Activity`), start, end, on, op; by node and time.

        `on` is the stream (of waits for tokens and room) or resource, `op` the operation's number; else -1.
        """
        rows = self.rows
        activity = np.zeros(len(rows), np.int64)
        for kind, waiting in WAITING.items():
            activity[rows.kind == kind] = waiting
        none = np.full(len(rows), -1)
        parts = [
            (np.full(len(rows), int(Activity.WORK)), rows.idle_since, rows.requested, none, none),
            (activity, rows.requested, rows.completed, rows.on, rows.op),
            (np.full(len(rows), int(Activity.SERVICE)), rows.completed, rows.end, rows.on, rows.op),
        ]
        what, start, end, on, op = (np.stack(c, axis=1).ravel() for c in zip(*parts, strict=True))
        keep = end > start
        columns = {
            "node": np.repeat(rows.node, 3),
            "task": np.repeat(self.network.order[rows.slot], 3),
            "activity": what,
            "start": start,
            "end": end,
            "on": on,
            "op": op,
        }
        return pd.DataFrame({name: values[keep] for name, values in columns.items()})

    @cached_property
    def node_cycles(self) -> IntArray:
        """Cycles per node and `Activity`, of shape (nodes, 5)."""
        table = self.intervals
        result = np.zeros((self.network.node_count, len(Activity)), np.int64)
        np.add.at(result, (table["node"], table["activity"]), table["end"] - table["start"])
        return result

    @cached_property
    def _moves(self) -> dict[State, tuple[IntArray, IntArray]]:
        """Per kind of event: positions of its events, stream after stream, and where each stream's begin."""
        result = {}
        for state, count in (
            (State.GET, self.network.stream_count),
            (State.PUT, self.network.stream_count),
            (State.REQUEST, self.network.resources),
        ):
            found = np.flatnonzero(self.events.state == state)
            found = found[np.argsort(self.events.on[found], kind="stable")]
            result[state] = found, np.searchsorted(self.events.on[found], np.arange(count + 1))
        return result

    def events_on(self, state: State, number: int) -> IntArray:
        """Positions in `events` of the gets or puts of a stream or the requests of a resource, in order."""
        found, first = self._moves[state]
        return found[first[number] : first[number + 1]]

    def occupancy(self, stream: int) -> Occupancy:
        """Tokens in a FIFO over time."""
        puts = self.events.completed[self.events_on(State.PUT, stream)]
        gets = self.events.completed[self.events_on(State.GET, stream)] + 1
        times = np.concatenate([puts, gets])
        order = np.argsort(times, kind="stable")
        change = np.where(order < len(puts), 1, -1)
        held = int(self.network.initial[stream]) + np.cumsum(change)
        times = times[order]
        last = np.concatenate([times[1:] != times[:-1], np.ones(min(1, len(times)), bool)])
        time, tokens = times[last], held[last]
        if not len(time) or time[0] > 0:
            time, tokens = np.insert(time, 0, 0), np.insert(tokens, 0, self.network.initial[stream])
        return Occupancy(time, tokens)

    @cached_property
    def cause(self) -> IntArray:
        """Per event that had to wait, the event that ended the wait; -1 for others.

        That is the put of the token, the get that made room, or the request that was served before.
        """
        events, network = self.events, self.network
        result = np.full(len(events), -1)
        puts, first_put = self._moves[State.PUT]
        gets, first_get = self._moves[State.GET]
        requests, first_request = self._moves[State.REQUEST]
        token = np.arange(len(gets)) - first_get[events.on[gets]]
        _link(result, gets, events.on[gets], token - network.initial[events.on[gets]], puts, first_put)
        token = np.arange(len(puts)) - first_put[events.on[puts]] + network.initial[events.on[puts]]
        _link(result, puts, events.on[puts], token - network.depth[events.on[puts]], gets, first_get)
        turn = np.arange(len(requests)) - first_request[events.on[requests]]
        _link(result, requests, events.on[requests], turn - 1, requests, first_request)
        result[events.completed == events.requested] = -1
        return result


def _link(
    result: IntArray, events: IntArray, on: NDArray[np.int32], number: IntArray, causes: IntArray, first: IntArray
) -> None:
    """Set the cause of `events` to the event with that number on the same stream or resource, if there is one."""
    place = first[on] + number
    known = (number >= 0) & (place < first[on + 1])
    result[events[known]] = causes[place[known]]
