"""Exact times of long regular networks: execution until a period repeats, then arithmetic.

A network of table processes is a machine. Its state is each process's position in its table, the tokens in each stream,
and times: clocks, put times of tokens, times when slots were freed and when servers are free. Its next step depends
only on differences of times, by maxima and sums. Suppose two states are equal up to a common shift of all times, and up
to counters of repeats that have advanced. Then the steps between them happen again and again, each time later by that
shift, until one of these repeats ends. The run is moved on by as many of these periods as all the repeats have left. It
continues from there: after the end of the repetition, in the next loop, or in the next iteration of an outer loop,
whose iterations are compared in the same way (docs/timing.md, T15).

The execution order of the run loop does not matter. States are taken when a certain node, the anchor, has begun an
iteration of a certain repeat, and the future of a state does not depend on the order of nodes. So a node that waited
for a token runs next: the first tokens reach the far end of a network before others are made, all nodes are soon in
step, and the work grows with the number of nodes. In the order of waking, nodes at the front would run as many
iterations as there are nodes on the way to the far end.

A node may be blocked at one time while all others repeat, as what loads the next frame is until this frame ends. Its
times hide the repetition, so that states are compared without blocked nodes where comparing all has failed.

The time until the FIFOs before the slowest node are full cannot be skipped. It grows with their depth and with the
nodes on the way, so a larger square array takes more work per element. Networks that never repeat are executed in full,
at little extra cost, because their states are compared ever more rarely. Runs too short to gain from a comparison are
not compared at all (`is_long`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.records import Frozen, replace

from ..network.memory_image import NO_ANCHOR, Arena
from ..network.network import IntArray, Network, Processes, stream_ends
from ..run_time.records import WORD, Code, Header, Node, Op, Process, Resource, Slot, State, Stream

# The parts of a network of table processes that do not depend on each other, laid out for a look at their state.


NOBODY = -1
Scalar = TypeVar("Scalar", bound=np.generic)


class Part(Frozen, eq=False):
    """Nodes that are joined by streams and resources.

    Attributes:
        nodes, streams, resources: their numbers in the network.
        local: per node of the network its position in `nodes`.
        producer, consumer: per stream of the part the position of the node at each end, past the last for none.
        place: per entry of the streams' memory of tokens, stream after stream, which of its stream's it is.
        rows: address of the operation tables. counts: per row its count, if it is a repeat.
        repeats: per row (and past the last) and nesting level the repeat that it stands in, or -1.
        longest: the largest count of a repeat.
        only_process: per node its process, if no node has several.
    """

    nodes: IntArray
    streams: IntArray
    resources: IntArray
    local: IntArray
    producer: IntArray
    consumer: IntArray
    depth: IntArray
    latency: IntArray
    place: IntArray
    rows: int
    counts: IntArray
    repeats: IntArray
    longest: int
    only_process: IntArray | None

    def per_entry(self, per_stream: NDArray[Scalar]) -> NDArray[Scalar]:
        """Expand values per stream to the entries of the streams' memory."""
        return np.repeat(per_stream, self.depth)

    def is_over(self, arena: Arena) -> bool:
        """Return whether all nodes have finished."""
        return bool((arena.nodes[self.nodes, Node.WAITS_IN] == State.FINISHED).all())

    def processes(self, arena: Arena) -> IntArray:
        """Per node the position of its process in `arena.processes`."""
        if self.only_process is not None:
            return self.only_process
        slot = np.minimum(arena.slot_number(arena.nodes[self.nodes, Node.SLOT]), len(arena.slots) - 1)
        return arena.process_number(arena.slots[slot, Slot.ARGUMENTS])

    def counters(self, arena: Arena) -> IntArray:
        """Per node and nesting level, how often the repeats that its process stands in have been gone through."""
        return arena.processes[self.processes(arena), Process.COUNTERS : Process.COUNTERS + self.repeats.shape[1]]

    def places(self, nodes: IntArray) -> IntArray:
        """Per node the row at which it stands, -1 if it does not run."""
        row = (nodes[:, Node.HANDLE] - self.rows) // (WORD * Op.SIZE)
        return np.where(nodes[:, Node.ACTIVE] == 1, row, -1)

    def anchor(self, arena: Arena, tried: AbstractSet[tuple[int, int]]) -> tuple[int, int] | None:
        """Addresses of the node and the repeat that has most rounds left, outermost repeats first.

        Args:
            tried: those not to take.
        """
        nodes = arena.nodes[self.nodes]
        row = self.places(nodes)
        inside = self.repeats[row]
        left = np.where(inside >= 0, self.counts[inside] - self.counters(arena), 0)
        for level in range(left.shape[1]):
            for node in np.argsort(-left[:, level], kind="stable")[:TRIED].tolist():
                if left[node, level] < 2:
                    break
                found = (
                    arena.node_address(int(self.nodes[node])),
                    self.rows + WORD * Op.SIZE * int(inside[node, level]),
                )
                if found not in tried:
                    return found
        return None


TRIED = 4
"""Nodes that are tried as anchors at each nesting level."""


def parts_of(network: Network, arena: Arena) -> Iterator[Part]:
    """The connected parts of a network of table processes."""
    ends = stream_ends(network, {})
    node_of = np.append(network.task_node, NOBODY)
    producer, consumer = node_of[ends.producer], node_of[ends.consumer]
    user, resource = _resource_users(network)
    label = _components(network, producer, consumer, user, resource)
    rows = network.rows.reshape(-1, Op.SIZE)
    repeats = _repeats(rows)
    longest = np.zeros(network.node_count, np.int64)
    np.maximum.at(longest, network.task_node, _longest(rows)[network.first_row])
    single = network.node_count == network.task_count
    either = np.where(producer == NOBODY, consumer, producer)
    for which in np.unique(label).tolist():
        nodes = np.flatnonzero(label == which)
        local = np.full(network.node_count + 1, len(nodes))
        local[nodes] = np.arange(len(nodes))
        streams = np.flatnonzero((either != NOBODY) & (label[either] == which))
        depth = network.depth[streams]
        yield Part(
            nodes=nodes,
            streams=streams,
            resources=np.unique(resource[label[user] == which]),
            local=local,
            producer=local[producer[streams]],
            consumer=local[consumer[streams]],
            depth=depth,
            latency=network.latency[streams],
            place=np.arange(depth.sum()) - np.repeat(np.cumsum(depth), depth),
            rows=network.rows.ctypes.data,
            counts=rows[:, Op.VALUE],
            repeats=repeats,
            longest=int(longest[nodes].max(initial=0)),
            only_process=arena.process_number(arena.slots[nodes, Slot.ARGUMENTS]) if single else None,
        )


def _resource_users(network: Network) -> tuple[IntArray, IntArray]:
    """Pairs of a node and a resource that it is bound to."""
    user, resource = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    # A process's bindings end where the next ones begin. Groups that repeat once per frame share theirs.
    begins = np.unique([g.first_resource[0] for g in network.groups if isinstance(g, Processes)])
    for first, group in network.numbered_groups:
        assert isinstance(group, Processes)
        begin = group.first_resource[0]
        last = min([*begins[begins > begin], len(network.resource_ports)])
        size = np.diff(group.first_resource, append=last)
        user.append(np.repeat(network.task_node[first : first + len(group)], size))
        resource.append(network.resource_ports[begin:last])
    return np.concatenate(user), np.concatenate(resource)


def _components(
    network: Network, producer: IntArray, consumer: IntArray, user: IntArray, resource: IntArray
) -> IntArray:
    """Per node the least node that it is joined with."""
    joined = (producer != NOBODY) & (consumer != NOBODY)
    first_user = np.full(network.resources, -1)
    first_user[resource[::-1]] = user[::-1]
    a = np.concatenate([producer[joined], user])
    b = np.concatenate([consumer[joined], first_user[resource]])
    label = np.arange(network.node_count)
    # Both ends of every pair, and the nodes that label them, get the lesser label. Then each label is replaced by its
    # own label. Labels only fall, to the least node of each component. The jumps halve the distance in each round;
    # following single neighbours would take as many rounds as a chain has nodes (Shiloach and Vishkin, An O(log n)
    # parallel connectivity algorithm, 1982).
    while len(a):
        low = np.minimum(label[a], label[b])
        new = label.copy()
        for side in (label[a], label[b], a, b):
            np.minimum.at(new, side, low)
        new = new[new]
        if np.array_equal(new, label):
            break
        label = new
    return label


def _repeats(rows: IntArray) -> IntArray:
    """Per row (and past the last) and nesting level the repeat that the row stands in, or -1."""
    found = np.flatnonzero(rows[:, Op.CODE] == Code.REPEAT)
    levels = int(rows[found, Op.OPERAND].max(initial=0)) + 1
    result = np.full((len(rows) + 1, levels), -1)
    for row in found.tolist():
        _, level, _, length = rows[row].tolist()
        result[row - length : row + 1, level] = row
    return result


def _longest(rows: IntArray) -> IntArray:
    """Per first row of a table the largest count of its repeats."""
    counts = np.where(rows[:, Op.CODE] == Code.REPEAT, rows[:, Op.VALUE], 0)
    starts = np.concatenate(([0], np.flatnonzero(rows[:, Op.CODE] == Code.HALT)[:-1] + 1))
    result = np.zeros(len(rows), np.int64)
    result[starts] = np.maximum.reduceat(counts, starts)
    return result


def token_entries(part: Part, arena: Arena, streams: IntArray) -> tuple[IntArray, NDArray[np.bool_]]:
    """Return the last `depth` entries of each stream: positions in `arena.rings`, and whether they are free slots."""
    number = part.per_entry(streams[:, Stream.TAIL]) + part.place
    is_free = number < part.per_entry(streams[:, Stream.HEAD])
    number &= part.per_entry(streams[:, Stream.MASK])
    number *= part.per_entry(arena.ring_words[part.streams])
    number += part.per_entry(arena.ring_first[part.streams])
    return number, is_free


COMPARED = 32
"""States of one key that a new one is compared with."""


class Snapshot(Frozen, eq=False):
    """A state of a part, with the counts accumulated up to it.

    Attributes:
        key: equal for states that lead to the same, later by the difference of their references.
        clock, stalls: per node. counters: per node and nesting level, with the counts of these repeats (`counts`).
        puts: per stream. served: per resource.
        resting: per node why it is blocked if its times are left out, see `snapshot`; else 0.
    """

    key: bytes
    reference: int
    clock: IntArray
    stalls: IntArray
    counters: IntArray
    counts: IntArray
    puts: IntArray
    served: IntArray
    resting: IntArray


def find_period(known: Sequence[Snapshot], now: Snapshot, until: int | None = None) -> tuple[int, Snapshot | None, int]:
    """The operations that a period saves, the earlier state of the same key that it began with, and how often it
    happens again; of the period that saves most.

    Args:
        until: a clock that no node is to be moved past.
    """
    best: tuple[int, Snapshot | None, int] = 0, None, 0
    # Short periods repeat more often, but perhaps only a long one is exact: choose by the amount skipped.
    for since in reversed(known):
        late = now.reference - since.reference
        times = _repetitions(since, now)
        if until is not None:
            times = min(times, (until - int(now.clock.max())) // max(1, late))
        # The gain is the number of skipped stream operations, plus cycles for parts with hardly any operations.
        gain = times * int((now.puts - since.puts).sum() + late)
        if gain > best[0]:
            best = gain, since, times
    return best


def _repetitions(since: Snapshot, now: Snapshot) -> int:
    """Return how often everything from `since` to `now` can be repeated before a repeat ends; 0 if it is no period."""
    advance = now.counters - since.counters
    changed = advance != 0
    # If several counters of a node changed, or one fell, an outer repeat has advanced and its inner ones restarted.
    if (changed.sum(axis=1) > 1).any() or (advance < 0).any():
        return 0
    moved = changed.any(axis=1)
    # Requests are served in order of time: among others that go on, one that rests would be served after some periods.
    if now.resting[moved].any() or (State.REQUEST in now.resting and (now.served != since.served).any()):
        return 0
    late = now.clock - since.clock
    # Everything that moved must be late by the same time. Otherwise nodes drift apart, and later iterations differ.
    if not moved.any() or (late[moved] != now.reference - since.reference).any():
        return 0
    # The last iteration of a repeat is executed, not skipped: the period does not show what follows it.
    left = (now.counts - 1 - now.counters)[changed]
    return int((left // advance[changed]).min())


def jump(part: Part, arena: Arena, now: Snapshot, since: Snapshot, times: int) -> int:
    """Move a part on by a period as often as it repeats; returns the stream operations skipped."""
    late = times * (now.reference - since.reference)
    advance = now.counters - since.counters
    moved = advance.any(axis=1)
    nodes = part.nodes
    # Nodes that did not move are blocked or done, and the difference of their clocks has no effect.
    arena.nodes[nodes[moved], Node.CLOCK] += late
    for column, what in enumerate((Node.STALL_GET, Node.STALL_PUT, Node.STALL_REQUEST)):
        arena.nodes[nodes, what] += times * (now.stalls - since.stalls)[:, column]
    process = part.processes(arena)[moved]
    arena.processes[process, Process.COUNTERS : Process.COUNTERS + advance.shape[1]] += times * advance[moved]
    tokens = times * (now.puts - since.puts)
    # Head and tail move around the ring, so the tokens between them are read before and written, later, after.
    entry, _ = token_entries(part, arena, arena.streams[part.streams])
    values = np.stack([arena.rings[entry], arena.rings[entry + 1]])
    arena.streams[part.streams, Stream.TAIL] += tokens
    arena.streams[part.streams, Stream.HEAD] += tokens
    entry, _ = token_entries(part, arena, arena.streams[part.streams])
    values += part.per_entry(np.where(tokens > 0, late, 0))
    arena.rings[entry], arena.rings[entry + 1] = values
    served = now.served - since.served
    # A server without requests keeps its free time. The states are equal if it is free in both.
    used = part.resources[served[:, 1] > 0]
    arena.resources[used, Resource.FREE] += late
    arena.resources[part.resources, Resource.BUSY] += times * served[:, 0]
    arena.resources[part.resources, Resource.REQUESTS] += times * served[:, 1]
    heap = arena.heap[: int(arena.header[Header.PENDING_COUNT])]
    if len(heap) > 1:  # a sorted heap is a heap
        key = arena.nodes[arena.node_number(heap), Node.CLOCK]
        heap[:] = heap[np.lexsort((heap, key))]
    return 2 * int(tokens.sum())


# The state of a part of a running network is normalized: states with the same future are equal.
#
# Times that have no effect any more become the least equivalent time. Examples are a token that was readable long
# before its reader's clock, a slot that was free long before its writer's clock, and the clock of a node that waits for
# a node with a later clock. Times are then relative to one clock.


NEVER = 1 << 60
ROUNDS = 64
"""Steps for which waiting is followed back; stopping earlier would be right as well."""


def snapshot(part: Part, arena: Arena, last: Snapshot | None = None) -> Snapshot:
    """The state of a part between two turns.

    Args:
        last: an earlier state. Nodes that have been blocked since then are resting, and their times are left out: a
            period in which they do not move has no effect on them, and they have none on it.
    """
    nodes, streams, resources = arena.nodes[part.nodes], arena.streams[part.streams], arena.resources[part.resources]
    finished = np.ones(len(nodes) + 1, bool)
    np.equal(nodes[:, Node.WAITS_IN], State.FINISHED, out=finished[:-1])
    clock = _clocks(part, arena, nodes, streams, finished)
    resting = np.zeros(len(nodes), np.int64)
    if last is not None:
        stood = (nodes[:, Node.CLOCK] == last.clock) & (part.counters(arena) == last.counters).all(axis=1)
        pending = arena.heap[: int(arena.header[Header.PENDING_COUNT])]
        for state, blocked in (State.GET, streams[:, Stream.WAITER]), (State.REQUEST, pending):
            resting[stood & np.isin(part.nodes, arena.node_number(blocked))] = state
        finished[:-1] |= resting > 0
    reference = int(clock.min(where=~finished, initial=np.iinfo(np.int64).max))
    # The clock of a finished or resting node has no effect. All get one value, so that states can be equal.
    clock[finished] = reference
    times = [clock, _token_times(part, arena, streams, clock, finished, reference)]
    times.append(np.maximum(resources[:, Resource.FREE], reference))
    shape = [
        nodes[:, [Node.ACTIVE, Node.HANDLE, Node.SLOT, Node.GRANTED]].ravel(),
        streams[:, Stream.TAIL] - streams[:, Stream.HEAD],
        streams[:, Stream.OCCUPANCY],
        resting,
    ]
    image = np.concatenate([*times, *shape, finished])
    # States that differ by a time shift have the same future, shifted: count times from the earliest clock (T15).
    image[: sum(map(len, times))] -= reference
    repeats = part.repeats[part.places(nodes)]
    return Snapshot(
        key=hashlib.blake2b(image.data, digest_size=16).digest(),
        reference=reference,
        clock=nodes[:, Node.CLOCK],
        stalls=nodes[:, [Node.STALL_GET, Node.STALL_PUT, Node.STALL_REQUEST]],
        counters=part.counters(arena),
        counts=np.where(repeats >= 0, part.counts[repeats], 0),
        puts=streams[:, Stream.TAIL],
        served=resources[:, [Resource.BUSY, Resource.REQUESTS]],
        resting=resting,
    )


def _clocks(part: Part, arena: Arena, nodes: IntArray, streams: IntArray, finished: NDArray[np.bool_]) -> IntArray:
    """Per node a time that its next operation is not before, and one entry more."""
    clock = np.zeros(len(nodes) + 1, np.int64)
    clock[:-1] = nodes[:, Node.CLOCK]
    blocked = np.flatnonzero(streams[:, Stream.WAITER])
    waiting = part.local[arena.node_number(streams[blocked, Stream.WAITER])]
    empty = streams[blocked, Stream.HEAD] == streams[blocked, Stream.TAIL]
    other = np.where(empty, part.producer[blocked], part.consumer[blocked])
    # A blocked node continues after the next step of its stream's other end, so its clock has no effect before that.
    # Each round follows the waiting back by one node; no clock exceeds the one it replaces.
    for _ in range(ROUNDS):
        soonest = np.where(finished[other], -NEVER, clock[other])  # a node that is done wakes none
        if not (soonest > clock[waiting]).any():
            break
        clock[waiting] = np.maximum(soonest, clock[waiting])
    return clock


def _token_times(
    part: Part, arena: Arena, streams: IntArray, clock: IntArray, finished: NDArray[np.bool_], reference: int
) -> IntArray:
    """Return when tokens in streams were put and when free slots were freed, as far as it matters."""
    entry, is_free = token_entries(part, arena, streams)
    writer, reader, per_entry = part.producer, part.consumer, part.per_entry
    # An operation happens at the larger of its user's clock and the token's time plus latency (T2, T3). So any time
    # below `least` has the same effect as `least`.
    least = np.where(is_free, per_entry(clock[writer] - 1), per_entry(clock[reader] - part.latency))
    done = np.where(is_free, per_entry(finished[writer]), per_entry(finished[reader]))
    return np.where(done, reference, np.maximum(arena.rings[entry + is_free], least))


# `benchmarks/engine_speed.py` measures the time that extrapolation with these settings saves.
KEPT_BYTES = 1 << 22
"""Memory for the clocks of states that later ones are compared with; all of a state takes some ten times as much."""
PATIENCE = 8
"""Looks without success after which they become half as frequent."""
LOOK_TURNS, LOOK_TURNS_PER_ENTRY = 130_000, 45
"""Rounds of repeats that take as long as what finding a period takes, and more for each node and token. Measured on
systolic arrays of 4 x 4 to 32 x 32 elements."""
FIRST_TURNS = 30_000
"""Turns, and repetitions of table sections, before the first look."""
FIRST_GAP, GAP_PER_ENTRY = 6_000, 8
"""Turns and repetitions between looks that make the cost of a look small, and more for each node and token."""
WORTHWHILE = 8
"""Repeats of fewer rounds are executed."""
WITHOUT_LOOKS = 1 << 20
"""Turns between two returns to Python when there is nothing to look for."""


def can_repeat(network: Network) -> bool:
    """Return whether a network consists of table processes."""
    return bool(network.groups) and all(isinstance(g, Processes) for g in network.groups) and bool(network.rows.size)


def is_long(network: Network) -> bool:
    """Return whether executing a network of tables takes longer than detecting a period."""
    if "rounds" not in network.once:
        network.once["rounds"] = rounds_of(network)
    entries = network.node_count + int(network.depth.sum())
    return bool(network.once["rounds"] > LOOK_TURNS + LOOK_TURNS_PER_ENTRY * entries)


def rounds_of(network: Network) -> float:
    """Rounds of repeats that the processes of a network of tables go through, about."""
    rows = network.rows.reshape(-1, Op.SIZE)
    repeats = np.flatnonzero(rows[:, Op.CODE] == Code.REPEAT)
    count = np.maximum(rows[repeats, Op.VALUE], 1)
    # A row's executions are the product of the counts around it: a sum of logarithms that begin and end.
    logarithms, around = np.zeros(len(rows) + 1), np.log(count)
    np.add.at(logarithms, repeats - rows[repeats, Op.MARK], around)
    np.subtract.at(logarithms, repeats, around)
    own = np.zeros(len(rows) + 1)
    own[repeats + 1] = count * np.exp(np.cumsum(logarithms)[repeats])
    total, ends = np.cumsum(own), np.flatnonzero(rows[:, Op.CODE] == Code.HALT)
    firsts = np.concatenate([group.first_row for group in network.groups if isinstance(group, Processes)])
    return float((total[ends[np.searchsorted(ends, firsts)]] - total[firsts]).sum())


def without_logs(network: Network) -> Network:
    """Return the network without the processes' logs of clocks, which extrapolation would leave incomplete."""
    groups = [replace(g, log_limit=np.zeros_like(g.log_limit)) for g in network.groups if isinstance(g, Processes)]
    return replace(network, groups=tuple(groups))


class Extrapolator:
    """Looks at a run now and then, and moves it on by whole periods.

    Args:
        until: a clock that no node is moved past.

    Attributes:
        skipped: stream operations that were not executed.
        is_waiting: whether to look at the state when compiled code returns.
    """

    def __init__(self, network: Network, arena: Arena, until: int | None = None) -> None:
        self._network, self._arena, self._until = network, arena, until
        arena.header[Header.TOKENS_FIRST] = 1
        self._turn = self.skipped = 0
        self.is_waiting = False

    @cached_property
    def _searches(self) -> list[_PeriodSearch]:
        parts = parts_of(self._network, self._arena)
        size = self._network.node_count + int(self._network.depth.sum())
        return [_PeriodSearch(part, 20_000 + 64 * size, self._until) for part in parts if part.longest >= WORTHWHILE]

    def first_budget(self) -> int:
        """Turns before the first look: networks that need no more are not looked at at all."""
        return FIRST_TURNS + 8 * self._network.node_count

    def look(self) -> int:
        """Called when compiled code has returned; gives it the next anchor and returns the next budget."""
        searches, arena = self._searches, self._arena
        if searches and self.is_waiting:
            search = searches[self._turn % len(searches)]
            self.skipped += search.look(arena)
            if search.is_over:
                searches.remove(search)
            self._turn += 1
        self.is_waiting = bool(searches)
        if searches:
            return searches[self._turn % len(searches)].wait(arena)
        arena.header[Header.ANCHOR] = NO_ANCHOR
        arena.header[Header.TOKENS_FIRST] = 0
        return WITHOUT_LOOKS


class _PeriodSearch:
    """The search for periods in one part of a network.

    Looks are taken when a certain node has begun another round of a certain repeat, the outermost that it comes to in
    good time, or as many rounds as make the cost of a look small beside that of getting there.
    """

    def __init__(self, part: Part, limit: int, until: int | None = None) -> None:
        self.part = part
        self._until = until
        self._gap = FIRST_GAP + GAP_PER_ENTRY * (len(part.nodes) + len(part.place))
        self._limit = limit
        self.is_over = False
        self._anchor: tuple[int, int] | None = None
        self._rounds = 1
        self._per_round = 0
        self._tried: set[tuple[int, int]] = set()
        self._known: dict[bytes, list[Snapshot]] = {}
        self._failures = 0
        self._last: Snapshot | None = None

    def wait(self, arena: Arena) -> int:
        """Set the anchor; returns the budget for getting there."""
        if self._anchor is None:
            self._anchor = self.part.anchor(arena, self._tried)
            self._rounds, self._per_round = 1, 0
            if self._anchor is None:
                self._tried.clear()
        arena.header[Header.ANCHOR] = NO_ANCHOR if self._anchor is None else sum(self._anchor)
        arena.header[Header.ROUNDS] = self._rounds
        return self._limit

    def look(self, arena: Arena) -> int:
        """Compare the state with earlier ones; returns the operations skipped."""
        header = arena.header
        if header[Header.ANCHOR]:
            self._has_not_come(arena)
            return 0
        per_round = (self._limit - int(header[Header.BUDGET])) // self._rounds + 1
        last, self._per_round = self._per_round or per_round, per_round
        # More nodes join in each round while a network fills: expect the next rounds to grow by the same ratio.
        per_round *= min(4, max(1, per_round // last))
        rounds = max(self._rounds, min(4 * self._rounds, self._gap // per_round, self._limit // (4 * per_round)))
        self._rounds = 1 << (rounds.bit_length() - 1)  # few periods of few rounds then end between samples
        state = snapshot(self.part, arena, self._last)
        self._last = self._last and state
        known = self._known.setdefault(state.key, [])
        _, since, times = find_period(known, state, self._until)
        known[:] = [*known[1 - COMPARED :], state]
        if (len(self._known) - 1) * state.clock.nbytes > KEPT_BYTES:
            del self._known[next(iter(self._known))]
        self._failures += 1
        self.is_over = self._until is not None and int(state.clock.max()) >= self._until
        if since is not None:
            self._failures, self._anchor = 0, None
            self._tried.clear()
            return jump(self.part, arena, state, since, times)
        if self._failures >= PATIENCE:
            self._failures, self._last = 0, None if self._last else state  # leave resting nodes out by turns
            self._gap, self._limit = 2 * self._gap, max(self._limit, 8 * self._gap)
        return 0

    def _has_not_come(self, arena: Arena) -> None:
        """The anchor's next round is far off: another node, or a repeat further inside, will do."""
        if self._rounds > 1:
            self._rounds = max(1, self._rounds // 8)
            return
        if self._anchor is not None:
            self._tried.add(self._anchor)
        self._anchor = None
        self.is_over = self.part.is_over(arena)
