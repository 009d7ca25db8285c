"""A trace with the intervals and depths of an HLS report, for replay: docs/timing.md, T6 to T10."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from allo_dse.common.errors import SimulationError
from allo_dse.common.records import replace
from allo_dse.simulator.replay.trace import Trace
from allo_dse.simulator.replay.trace_data import IntArray, TraceData, TraceLoop, check_trace

from ..report import HlsLoop, HlsReport

_OTHER_DESIGN = "give the report of the design that the trace is of"


def timed_by_report(trace: Trace, report: HlsReport) -> Trace:
    """The same stream operations at the report's initiation intervals and pipeline depths.

    A process's loops are the pipelined loops of the module of its name (or `<name>_Pipeline_...`), in the report's
    order.

    Raises:
        SimulationError: if a process has no such module, a different number of loops or iterations, or an operation at
            a stage that its loop's pipeline does not have.
    """
    data = trace.data
    times = [(loop.ii, loop.depth) for loop in data.loops]
    for number, process in enumerate(data.processes):
        own = [at for at, loop in enumerate(data.loops) if loop.process == number]
        found = list(_pipelined(report, process))
        if len(found) != len(own):
            raise SimulationError(
                f"the report has {len(found)} pipelined loops of `{process}`, the trace has {len(own)}",
                hint=_OTHER_DESIGN,
            )
        for at, reported in zip(own, found, strict=True):
            times[at] = _times(data.loops[at], reported)
    return with_times(trace, times)


def with_times(trace: Trace, times: Sequence[tuple[int, int]]) -> Trace:
    """The trace with other intervals and depths, one pair per loop.

    Operations that were due where their loop's depth puts them (T9) move with it; those with a stage of their own stay.

    Raises:
        TraceError: if a pipeline is not as deep as the stage of one of its operations.
    """
    data = trace.data
    loops = tuple(_timed(loop, ii, depth) for loop, (ii, depth) in zip(data.loops, times, strict=True))
    timed = replace(data, loops=loops, listed=replace(data.listed, stage=_stages(data, loops)))
    check_trace(timed)
    return Trace(timed)


def _pipelined(report: HlsReport, process: str) -> Iterator[HlsLoop]:
    for loop in report.all_loops():
        is_own = loop.module == process or loop.module.startswith(f"{process}_Pipeline_")
        if is_own and loop.ii is not None and loop.depth is not None:
            yield loop


def _times(loop: TraceLoop, reported: HlsLoop) -> tuple[int, int]:
    trips = reported.trip_count.exact
    if trips is not None and trips != loop.trip:
        raise SimulationError(
            f"loop {reported.name} of {reported.module} has {trips} iterations in the report, {loop.trip} in the trace",
            hint=_OTHER_DESIGN,
        )
    return reported.ii or 1, reported.depth or 1


def _timed(loop: TraceLoop, ii: int, depth: int) -> TraceLoop:
    timed = replace(loop, ii=ii, depth=depth)
    if loop.ops is None:
        return timed
    moved = (replace(op, stage=timed.stage(op.kind)) if op.stage == loop.stage(op.kind) else op for op in loop.ops)
    return replace(timed, ops=tuple(moved))


def _stages(data: TraceData, loops: Sequence[TraceLoop]) -> IntArray:
    """Stages of the listed events."""
    listed = data.listed
    before, after = (
        np.array([[loop.stage(kind) for kind in (0, 1)] for loop in every], np.int64).reshape(-1, 2)
        for every in (data.loops, loops)
    )
    default = listed.stage == before[listed.loop, listed.kind]
    return np.where(default, after[listed.loop, listed.kind], listed.stage)
