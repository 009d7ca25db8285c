"""The replay rules as compiled array kernels; see `plan` for the meaning of the arrays.

The stall of a process is the sum of its waiting so far. An operation happens at `due + stall`, and rules T2, T3 and T7
of docs/timing.md become a running maximum: `stall = max(stall, ready - due)`. Here `ready` is when the token can be
read (put + read latency), or when the slot can be filled again (get + 1). Each operation stores the `ready` time for
its peer.

Times of tokens are in one array. First comes, per slot, the time when the token can be read. Then each stream has one
entry per unit of depth that is ready from the start, followed by the times when the slot of token n can be filled again
(by token n + depth).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.numba_kernels import called, compiled, inlined

from .plan import Blocks, Operations
from .trace_data import IntArray

SHALLOW = 4
"""A stream with fewer slots is full or empty again before a look at whose turn it is has paid."""

Times = NDArray[np.generic]
"""Times are int32 where all fit, else int64; ports are uint16 or uint32."""


class Ready(NamedTuple):
    """Times that operations wait for or note for others, and their positions.

    Attributes:
        times: see above; `unset` where nothing has happened yet.
        read, write: per port what to add to a slot for where the awaited time stands, and where the own goes.
        free: per stream whether its writer never waits, and no time stands there for it; only where it has one turn.
        delay: per port the cycles from an operation until its peer can go on.
    """

    times: Times
    unset: int
    read: NDArray[np.uint64]
    write: NDArray[np.uint64]
    delay: Times
    free: NDArray[np.bool_]


class Progress(NamedTuple):
    """Progress of a replay; updated.

    Attributes:
        position: per process its next operation.
        stall: per process the cycles waited so far. waited: the same per port.
    """

    position: IntArray
    stall: Times
    waited: IntArray


class Bursts(NamedTuple):
    """Operations of one process that are done without a pause: whose, and the first; room for all, or empty."""

    process: NDArray[np.int32]
    start: IntArray


class Queue(NamedTuple):
    """Processes that may be able to go on, each at most once, first come, first served.

    The one that was woken first has most to do when its turn comes: last come, first served takes a third longer.
    """

    ring: IntArray
    is_in: NDArray[np.uint8]
    ends: IntArray
    """Where the first is, and how many there are."""


@called
def everybody(processes: int) -> Queue:
    """A queue of all processes."""
    return Queue(np.arange(processes), np.ones(processes, np.uint8), np.array([0, processes]))


@inlined
def pop(queue: Queue) -> int:
    """Remove the first process."""
    head = queue.ends[0]
    queue.ends[0] = head + 1 if head + 1 < len(queue.ring) else 0
    queue.ends[1] -= 1
    process = queue.ring[head]
    queue.is_in[process] = 0
    return process  # type: ignore[no-any-return]


@inlined
def push(queue: Queue, process: int) -> None:
    """Add a process that is not in the queue."""
    tail = queue.ends[0] + queue.ends[1]
    queue.ring[tail if tail < len(queue.ring) else tail - len(queue.ring)] = process
    queue.ends[1] += 1
    queue.is_in[process] = 1


@called
def turns_at(ops: Operations, depth: IntArray) -> NDArray[np.uint8]:
    """`Operations.turns`, but 0 for processes with a stream that holds so little that they soon wait again."""
    turns = ops.turns.copy()
    for s in range(len(depth)):
        if depth[s] < min(SHALLOW, ops.offset[s + 1] - ops.offset[s]):
            for p in (ops.producer[s], ops.consumer[s]):
                if p >= 0:
                    turns[p] = 0
    return turns


@called
def begun(
    ops: Operations, depth: IntArray, latency: IntArray, unset: int, turns: NDArray[np.uint8]
) -> tuple[Ready, Progress]:
    """The state before a run: no token times, and as many free slots as each stream is deep.

    Args:
        depth, latency: per stream.
        turns: see `turns_at`.
    """
    own = ops.due.dtype.type
    streams, slots, processes = len(depth), ops.offset[-1], len(ops.first) - 1
    times = np.empty(2 * slots + depth.sum(), ops.due.dtype)
    times[:slots] = unset
    read = np.zeros(2 * streams, np.uint64)
    write = np.zeros(2 * streams, np.uint64)
    delay = np.ones(2 * streams, ops.due.dtype)
    free = np.zeros(streams, np.bool_)
    start = slots
    for s in range(streams):
        tokens = ops.offset[s + 1] - ops.offset[s]
        free[s] = ops.producer[s] >= 0 and turns[ops.producer[s]] == 1 and depth[s] >= tokens
        if not free[s]:
            times[start : start + depth[s]] = unset // 2  # long ago, but no sum overflows
            times[start + depth[s] : start + depth[s] + tokens] = unset
        read[streams + s] = start - ops.offset[s]
        write[s] = read[streams + s] + depth[s]
        delay[streams + s] = own(latency[s])
        start += depth[s] + tokens
    ready = Ready(times, unset, read, write, delay, free)
    return ready, Progress(ops.first[:-1].copy(), np.zeros(processes, ops.due.dtype), np.zeros(2 * streams, np.int64))


@inlined
def timed(times: Times, at: int, to: int, due: Any, delay: Any, wait: Any) -> Any:
    """Time one operation of a process that has waited `wait` cycles so far; returns its new wait.

    Args:
        at, to: the positions of the time that it waits for, and of its own.
    """
    own = times.dtype.type  # sums of narrow integers would be wide, and take twice as long
    # All later operations are delayed equally (T7), so one number per process stands for all its waiting.
    later = max(own(times[at] - due), wait)
    times[to] = own(own(due + later) + delay)
    return later


@called
def run(ops: Operations, ready: Ready, progress: Progress, turns: NDArray[np.uint8] | None) -> None:
    """Replay until every process has ended or waits for ever.

    Args:
        turns: see `turns_at`; None where nobody takes turns, for which it is compiled without a look at them.
    """
    first, due, port, slot, _, peers, peer, until, _, _, _ = ops
    times, unset, read, write, delay, free = ready
    streams = len(free)
    position, stall, waited = progress
    queue = everybody(len(position))
    awaited = np.zeros(len(position), np.uint64)
    one = np.uint64(1)
    own = due.dtype.type
    while queue.ends[1] > 0:
        p = pop(queue)
        # A process runs as far as it can. The order of processes changes nothing: a time depends only on times of the
        # peer, each of which is known before it is read.
        wait = stall[p]
        start = np.uint64(position[p])
        e = start
        end = np.uint64(first[p + 1])
        turn = 0
        if turns is not None:
            turn = turns[p]
            while turn == 1 and e < end:
                # For consecutive operations at one port, look up its parameters once.
                q = port[e]
                i = np.uint64(slot[e])
                at, to, add = i + read[q], i + write[q], delay[q]
                before = wait
                n, count = np.uint64(0), np.uint64(until[e]) - e
                if q >= streams and free[q - streams]:  # as many at once as the processor can
                    while n < count:
                        times[to + n] = own(own(due[e + n] + wait) + add)
                        n += one
                while n < count:
                    if times[at + n] == unset:
                        break
                    wait = timed(times, at + n, to + n, due[e + n], add, wait)
                    n += one
                waited[q] += wait - before
                e += n
                if n < count:
                    awaited[p] = at + n
                    break
            while turn == 2 and e < end:
                # The same for two ports that alternate.
                then = min(e + one, end - one)
                q, other = port[e], port[then]
                i, j = np.uint64(slot[e]), np.uint64(slot[then])
                at, to, add = i + read[q], i + write[q], delay[q]
                its, into, more = j + read[other], j + write[other], delay[other]
                before, others = wait, 0
                n, m, count = np.uint64(0), np.uint64(0), np.uint64(until[e]) - e
                while n + m < count:
                    if times[at + n] == unset:
                        break
                    wait = timed(times, at + n, to + n, due[e + n + m], add, wait)
                    n += one
                    if n + m == count:
                        break
                    if times[its + m] == unset:
                        break
                    later = timed(times, its + m, into + m, due[e + n + m], more, wait)
                    others += later - wait
                    wait = later
                    m += one
                waited[q] += wait - before - others
                waited[other] += others
                e += n + m
                if n + m < count:
                    awaited[p] = at + n if n == m else its + m
                    break
        while turn == 0 and e < end:
            q = port[e]
            i = np.uint64(slot[e])
            at = i + read[q]
            # Operations of a process happen in order, so the first without a known time ends this visit.
            if times[at] == unset:
                awaited[p] = at
                break
            t = due[e]
            behind = own(times[at] - t)  # as `timed`, but where most turns end soon a branch is faster than a maximum
            if behind > wait:
                waited[q] += behind - wait
                wait = behind
            times[i + write[q]] = own(own(t + wait) + delay[q])
            e += one
        stall[p] = wait
        position[p] = e
        if e > start:
            # Run only processes whose awaited time is now known: each run completes at least one operation.
            for j in range(peers[p], peers[p + 1]):  # type: ignore[assignment]
                x = peer[j]
                if queue.is_in[x] == 0 and position[x] < first[x + 1] and times[awaited[x]] != unset:
                    push(queue, x)


class Replayed(NamedTuple):
    """State at the end of a replay.

    Attributes:
        end: per process the cycle in which it has ended, or waits for ever.
        position, waited: see `Progress`. times: see `Ready`.
    """

    end: IntArray
    position: IntArray
    waited: IntArray
    times: Times


@compiled
def replayed(ops: Operations, depth: IntArray, latency: IntArray, process_end: IntArray, unset: int) -> Replayed:
    """Replay until every process has ended or waits for ever.

    Args:
        depth, latency: per stream.
        process_end: per process, without stalls.
    """
    turns = turns_at(ops, depth)
    ready, progress = begun(ops, depth, latency, unset, turns)
    if turns.any():
        run(ops, ready, progress, turns)
    else:
        run(ops, ready, progress, None)
    end = process_end.copy()
    for p in range(len(end)):
        at = progress.position[p]
        end[p] = (ops.due[at] if at < ops.first[p + 1] else end[p]) + progress.stall[p]
    return Replayed(end, progress.position, progress.waited, ready.times)


@inlined
def can_go_on(q: np.int64, held: IntArray, depth: IntArray) -> bool:
    """Return whether an operation at port q finds a token, or room."""
    streams = len(depth)
    return held[q] > 0 if q < streams else held[q - streams] < depth[q - streams]  # type: ignore[no-any-return]


@compiled
def untimed(ops: Operations, depth: IntArray, position: IntArray, bursts: Bursts) -> int:
    """Replay without times: where processes end or stick, and an order in which it can go on.

    Whether an operation can go on does not depend on times (T13). The order is also possible with deeper streams.

    Args:
        position: per process its next operation; updated.
        bursts: filled with the order, unless empty.

    Returns:
        The number of bursts.
    """
    streams = len(depth)
    held = np.zeros(streams, np.int64)
    queue = everybody(len(position))
    count = 0
    while queue.ends[1] > 0:
        p = pop(queue)
        start = position[p]
        e = start
        while e < ops.first[p + 1]:
            q = np.int64(ops.port[e])
            if not can_go_on(q, held, depth):
                break
            held[q if q < streams else q - streams] += -1 if q < streams else 1
            e += 1
        position[p] = e
        if e == start:
            continue
        if len(bursts.start):
            bursts.process[count] = p
            bursts.start[count] = start
        count += 1
        for j in range(ops.peers[p], ops.peers[p + 1]):
            x = ops.peer[j]
            waits = queue.is_in[x] == 0 and position[x] < ops.first[x + 1]
            if waits and can_go_on(np.int64(ops.port[position[x]]), held, depth):
                push(queue, x)
    return count


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


# Replay of processes that repeat: operations that recur at a fixed interval are timed together, not one by one.
#
# Token times of a port are kept as pieces: times that grow by the same step from token to token. A process whose
# awaited times are such pieces reaches a state in which each round is later than the one before by the same cycles;
# rounds are then skipped up to the end of the nearest piece. The work depends on how often the pace changes, not on
# trip counts.
#
# Writers are timed first as if there always was room. Where a token was put before its slot was free, the writer is
# timed again, with the times at which its reader has freed slots so far. All times only grow towards the solution of
# the equations of docs/timing.md, so the first state that satisfies them is that solution.

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
