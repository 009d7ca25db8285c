"""Result of a replay."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from allo_dse.common.records import Array, Frozen, JsonObject

from ..deadlock import Deadlock, DeadlockError, deadlock_of
from .depth_tries import smallest_depths
from .kernels import occupancy, replayed
from .plan import Merged, Plan, blocked_processes, trace_labels
from .trace_data import IntArray, TraceData, TraceError

UNREACHED = -1
"""Time of an operation that did not happen."""
ADVICE_RUNS = 200
"""Depth vectors tried for the advice of an error message."""


class TokenTimes(Frozen, eq=False):
    """Per slot (see `plan`) the cycle of its put and of its get, -1 for those that did not happen."""

    put: IntArray
    get: IntArray


class ReplayResult(Frozen, eq=False, dict=True):
    """Times of one replay, in cycles from the design's start.

    Attributes:
        trace, plan: that were replayed.
        merged: the part of it that was, where streams are alike.
        depths: per stream, as asked for.
        process_end: per process the cycle in which it ends, or waits for ever.
        port_stall: cycles waited per port: the reading ends of all streams, then the writing ends.
        merged_position: per process the operation of the merged plan that it has come to.
        listed_times: of the merged plan, see `kernels`; None if repeats were timed together.
        steps: number of operations timed one by one, if repeats were timed together.
    """

    trace: TraceData
    plan: Plan
    merged: Merged
    depths: IntArray
    process_end: IntArray
    port_stall: IntArray
    merged_position: IntArray
    listed_times: Array | None
    steps: int = 0

    @property
    def cycles(self) -> int:
        """The makespan: the latest process end."""
        return int(self.process_end.max(initial=0))

    @property
    def finished(self) -> bool:
        """True if every process has ended; otherwise `deadlock` says why not."""
        return bool(np.array_equal(self.merged_position, self.merged.plan.first[1:]))

    @property
    def position(self) -> IntArray:
        """Per process the operation it has come to."""
        return self.merged.operation[self.merged_position]

    @cached_property
    def deadlock(self) -> Deadlock | None:
        """Blocked processes, and the cycle of processes and streams that wait for each other; None for a finished
        run."""
        if self.finished:
            return None
        return deadlock_of(blocked_processes(self.plan, self.position, self.depths, self.process_end))

    def explain(self) -> str:
        """The deadlock, one line per process of the cycle; empty for a finished run."""
        return (
            "" if self.deadlock is None else self.deadlock.describe(trace_labels(self.trace, self.plan, self.position))
        )

    @property
    def explanation(self) -> str:
        """As `explain()`."""
        return self.explain()

    @property
    def operations(self) -> int:
        """Operations that happened."""
        return int(sum(done.sum() for done in self.done))

    @property
    def computed(self) -> int:
        """Operations computed one by one; the others repeat these."""
        return self.operations if self.listed_times is not None else self.steps

    def advice(self) -> str:
        """Depths that clear the deadlock with the fewest slots, or the reason why none do; empty for a finished run."""
        if self.finished:
            return ""
        try:
            return smallest_depths(self.trace, self.plan, self.depths, ADVICE_RUNS).advice
        except TraceError as error:
            return error.message

    def require_finished(self) -> None:
        """Raises DeadlockError, with names and the advice as hint, if the replay did not finish."""
        if self.deadlock is not None:
            error = DeadlockError(self.deadlock, trace_labels(self.trace, self.plan, self.position))
            error.hint = self.advice()
            raise error

    @property
    def stream_stall_get(self) -> IntArray:
        """Per stream the cycles its reader waited for tokens."""
        return self.port_stall[: self.plan.streams]

    @property
    def stream_stall_put(self) -> IntArray:
        """Per stream the cycles its writer waited for room."""
        return self.port_stall[self.plan.streams :]

    @cached_property
    def stall_get(self) -> IntArray:
        """Per process the cycles it waited for tokens."""
        return self._by_process(self.plan.consumer, self.stream_stall_get)

    @cached_property
    def stall_put(self) -> IntArray:
        """Per process the cycles it waited for room."""
        return self._by_process(self.plan.producer, self.stream_stall_put)

    def _by_process(self, ends: IntArray, stalls: IntArray) -> IntArray:
        result = np.zeros(self.plan.processes, np.int64)
        np.add.at(result, ends[ends >= 0], stalls[ends >= 0])
        return result

    @cached_property
    def times(self) -> TokenTimes:
        """Times at which each token was put and taken out."""
        plan = self.plan
        begin = self.merged.plan.offset[self.merged.leader] - plan.offset[:-1]
        slots = np.arange(plan.slots) + np.repeat(begin, np.diff(plan.offset))
        return TokenTimes(self._merged_times.put[slots], self._merged_times.get[slots])

    @cached_property
    def _merged_times(self) -> TokenTimes:
        plan = self.merged.plan
        depth = plan.clip(self.depths)
        tokens = np.diff(plan.offset)
        done_put, done_get = self._merged_done
        latency, raw = plan.read_latency(depth), self.listed_times
        if raw is None:
            raw = replayed(plan.operations, depth, latency, plan.process_end, plan.unset).times
        put = raw[: plan.slots].astype(np.int64) - np.repeat(latency, tokens)
        begin = plan.slots + plan.offset[:-1] + np.cumsum(depth)
        slots = np.arange(plan.slots)
        number = slots - np.repeat(plan.offset[:-1], tokens)
        get = raw[np.repeat(begin, tokens) + number].astype(np.int64) - 1
        put[number >= np.repeat(done_put, tokens)] = UNREACHED
        get[number >= np.repeat(done_get, tokens)] = UNREACHED
        return TokenTimes(put, get)

    @cached_property
    def done(self) -> tuple[IntArray, IntArray]:
        """Per stream the tokens put and taken out."""
        puts, gets = self._merged_done
        return puts[self.merged.leader], gets[self.merged.leader]

    @cached_property
    def _merged_done(self) -> tuple[IntArray, IntArray]:
        plan = self.merged.plan
        if self.finished:
            return plan.puts, plan.gets
        done = np.arange(len(plan.port)) < np.repeat(self.merged_position, np.diff(plan.first))
        counts = np.bincount(plan.port[done], minlength=2 * plan.streams)
        return counts[plan.streams :], counts[: plan.streams]

    @cached_property
    def occupancy(self) -> IntArray:
        """Per stream the most slots in use at once: with this depth, and the same latency, all times stay the same."""
        times = self._merged_times
        return occupancy(self.merged.plan.offset, *self._merged_done, times.put, times.get)[self.merged.leader]

    def summary(self) -> JsonObject:
        """The totals as plain data."""
        return {
            "cycles": self.cycles,
            "finished": self.finished,
            "operations": self.operations,
            "stall_get": int(self.stall_get.sum()),
            "stall_put": int(self.stall_put.sum()),
        }

    def by_process(self) -> list[JsonObject]:
        """One row per process: name, end and stalls."""
        return [
            {"process": name, "end": int(self.process_end[p]), "stall_get": int(self.stall_get[p]),
             "stall_put": int(self.stall_put[p])}
            for p, name in enumerate(self.trace.processes)
        ]  # fmt: skip

    def by_stream(self) -> list[JsonObject]:
        """One row per stream: name, ends, depth, tokens, occupancy and stalls."""
        names = (*self.trace.processes, "")
        return [
            {"stream": name, "producer": names[self.plan.producer[s]], "consumer": names[self.plan.consumer[s]],
             "depth": int(self.depths[s]), "tokens": int(self.done[0][s]), "occupancy": int(self.occupancy[s]),
             "stall_get": int(self.stream_stall_get[s]), "stall_put": int(self.stream_stall_put[s])}
            for s, name in enumerate(self.trace.streams)
        ]  # fmt: skip
