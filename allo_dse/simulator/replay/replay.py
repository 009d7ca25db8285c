"""Replay: the times of a trace with other stream depths, by the rules of docs/timing.md (T1 to T10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from allo_dse.common.numba_kernels import called, compiled
from allo_dse.common.processes import usable_cores
from allo_dse.common.records import Array

from .kernels import Bursts, Repeated, repeated, replayed, untimed
from .plan import WORTH_REPEATING, AlikeStreams, Operations, Plan
from .replay_result import ReplayResult
from .trace_data import IntArray, TraceData, TraceError

_WORTH_A_THREAD = 1 << 18
"""Operations that take longer than a thread takes to start."""

_WORTH_A_TRY = 1 << 12
"""Operations that take longer one by one than to try to time repeats together."""

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
    """Replay with one depth vector; repeats together where that pays."""
    merged = streams.at(streams.plan.clip(depths))
    plan = merged.plan
    depth = plan.clip(depths)  # minimal for streams without operations
    if (together := _repeated(plan, depth)) is not None:
        end, waited, steps = together
        return ReplayResult(data, streams.plan, merged, depths, end, waited, plan.first[1:], None, steps)
    found = replayed(plan.operations, depth, plan.read_latency(depth), plan.process_end, plan.unset)
    return ReplayResult(data, streams.plan, merged, depths, found.end, found.waited, found.position, found.times)


def _repeated(plan: Plan, depth: IntArray) -> Repeated | None:
    """Replay repeats together; None where that does not pay, or not every process ends."""
    tried, failed = plan.tries
    if len(plan.port) < _WORTH_A_TRY or 2 * failed > tried + 1 or plan.blocks is None:
        return None
    if (plan.gets > plan.puts).any() or (plan.puts > plan.gets + depth).any():
        return None
    most = len(plan.port) // WORTH_REPEATING
    found = repeated(plan.blocks, depth, plan.read_latency(depth), plan.puts, plan.process_end, most)
    plan.tries[:] = tried + 1, failed + (found.steps < 0)
    return found if found.steps >= 0 else None


def replay_batch(data: TraceData, streams: AlikeStreams, depths: IntArray) -> IntArray:
    """The makespans of several depth vectors, -1 for those that deadlock; on all cores that the process may use."""
    result = np.full(len(depths), DEADLOCK, np.int64)
    if not len(depths):
        return result
    plan = streams.at(streams.plan.clip(depths)).plan
    clipped = plan.clip(depths)
    if len(plan.port) >= _WORTH_A_TRY:
        for number, depth in enumerate(clipped):
            if (found := _repeated(plan, depth)) is not None:
                result[number] = found.end.max(initial=0)
    left = np.flatnonzero(result == DEADLOCK)
    if len(left):
        result[left] = _replay_in_lanes(data, streams, plan, depths[left])
    return result


def _replay_in_lanes(data: TraceData, streams: AlikeStreams, plan: Plan, depths: IntArray) -> IntArray:
    result, clipped = np.empty(len(depths), np.int64), plan.clip(depths)
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


# Many depth vectors at once: one order of operations, and a lane of vector arithmetic per depth vector.
#
# The order in which operations can go on with the smallest depths of a batch is possible with all others, so nothing
# has to be asked while times are computed.

LANES = 16
"""Depth vectors per pass: 16 32-bit numbers fill the widest vector registers."""
LANES_MEMORY = 1 << 28
"""Bytes of token times up to which lanes are used; beyond, memory is slower than one replay after the other."""
DEADLOCK = -1
"""Stands for the cycles of a depth vector with which the design deadlocks."""


class Order(NamedTuple):
    """Bursts of operations of one process, in an order in which they can go on."""

    process: NDArray[np.int32]
    start: IntArray
    end: IntArray


class Lanes(NamedTuple):
    """A depth vector per lane, and the times that follow from it; int32 or int64 as the plan's.

    Attributes:
        depth, latency: [streams, lane].
        put_time, get_time: `put_time[slot, lane]`, `get_time[slot + stream + 1, lane]`: row `offset[s] + s` stands for
            slots never used before.
        stall: [processes, lane].
    """

    depth: NDArray[np.generic]
    latency: NDArray[np.generic]
    put_time: NDArray[np.generic]
    get_time: NDArray[np.generic]
    stall: NDArray[np.generic]


@called
def run_lanes(order: Order, ops: Operations, lanes: Lanes) -> None:
    """Replay `LANES` depth vectors in a given order of operations; sets all times of `lanes`."""
    due, port, slot, offset = ops.due, ops.port, ops.slot, ops.offset
    streams, wide = np.uint64(len(lanes.depth)), np.uint64(LANES)
    # One index per number: with two, half of the time would go into making arrays for rows.
    depth, latency, stall = lanes.depth.ravel(), lanes.latency.ravel(), lanes.stall.ravel()
    put_time, get_time = lanes.put_time.ravel(), lanes.get_time.ravel()
    own = due.dtype.type  # sums of narrow integers would be wide ones
    one = own(1)
    for b in range(len(order.process)):
        wait = np.uint64(order.process[b]) * wide
        for e in range(order.start[b], order.end[b]):
            q = np.uint64(port[e])
            i = np.uint64(slot[e])
            put = i * wide
            t = due[e]
            if q < streams:
                got = (i + q + np.uint64(1)) * wide
                row = q * wide
                for n in range(LANES):
                    lane = np.uint64(n)
                    behind = max(own(own(put_time[put + lane] + latency[row + lane]) - t), stall[wait + lane])
                    stall[wait + lane] = behind
                    get_time[got + lane] = own(behind + t)
            else:
                s = q - streams
                row = s * wide
                lowest = np.int64(offset[s] + s)
                following = np.int64(i + s) + 1
                for n in range(LANES):
                    lane = np.uint64(n)
                    freed = np.uint64(max(following - depth[row + lane], lowest)) * wide
                    behind = max(own(own(get_time[freed + lane] + one) - t), stall[wait + lane])
                    stall[wait + lane] = behind
                    put_time[put + lane] = own(behind + t)


@compiled
def lane_cycles(
    order: Order, ops: Operations, depths: IntArray, latencies: IntArray, end: IntArray, put: Array, get: Array
) -> IntArray:
    """The makespans of depth vectors, a full set of lanes after the other.

    Args:
        depths, latencies: [vectors, streams].
        end: per process, without stalls.
        put, get: storage, see `Lanes`.
    """
    vectors, streams = depths.shape
    kind = ops.due.dtype
    depth, latency = np.empty((streams, LANES), kind), np.empty((streams, LANES), kind)
    cycles = np.zeros(vectors, np.int64)
    for first in range(0, vectors, LANES):
        for lane in range(LANES):
            vector = min(first + lane, vectors - 1)  # lanes that are left over repeat the last vector
            for s in range(streams):
                depth[s, lane] = depths[vector, s]
                latency[s, lane] = latencies[vector, s]
        stall = np.zeros((len(end), LANES), kind)
        run_lanes(order, ops, Lanes(depth, latency, put, get, stall))
        for lane in range(min(LANES, vectors - first)):
            for p in range(len(end)):
                cycles[first + lane] = max(cycles[first + lane], end[p] + np.int64(stall[p, lane]))
    return cycles


def fits_lanes(plan: Plan) -> bool:
    """Return whether the token times of a full set of lanes stay in fast memory."""
    return 2 * plan.slots * LANES * plan.due.itemsize <= LANES_MEMORY


class LaneReplay:
    """Batches of depth vectors, one after the other."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        kind = plan.due.dtype
        self._put, self._get = (np.empty((plan.slots + more, LANES), kind) for more in (0, plan.streams))
        never = plan.offset[:-1] + np.arange(plan.streams)
        self._get[never] = np.iinfo(kind).min // 2  # half, so that adding to it never overflows
        self._bursts = Bursts(np.empty(len(plan.port), np.int32), np.empty(len(plan.port), np.int64))

    def order(self, depths: IntArray) -> Order | None:
        """Bursts of operations possible with `depths` or more; None if they deadlock."""
        plan = self.plan
        position = plan.first[:-1].copy()
        count = untimed(plan.operations, depths, position, self._bursts)
        if (position < plan.first[1:]).any():
            return None
        process, start = self._bursts.process[:count], self._bursts.start[:count]
        return Order(process, start, _burst_ends(plan, process, start))

    def cycles(self, depths: IntArray, order: Order) -> IntArray:
        """The makespans of depth vectors, int64[n, streams], that all permit the order."""
        plan = self.plan
        return lane_cycles(
            order, plan.operations, depths, plan.read_latency(depths), plan.process_end, self._put, self._get
        )


def _burst_ends(plan: Plan, process: NDArray[np.generic], start: NDArray[np.generic]) -> IntArray:
    """A burst ends where the process's next one starts, or where the process ends."""
    by_process = np.lexsort((start, process))
    ends = np.empty(len(start), np.int64)
    ends[by_process[:-1]] = start[by_process[1:]]
    last = np.ones(len(start), bool)
    last[:-1] = np.diff(process[by_process]) != 0
    ends[by_process[last]] = plan.first[process[by_process[last]] + 1]
    return ends
