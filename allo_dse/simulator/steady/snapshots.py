"""The state of a part of a running network, in a form in which states that lead to the same are equal.

Times that cannot matter any more are replaced by the least that would be like them: a token that could be read long
before its reader's clock, a slot that was free long before its writer's, a clock of a node that waits for a node
whose clock is later. Times are then taken relative to one clock.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from ..codegen.run_time.record_fields import Header, Node, Resource, Stream
from ..codegen.run_time.record_fields import State as Waiting
from ..network.arena import Arena
from ..network.network import IntArray
from .independent_parts import Part, token_entries
from .periods import State

NEVER = 1 << 60
ROUNDS = 64
"""Steps for which waiting is followed back; stopping earlier would be right as well."""


def snapshot(part: Part, arena: Arena) -> State:
    """The state of a part between two turns."""
    nodes, streams, resources = arena.nodes[part.nodes], arena.streams[part.streams], arena.resources[part.resources]
    finished = np.ones(len(nodes) + 1, bool)
    np.equal(nodes[:, Node.WAITS_IN], Waiting.FINISHED, out=finished[:-1])
    clock = _clocks(part, arena, nodes, streams, finished)
    reference = int(clock.min(where=~finished, initial=np.iinfo(np.int64).max))
    # Nothing depends on the clock of a finished node any more: all of them get one value, so that states can be equal.
    clock[finished] = reference
    times = [clock, _token_times(part, arena, streams, clock, finished, reference)]
    times.append(np.maximum(resources[:, Resource.FREE], reference))
    shape = [
        nodes[:, [Node.ACTIVE, Node.HANDLE, Node.SLOT, Node.GRANTED]].ravel(),
        streams[:, Stream.TAIL] - streams[:, Stream.HEAD],
        streams[:, Stream.OCCUPANCY],
        resources[:, Resource.LAST],
    ]
    image = np.concatenate([*times, *shape, finished])
    # States that differ by a shift of all times lead to the same, shifted: times count from the earliest clock (T15).
    image[: sum(map(len, times))] -= reference
    repeats = part.repeats[part.places(nodes)]
    return State(
        key=hashlib.blake2b(image.data, digest_size=16).digest(),
        reference=reference,
        clock=nodes[:, Node.CLOCK],
        stalls=nodes[:, [Node.STALL_GET, Node.STALL_PUT, Node.STALL_REQUEST]],
        counters=part.counters(arena),
        counts=np.where(repeats >= 0, part.counts[repeats], 0),
        puts=streams[:, Stream.TAIL],
        served=resources[:, [Resource.BUSY, Resource.REQUESTS]],
    )


def _clocks(part: Part, arena: Arena, nodes: IntArray, streams: IntArray, finished: NDArray[np.bool_]) -> IntArray:
    """Per node a time that its next operation is not before, and one entry more."""
    clock = np.zeros(len(nodes) + 1, np.int64)
    clock[:-1] = nodes[:, Node.CLOCK]
    _wait_for_servers(part, arena, clock)
    blocked = np.flatnonzero(streams[:, Stream.WAITER])
    waiting = part.local[arena.node_number(streams[blocked, Stream.WAITER])]
    empty = streams[blocked, Stream.HEAD] == streams[blocked, Stream.TAIL]
    other = np.where(empty, part.producer[blocked], part.consumer[blocked])
    # A blocked node goes on after what the other end of its stream does next, so its clock matters from there on only.
    # Each round follows the waiting back by one node; on the way no clock becomes later than what it stands for.
    for _ in range(ROUNDS):
        soonest = np.where(finished[other], -NEVER, clock[other])  # a node that is done wakes none
        if not (soonest > clock[waiting]).any():
            break
        clock[waiting] = np.maximum(soonest, clock[waiting])
    return clock


def _wait_for_servers(part: Part, arena: Arena, clock: IntArray) -> None:
    """Delay the clocks of pending requests to the time when their resource next decides.

    Only this time matters where requests are not served in the order of their times.
    """
    if not arena.resources[part.resources, Resource.POLICY].any():
        return
    pending = arena.node_number(arena.heap[: int(arena.header[Header.PENDING_COUNT])])
    asked = arena.nodes[pending, Node.WAITS_ON]
    pending, asked = pending[asked > 0], asked[asked > 0]
    server = arena.resources[arena.resource_number(asked)]
    chooses = server[:, Resource.POLICY] > 0
    # Positions of nodes of other parts are past the last.
    np.maximum.at(clock, part.local[pending[chooses]], server[chooses, Resource.FREE])
    clock[-1] = 0


def _token_times(
    part: Part, arena: Arena, streams: IntArray, clock: IntArray, finished: NDArray[np.bool_], reference: int
) -> IntArray:
    """Return when tokens in streams were put and when free slots were freed, as far as it matters."""
    entry, is_free = token_entries(part, arena, streams)
    writer, reader, per_entry = part.producer, part.consumer, part.per_entry
    # An operation happens at the larger of its user's clock and the token's time plus latency (T2, T3): a time below
    # `least` gives the same result as `least`.
    least = np.where(is_free, per_entry(clock[writer] - 1), per_entry(clock[reader] - part.latency))
    done = np.where(is_free, per_entry(finished[writer]), per_entry(finished[reader]))
    return np.where(done, reference, np.maximum(arena.rings[entry + is_free], least))
