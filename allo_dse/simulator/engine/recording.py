"""The event log of a recorded run: the buffer that compiled code fills, and the events that Python keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.records import Array, Frozen

from ..network.network import IntArray, Network
from ..run_time.records import STATE_BITS, WORD, Code, Event, Header, Node, Op, State, Stream

if TYPE_CHECKING:
    from ..network.memory_image import Arena

BUFFER_EVENTS = 1 << 15
"""Events between two visits to Python: 1.3 MB, which a processor's cache holds."""
MAX_EVENTS = 10_000_000
"""Events kept by default, 29 bytes each."""


Columns = tuple[Array, ...]
"""Slot, state, op, on, requested, completed, as in `Events`."""


class Waits(Frozen):
    """Nodes that wait for a stream when a recording ends, one per entry: node, `State`, stream, operation, clock."""

    node: IntArray
    state: IntArray
    on: IntArray
    op: IntArray
    since: IntArray


class Window(Frozen):
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


class Events(Frozen):
    """The operations of a run, one per entry; those of one task, of one side of a stream and of one resource in order.

    Attributes:
        slot: the task, as its position in the network's order of execution.
        state: its kind (`State.GET`, `PUT` or `REQUEST`).
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


NOTED = (Node.CLOCK, Node.STALL_GET, Node.STALL_PUT, Node.STALL_REQUEST)
MOST_WORDS = 1 << 23
"""Words that samples may take in all."""
FIRST_PIECE = 256
"""Turns between two samples at first, and more for each node."""


class Samples(Frozen):
    """Progress of each node at some points of a run, from its beginning to its end.

    Attributes:
        clock: per sample and node. stalls: per sample, node and kind (waits for tokens, room, resources) the cycles up
            to that clock.
    """

    clock: IntArray
    stalls: IntArray

    def shares(self, edges: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the shares of time that nodes work and wait: (nodes, intervals, 4), for work and each kind of waiting.

        Between two samples a node is taken to do everything evenly; the rest to 1 is after its end.

        Args:
            edges: of the intervals, ascending clocks.
        """
        count = self.clock.shape[1]
        result = np.empty((count, len(edges) - 1, 1 + self.stalls.shape[2]))
        for node in range(count):
            clock = self.clock[:, node]
            waited = [np.interp(edges, clock, self.stalls[:, node, kind]) for kind in range(self.stalls.shape[2])]
            done = np.minimum(edges, clock[-1])
            result[node] = np.diff(np.stack([done - np.sum(waited, axis=0), *waited], axis=1), axis=0)
        return result / np.diff(edges)[:, None]


class Sampler:
    """Takes samples of a run, about evenly over its time.

    Args:
        count: how many to keep at least, as long as memory allows.
    """

    def __init__(self, arena: Arena, count: int) -> None:
        self._arena = arena
        nodes = max(1, len(arena.nodes))
        self._count = max(2, min(count, MOST_WORDS // (2 * len(NOTED) * nodes)))
        self._piece = FIRST_PIECE + nodes
        self._taken: list[IntArray] = []

    def take(self) -> int:
        """Take a sample; returns the turns until the next."""
        self._taken.append(self._arena.nodes[:, NOTED])
        if len(self._taken) > 2 * self._count:
            self._thin()
            self._piece *= 2
        return self._piece

    def _thin(self) -> None:
        """Keep only the last of the samples from the same small part of the time up to now."""
        # Extrapolation moves clocks in leaps, so samples are spread evenly over the nodes' clocks, not over turns.
        progress = np.array([float(sample[:, 0].mean()) for sample in self._taken])
        place = (progress * (self._count / max(progress[-1], 1.0))).astype(np.int64)
        last = np.append(place[1:] != place[:-1], True)
        last[0] = True
        self._taken = [sample for sample, keep in zip(self._taken, last.tolist(), strict=True) if keep]

    def samples(self) -> Samples:
        """Everything noted; to be called once, after the run."""
        self.take()
        taken = np.stack(self._taken)
        return Samples(taken[:, :, 0], taken[:, :, 1:])


# A window is recorded in bounded memory. Processes have clocks of their own, so operations of the window alternate with
# others: all are tested, and those that touch the window are kept. The window is complete once the clocks of all nodes
# that can continue are beyond its end, because the nodes that wait for them continue even later.


WINDOW_BUFFER_EVENTS = 1 << 18
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
        super().__init__(network, arena, max(1, limit), buffer=WINDOW_BUFFER_EVENTS)
        self._start, self._end = start, max(start, end)
        rows = network.rows.reshape(-1, Op.SIZE)
        # Something may end so much later than an event: as long as a request can be served.
        self._slack = int(rows[rows[:, Op.CODE] == Code.REQUEST, Op.VALUE].max(initial=0))
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
