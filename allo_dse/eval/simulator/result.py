"""What a run has shown."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from ...ir.layout import Header, Node, Resource, Slot, Stream
from ...ir.signature import Signature
from .arena import Arena
from .deadlock import Deadlock, DeadlockError, Labels, Numbers, find_deadlock
from .network import IntArray, Network


class RunResult:
    """Times and counts of one run; times are cycles of the local clocks, all of which start at 0."""

    def __init__(self, network: Network, arena: Arena, signatures: Mapping[str, Signature]) -> None:
        self.network = network
        self._arena = arena
        self._signatures = signatures

    @property
    def cycles(self) -> int:
        """The makespan: the largest clock of all nodes."""
        clocks = self._arena.nodes[:, Node.CLOCK]
        return int(clocks.max()) if clocks.size else 0

    @property
    def finished(self) -> bool:
        """Whether every node has run all its tasks; otherwise `deadlock` says why not."""
        return int(self._arena.header[Header.FINISHED]) == self.network.node_count

    @cached_property
    def deadlock(self) -> Deadlock | None:
        """What is blocked, and the cycle of tasks that wait for each other; None for a finished run."""
        return None if self.finished else find_deadlock(self.network, self._arena, self._signatures)

    def require_finished(self, labels: Labels | None = None) -> None:
        """Raises DeadlockError, with the names of `labels`, if the run did not finish."""
        if self.deadlock is not None:
            raise DeadlockError(self.deadlock, labels or Numbers())

    @property
    def node_end(self) -> IntArray:
        """Per node the clock at its end (or where it is stuck)."""
        return self._arena.nodes[:, Node.CLOCK]

    @property
    def stall_get(self) -> IntArray:
        """Per node the cycles it waited for tokens, read latency included."""
        return self._arena.nodes[:, Node.STALL_GET]

    @property
    def stall_put(self) -> IntArray:
        """Per node the cycles it waited for room."""
        return self._arena.nodes[:, Node.STALL_PUT]

    @property
    def stall_request(self) -> IntArray:
        """Per node the cycles it waited for shared resources, service not included."""
        return self._arena.nodes[:, Node.STALL_REQUEST]

    @cached_property
    def task_start(self) -> IntArray:
        """Per task the clock at which it started (0 if it did not)."""
        return self._by_task(Slot.START)

    @cached_property
    def task_end(self) -> IntArray:
        """Per task the clock at which it ended (0 if it did not)."""
        return self._by_task(Slot.END)

    def _by_task(self, word: Slot) -> IntArray:
        result = np.empty(self.network.task_count, np.int64)
        result[self.network.order] = self._arena.slots[:, word]
        return result

    @property
    def puts(self) -> IntArray:
        """Per stream the tokens put, without those it started with."""
        return self._arena.streams[:, Stream.TAIL] - self.network.initial

    @property
    def gets(self) -> IntArray:
        """Per stream the tokens taken out."""
        return self._arena.streams[:, Stream.HEAD]

    @property
    def occupancy(self) -> IntArray:
        """Per stream the most tokens it held at one time: the smallest depth that gives the same times."""
        streams = self._arena.streams
        left = streams[:, Stream.TAIL] - streams[:, Stream.HEAD]
        return np.maximum(streams[:, Stream.OCCUPANCY], left)

    @property
    def operations(self) -> int:
        """Stream operations executed."""
        return int(self.puts.sum() + self.gets.sum())

    @property
    def resource_busy(self) -> IntArray:
        """Per resource the cycles it served."""
        return self._arena.resources[:, Resource.BUSY]

    @property
    def resource_requests(self) -> IntArray:
        """Per resource the requests it served."""
        return self._arena.resources[:, Resource.REQUESTS]

    @property
    def log(self) -> IntArray:
        """Clocks noted by marked operations of table processes, process after process."""
        return self._arena.log

    @cached_property
    def log_first(self) -> IntArray:
        """Per table process the position of its first entry in `log`."""
        parts = self._arena.log_first
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    @cached_property
    def log_count(self) -> IntArray:
        """Per table process the number of its entries in `log`."""
        return self._arena.log_counts()

    def process_log(self, process: int) -> IntArray:
        """The clocks that the table process at position `process` (counting table processes only) noted."""
        first = int(self.log_first[process])
        return self._arena.log[first : first + int(self.log_count[process])]

    def summary(self) -> dict[str, Any]:
        """The totals as plain data."""
        return {
            "cycles": self.cycles,
            "finished": self.finished,
            "operations": self.operations,
            "stall_get": int(self.stall_get.sum()),
            "stall_put": int(self.stall_put.sum()),
            "stall_request": int(self.stall_request.sum()),
        }
