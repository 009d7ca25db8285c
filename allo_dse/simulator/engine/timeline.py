"""Activity of every processing element and FIFO over time, from the events of a recorded run."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.records import Frozen

from ..network.network import IntArray, Network
from ..run_time.records import State
from .recording import Events, Window, service_cycles

if TYPE_CHECKING:
    import pandas as pd

START, END = State.READY, State.FINISHED
"""Kinds of the rows that stand for the beginning and the end of a task."""


class Activity(IntEnum):
    """Activity of a processing element in an interval of time."""

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
        since: the cycle that the recording begins with.
        slot, node, kind, op, on: as in `Events`; `kind` is a `State`, or `START` or `END`.
        requested, completed: clocks; between the row before (of the same node) and `requested` the node works.
        end: `completed`, and for requests the end of the service.
        of_event: per event its row.
    """

    since: int
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
        return np.where(self.before >= 0, self.end[self.before], self.since)

    def of_some_time(self) -> Rows:
        """All rows but requests that take no time (one cycle can hold any number of them); `of_event` is not kept.

        Work goes on through such a request: recordings of a part of the time have none of them. One that is the last
        thing a node ever does stays, for the work before it.
        """
        is_last = np.append(self.node[1:] != self.node[:-1], np.ones(min(1, len(self)), bool))
        kept = np.flatnonzero((self.kind != State.REQUEST) | (self.end > self.requested) | is_last)
        if len(kept) == len(self):
            return self
        columns = {f.name: getattr(self, f.name)[kept] for f in fields(self) if f.name not in ("since", "of_event")}
        return Rows(since=self.since, of_event=np.zeros(0, np.int64), **columns)


class Occupancy(Frozen):
    """Tokens in a FIFO over time: from cycle `time[i]` on it holds `tokens[i]`.

    As in `RunResult.occupancy`, a token counts from the cycle of its put to the cycle of its get, both included.
    """

    time: IntArray
    tokens: IntArray


@dataclass(frozen=True)
class Timeline:
    """Everything that happened in a run, or in a part of its time; all times are cycles.

    Attributes:
        window: what part of the run; the events of a part can reach beyond it, intervals do not.
        started, ended: per slot (a task at its place in the order of execution), whether it has.
        slot_start, slot_end, node_end: clocks.
    """

    network: Network
    events: Events
    window: Window
    started: NDArray[np.bool_]
    ended: NDArray[np.bool_]
    slot_start: IntArray
    slot_end: IntArray
    node_end: IntArray = field(repr=False)

    @property
    def start(self) -> int:
        """The cycle from which on the timeline tells what happened."""
        return self.window.start

    @property
    def end(self) -> int:
        return self.window.end

    @property
    def cycles(self) -> int:
        """Cycles from start to end."""
        return self.end - self.start

    @cached_property
    def slot_node(self) -> IntArray:
        return np.repeat(np.arange(self.network.node_count), np.diff(self.network.first))

    @cached_property
    def rows(self) -> Rows:
        """Events and the tasks' beginnings and ends, in order."""
        events = self.events
        starts = np.flatnonzero(self.started & self._inside(self.slot_start))
        ends = np.flatnonzero(self.ended & self._inside(self.slot_end))
        slot = np.concatenate([starts, events.slot, ends])
        order = np.argsort(slot, kind="stable")
        position = np.empty(len(order), np.int64)
        position[order] = np.arange(len(order))

        def column(at_start: IntArray | int, of_events: NDArray[np.generic], at_end: IntArray | int) -> IntArray:
            parts = [np.broadcast_to(at_start, starts.shape), of_events, np.broadcast_to(at_end, ends.shape)]
            return np.concatenate(parts).astype(np.int64)[order]

        begun, over = self.slot_start[starts], self.slot_end[ends]
        return Rows(
            since=self.start,
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

    def _inside(self, clock: IntArray) -> NDArray[np.bool_]:
        return (clock >= self.start) & (clock <= self.end)

    def _service(self) -> IntArray:
        """Per event the cycles of service that follow it."""
        return service_cycles(self.network, self.events.slot, self.events.state, self.events.op)

    @cached_property
    def intervals(self) -> pd.DataFrame:
        """Activities of nodes: columns node, task, activity (`Activity`), start, end, on, op; by node and time.

        `on` is the stream (of waits for tokens and room) or resource, `op` the operation's number; else -1.
        """
        rows = self.rows.of_some_time()
        activity = np.zeros(len(rows), np.int64)
        for kind, waiting in WAITING.items():
            activity[rows.kind == kind] = waiting
        none = np.full(len(rows), -1)
        parts = [
            (np.full(len(rows), int(Activity.WORK)), rows.idle_since, rows.requested, none, none),
            (activity, rows.requested, rows.completed, rows.on, rows.op),
            (np.full(len(rows), int(Activity.SERVICE)), rows.completed, rows.end, rows.on, rows.op),
        ]
        inner = (np.stack(c, axis=1).ravel() for c in zip(*parts, strict=True))
        places = (np.repeat(rows.node, 3), np.repeat(rows.slot, 3))
        node, slot, what, start, end, on, op = (
            np.concatenate(c) for c in zip((*places, *inner), self._tails(), strict=True)
        )
        start, end = np.maximum(start, self.start), np.minimum(end, self.end)
        keep = np.flatnonzero(end > start)
        keep = keep[np.lexsort((start[keep], node[keep]))]
        columns = {
            "node": node,
            "task": self.network.order[slot],
            "activity": what,
            "start": start,
            "end": end,
            "on": on,
            "op": op,
        }
        import pandas as pd

        return pd.DataFrame({name: values[keep] for name, values in columns.items()})

    def _tails(self) -> tuple[IntArray, ...]:
        """Columns of what nodes do at the end of a part of a run, after their last row: they work, or wait."""
        waits, rows, count = self.window.waits, self.rows, self.network.node_count
        if waits is None:
            return tuple(np.zeros(0, np.int64) for _ in range(7))
        # Per node the slot that it is in at the end, -1 if it is over.
        begun = self.slot_node[self.started & (self.slot_start <= self.end)]
        done = self.slot_node[self.ended & (self.slot_end <= self.end)]
        begins, over = np.bincount(begun, minlength=count), np.bincount(done, minlength=count)
        slot = np.where(begins > over, self.network.first[:-1] + begins - 1, -1)
        node = np.flatnonzero(slot >= 0)
        since = np.full(count, self.start)
        since[rows.node] = rows.end  # the last row of each node wins
        until = np.full(count, self.end)
        until[waits.node] = waits.since
        work = np.full(len(node), int(Activity.WORK))
        none = np.full(len(node), -1)
        waiting = np.array([WAITING[State(s)] for s in waits.state.tolist()], np.int64)
        own = np.isin(waits.node, node)
        ends = np.full(len(waits.node), self.end)
        wait = (waits.node, slot[waits.node], waiting, waits.since, ends, waits.on, waits.op)
        parts = [(node, slot[node], work, since[node], until[node], none, none), tuple(c[own] for c in wait)]
        return tuple(np.concatenate(c) for c in zip(*parts, strict=True))

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
        before = int(self.window.first_put[stream] - self.window.first_get[stream])
        held = before + np.cumsum(change)
        times = times[order]
        last = np.concatenate([times[1:] != times[:-1], np.ones(min(1, len(times)), bool)])
        time, tokens = times[last], held[last]
        if self.window.waits is not None:
            end = np.searchsorted(time, self.end + 1)  # nothing is kept of what moved before the start
            time, tokens = time[:end], tokens[:end]
        if not len(time) or time[0] > self.start:
            time, tokens = np.insert(time, 0, self.start), np.insert(tokens, 0, before)
        return Occupancy(time, tokens)

    @cached_property
    def cause(self) -> IntArray:
        """Per event that had to wait, the event that ended the wait; -1 for others, and if it was before the window.

        That is the put of the token, the get that made room, or the request that was served before.
        """
        events, window = self.events, self.window
        result = np.full(len(events), -1)
        puts, first_put = self._moves[State.PUT]
        gets, first_get = self._moves[State.GET]
        requests, first_request = self._moves[State.REQUEST]
        # The n-th get of a stream takes the token of its n-th put (T2). The n-th put fills the slot that get n - depth
        # freed (T3). A server serves one request after the other (T11). Numbers continue from before the window.
        ahead = window.first_put - window.first_get
        token = np.arange(len(gets)) - first_get[events.on[gets]]
        _link(result, gets, events.on[gets], token - ahead[events.on[gets]], puts, first_put)
        token = np.arange(len(puts)) - first_put[events.on[puts]] + (ahead - self.network.depth)[events.on[puts]]
        _link(result, puts, events.on[puts], token, gets, first_get)
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
