"""Spreading the change of one depth through the times of a replay, as compiled array kernels; see `replayer`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.numba_kernels import called, compiled, inlined

from ..trace.data import IntArray
from .replay_plan import Operations


class Changing(NamedTuple):
    """A replay whose times are corrected when a depth has changed.

    Attributes:
        owner: process of each port.
        operation, times: of the gets (row 0) and puts (row 1), per slot; times are updated.
        depth, latency: per stream, as they are now.
        stall: per process at its end; updated.
    """

    owner: IntArray
    operation: IntArray
    times: IntArray
    depth: IntArray
    latency: IntArray
    stall: IntArray


@compiled
def push(heap: IntArray, count: int, key: int, op: int) -> None:
    """Add an entry to a heap of `count` (key, operation) rows, smallest key first."""
    i = count
    while i > 0:
        up = (i - 1) >> 1
        if heap[up, 0] <= key:
            break
        heap[i, 0] = heap[up, 0]
        heap[i, 1] = heap[up, 1]
        i = up
    heap[i, 0] = key
    heap[i, 1] = op


@compiled
def pop(heap: IntArray, count: int) -> int:
    """Remove the first of `count` entries; returns its operation."""
    op = heap[0, 1]
    last = count - 1
    key = heap[last, 0]
    i = 0
    while True:
        down = 2 * i + 1
        if down >= last:
            break
        if down + 1 < last and heap[down + 1, 0] < heap[down, 0]:
            down += 1
        if heap[down, 0] >= key:
            break
        heap[i, 0] = heap[down, 0]
        heap[i, 1] = heap[down, 1]
        i = down
    heap[i, 0] = key
    heap[i, 1] = heap[last, 1]
    return int(op)


@inlined
def earliest(ops: Operations, replay: Changing, e: int) -> int:
    """When operation `e` would happen if it only came after the one before of its process."""
    due = np.int64(ops.due[e])
    if e == ops.first[replay.owner[ops.port[e]]]:
        return due  # type: ignore[return-value]
    side = 0 if 2 * np.int64(ops.port[e - 1]) < len(replay.owner) else 1
    return due + replay.times[side, ops.slot[e - 1]] - ops.due[e - 1]  # type: ignore[no-any-return]


@inlined
def ready(ops: Operations, replay: Changing, stream: int, slot: int, side: int) -> int:
    """When a token can be read (side 0), or its slot be filled (side 1)."""
    depth = replay.depth[stream]
    if side == 0:
        return replay.times[1, slot] + replay.latency[stream]  # type: ignore[no-any-return]
    return 0 if slot - ops.offset[stream] < depth else replay.times[0, slot - depth] + 1


@inlined
def waiter(ops: Operations, replay: Changing, stream: int, slot: int, side: int, old: int, new: int) -> int:
    """The operation that waits for one whose time went from `old` to `new`, if that can matter to it, else -1.

    It cannot where the other operation was later than it had to wait, and still is.
    """
    theirs = slot + replay.depth[stream] if side == 0 else slot
    if theirs >= ops.offset[stream + 1]:
        return -1
    cycles = 1 if side == 0 else replay.latency[stream]
    other = replay.operation[1 - side, theirs]
    now = replay.times[1 - side, theirs]
    # It was held up by this one exactly if it happened when the old time allowed it, and is if the new time is later.
    if other >= 0 and (now == old + cycles or now < new + cycles):
        return other  # type: ignore[no-any-return]
    return -1


@called
def find_wrong(
    changed: int, limit: int, ops: Operations, replay: Changing, dirty: NDArray[np.uint8], heap: IntArray
) -> int:
    """Mark operations on stream `changed` whose times are no longer right; returns how many, at most `limit`."""
    count = 0
    for i in range(ops.offset[changed], ops.offset[changed + 1]):
        for side in range(2):
            e = replay.operation[side, i]
            if e < 0:
                continue
            soonest = earliest(ops, replay, e)
            if max(soonest, ready(ops, replay, changed, i, side)) != replay.times[side, i]:
                push(heap, count, soonest, e)
                dirty[e] = 1
                count += 1
                if count == limit:
                    return count
    return count


@compiled
def spread(changed: int, limit: int, ops: Operations, replay: Changing) -> int:
    """Correct all times after stream `changed` got another depth.

    Returns:
        Operations computed, or -1 if they would be more than `limit`.
    """
    times, owner = replay.times, replay.owner
    heap = np.empty((3 * limit + 2, 2), np.int64)
    dirty = np.zeros(len(ops.due), np.uint8)
    count = find_wrong(changed, limit, ops, replay, dirty, heap)
    if count == limit:
        return -1  # a full replay is cheaper than to follow so many changes
    work = 0
    while count > 0:
        e = pop(heap, count)
        count -= 1
        if not dirty[e]:
            continue
        # Operations are corrected by the earliest time at which they can be wrong. What an operation waits for is
        # earlier than itself, so most are computed once; one that was computed too early is marked again by what
        # corrects it.
        process = owner[ops.port[e]]
        wait = earliest(ops, replay, e) - ops.due[e]
        while True:
            work += 1
            if work > limit:
                return -1
            dirty[e] = 0
            i = int(ops.slot[e])
            side = 0 if 2 * int(ops.port[e]) < len(owner) else 1
            s = int(ops.port[e]) - side * len(replay.depth)
            old = times[side, i]
            new = max(ops.due[e] + wait, ready(ops, replay, s, i, side))
            wait = new - ops.due[e]
            if new != old:
                times[side, i] = new
                other = waiter(ops, replay, s, i, side, old, new)
                if other >= 0 and not dirty[other]:
                    dirty[other] = 1
                    push(heap, count, new, other)
                    count += 1
            e += 1
            if e == ops.first[process + 1]:
                replay.stall[process] = wait
                break
            if new == old and not dirty[e]:
                break  # the following operations of the process saw this one at this time already
            if count > 0 and heap[0, 0] < new:
                # Someone has an earlier cause; what it changes may reach this process.
                dirty[e] = 1
                push(heap, count, new, e)
                count += 1
                break
    return work
