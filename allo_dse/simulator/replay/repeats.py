"""Replay of processes that repeat: operations that recur at a fixed interval are timed together, not one by one.

Token times of a port are kept as pieces: times that grow by the same step from token to token. A process whose awaited
times are such pieces reaches a state in which each round is later than the one before by the same cycles; rounds are
then skipped up to the end of the nearest piece. The work depends on how often the pace changes, not on trip counts.

Writers are timed first as if there always was room. Where a token was put before its slot was free, the writer is timed
again, with the times at which its reader has freed slots so far. All times only grow towards the solution of the
equations of docs/timing.md, so the first state that satisfies them is that solution.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from allo_dse.common.numba_kernels import called, compiled, inlined

from .plan import Blocks
from .trace_data import IntArray

FIRST, TIME, STEP, NEXT = range(4)
"""Columns of pieces: the first token, its time, the cycles from token to token, and the following piece or -1."""

MOST_SWEEPS = 8
"""Sweeps over the processes after which full streams seem to set the pace: each sweep then settles few more tokens."""


class Paces(NamedTuple):
    """Token times of all ports, and the state of the process that is timed.

    Attributes:
        pieces: see `FIRST`; int64[pieces, 4]. Piece q stands before the first one of port q.
        used: how many of them.
        at: per port the piece that its awaited tokens have come to.
        held: the piece of each port that is being written: the first three columns, its last token, the piece before.
        changed: per port whether its times have changed.
        waited: see `kernels.Progress`.
    """

    pieces: IntArray
    used: IntArray
    at: IntArray
    held: IntArray
    changed: IntArray
    waited: IntArray


@inlined
def keep(pieces: IntArray, used: IntArray, held: IntArray, changed: IntArray, q: int) -> None:
    """Keep the piece of a port that is being written; see `Paces`."""
    i = pieces[held[q, 4], NEXT]
    if i < 0:
        i = used[0]
        used[0] += 1
        pieces[held[q, 4], NEXT] = i
        pieces[i, FIRST] = pieces[i, NEXT] = -1
    if pieces[i, FIRST] != held[q, FIRST] or pieces[i, TIME] != held[q, TIME] or pieces[i, STEP] != held[q, STEP]:
        pieces[i, FIRST], pieces[i, TIME], pieces[i, STEP] = held[q, FIRST], held[q, TIME], held[q, STEP]
        changed[q] = 1
    held[q, 4] = i


@called
def lacks_room(paces: Paces, stream: int, streams: int, depth: int, tokens: int) -> bool:
    """Return whether a token was put before its slot was free, which is a cycle after the get of an earlier token."""
    pieces = paces.pieces
    put, got, n = pieces[stream + streams, NEXT], pieces[stream, NEXT], depth
    while n < tokens:
        last = tokens
        while pieces[put, NEXT] >= 0:
            last = pieces[pieces[put, NEXT], FIRST]
            if last > n:
                break
            put, last = pieces[put, NEXT], tokens
        while pieces[got, NEXT] >= 0:
            if pieces[pieces[got, NEXT], FIRST] + depth > n:
                last = min(last, pieces[pieces[got, NEXT], FIRST] + depth)
                break
            got = pieces[got, NEXT]
        for at in (n, last - 1):  # both times are linear in between
            there = pieces[put, TIME] + pieces[put, STEP] * (at - pieces[put, FIRST])
            freed = pieces[got, TIME] + pieces[got, STEP] * (at - depth - pieces[got, FIRST])
            if there <= freed:
                return True
        n = last
    return False


@called
def time_process(
    p: int, blocks: Blocks, paces: Paces, depth: IntArray, latency: IntArray, is_full: IntArray, last: IntArray
) -> tuple[int, int]:
    """Time all operations of a process; returns the cycles that it waits, -1 for too many pieces, and its steps.

    Args:
        depth, latency: per stream. is_full: per stream whether its writer looks for room.
        last: storage for the wait at each operation of a block in the round before.
    """
    # Plain names: compiled code counts references to arrays of tuples each time.
    pieces, used, ats, held, changed, waited = paces
    block_first, head, block_rounds, intervals, port, first_due, first_token, _, _, port_first, ports = blocks
    streams = len(depth)
    for x in range(port_first[p], port_first[p + 1]):
        q = ports[x]
        ats[q], waited[q], changed[q] = q + streams if q < streams else q - streams, 0, 0
        held[q, FIRST], held[q, 4] = -1, q
    wait, steps = 0, 0
    for b in range(block_first[p], block_first[p + 1]):
        begin, end, rounds, interval = head[b], head[b + 1], block_rounds[b], intervals[b]
        k = 0
        while k < rounds:
            steps += end - begin
            if used[0] + end - begin + port_first[p + 1] - port_first[p] > len(pieces):
                return -1, steps
            # All later rounds are alike while their awaited times are in the pieces of this round and the one before,
            # if each wait has grown by the pace of the slowest piece, or not at all where none is slow. A piece that is
            # behind this wait is then never ahead of it, because it is not faster.
            slowest, growth, is_alike, left, before = 0, 0, k > 0, rounds - k, wait
            for e in range(begin, end):
                q, token, due = port[e], first_token[e] + k, first_due[e] + k * interval
                if q < streams:
                    awaited, add, is_free = token, latency[q], False
                else:
                    awaited, add = token - depth[q - streams], 1
                    is_free = awaited < 0 or is_full[q - streams] == 0
                    if awaited < 0:
                        left = min(left, -awaited)
                if not is_free:
                    at = ats[q]
                    then = pieces[at, NEXT]
                    while then >= 0 and pieces[then, FIRST] <= awaited:
                        at, then, is_alike = then, pieces[then, NEXT], False
                    ats[q] = at
                    behind = pieces[at, TIME] + pieces[at, STEP] * (awaited - pieces[at, FIRST]) + add - due
                    if behind > wait:
                        waited[q] += behind - wait
                        wait = behind
                    slowest = max(slowest, pieces[at, STEP] - interval)
                    if then >= 0:
                        left = min(left, pieces[then, FIRST] - awaited)
                own, first = due + wait, held[q, FIRST]
                if first >= 0 and held[q, 3] == first:
                    held[q, STEP] = own - held[q, TIME]
                if first < 0 or own != held[q, TIME] + held[q, STEP] * (token - first):
                    if first >= 0:
                        keep(pieces, used, held, changed, q)
                    held[q, FIRST], held[q, TIME], held[q, STEP] = token, own, 0
                held[q, 3] = token
                grown = wait - last[e - begin]
                is_alike = is_alike and (e == begin or grown == growth)
                growth, last[e - begin] = grown, wait
            if is_alike and growth == slowest:
                for e in range(begin, end):
                    q = port[e]
                    held[q, STEP], held[q, 3] = interval + slowest, first_token[e] + k + left - 1
                    waited[q] += (left - 1) * (last[e - begin] - before)
                    before = last[e - begin]
                    last[e - begin] += (left - 1) * slowest
                wait += (left - 1) * slowest
                k += left - 1
            k += 1
    for x in range(port_first[p], port_first[p + 1]):
        q = ports[x]
        if held[q, FIRST] >= 0:
            keep(pieces, used, held, changed, q)
            if pieces[held[q, 4], NEXT] >= 0:
                pieces[held[q, 4], NEXT] = -1
                changed[q] = 1
    return wait, steps


class Repeated(NamedTuple):
    """Times of a replay that timed repeats together.

    Attributes:
        end, waited: see `kernels.Replayed`.
        steps: operations timed one by one; -1 where that did not pay, and no times are known.
    """

    end: IntArray
    waited: IntArray
    steps: int


@compiled
def repeated(
    blocks: Blocks, depth: IntArray, latency: IntArray, tokens: IntArray, process_end: IntArray, most_steps: int
) -> Repeated:
    """Replay a design in which every process ends.

    Args:
        depth, latency, tokens: per stream.
        process_end: per process, without stalls.
        most_steps: operations timed one by one after which it gives up.
    """
    streams, processes = len(depth), len(process_end)
    ports = 2 * streams
    paces = Paces(
        np.empty((2 * ports + most_steps, 4), np.int64), np.array([ports]), np.empty(ports, np.int64),
        np.empty((ports, 5), np.int64), np.zeros(ports, np.int64), np.zeros(ports, np.int64),
    )  # fmt: skip
    paces.pieces[:ports, NEXT] = -1
    is_full, is_stale = np.zeros(streams, np.int64), np.ones(processes, np.int64)
    last = np.empty(ports, np.int64)
    end, steps, remaining, sweeps = process_end.copy(), 0, processes, 0
    while remaining and sweeps < MOST_SWEEPS:
        # Tokens go downstream, and lack of room upstream: sweeps alternate.
        sweeps += 1
        for p in blocks.order[:: 1 if sweeps % 2 else -1]:
            if is_stale[p] == 0:
                continue
            is_stale[p] = 0
            remaining -= 1
            wait, own = time_process(p, blocks, paces, depth, latency, is_full, last)
            steps += own
            if wait < 0 or steps > most_steps:
                return Repeated(end, paces.waited, -1)
            end[p] = process_end[p] + wait
            for x in range(blocks.port_first[p], blocks.port_first[p + 1]):
                q = blocks.ports[x]
                if paces.changed[q] == 0:
                    continue
                if q >= streams:
                    other = blocks.owner[q - streams]
                else:
                    if not lacks_room(paces, q, streams, depth[q], tokens[q]):
                        continue
                    is_full[q] = 1
                    other = blocks.owner[q + streams]
                if other >= 0 and is_stale[other] == 0:
                    is_stale[other] = 1
                    remaining += 1
    return Repeated(end, paces.waited, -1 if remaining else steps)
