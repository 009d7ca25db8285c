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

from allo_dse.common.numba_kernels import called, compiled

from .kernels import everybody, pop, push
from .plan import Blocks
from .trace_data import IntArray

FIRST, TIME, STEP, NEXT = range(4)
"""Columns of pieces: the first token, its time, the cycles from token to token, and the following piece or -1."""


class Paces(NamedTuple):
    """Token times of all ports.

    Attributes:
        pieces: see `FIRST`; int64[pieces, 4]. Piece q stands before the first one of port q.
        at, end: per port the piece that its awaited tokens have come to, and the last piece of its own times.
        waited: see `kernels.Progress`.
    """

    pieces: IntArray
    at: IntArray
    end: IntArray
    waited: IntArray


@called
def lacks_room(pieces: IntArray, stream: int, streams: int, depth: int, tokens: int) -> bool:
    """Return whether a token was put before its slot was free, which is a cycle after the get of an earlier token."""
    put, got, n = pieces[stream + streams, NEXT], pieces[stream, NEXT], depth
    while n < tokens:
        last = tokens
        while pieces[put, NEXT] >= 0 and pieces[pieces[put, NEXT], FIRST] <= n:
            put = pieces[put, NEXT]
        while pieces[got, NEXT] >= 0 and pieces[pieces[got, NEXT], FIRST] + depth <= n:
            got = pieces[got, NEXT]
        if pieces[put, NEXT] >= 0:
            last = min(last, pieces[pieces[put, NEXT], FIRST])
        if pieces[got, NEXT] >= 0:
            last = min(last, pieces[pieces[got, NEXT], FIRST] + depth)
        for at in (n, last - 1):  # both times are linear in between
            there = pieces[put, TIME] + pieces[put, STEP] * (at - pieces[put, FIRST])
            freed = pieces[got, TIME] + pieces[got, STEP] * (at - depth - pieces[got, FIRST])
            if there <= freed:
                return True
        n = last
    return False


@called
def time_process(
    p: int, blocks: Blocks, paces: Paces, depth: IntArray, latency: IntArray, last: IntArray, used: int, steps: int
) -> tuple[int, int, int]:
    """Time all operations of a process; returns the cycles that it waits, or -1 if it awaits tokens that have no times
    yet or takes too many steps, and the pieces and steps used by then.

    Args:
        depth, latency: per stream.
        last: storage for the wait at each operation of a block in the round before.
        used, steps: pieces and steps used before.
    """
    # Plain names: compiled code counts references to arrays of tuples each time.
    pieces, ats, ends, waited = paces
    block_first, head, block_rounds, intervals, port, first_due, first_token, _, port_first, ports = blocks
    streams = len(depth)
    for x in range(port_first[p], port_first[p + 1]):
        q = ports[x]
        ats[q], ends[q], waited[q] = q + streams if q < streams else q - streams, q, 0
    wait = 0
    for b in range(block_first[p], block_first[p + 1]):
        begin, end, rounds, interval = head[b], head[b + 1], block_rounds[b], intervals[b]
        k = 0
        while k < rounds:
            steps += end - begin
            if steps + 2 * streams > len(pieces):
                return -1, used, steps
            # All later rounds are alike while their awaited times are in the pieces of this round and the one before,
            # if each wait has grown by the pace of the slowest piece, or not at all where none is slow. A piece that is
            # behind this wait is then never ahead of it, because it is not faster.
            slowest, growth, is_alike, left, before = 0, 0, k > 0, rounds - k, wait
            for e in range(begin, end):
                q, token, due = port[e], first_token[e] + k, first_due[e] + k * interval
                awaited, add = (token, latency[q]) if q < streams else (token - depth[q - streams], 1)
                at = ats[q]
                if awaited < 0:
                    left = min(left, -awaited)
                elif pieces[at, NEXT] >= 0 or pieces[at, FIRST] >= 0:
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
                elif q < streams:
                    return -1, used, steps
                own, i = due + wait, ends[q]
                if token == pieces[i, FIRST] + 1 and i != q:
                    pieces[i, STEP] = own - pieces[i, TIME]
                elif i == q or own != pieces[i, TIME] + pieces[i, STEP] * (token - pieces[i, FIRST]):
                    pieces[used, FIRST], pieces[used, TIME], pieces[used, STEP], pieces[used, NEXT] = token, own, 0, -1
                    pieces[i, NEXT] = ends[q] = used
                    used += 1
                grown = wait - last[e - begin]
                is_alike = is_alike and (e == begin or grown == growth)
                growth, last[e - begin] = grown, wait
            if is_alike and growth == slowest:
                for e in range(begin, end):
                    pieces[ends[port[e]], STEP] = interval + slowest
                    waited[port[e]] += (left - 1) * (last[e - begin] - before)
                    before = last[e - begin]
                    last[e - begin] += (left - 1) * slowest
                wait += (left - 1) * slowest
                k += left - 1
            k += 1
    return wait, used, steps


class Repeated(NamedTuple):
    """Times of a replay that timed repeats together.

    Attributes:
        end, waited: see `kernels.Replayed`.
        steps: operations timed one by one; -1 where they are too many, and not all times are known.
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
    streams, ports = len(depth), 2 * len(depth)
    paces = Paces(
        np.empty((ports + most_steps, 4), np.int64), np.empty(ports, np.int64), np.empty(ports, np.int64),
        np.zeros(ports, np.int64),
    )  # fmt: skip
    paces.pieces[:ports] = -1
    last, end, used, steps = np.empty(ports, np.int64), np.full(len(process_end), -1), ports, 0
    queue = everybody(len(end))
    while queue.ends[1] > 0:
        p = pop(queue)
        wait, used, steps = time_process(p, blocks, paces, depth, latency, last, used, steps)
        end[p] = -1 if wait < 0 else process_end[p] + wait
        if wait < 0:
            continue
        for x in range(blocks.port_first[p], blocks.port_first[p + 1]):
            q = blocks.ports[x]
            other = blocks.owner[q - streams if q >= streams else q + streams]
            if (
                other >= 0
                and not queue.is_in[other]
                and (q >= streams or lacks_room(paces.pieces, q, streams, depth[q], tokens[q]))
            ):
                push(queue, other)
    return Repeated(end, paces.waited, -1 if (end < 0).any() else steps)
