"""Spreading the change of one depth through the times of a replay, as compiled array kernels; see `retime`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..trace.data import IntArray
from .jit import compiled


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


@compiled
def ready(
    stream: int, slot: int, side: int, offset: IntArray, depth: IntArray, latency: IntArray, times: IntArray
) -> int:
    """When a token can be read (side 0), or its slot be filled (side 1). Times: of gets and of puts, per slot."""
    if side == 0:
        return int(times[1, slot]) + int(latency[stream])
    if slot - offset[stream] < depth[stream]:
        return 0
    return int(times[0, slot - depth[stream]]) + 1


@compiled
def stall_before(
    e: int,
    first: IntArray,
    owner: IntArray,
    due: NDArray[np.generic],
    port: NDArray[np.generic],
    slot: NDArray[np.generic],
    times: IntArray,
) -> int:
    """What the process of operation `e` has waited before it."""
    if e == first[owner[port[e]]]:
        return 0
    side = 0 if 2 * np.int64(port[e - 1]) < len(owner) else 1
    return int(times[side, slot[e - 1]]) - int(due[e - 1])


@compiled
def waiter(
    stream: int,
    slot: int,
    side: int,
    old: int,
    new: int,
    offset: IntArray,
    depth: IntArray,
    latency: IntArray,
    times: IntArray,
    operation: IntArray,
) -> int:
    """The operation that waits for one whose time went from `old` to `new`, if that can matter to it, else -1.

    It cannot where the other operation was later than it had to wait, and still is.
    """
    theirs = slot + depth[stream] if side == 0 else slot
    cycles = 1 if side == 0 else latency[stream]
    if theirs >= offset[stream + 1]:
        return -1
    other = operation[1 - side, theirs]
    now = times[1 - side, theirs]
    # It was held up by this one exactly if it happened when the old time allowed it, and is if the new time is later.
    if other >= 0 and (now == old + cycles or now < new + cycles):
        return int(other)
    return -1


@compiled
def find_wrong(
    changed: int,
    limit: int,
    first: IntArray,
    owner: IntArray,
    due: NDArray[np.generic],
    port: NDArray[np.generic],
    slot: NDArray[np.uint32],
    offset: IntArray,
    operation: IntArray,
    depth: IntArray,
    latency: IntArray,
    times: IntArray,
    dirty: NDArray[np.uint8],
    heap: IntArray,
) -> int:
    """Mark operations on stream `changed` whose times are no longer right; returns how many, at most `limit`."""
    count = 0
    for i in range(offset[changed], offset[changed + 1]):
        for side in range(2):
            e = operation[side, i]
            if e < 0:
                continue
            earliest = due[e] + stall_before(e, first, owner, due, port, slot, times)
            if max(earliest, ready(changed, i, side, offset, depth, latency, times)) != times[side, i]:
                push(heap, count, earliest, e)
                dirty[e] = 1
                count += 1
                if count == limit:
                    return count
    return count


@compiled
def spread(
    changed: int,
    limit: int,
    first: IntArray,
    owner: IntArray,
    due: NDArray[np.generic],
    port: NDArray[np.generic],
    slot: NDArray[np.uint32],
    offset: IntArray,
    operation: IntArray,
    depth: IntArray,
    latency: IntArray,
    times: IntArray,
    stall: IntArray,
) -> int:
    """Correct all times after stream `changed` got another depth.

    Args:
        owner: process of each port. operation, times: of the gets (row 0) and puts (row 1), per slot.
        stall: per process at its end; updated.

    Returns:
        Operations computed, or -1 if they would be more than `limit`.
    """
    heap = np.empty((3 * limit + 2, 2), np.int64)
    dirty = np.zeros(len(due), np.uint8)
    count = find_wrong(
        changed, limit, first, owner, due, port, slot, offset, operation, depth, latency, times, dirty, heap
    )
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
        process = owner[port[e]]
        wait = stall_before(e, first, owner, due, port, slot, times)
        while True:
            work += 1
            if work > limit:
                return -1
            dirty[e] = 0
            i = int(slot[e])
            side = 0 if 2 * int(port[e]) < len(owner) else 1
            s = int(port[e]) - side * len(depth)
            old = times[side, i]
            new = max(due[e] + wait, ready(s, i, side, offset, depth, latency, times))
            wait = new - due[e]
            if new != old:
                times[side, i] = new
                other = waiter(s, i, side, old, new, offset, depth, latency, times, operation)
                if other >= 0 and not dirty[other]:
                    dirty[other] = 1
                    push(heap, count, new, other)
                    count += 1
            e += 1
            if e == first[process + 1]:
                stall[process] = wait
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
