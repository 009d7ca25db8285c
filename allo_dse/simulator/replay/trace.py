"""Traces of dataflow designs: load, save, build, and replay with other stream depths."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import overload

from msgspec import structs
from numpy.typing import ArrayLike

from ..deadlock.depths import Increase
from ..engine.run_result import RunResult
from ..trace.build import Process, build_trace
from ..trace.check import trace_notes
from ..trace.data import IntArray, TraceData, TraceError
from ..trace.file import load_trace, save_trace
from ..trace.from_recording import recorded_trace
from .alike_streams import AlikeStreams
from .depth_tries import smallest_depths
from .regular import RegularResult, replay_regular
from .replay import Depths, depth_array, replay_batch, replay_one, require_replayable
from .replay_plan import Plan, make_plan
from .replay_result import ReplayResult


class Trace:
    """The stream operations of one run of a dataflow design, as loops of processes; immutable.

    Get one with `Trace.load` or `Trace.build`. Operations are timed by `replay`; a trace itself holds no times.
    """

    def __init__(self, data: TraceData) -> None:
        self.data = data
        for array in (data.stream_depth, *structs.asdict(data.listed).values(), data.latency, data.place):
            if array is not None:
                array.flags.writeable = False

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read a trace file (see `trace.file` for the format).

        Raises:
            TraceError: if the file is missing, damaged, not a trace, or contradicts itself.
        """
        return cls(load_trace(path))

    def save(self, path: str | Path) -> None:
        """Write the trace; `load` gives it back."""
        save_trace(self.data, path)

    @classmethod
    def build(
        cls,
        streams: Mapping[str, int],
        processes: Mapping[str, Process],
        *,
        arrays: Mapping[str, int] | None = None,
        name: str = "trace",
        clock_ns: float | None = None,
        looks_at_occupancy: Collection[str] = (),
    ) -> Trace:
        """A trace from what another tool knows.

        Args:
            streams: depth of each stream, as built.
            processes: per process the loops that it runs one after the other, or `Frames`.
            arrays: number of banks of each channel that is a whole array (2: a ping-pong buffer). In depths these
                are streams called like the arrays.
            clock_ns: clock period.
            looks_at_occupancy: processes that call `empty()` or `full()`; their traces are not replayed.

        Raises:
            TraceError: if the parts contradict each other.
        """
        return cls(
            build_trace(
                streams,
                processes,
                arrays=arrays or {},
                name=name,
                clock_ns=clock_ns,
                looks_at_occupancy=looks_at_occupancy,
            )
        )

    @classmethod
    def recorded(cls, result: RunResult) -> Trace:
        """What a run with `record=True` did, to be timed again for other stream depths.

        Raises:
            TraceError: if the run did not finish, or waited for shared resources.
            SimulationError: if it was not recorded.
        """
        return cls(recorded_trace(result.timeline, result.labels, result.polling_nodes, result.name))

    def __repr__(self) -> str:
        data = self.data
        return (
            f"<Trace {data.name!r}: {len(data.processes)} processes, {len(data.streams)} streams, "
            f"{data.event_count:,} events>"
        )

    @property
    def name(self) -> str:
        return self.data.name

    @property
    def processes(self) -> tuple[str, ...]:
        """Names of the processes."""
        return self.data.processes

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams."""
        return self.data.streams

    @property
    def stream_depth(self) -> IntArray:
        """Per stream its depth as built."""
        return self.data.stream_depth

    @property
    def event_count(self) -> int:
        """Number of stream operations."""
        return self.data.event_count

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What is odd about the trace: streams whose puts and gets differ in number."""
        return trace_notes(self.data)

    @cached_property
    def plan(self) -> Plan:
        """The trace laid out for replay."""
        require_replayable(self.data)
        return make_plan(self.data)

    @cached_property
    def _alike_streams(self) -> AlikeStreams:
        return AlikeStreams(self.plan)

    @overload
    def replay(self, depths: Mapping[str, int] | Mapping[int, int] | None = None) -> ReplayResult: ...

    @overload
    def replay(self, depths: ArrayLike) -> ReplayResult | IntArray: ...

    def replay(self, depths: Depths = None) -> ReplayResult | IntArray:
        """Times with other stream depths.

        Args:
            depths: None (as built), depths of some streams by name or number (the others as built), one depth per
                stream, or a batch of such vectors, int[n, streams].

        Returns:
            A `ReplayResult`; for a batch the makespans in cycles, int64[n], -1 where the design deadlocks.

        Raises:
            TraceError: if the trace depends on stream occupancy, or depths are wrong.
        """
        require_replayable(self.data)
        array = depth_array(self.data, depths)
        if array.ndim == 1:
            return replay_one(self.data, self._alike_streams, array)
        return replay_batch(self.data, self._alike_streams, array)

    def extrapolate(self, depths: Depths = None) -> RegularResult:
        """The same times as `replay`, in a time that does not grow with trip counts; for traces of regular loops only.

        Args:
            depths: as for `replay`, not a batch.

        Raises:
            TraceError: if a loop lists its events, or as for `replay`.
        """
        require_replayable(self.data)
        array = depth_array(self.data, depths)
        if array.ndim != 1:
            raise TraceError("extrapolate takes one depth vector, not a batch")
        return replay_regular(self.data, array)

    def smallest_depths(self, at_least: Depths = None, *, max_runs: int = 2_000) -> Increase:
        """The smallest total increase of `at_least` (default: 1 everywhere) with which the design does not deadlock.

        Args:
            max_runs: how many depth vectors may be tried; see `Increase.proven`.

        Raises:
            TraceError: if no depths help.
        """
        array = self.data.stream_depth * 0 + 1 if at_least is None else depth_array(self.data, at_least)
        return smallest_depths(self.data, self.plan, array, max_runs)
