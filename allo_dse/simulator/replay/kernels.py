"""The replay rules as compiled array kernels; see `plan` for what the arrays mean.

With the stall of a process so far (the sum of what its operations waited), an operation happens at `due + stall`, and
rules T2, T3 and T7 of docs/timing.md become a running maximum: `stall = max(stall, ready - due)`, where `ready` is when
the token can be read (put + read latency) or the slot can be filled again (get + 1). Each operation stores the `ready`
time that its peer will ask for.

Times of tokens lie in one array: first per slot when the token can be read, then per stream as many entries as its
depth that are ready from the start, followed by when the slot of token n can be filled again (by token n + depth).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.aliases import Array

from ..trace.data import IntArray
from .jit import compiled

Times = NDArray[np.generic]
"""Times are int32 where all fit, else int64; ports are uint16 or uint32."""


@compiled
def clear_times(times: Times, offset: IntArray, depth: IntArray, tokens: IntArray, unset: int, always: int) -> None:
    """Before a run: nothing has happened, and as many slots as a stream is deep can be filled."""
    slots = offset[-1]
    times[:slots] = unset
    start = slots
    for s in range(len(depth)):
        times[start : start + depth[s]] = always
        start += depth[s]
        times[start : start + tokens[s]] = unset
        start += tokens[s]


@compiled
def run(
    first: IntArray,
    due: Times,
    port: Array,
    slot: NDArray[np.uint32],
    read: NDArray[np.uint64],
    write: NDArray[np.uint64],
    delay: Times,
    peers: IntArray,
    peer: NDArray[np.int32],
    times: Times,
    unset: int,
    stall: Times,
    waited: IntArray,
    position: IntArray,
) -> None:
    """Replay until every process has ended or waits for ever.

    Args:
        read, write, delay: per port what to add to a slot for where the awaited time stands and where the own goes, and
            the cycles from the operation until its peer can go on.
        stall: per process, cycles waited so far. waited: the same per port. position: per process its next operation.
    """
    processes = len(first) - 1
    queue = np.empty(processes, np.int64)
    queued = np.ones(processes, np.uint8)
    awaited = np.zeros(processes, np.uint64)
    one = np.uint64(1)
    for p in range(processes):
        queue[p] = p
    head = 0
    count = processes
    while count > 0:
        p = queue[head]
        head = head + 1 if head + 1 < processes else 0
        count -= 1
        queued[p] = 0
        # A process goes on as far as it can. Who runs first changes nothing: a time depends on those of the peer alone,
        # each of which is known before it is read.
        wait = stall[p]
        start = np.uint64(position[p])
        e = start
        end = np.uint64(first[p + 1])
        while e < end:
            q = port[e]
            i = np.uint64(slot[e])
            at = i + read[q]
            ready = times[at]
            # Operations of a process happen in order, so the first that cannot be timed yet ends this visit.
            if ready == unset:
                awaited[p] = at
                break
            t = due[e]
            behind = ready - t
            # All later operations are held up by as much (T7): one number per process stands for all that it waited.
            if behind > wait:
                waited[q] += behind - wait
                wait = behind
            times[i + write[q]] = t + wait + delay[q]
            e += one
        stall[p] = wait
        position[p] = e
        if e > start:
            # Only who waits for a time that is known now is run again: each run of a process gets on by an operation.
            for j in range(peers[p], peers[p + 1]):
                x = peer[j]
                if queued[x] == 0 and position[x] < first[x + 1] and times[awaited[x]] != unset:
                    queued[x] = 1
                    tail = head + count
                    queue[tail if tail < processes else tail - processes] = x
                    count += 1


@compiled
def untimed(
    first: IntArray,
    port: NDArray[np.generic],
    depth: IntArray,
    peers: IntArray,
    peer: NDArray[np.int32],
    streams: int,
    position: IntArray,
    held: IntArray,
    burst_process: NDArray[np.int32],
    burst_start: IntArray,
) -> int:
    """Replay without times: where processes end or stick, and an order in which it can go on.

    The order is also possible with deeper streams. It comes as bursts of operations of one process.

    Args:
        position: per process its next operation. held: per stream the tokens in it.
        burst_process, burst_start: room for the bursts; empty when they are not wanted.

    Returns:
        The number of bursts.
    """
    processes = len(first) - 1
    queue = np.empty(processes, np.int64)
    queued = np.ones(processes, np.uint8)
    for p in range(processes):
        queue[p] = p
    head = 0
    count = processes
    bursts = 0
    while count > 0:
        p = queue[head]
        head = head + 1 if head + 1 < processes else 0
        count -= 1
        queued[p] = 0
        start = position[p]
        e = start
        while e < first[p + 1]:
            q = np.int64(port[e])
            if q < streams:
                if held[q] == 0:
                    break
                held[q] -= 1
            else:
                if held[q - streams] >= depth[q - streams]:
                    break
                held[q - streams] += 1
            e += 1
        position[p] = e
        if e == start:
            continue
        if len(burst_process):
            burst_process[bursts] = p
            burst_start[bursts] = start
        bursts += 1
        for j in range(peers[p], peers[p + 1]):
            x = peer[j]
            if queued[x] == 0 and position[x] < first[x + 1]:
                q = np.int64(port[position[x]])
                if (held[q] > 0) if q < streams else (held[q - streams] < depth[q - streams]):
                    queued[x] = 1
                    tail = head + count
                    queue[tail if tail < processes else tail - processes] = x
                    count += 1
    return bursts


@compiled
def occupancy(offset: IntArray, puts: IntArray, gets: IntArray, put_time: IntArray, get_time: IntArray) -> IntArray:
    """Per stream the most slots in use at once: each is in use from its put to the cycle of its get, both included."""
    result = np.zeros(len(puts), np.int64)
    for s in range(len(puts)):
        freed = 0  # times of puts and gets only grow along a stream, so one pass finds the last get before each put
        for n in range(puts[s]):
            t = put_time[offset[s] + n]
            while freed < gets[s] and freed < n and get_time[offset[s] + freed] < t:
                freed += 1
            result[s] = max(result[s], n + 1 - freed)
    return result
