"""Incremental replay: after a change of one stream's depth, only operations whose times can differ are computed again.

Every operation's time is the larger of `due + stall so far` and what it waits for. A new depth changes what some puts
wait for (and the gets, where the read latency changes). From those whose time is no longer right, changes spread to the
next operation of the same process and to the one that waits for the token or the slot; where an operation comes out as
before, they end. Operations are taken in the order of the times that cause them, so that hardly any is computed twice.
When changes reach a good part of the trace, a full replay is cheaper and takes over.
"""

from __future__ import annotations

import numpy as np

from ..network.network import read_latency
from ..trace.data import IntArray, TraceData, TraceError
from .alike_streams import AlikeStreams
from .batch import DEADLOCK
from .replay import integer_depths, replay_one, stream_index
from .replay_result import ReplayResult
from .spread import Changing, spread

FULL_SHARE = 8
"""A heap entry and a queue of changes cost about this much more per operation than a full replay."""


class Replayer:
    """A replayed trace that follows changes of its depths.

    Attributes:
        computed: operations that the last change computed again.
        full_share: a full replay takes over when more than 1 / full_share of the operations are computed again.
    """

    def __init__(self, data: TraceData, streams: AlikeStreams, depths: IntArray) -> None:
        if depths.ndim != 1:
            raise TraceError("a replayer starts from one depth vector, not from a batch")
        self._data = data
        self._streams = streams
        self._plan = streams.plan
        self._depths = depths.copy()
        self.full_share = FULL_SHARE
        self._replay()

    @property
    def depths(self) -> IntArray:
        """Per stream its depth now."""
        return self._depths.copy()

    @property
    def finished(self) -> bool:
        """Whether the design runs to its end with these depths."""
        return self._finished

    @property
    def cycles(self) -> int:
        """The makespan, or -1 if the design deadlocks."""
        return int(self.process_end.max(initial=0)) if self._finished else DEADLOCK

    @property
    def process_end(self) -> IntArray:
        """Per process the cycle in which it ends; without meaning for a deadlock."""
        return self._plan.process_end + self._stall

    def result(self) -> ReplayResult:
        """Everything about the present depths."""
        return replay_one(self._data, self._streams, self._depths.copy())

    def retime(self, stream: str | int, depth: int) -> int:
        """Change the depth of a stream.

        Returns:
            The makespan, in cycles, or -1 if the design deadlocks.
        """
        number, depth = stream_index(self._data, stream), int(integer_depths(depth))
        if depth < 1:
            raise TraceError(f"depth {depth} for stream {self._data.streams[number]}: depths are at least 1")
        self._depths[number] = depth
        clipped = int(self._plan.clip(self._depths)[number])
        unread = int(self._plan.puts[number] - self._plan.gets[number])
        if not self._finished or depth < unread:
            self._replay()
        elif clipped == self._clipped[number]:
            self.computed = 0
        else:
            self._clipped[number] = clipped
            self._latency[number] = read_latency(self._plan.latency[number], self._clipped[number])
            self._spread(number)
        return self.cycles

    def _spread(self, stream: int) -> None:
        plan = self._plan
        limit = len(plan.port) // self.full_share + 1
        replay = Changing(plan.port_process, plan.operation_of, self._times, self._clipped, self._latency, self._stall)
        work = spread(stream, limit, plan.operations, replay)
        if work < 0:
            self._replay()
        else:
            self.computed = work

    def _replay(self) -> None:
        result = replay_one(self._data, self._streams, self._depths)
        self._finished = result.finished
        self._stall = result.process_end - self._plan.process_end
        self._clipped = self._plan.clip(self._depths)
        self._latency = self._plan.read_latency(self._clipped)
        self.computed = len(self._plan.port)
        if self._finished:
            self._times = np.stack([result.times.get, result.times.put])
