"""Traces recorded from runs of the engine: a program is run once, and re-timed for other stream depths by replay.

What a process does does not depend on when its tokens come, unless it looks at how full its streams are; so neither do
the times at which its operations would be due if it never had to wait. These are the clocks that were recorded less
all the waiting before, and they are what a trace holds: each node is one loop with an iteration per cycle.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from ..codegen.run_time.record_fields import State
from ..engine.timeline import END, START, Timeline
from ..network.labels import Labels, node_label
from ..network.network import BY_DEPTH, IntArray
from .check import check_trace
from .data import GET, PUT, Events, TraceData, TraceError, TraceLoop


def recorded_trace(timeline: Timeline, labels: Labels, polling_nodes: Collection[int], name: str) -> TraceData:
    """Return the trace of a recorded run's stream operations.

    Args:
        polling_nodes: nodes that look at how full streams are; replay refuses their traces.

    Raises:
        TraceError: for a run that was not recorded to its end or did not finish, that waited for shared resources, or
            whose streams did not start empty.
    """
    network = timeline.network
    _require_replayable(timeline)
    node, due, event = _due(timeline)
    end = timeline.node_end - _waited(timeline)
    order = np.lexsort((due, node))
    events = timeline.events
    kind = np.where(events.state[event] == State.PUT, PUT, GET).astype(np.int64)
    places, place = _places(timeline, labels, event[order])
    data = TraceData(
        name=name,
        clock_ns=None,
        processes=_unique([node_label(labels, network, n) for n in range(network.node_count)]),
        streams=_unique([labels.stream(s) for s in range(network.stream_count)]),
        stream_depth=network.depth.copy(),
        loops=tuple(TraceLoop(n, 1, 0, int(cycles) + 1, tail=0) for n, cycles in enumerate(end.tolist())),
        listed=Events(
            node[order], kind[order], events.on[event][order].astype(np.int64), due[order], np.zeros_like(due)
        ),
        occupancy_dependent=frozenset(polling_nodes),
        start=0,
        latency=None if (network.fixed_latency == BY_DEPTH).all() else network.fixed_latency,
        arrays=network.arrays,
        places=places,
        place=place,
    )
    check_trace(data)
    return data


def _require_replayable(timeline: Timeline) -> None:
    if not timeline.events.is_complete:
        raise TraceError("the run had more events than were kept", hint="record=N keeps up to N events")
    if timeline.window.waits is not None:
        raise TraceError("only a part of the run was recorded", hint="record it without a window")
    if not timeline.ended.all():
        raise TraceError(
            "a run that deadlocked says nothing about what its tasks would have done next",
            hint="record it with deeper streams; a trace does not depend on the depths it was recorded with",
        )
    if (timeline.events.state == State.REQUEST).any():
        raise TraceError(
            "the run waited for shared resources; who is served first can change with stream depths",
            hint="run the network again with the depths you are interested in",
        )
    if timeline.network.initial.any():
        raise TraceError("streams of the run started with tokens in them; traces start with empty streams")


def _due(timeline: Timeline) -> tuple[IntArray, IntArray, IntArray]:
    """Per operation, node after node, its node, its clock if the node never waited, and its event."""
    rows = timeline.rows
    event_of_row = np.full(len(rows), -1)
    event_of_row[rows.of_event] = np.arange(len(rows.of_event))
    # One running sum over the rows of all nodes; what it had come to at a node's first row is of the nodes before.
    waited = np.cumsum(rows.completed - rows.requested)
    first = np.searchsorted(rows.node, np.arange(timeline.network.node_count + 1))
    before = waited - (rows.completed - rows.requested)
    own = before - before[np.minimum(first[rows.node], max(len(rows) - 1, 0))]
    operations = (rows.kind != START) & (rows.kind != END)
    return rows.node[operations], (rows.requested - own)[operations], event_of_row[operations]


def _waited(timeline: Timeline) -> IntArray:
    """Cycles that each node waited."""
    events = timeline.events
    result = np.zeros(timeline.network.node_count, np.int64)
    np.add.at(result, timeline.slot_node[events.slot], events.completed - events.requested)
    return result


def _places(timeline: Timeline, labels: Labels, event: IntArray) -> tuple[tuple[str, ...], IntArray]:
    """Return the source places of operations, and the index of each operation's place."""
    events, order = timeline.events, timeline.network.order
    keys = np.stack([order[events.slot[event]], events.op[event]], axis=1)
    pairs, which = np.unique(keys, axis=0, return_inverse=True)
    names: dict[str, int] = {}
    numbers = [names.setdefault(labels.operation(task, op), len(names)) for task, op in pairs.tolist()]
    return tuple(names), np.array(numbers, np.int64)[which.ravel()] if len(pairs) else np.zeros(0, np.int64)


def _unique(names: list[str]) -> tuple[str, ...]:
    """The names, numbered where several are equal."""
    counts: dict[str, int] = {}
    result = []
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        result.append(name if counts[name] == 1 else f"{name} ({counts[name]})")
    return tuple(result)
