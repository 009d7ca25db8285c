"""Replaying many depth vectors at once: one order of operations, and a lane of vector arithmetic per depth vector.

The order in which operations can go on with the smallest depths of a batch is possible with all others, so nothing has
to be asked while times are computed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.numba_kernels import called, compiled

from .kernels import Bursts, untimed
from .plan import Operations, Plan
from .trace_data import IntArray

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


class Room(NamedTuple):
    """Storage of token times; int32 or int64 as the plan's.

    Attributes:
        put_time, get_time: `put_time[slot, lane]`, `get_time[slot + stream + 1, lane]`: row `offset[s] + s` stands for
            slots never used before.
    """

    put_time: NDArray[np.generic]
    get_time: NDArray[np.generic]


class Lanes(NamedTuple):
    """A depth vector per lane, and the times that follow from it; int32 or int64 as the plan's.

    Attributes:
        depth, latency: [streams, lane].
        put_time, get_time: see `Room`.
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
    order: Order, ops: Operations, depths: IntArray, latencies: IntArray, end: IntArray, room: Room
) -> IntArray:
    """The makespans of depth vectors, a full set of lanes after the other.

    Args:
        depths, latencies: [vectors, streams].
        end: per process, without stalls.
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
        run_lanes(order, ops, Lanes(depth, latency, room.put_time, room.get_time, stall))
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
        self._room = Room(np.empty((plan.slots, LANES), kind), np.empty((plan.slots + plan.streams, LANES), kind))
        never = plan.offset[:-1] + np.arange(plan.streams)
        self._room.get_time[never] = np.iinfo(kind).min // 2  # half, so that adding to it never overflows
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
        """The makespans of depth vectors, int64[n, streams], for all of which the order is possible."""
        plan = self.plan
        return lane_cycles(order, plan.operations, depths, plan.read_latency(depths), plan.process_end, self._room)


def _burst_ends(plan: Plan, process: NDArray[np.generic], start: NDArray[np.generic]) -> IntArray:
    """A burst ends where the process's next one starts, or where the process ends."""
    by_process = np.lexsort((start, process))
    ends = np.empty(len(start), np.int64)
    ends[by_process[:-1]] = start[by_process[1:]]
    last = np.ones(len(start), bool)
    last[:-1] = np.diff(process[by_process]) != 0
    ends[by_process[last]] = plan.first[process[by_process[last]] + 1]
    return ends
