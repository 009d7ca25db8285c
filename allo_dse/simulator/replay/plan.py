"""A trace laid out for replay: per process its operations in the order in which they are due.

A process does its operations in the order in which they are due, whatever the stalls (docs/timing.md, T7), so the order
is found once per trace.

Ports: port s is the reading end of stream s, port `streams + s` its writing end. A token has a *slot*: `offset[s] + n`
for the n-th token of stream s.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.numba_kernels import compiled
from allo_dse.common.records import Array, Frozen, replace

from ..deadlock import Blocked
from ..network.network import SHIFT_REGISTER_DEPTH, Labels, read_latency
from .trace_data import PUT, IntArray, TraceData, TraceError

# `benchmarks/replay_speed.py` measures these settings.
WORTH_TURNS = 4
"""Mean length of a run of alternating ports from which a search for its end pays off."""
SAFE_32_BIT = 1 << 30
"""Times stay below this where 32-bit arithmetic is used."""
WORTH_REPEATING = 32
"""Least ratio of all operations to those timed alone, each of which takes 2 to 40 times as long."""


class Operations(NamedTuple):
    """The arrays of a plan that compiled code reads; see `Plan`.

    Attributes:
        turns: per process the number of ports that alternate, 1 or 2, if that pays, else 0.
        until: per operation of these processes, the first later one whose port breaks the alternation.
        producer, consumer: per stream.
    """

    first: IntArray
    due: Array
    port: Array
    slot: NDArray[np.uint32]
    offset: IntArray
    peers: IntArray
    peer: NDArray[np.int32]
    until: NDArray[np.uint32]
    turns: NDArray[np.uint8]
    producer: IntArray
    consumer: IntArray


class Blocks(NamedTuple):
    """Operations of processes that repeat, block after block.

    Attributes:
        first: per process its first block, and the end. head: the same per block, of its operations.
        rounds, interval: per block how often its operations happen, and after how many cycles they do again.
        port, due, token: per operation, of the first round. A block has at most one operation at a port.
        owner: per port its process, -1 for none.
        port_first, ports: `ports[port_first[p]:port_first[p + 1]]` are the ports of process p.
    """

    first: IntArray
    head: IntArray
    rounds: IntArray
    interval: IntArray
    port: IntArray
    due: IntArray
    token: IntArray
    owner: IntArray
    port_first: IntArray
    ports: IntArray


class Plan(Frozen, dict=True):
    """Arrays for the kernels; operations are numbered in replay order, process after process.

    Attributes:
        first: per process its first operation, and the end; int64[processes + 1].
        due: cycle in which an operation is due without stalls; int32, or int64 where cycles can exceed 32 bits.
        port, slot: of each operation.
        event: which event of the trace each operation is.
        offset: per stream its first slot, and the end; int64[streams + 1].
        puts, gets: tokens per stream.
        peers, peer: `peer[peers[p]:peers[p + 1]]` are the processes that share a stream with process p.
        producer, consumer: per stream the process that puts to it, and that gets from it; -1 for none.
        process_end: without stalls.
        latency: per stream the cycles from put to get, -1 where they follow from the depth.
        filled: streams that never get full.
    """

    first: IntArray
    due: Array
    port: Array
    slot: NDArray[np.uint32]
    event: IntArray
    offset: IntArray
    puts: IntArray
    gets: IntArray
    peers: IntArray
    peer: NDArray[np.int32]
    producer: IntArray
    consumer: IntArray
    process_end: IntArray
    latency: IntArray
    filled: IntArray

    @property
    def streams(self) -> int:
        return len(self.puts)

    @property
    def processes(self) -> int:
        return len(self.first) - 1

    @property
    def slots(self) -> int:
        return int(self.offset[-1])

    @cached_property
    def operations(self) -> Operations:
        until, turns = turns_of(self.first, self.port)
        return Operations(
            self.first, self.due, self.port, self.slot, self.offset, self.peers, self.peer, until, turns,
            self.producer, self.consumer,
        )  # fmt: skip

    @cached_property
    def blocks(self) -> Blocks | None:
        """Operations that repeat; None if too few do."""
        return _blocks_of(self)

    @cached_property
    def tries(self) -> list[int]:
        """Numbers of attempts to time repeats together, and of failed ones."""
        return [0, 0]

    @cached_property
    def unset(self) -> int:
        """Stands for the time of what has not happened."""
        return int(np.iinfo(self.due.dtype).min)

    @cached_property
    def most(self) -> IntArray:
        """Per stream the depth beyond which more makes no difference."""
        return np.maximum(self.puts, SHIFT_REGISTER_DEPTH + 1)

    @cached_property
    def operation_of(self) -> IntArray:
        """Per slot the operation that gets its token (row 0) and the one that puts it (row 1), -1 for none."""
        result = np.full((2, self.slots), -1, np.int64)
        side = (self.port >= self.streams).astype(np.int64)
        result[side, self.slot] = np.arange(len(self.port))
        return result

    def clip(self, depths: IntArray) -> IntArray:
        """Depths that act like these: a stream never holds more than all its tokens; the latency class is kept."""
        clipped: IntArray = np.minimum(depths, self.most)
        if len(self.filled):
            clipped[..., self.filled] = self.most[self.filled]
        return clipped

    def read_latency(self, depths: IntArray) -> IntArray:
        """Per stream the cycles from put to get with these depths, int64[streams] or int64[n, streams]."""
        return read_latency(self.latency, depths)


@compiled
def turns_of(first: IntArray, port: Array) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """`until` and `turns` of operations: one pass, as merged plans come with every other depth vector."""
    until, turns = np.zeros(len(port), np.uint32), np.zeros(len(first) - 1, np.uint8)
    for p in range(len(turns)):
        begin, end = first[p], first[p + 1]
        of_one = of_two = min(1, end - begin)  # stretches
        for e in range(begin + 1, end):
            twice = port[e] == port[e - 1]
            of_one += not twice
            of_two += twice or (e > begin + 1 and port[e] != port[e - 2])
        if end - begin >= WORTH_TURNS * of_one:
            turns[p] = 1
        elif end - begin >= 2 * WORTH_TURNS * of_two:
            turns[p] = 2
        for e in range(end - 1, begin - 1, -1):  # each stretch from its end
            goes_on = e + 1 < end and (port[e + 1] == port[e]) == (turns[p] == 1)
            if turns[p] == 2 and goes_on and (e + 2 == end or port[e + 2] != port[e]):
                until[e] = e + 2
            else:
                until[e] = until[e + 1] if goes_on else e + 1
    return until, turns


@compiled
def find_blocks(first: IntArray, due: Array, port: Array, ports: int, blocks: IntArray) -> int:
    """Write per block its first operation, number of operations, rounds and interval to `blocks`; return how many."""
    seen = np.full(ports, -1, np.int64)
    count = 0
    for p in range(len(first) - 1):
        e, end = first[p], first[p + 1]
        while e < end:
            size = 0
            while e + size < end and seen[port[e + size]] != e:
                seen[port[e + size]] = e
                size += 1
            rounds, interval = 1, 0
            if e + size < end and port[e + size] == port[e]:
                interval = int(due[e + size]) - int(due[e])
                at = e
                while at + size < end and port[at + size] == port[at] and due[at + size] - due[at] == interval:
                    at += 1
                rounds += (at - e) // size
            if rounds == 1:
                size, interval = 1, 0
            if count == len(blocks):
                return count + 1
            blocks[count] = e, size, rounds, interval
            count += 1
            e += size * rounds
    return count


def _blocks_of(plan: Plan) -> Blocks | None:
    """The blocks of a plan; None if too few operations repeat."""
    most = len(plan.port) // WORTH_REPEATING
    found = np.empty((most, 4), np.int64)
    count = find_blocks(plan.first, plan.due, plan.port, 2 * plan.streams, found)
    if count > most:
        return None
    begin, size, rounds, interval = found[:count].T.copy()
    head = ends_of(size)
    if head[-1] > most:
        return None
    operation = np.arange(head[-1]) + np.repeat(begin - head[:-1], size)
    port = plan.port[operation].astype(np.int64)
    owner = np.concatenate([plan.consumer, plan.producer])
    return Blocks(
        first=np.searchsorted(begin, plan.first),
        head=head,
        rounds=rounds,
        interval=interval,
        port=port,
        due=plan.due[operation].astype(np.int64),
        token=plan.slot[operation].astype(np.int64) - plan.offset[port % max(plan.streams, 1)],
        owner=owner,
        port_first=ends_of(np.bincount(owner[owner >= 0], minlength=plan.processes)),
        ports=np.argsort(owner, kind="stable")[np.count_nonzero(owner < 0) :],
    )


def make_plan(data: TraceData) -> Plan:
    """Lay out a trace.

    Raises:
        TraceError: if the trace has too many events.
    """
    events = data.events
    process = data.of_loops("process")[events.loop]
    due = data.bases[events.loop] + events.iteration * data.of_loops("ii")[events.loop] + events.stage
    # Sort by loop before due time, because a pipeline is empty before the next loop begins (T8). The sort is stable, so
    # operations due in one cycle keep program order (T7).
    order = np.lexsort((due, events.loop, process))
    port = ((events.kind == PUT) * len(data.streams) + events.stream)[order]
    puts, gets = data.token_counts
    offset = ends_of(np.maximum(puts, gets))
    if offset[-1] >= 1 << 31:
        raise TraceError(f"trace {data.name!r} has {int(offset[-1]):,} tokens, more than replay can number")
    producer, consumer = data.ends
    peers, peer = _peers(producer, consumer, len(data.processes))
    # A path of waits through the run contains each process's cycles once. Each operation adds at most the cycles from
    # one end of a stream to the other.
    longest = int(data.process_end.sum()) + max(2, int(data.fixed_latency.max(initial=0))) * len(events)
    return Plan(
        first=ends_of(np.bincount(process, minlength=len(data.processes))),
        due=due[order].astype(np.int32 if longest < SAFE_32_BIT else np.int64),
        port=port.astype(np.uint16 if 2 * len(data.streams) < 1 << 16 else np.uint32),
        slot=_slots(port, offset, len(data.streams)),
        event=order,
        offset=offset,
        puts=puts,
        gets=gets,
        peers=peers,
        peer=peer,
        producer=producer,
        consumer=consumer,
        process_end=data.process_end,
        latency=data.fixed_latency,
        filled=data.filled,
    )


def ends_of(counts: IntArray) -> IntArray:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _slots(port: IntArray, offset: IntArray, streams: int) -> NDArray[np.uint32]:
    """Per operation the slot of its token: operations of one port take a stream's tokens in turn."""
    counts = np.bincount(port, minlength=2 * streams)
    by_port = np.argsort(port, kind="stable")
    rank = np.empty(len(port), np.int64)
    rank[by_port] = np.arange(len(port)) - np.repeat(ends_of(counts)[:-1], counts)
    return (offset[:-1][port % streams] + rank).astype(np.uint32) if streams else rank.astype(np.uint32)


def _peers(producer: IntArray, consumer: IntArray, processes: int) -> tuple[IntArray, NDArray[np.int32]]:
    both = (producer >= 0) & (consumer >= 0) & (producer != consumer)
    a, b = producer[both], consumer[both]
    pairs = np.unique(np.stack([np.concatenate([a, b]), np.concatenate([b, a])]), axis=1)
    return ends_of(np.bincount(pairs[0], minlength=processes)), pairs[1].astype(np.int32)


# An array that is cut into banks becomes several streams between the same two processes, and an unrolled loop uses all
# of them in one cycle. Streams are *alike* if at both ends their n-th operations are due in the same cycle, and follow
# each other directly, in the same order every time. With equal depths they have equal times, so replay computes only
# the first. By induction over the tokens: the first one waits as long as any would, and its process is then equally
# late for the others, which never wait.


WORTH_MERGING = 1.5
"""A plan is merged where that leaves this many times fewer operations: merging reads all of them."""
KEPT = 8
"""Merged plans that are kept for other depths of one trace."""


class Merged(Frozen, eq=False):
    """A plan with one stream for several.

    Attributes:
        plan: the operations of those streams that stand for others or for themselves alone.
        leader: per stream the one that represents it.
        operation: per operation of the plan, and for their end, which it is of all operations.
    """

    plan: Plan
    leader: IntArray
    operation: IntArray


class AlikeStreams:
    """The plan of a trace, reduced to one of each group of alike streams with equal depths."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._kept: OrderedDict[bytes, Merged] = OrderedDict()

    @cached_property
    def _order(self) -> tuple[IntArray, IntArray]:
        """Streams so that those alike follow each other; and for each whether it is alike to the one before."""
        plan = self.plan
        get, put = plan.operation_of
        found = []
        number: dict[object, int] = {}
        for s in range(plan.streams):
            begin = plan.offset[s]
            gets, puts = get[begin : begin + plan.gets[s]], put[begin : begin + plan.puts[s]]
            shape: object = s
            first = -1, -1
            if len(gets) and len(puts):
                first = int(puts[0]), int(gets[0])
                ends = plan.producer[s], plan.consumer[s], plan.latency[s]
                shape = *ends, *(array.tobytes() for own in (gets, puts) for array in (own - own[0], plan.due[own]))
            found.append((number.setdefault(shape, len(number)), *first, s))
        # Sort streams of one shape by their first operations: alike neighbours are one step apart at both ends.
        ordered = np.array(sorted(found), np.int64).reshape(-1, 4)
        alike = np.zeros(plan.streams, bool)
        alike[1:] = (np.diff(ordered[:, :3], axis=0) == (0, 1, 1)).all(axis=1)
        return ordered[:, 3], alike

    def at(self, depths: IntArray) -> Merged:
        """Return the plan to replay, with one stream for several alike ones.

        Args:
            depths: clipped, int64[streams] or several such vectors; the plan holds for all.
        """
        order, alike = self._order
        ordered = depths[..., order]
        equal = ordered[..., 1:] == ordered[..., :-1]
        same = alike.copy()
        same[1:] &= equal if equal.ndim == 1 else equal.all(axis=0)
        key = same.tobytes()
        merged = self._kept.get(key)
        if merged is None:  # two concurrent threads may both compute it
            merged = self._kept[key] = self._merged(same)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return merged

    def _merged(self, same: IntArray) -> Merged:
        plan, (order, _) = self.plan, self._order
        leader = np.arange(plan.streams)
        # The leader is the last stream up to here that is not alike to its own predecessor.
        leader[order] = order[np.maximum.accumulate(np.where(same, 0, np.arange(len(order))))]
        leads = leader == np.arange(plan.streams)
        if int((plan.puts + plan.gets)[leads].sum()) * WORTH_MERGING >= len(plan.port):
            return Merged(self.plan, np.arange(self.plan.streams), np.arange(len(self.plan.port) + 1))
        kept = np.flatnonzero(np.tile(leads, 2)[plan.port])
        tokens = np.where(leads, np.diff(plan.offset), 0)
        offset = ends_of(tokens)
        port = plan.port[kept]
        moved = (plan.offset - offset)[:-1]
        return Merged(
            replace(
                plan,
                first=np.searchsorted(kept, plan.first),
                due=plan.due[kept],
                port=port,
                slot=(plan.slot[kept] - moved[port % plan.streams]).astype(np.uint32),
                event=plan.event[kept],
                offset=offset,
                puts=np.where(leads, plan.puts, 0),
                gets=np.where(leads, plan.gets, 0),
            ),
            leader,
            np.append(kept, len(plan.port)),
        )


@dataclass(frozen=True)
class PlaceLabels(Labels):
    """Names of a trace's processes and streams, and the places where processes are."""

    trace: TraceData
    places: Mapping[int, str]

    def task(self, task: int) -> str:
        return self.trace.processes[task]

    def stream(self, stream: int) -> str:
        return self.trace.streams[stream]

    def operation(self, task: int, op: int) -> str:
        return self.places[task]


def describe_place(iteration: int, loop: int, source: str) -> str:
    """A place in a process, `loop` counting its loops."""
    return f"iteration {iteration} of its loop {loop}{f' at {source}' if source else ''}"


def trace_labels(trace: TraceData, plan: Plan, position: IntArray) -> PlaceLabels:
    """Labels for processes that have come to these operations."""
    places = {}
    for p in range(plan.processes):
        if position[p] < plan.first[p + 1]:
            event = int(plan.event[position[p]])
            if trace.place is not None:
                places[p] = trace.places[trace.place[event]]
                continue
            number = int(trace.events.loop[event])
            of_process = sum(other.process == p for other in trace.loops[:number])
            places[p] = describe_place(int(trace.events.iteration[event]), of_process, trace.loops[number].source)
    return PlaceLabels(trace, places)


def blocked_processes(plan: Plan, position: IntArray, depths: IntArray, clock: IntArray) -> list[Blocked]:
    """Return the wait of each process that has not ended; `clock` says since when."""
    result = []
    for p in np.flatnonzero(position < plan.first[1:]).tolist():
        port = int(plan.port[position[p]])
        getting = port < plan.streams
        stream = port if getting else port - plan.streams
        peer = int((plan.producer if getting else plan.consumer)[stream])
        result.append(
            Blocked(
                task=p,
                node=p,
                direction="get" if getting else "put",
                stream=stream,
                op=int(position[p] - plan.first[p]),
                clock=int(clock[p]),
                held=0 if getting else int(depths[stream]),
                peer=None if peer < 0 else peer,
                peer_node=None if peer < 0 else peer,
            )
        )
    return result
