"""Replay: the times of a trace with other stream depths, by the rules of docs/timing.md (T1 to T10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from allo_dse.common.processes import usable_cores

from .batch import DEADLOCK, LANES, LaneReplay, fits_lanes
from .kernels import replayed
from .plan import AlikeStreams
from .replay_result import ReplayResult
from .trace_data import IntArray, TraceData, TraceError

_WORTH_A_THREAD = 1 << 18
"""Operations that take longer than a thread takes to start."""

Depths = Mapping[str, int] | Mapping[int, int] | ArrayLike | None
"""Depths of some streams by name or number, of all streams, or several such vectors; None: as built."""


def require_replayable(data: TraceData) -> None:
    """Raises TraceError for traces of processes whose control depends on stream occupancy."""
    if data.occupancy_dependent:
        names = ", ".join(data.processes[p] for p in sorted(data.occupancy_dependent))
        raise TraceError(
            f"trace {data.name!r} cannot be replayed: {names} looks at empty() or full(), so with other depths it "
            "may do something else than what was recorded",
            hint="run the program again with the depths you are interested in",
        )


def depth_array(data: TraceData, depths: Depths) -> IntArray:
    """Depths as int64[streams] or int64[n, streams].

    Raises:
        TraceError: for unknown streams, wrong shapes, and depths below 1.
    """
    if depths is None:
        return data.stream_depth
    if isinstance(depths, Mapping):
        result = data.stream_depth.copy()
        for stream, depth in depths.items():
            result[stream_index(data, stream)] = integer_depths(depth)
    else:
        result = integer_depths(depths)
    if result.ndim not in (1, 2) or result.shape[-1] != len(data.streams):
        raise TraceError(
            f"depths of shape {result.shape}: the trace has {len(data.streams)} streams, so one vector has that many "
            f"and a batch is (n, {len(data.streams)})"
        )
    if result.size and result.min() < 1:
        at = int(np.argmin(result)) % len(data.streams)
        raise TraceError(f"depth {int(result.min())} for stream {data.streams[at]}: depths are at least 1")
    return result


def integer_depths(depths: Any) -> IntArray:
    """Depths as int64 of any shape; raises TraceError for what is no integer."""
    try:
        array = np.asarray(depths)
    except ValueError as error:  # rows that are not equally long
        raise TraceError(f"depths are not a vector or a batch of equally long ones: {error}") from None
    if array.dtype.kind not in "iu" and array.size:
        raise TraceError(f"depths must be integers, not {array.dtype}")
    return array.astype(np.int64)


def stream_index(data: TraceData, stream: str | int) -> int:
    """The number of a stream, by name or number."""
    if isinstance(stream, str):
        if stream not in data.stream_number:
            near = get_close_matches(stream, data.streams, 3)
            raise TraceError(
                f"the trace has no stream {stream!r}", hint=f"did you mean {', '.join(near)}?" if near else ""
            )
        return data.stream_number[stream]
    if not 0 <= stream < len(data.streams):
        raise TraceError(f"the trace has no stream {stream}, its streams are 0 to {len(data.streams) - 1}")
    return int(stream)


def replay_one(data: TraceData, streams: AlikeStreams, depths: IntArray) -> ReplayResult:
    """Replay with one depth vector."""
    merged = streams.at(streams.plan.clip(depths))
    plan = merged.plan
    depth = plan.clip(depths)  # minimal for streams without operations
    found = replayed(plan.operations, depth, plan.read_latency(depth), plan.process_end, plan.unset)
    return ReplayResult(data, streams.plan, merged, depths, found.end, found.waited, found.position, found.times)


def replay_batch(data: TraceData, streams: AlikeStreams, depths: IntArray) -> IntArray:
    """The makespans of several depth vectors, -1 for those that deadlock; on all cores that the process may use."""
    result = np.full(len(depths), DEADLOCK, np.int64)
    if not len(depths):
        return result
    plan = streams.at(streams.plan.clip(depths)).plan
    clipped = plan.clip(depths)
    in_lanes = fits_lanes(plan) and len(depths) >= LANES // 4
    fewest = LANES if in_lanes else 1
    # An order that works with the least depth of each stream works with all vectors: more room blocks nobody.
    common = LaneReplay(plan).order(clipped.min(axis=0)) if in_lanes else None
    threads = min(-(-len(depths) // fewest), usable_cores(), 1 + len(depths) * len(plan.port) // _WORTH_A_THREAD)
    together = fewest if common is None else -(-len(depths) // threads)
    parts = [slice(start, start + together) for start in range(0, len(depths), together)]

    def replay_parts(mine: Sequence[slice]) -> None:
        lanes = LaneReplay(plan) if in_lanes else None
        for part in mine:
            order = None if lanes is None else common or lanes.order(clipped[part].min(axis=0))
            if lanes is None or order is None:
                result[part] = [_cycles(data, streams, vector) for vector in depths[part]]
            else:
                result[part] = lanes.cycles(clipped[part], order)

    if threads == 1:
        replay_parts(parts)
    else:  # compiled code lets other threads run
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(replay_parts, (parts[number::threads] for number in range(threads))))
    return result


def _cycles(data: TraceData, streams: AlikeStreams, depths: IntArray) -> int:
    result = replay_one(data, streams, depths)
    return result.cycles if result.finished else DEADLOCK
