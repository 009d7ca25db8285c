"""Depths of streams: the front of cycles against memory, from few replays.

With the same latencies a design is never slower with deeper streams, so every replay bounds many depth vectors. Three
rules keep the number of replays low. All streams are tried at the least memory first, which suffices for most designs.
Only streams whose writers waited for room get more, because more room would not have helped other writers. Added depth
is taken back in groups, which are halved if a whole group costs cycles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from allo_dse.common.records import Frozen, replace

from ..network.network import read_latency
from ..replay.trace import Trace
from ..replay.trace_data import IntArray, TraceError

Steps = Callable[[int, int], Sequence[tuple[int, int]]]
"""Choices of memory for a stream, given its number and the most tokens that it holds: (depth, bits of memory) in
ascending order. The last is as deep as those tokens."""

# `benchmarks/depth_front.py` measures the fronts that these settings find, and their replays.
MAX_RUNS = 100
BASE = 1  # the step that streams get in the second replay, when the first has shown that the least is not enough
LOSSES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)  # the cycles that the rest of the front is looked for at
NEVER = -1


class DepthPoint(Frozen):
    """Depths that were replayed.

    Attributes:
        cycles: of all traces together.
        memory_bits: that the streams take.
        depths: per stream by name.
        run: which replay found it, from 1.
    """

    cycles: int
    memory_bits: int
    depths: Mapping[str, int]
    run: int


class DepthFront(Frozen):
    """The front, with bounds on depths that were not replayed.

    Attributes:
        points: none is better than another in both; by ascending cycles.
        built: the depths that the trace came with; None if it deadlocks with them.
        best_cycles: with streams that never get full.
        lossless: the least memory found that takes no more cycles than that.
        least_depths: streams that need more than the least memory for that whatever depths all others have, and how
            deep each must be at least.
        at_least_bits: the resulting lower bound for designs without loss.
        runs: of the search, and of the depths as built.
        proof_runs: replays behind `least_depths`.
    """

    points: tuple[DepthPoint, ...]
    built: DepthPoint | None
    best_cycles: int
    lossless: DepthPoint
    least_depths: Mapping[str, int]
    at_least_bits: int
    runs: int
    proof_runs: int

    @property
    def proven(self) -> bool:
        """True if no depths without loss take less memory than those found."""
        return self.at_least_bits >= self.lossless.memory_bits

    def within(self, loss: float) -> DepthPoint:
        """The point of least memory that takes at most this share more cycles than the best (0.01: one percent)."""
        return min(
            (point for point in (*self.points, self.lossless) if point.cycles <= self.best_cycles * (1 + loss)),
            key=lambda point: (point.memory_bits, point.cycles),
        )

    @property
    def words(self) -> str:
        """Quality of the lossless point, in a sentence."""
        found = f"{self.lossless.memory_bits:,} bits lose no cycle, found by run {self.lossless.run} of {self.runs}"
        if self.proven:
            return f"{found}; no depths without loss take less"
        return f"{found}; none without loss take less than {self.at_least_bits:,} bits"


def find_depth_front(traces: Sequence[Trace], steps: Steps, max_runs: int = MAX_RUNS) -> DepthFront:
    """The front of several traces of one design, with other inputs each; a point's cycles are the sum of theirs.

    Args:
        max_runs: replays at most (each of all traces); what they go to first is the lossless point.

    Raises:
        TraceError: without traces or streams, if they are not of one design, or if no depths prevent a deadlock.
    """
    if not traces:
        raise TraceError("depths are searched for at least one trace")
    if any(trace.streams != traces[0].streams for trace in traces):
        raise TraceError("the traces are not of one design: their streams differ")
    if not traces[0].streams:
        raise TraceError(f"trace {traces[0].name!r} has no streams whose depths could be searched for")
    return search_depths(_Traces(tuple(traces)), steps, max_runs)


class DepthRun(Frozen):
    """A run: its cycles (infinite: deadlock), and per stream the cycles waited for room, and the most tokens held."""

    cycles: float
    waits: IntArray
    occupancy: IntArray


class Timed(Protocol):
    """Interface of designs that can be timed at any depths; depths are int64[streams]."""

    streams: tuple[str, ...]
    built: IntArray
    """The depths that it came with."""
    fixed: frozenset[int]
    """Streams that keep these depths."""
    tokens: IntArray
    """The most tokens that each can hold at once."""

    def run(self, depths: IntArray) -> DepthRun:
        """One run."""

    def without_deadlock(self, depths: IntArray) -> IntArray:
        """Depths at which it ends, none less than given.

        Raises:
            AlloDseError: if it deadlocks at all.
        """

    def at_least(self, depths: IntArray) -> IntArray:
        """For each of several vectors, cycles that no smaller depths go below; -1: they deadlock. [vectors, streams]"""


def search_depths(timed: Timed, steps: Steps, max_runs: int = MAX_RUNS) -> DepthFront:
    """Search the front of cycles against memory of a design that can be timed at any depths.

    Raises:
        AlloDseError: if no depths prevent a deadlock.
    """
    return _Search(timed, steps, max(max_runs, 2)).front()


class _Traces:
    """Replays of traces of one design, which count together."""

    def __init__(self, traces: tuple[Trace, ...]) -> None:
        self._traces, first = traces, traces[0]
        self.streams, self.built = first.streams, first.stream_depth
        self.fixed = frozenset(number for array in first.data.arrays for number in array)
        self.tokens: IntArray = np.max([np.maximum(trace.plan.puts, 1) for trace in traces], axis=0)

    def run(self, depths: IntArray) -> DepthRun:
        results = [trace.replay(dict(enumerate(depths.tolist()))) for trace in self._traces]
        cycles = sum(result.cycles for result in results) if all(result.finished for result in results) else math.inf
        waits = np.sum([result.stream_stall_put for result in results], axis=0)
        return DepthRun(cycles, waits, np.max([result.occupancy for result in results], axis=0))

    def without_deadlock(self, depths: IntArray) -> IntArray:
        wanted = [trace.smallest_depths(dict(enumerate(depths.tolist()))).depths for trace in self._traces]
        found: IntArray = np.max([[one[s] for s in range(len(self.streams))] for one in wanted], axis=0)
        return found

    def at_least(self, depths: IntArray) -> IntArray:
        """Latencies that follow from depths are the least there are, so that a replay is a bound for smaller depths."""
        cycles, ended = np.zeros(len(depths), np.int64), np.ones(len(depths), bool)
        for trace in self._traces:
            latency = read_latency(trace.data.fixed_latency, 1)
            own = Trace(replace(trace.data, latency=latency)).replay(depths)
            assert isinstance(own, np.ndarray)
            cycles, ended = cycles + own, ended & (own >= 0)
        return np.where(ended, cycles, -1)


class _Search:
    """Depth vectors as steps, int64[streams]: which of its memories each stream has."""

    def __init__(self, timed: Timed, steps: Steps, max_runs: int) -> None:
        self._timed, self._steps, self._max_runs = timed, steps, max_runs
        self._fixed = timed.fixed
        memories = [
            [(int(timed.built[s]), 0)] if s in self._fixed else list(steps(s, int(timed.tokens[s])))
            for s in range(len(timed.streams))
        ]
        self._depths = [np.array([depth for depth, _ in memory], np.int64) for memory in memories]
        self._bits = [np.array([bits for _, bits in memory], np.int64) for memory in memories]
        self._deepest = np.array([len(memory) - 1 for memory in memories], np.int64)
        self._seen: dict[bytes, tuple[int, DepthRun]] = {}
        self._points: list[DepthPoint] = []

    def front(self) -> DepthFront:
        best = self._run(self._deepest)
        if best.cycles == math.inf:
            self._timed.without_deadlock(self._vector(self._deepest))  # raises with the reason
            raise TraceError("the design deadlocks however deep its streams are")
        need = np.array([np.searchsorted(d, best.occupancy[s]) for s, d in enumerate(self._depths)], np.int64)
        need = np.minimum(need, self._deepest)
        least = self._least(need)
        found = lossless = self._without_loss(least, need, best.cycles)
        slowest = self._run(least).cycles
        for loss in LOSSES:
            if self._left and best.cycles * (1 + loss) < slowest:
                found = self._lowered(found, best.cycles * (1 + loss))
        # A shallower stream may be faster, so other streams may now need less than when they were tried.
        while self._memory(seen := self._least_seen(best.cycles)) < self._memory(lossless):
            lossless = self._lowered(seen, best.cycles)
        lower, at_least, proof_runs = self._proof(lossless, int(best.cycles))
        point = self._point(lossless)
        return DepthFront(self._pareto(), self._built(), int(best.cycles), point, lower, at_least,
                          len(self._seen) + 1, proof_runs)  # fmt: skip

    @property
    def _left(self) -> bool:
        return len(self._seen) < self._max_runs

    def _vector(self, step: IntArray) -> IntArray:
        return np.array([depths[n] for depths, n in zip(self._depths, step, strict=True)], np.int64)

    def _memory(self, step: IntArray) -> int:
        return sum(int(bits[n]) for bits, n in zip(self._bits, step, strict=True))

    def _run(self, step: IntArray) -> DepthRun:
        key = step.tobytes()
        if key not in self._seen:
            run = self._timed.run(self._vector(step))
            self._seen[key] = len(self._seen) + 1, run
            if run.cycles < math.inf:
                self._points.append(self._point(step))
        return self._seen[key][1]

    def _point(self, step: IntArray) -> DepthPoint:
        """A point that was run and ends."""
        number, run = self._seen[step.tobytes()]
        depths = dict(zip(self._timed.streams, self._vector(step).tolist(), strict=True))
        return DepthPoint(int(run.cycles), self._memory(step), depths, number)

    def _least_seen(self, target: float) -> IntArray:
        """The least memory that was run and takes no more cycles than the target."""
        point = min((p for p in self._points if p.cycles <= target), key=lambda p: (p.memory_bits, p.run))
        return np.frombuffer(list(self._seen)[point.run - 1], np.int64)

    def _least(self, need: IntArray) -> IntArray:
        """The least memory with which the design ends."""
        least = np.zeros_like(need)
        if self._run(least).cycles == math.inf:
            wanted = self._timed.without_deadlock(self._vector(least))
            more = [np.searchsorted(depths, wanted[s]) for s, depths in enumerate(self._depths)]
            least = np.maximum(least, np.minimum(np.array(more, np.int64), self._deepest))
        if self._run(least).cycles == math.inf:
            least = need
        return least

    def _without_loss(self, least: IntArray, need: IntArray, target: float) -> IntArray:
        """Steps that take no more cycles than the target, where no single one can be lowered.

        Args:
            need: steps that hold all tokens that a run with the deepest streams holds at once.
        """
        need = np.maximum(need, least)
        for step in (least, np.maximum(np.minimum(need, BASE), least)):
            current, run = step, self._run(step)
            if run.cycles <= target:
                return self._lowered(current, target)
        order = run.waits
        # A writer that never waited gains nothing from more room (T3). `need` holds everything that the fastest run
        # held at once. With it no time is later than in that run, so the loop reaches the target.
        while run.cycles > target and (current < need).any():
            more = (run.waits > 0) & (current < need)
            current = np.where(more if self._left and more.any() else current < need, need, current)
            run = self._run(current)
        return self._lowered(current, target, order)

    def _lowered(self, current: IntArray, target: float, order: IntArray | None = None) -> IntArray:
        """Take memory away as long as the target is kept.

        Args:
            order: streams that are alike in it are put into one group.
        """
        current = current.copy()
        failed = np.full_like(current, NEVER)  # per stream the highest step that is known to miss the target
        order = np.zeros_like(current) if order is None else order
        first = True
        while self._left:
            large = (current > BASE) & (current - failed > 1)
            opened = large if large.any() else current - failed > 1
            if not opened.any():
                break
            wanted = failed + (current - failed) // 2
            if first:  # usually the base is enough, or almost all of the present depth is needed
                wanted = np.where(large & (failed < BASE), BASE, wanted)
            first = False
            group = sorted(np.flatnonzero(opened).tolist(), key=lambda s: (int(order[s]), s))
            self._try(group, wanted, current, failed, target)
        return current

    def _try(self, group: list[int], wanted: IntArray, current: IntArray, failed: IntArray, target: float) -> None:
        """Lower a group's streams to the steps wanted where that keeps the target, changing `current` and `failed`."""
        if not self._left:
            return
        tried = current.copy()
        tried[group] = wanted[group]
        if self._run(tried).cycles <= target:
            current[group] = wanted[group]
        elif len(group) == 1:
            failed[group] = wanted[group]
        else:
            self._try(group[: len(group) // 2], wanted, current, failed, target)
            self._try(group[len(group) // 2 :], wanted, current, failed, target)

    def _proof(self, found: IntArray, target: int) -> tuple[dict[str, int], int, int]:
        """Find the streams that need their depths whatever the others have: one run each, with all others deepest."""
        above = [s for s in np.flatnonzero(found).tolist() if s not in self._fixed]
        if not above:
            return {}, self._memory(found), 0
        batch = np.tile(self._vector(self._deepest), (len(above), 1))
        for row, s in enumerate(above):
            batch[row, s] = self._depths[s][found[s] - 1]
        # A design is fastest with all other streams deepest and every latency smallest. A stream that misses the target
        # even then needs its step at any depths of the others. The sum of these steps is a lower bound.
        cycles = self._timed.at_least(batch)
        needed = [s for s, own in zip(above, cycles.tolist(), strict=True) if own > target or own < 0]
        step = np.where(np.isin(np.arange(len(found)), needed), found, 0)
        names = self._timed.streams
        return {names[s]: int(self._depths[s][found[s] - 1]) + 1 for s in needed}, self._memory(step), len(above)

    def _built(self) -> DepthPoint | None:
        depths = self._timed.built
        run = self._timed.run(depths)
        if run.cycles == math.inf:
            return None
        bits = sum(self._steps(s, int(depth))[-1][1] for s, depth in enumerate(depths) if s not in self._fixed)
        return DepthPoint(int(run.cycles), bits, dict(zip(self._timed.streams, depths.tolist(), strict=True)), 0)

    def _pareto(self) -> tuple[DepthPoint, ...]:
        front: list[DepthPoint] = []
        for point in sorted(self._points, key=lambda point: (point.cycles, point.memory_bits, point.run)):
            if not front or point.memory_bits < front[-1].memory_bits:
                front.append(point)
        return tuple(front)
