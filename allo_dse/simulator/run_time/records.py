"""Words of the run-time records that compiled code and NumPy share.

Everything a run needs lies in one array of 64-bit words, the arena: a header, then records of fixed size. References
between records are absolute addresses. Offsets below are in words.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Count = TypeVar("Count", int, NDArray[np.int64])

WORD = 8
"""Bytes per word."""


class Header(IntEnum):
    """One per run: the queues and where everything is."""

    READY_HEAD = 0
    READY_TAIL = 1
    READY_MASK = 2
    READY = 3
    """Address of the ring of runnable nodes; each node is in it at most once."""
    PENDING_COUNT = 4
    PENDING = 5
    """Address of the binary heap of nodes that wait for a resource, ordered by (clock, node)."""
    BUDGET = 6
    """Turns, and repetitions of table sections, left until `run` returns to Python."""
    STATUS = 7
    """1 when turns are left to do, 0 when nothing can run any more."""
    STREAMS = 8
    COSTS = 9
    FINISHED = 10
    """Number of nodes that have finished."""
    EVENT = 11
    """Address of the next event of a recorded run."""
    EVENT_END = 12
    EVENT_STEP = 13
    """Bytes per event; 0 to let each overwrite the one before, when no more are kept."""
    ANCHOR = 14
    """Sum of the addresses of a node and of a `REPEAT` row. When the node has begun `ROUNDS` more rounds there, this
    becomes 0, and `run` returns to Python after the node's turn."""
    ROUNDS = 15
    FAULT = 16
    """1 + the number of the first index check that failed, 0 if none has; then the index, and the task's slot."""
    FAULT_INDEX = 17
    FAULT_SLOT = 18
    TOKENS_FIRST = 19
    """1 to run who waited for a token next: tokens go as far as they can before others are made."""
    START_BODY = 20
    """Address of `df_start_body`, the function that starts compiled task bodies; 0 where there are none."""
    SIZE = 21


class Node(IntEnum):
    """A processing element: it runs its slots one after the other on one clock.

    The first eight words, one cache line, are those of every turn.
    """

    CLOCK = 0
    ACTIVE = 1
    """0 between slots; while one runs, 1 + its body's number."""
    HANDLE = 2
    """The coroutine frame of the slot that runs, or a table process's position."""
    SLOT = 3
    WAITS_ON = 4
    """Address of the stream or resource the node is blocked on; 0 for a poll that awaits its answer."""
    WAITS_IN = 5
    """`State`, plus the stream operation it is blocked in: 8 times its number, or the address of its table row."""
    STALL_GET = 6
    STALL_PUT = 7
    SLOT_END = 8
    STALL_REQUEST = 9
    SERVICE = 10
    """Cycles of the pending request."""
    GRANTED = 11
    SIZE = 16


class State(IntEnum):
    """Wait state of a node that does not run (the low three bits of `Node.WAITS_IN`)."""

    READY = 0
    GET = 1
    PUT = 2
    REQUEST = 3
    FINISHED = 4


STATE_BITS = 3


class Slot(IntEnum):
    """One task of a node: `BODY` 0 is the table process, k > 0 the k-th compiled body."""

    BODY = 0
    ARGUMENTS = 1
    START = 2
    END = 3
    SIZE = 4


class Stream(IntEnum):
    """A bounded FIFO. `HEAD` counts gets, `TAIL` counts puts; token k uses entry k & MASK of a power-of-two ring.

    A ring entry is two words, when its token was put and when it was taken out, and the bytes of the token.
    """

    HEAD = 0
    TAIL = 1
    DEPTH = 2
    MASK = 3
    RING = 4
    FORMAT = 5
    """Low half: cycles from put to get; high half: words per ring entry."""
    WAITER = 6
    """The node blocked in a get or put of the stream, or 0; both cannot be, since a stream is not empty and full."""
    OCCUPANCY = 7
    """The most tokens held at one time, that is, the smallest depth that gives the same times."""
    SIZE = 8


class Entry(IntEnum):
    """Words of a ring entry before the token's bytes."""

    PUT = 0
    TAKEN = 1
    TOKEN = 2


def entry_words(token_bytes: Count) -> Count:
    """Words per ring entry for tokens of a size; works on arrays."""
    return Entry.TOKEN + (token_bytes + WORD - 1) // WORD


class Resource(IntEnum):
    """A server: when it is free, how long it was busy, how many requests it served."""

    FREE = 0
    BUSY = 1
    REQUESTS = 2
    SIZE = 4


class Event(IntEnum):
    """One operation in the log of a recorded run; see `allo_dse.simulator.run_time.fifo`."""

    SLOT = 0
    WHAT = 1
    ON = 2
    REQUESTED = 3
    COMPLETED = 4
    """Of a request: when its service begins."""
    SIZE = 5


class Process(IntEnum):
    """Arguments of a table process; its repeat counters follow."""

    OPS = 0
    STREAMS = 1
    RESOURCES = 2
    LOG = 3
    LOG_END = 4
    COUNTERS = 5
    SIZE = 16


MAX_NESTING = Process.SIZE - Process.COUNTERS
"""Deepest nesting of repeats in an operation table."""


class Op(IntEnum):
    """Words of one row of an operation table. `MARK` is the number of rows to jump back in a `REPEAT` row."""

    CODE = 0
    OPERAND = 1
    VALUE = 2
    MARK = 3
    SIZE = 4


class Code(IntEnum):
    """Operations of a table process."""

    HALT = 0
    GET = 1
    PUT = 2
    WAIT = 3
    REQUEST = 4
    REPEAT = 5
