"""Replay of regular loops without listing their events, as compiled kernels; see `regular`.

A loop's operations in the order in which they are due come in *windows* of `ii` cycles: an operation at stage
`q * ii + r` belongs to iteration `m - q` in window m, and stands at place r of it. So every window is the same list,
from which the first and the last few windows leave out the operations of iterations that do not exist.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..trace.data import IntArray
from .jit import compiled

NEVER = -(1 << 60)
"""When a slot that was never used became free."""


class Loops(NamedTuple):
    """Regular loops; `first[p]:first[p + 1]` are those of process p, `op_first[i]:op_first[i + 1]` the list of loop i.

    Attributes:
        base, ii, trip: see `trace.data`. windows: number of windows. prologue: windows before all operations occur.
        port, place, late: of each operation in the list: its port, and r and q.
    """

    first: IntArray
    base: IntArray
    ii: IntArray
    trip: IntArray
    windows: IntArray
    prologue: IntArray
    op_first: IntArray
    port: IntArray
    place: IntArray
    late: IntArray


class Fifos(NamedTuple):
    """Streams with rings of times: `ring[s] + (n & mask[s])` is where the times of token n stand.

    Attributes:
        depth: no larger than what matters. latency: from put to get. soft: tokens beyond which the writer rests, which
            only orders the work.
    """

    depth: IntArray
    latency: IntArray
    soft: IntArray
    ring: IntArray
    mask: IntArray


class State(NamedTuple):
    """Where a replay stands.

    Attributes:
        loop, window, step, stall: per process its loop, its window, how far it is in it, and the cycles it has waited.
        waited: the same per port. puts, gets: tokens per stream. put_time, get_time: rings, see `Fifos`.
    """

    loop: IntArray
    window: IntArray
    step: IntArray
    stall: IntArray
    waited: IntArray
    puts: IntArray
    gets: IntArray
    put_time: IntArray
    get_time: IntArray


class Record(NamedTuple):
    """What operations saw, in the order in which they were done: their own time, the time waited for, the result.

    Attributes:
        size: number of operations; may exceed the room, then the rest is missing.
    """

    own: IntArray
    awaited: IntArray
    size: IntArray


@compiled
def _rests(p: int, loops: Loops, fifos: Fifos, state: State) -> bool:
    """Whether a process at the start of a window has put enough for now."""
    streams = len(fifos.depth)
    i = state.loop[p]
    for o in range(loops.op_first[i], loops.op_first[i + 1]):
        s = loops.port[o] - streams
        if s >= 0 and state.puts[s] - state.gets[s] >= fifos.soft[s]:
            return True
    return False


@compiled
def _window(p: int, loops: Loops, fifos: Fifos, state: State, record: Record) -> bool:
    """Go on to the end of the process's window; returns whether it did anything."""
    streams = len(fifos.depth)
    i = state.loop[p]
    m = state.window[p]
    start = loops.base[i] + m * loops.ii[i]
    size = loops.op_first[i + 1] - loops.op_first[i]
    moved = False
    while state.step[p] < size:
        o = loops.op_first[i] + state.step[p]
        iteration = m - loops.late[o]
        if iteration < 0 or iteration >= loops.trip[i]:
            state.step[p] += 1
            moved = True
            continue
        q = loops.port[o]
        own = start + loops.place[o] + state.stall[p]
        awaited = np.int64(NEVER)
        if q < streams:
            n = state.gets[q]
            if n == state.puts[q]:
                return moved
            at = fifos.ring[q] + (n & fifos.mask[q])
            awaited = state.put_time[at] + fifos.latency[q]
            state.get_time[at] = max(own, awaited)
            state.gets[q] = n + 1
        else:
            s = q - streams
            n = state.puts[s]
            if n - state.gets[s] >= fifos.depth[s]:
                return moved
            if n >= fifos.depth[s]:
                awaited = state.get_time[fifos.ring[s] + ((n - fifos.depth[s]) & fifos.mask[s])] + 1
            state.put_time[fifos.ring[s] + (n & fifos.mask[s])] = max(own, awaited)
            state.puts[s] = n + 1
        if awaited > own:
            state.stall[p] += awaited - own
            state.waited[q] += awaited - own
        if record.size[0] < len(record.own):
            record.own[record.size[0]] = own
            record.awaited[record.size[0]] = awaited
        record.size[0] += 1
        state.step[p] += 1
        moved = True
    state.step[p] = 0
    state.window[p] += 1
    while state.loop[p] < loops.first[p + 1] and state.window[p] >= loops.windows[state.loop[p]]:
        state.loop[p] += 1
        state.window[p] = 0
    return True


@compiled
def shape(loops: Loops, state: State, result: IntArray) -> None:
    """What decides how a replay goes on, apart from times: equal shapes do the same operations next."""
    processes = len(state.loop)
    for p in range(processes):
        i = state.loop[p]
        result[3 * p] = i
        result[3 * p + 1] = state.step[p]
        m = state.window[p]
        steady = i < loops.first[p + 1] and loops.prologue[i] <= m < loops.trip[i]
        result[3 * p + 2] = -1 if steady else m
    for s in range(len(state.puts)):
        result[3 * processes + s] = state.puts[s] - state.gets[s]


@compiled
def sweep(most: int, stop_at: IntArray, now: IntArray, loops: Loops, fifos: Fifos, state: State, record: Record) -> int:
    """Let every process do a window in turn, until nothing moves, `most` times at most.

    Args:
        stop_at: the shape at which to stop as well; empty for none. now: room for a shape.

    Returns:
        The number of sweeps done; one is added, negative, when nothing moves any more.
    """
    processes = len(state.loop)
    for count in range(1, most + 1):
        moved = False
        for p in range(processes):
            if state.loop[p] < loops.first[p + 1] and (state.step[p] or not _rests(p, loops, fifos, state)):
                moved |= _window(p, loops, fifos, state, record)
        p = 0
        while not moved and p < processes:
            if state.loop[p] < loops.first[p + 1]:
                moved = _window(p, loops, fifos, state, record)
            p += 1
        if not moved:
            return -count
        if len(stop_at):
            shape(loops, state, now)
            if np.array_equal(now, stop_at):
                return count
    return most


def empty_record(room: int) -> Record:
    """A record with room for so many operations."""
    return Record(np.empty(room, np.int64), np.empty(room, np.int64), np.zeros(1, np.int64))
