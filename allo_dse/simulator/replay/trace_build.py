"""Building traces in Python, from the processes, loops and streams of other tools.

Trace.build(
    streams={"a": 2, "b": 16},
    processes={
        "load": [Loop(trip=1024, ops=[Put("a")])],
        "scale": [Loop(trip=1024, ii=1, depth=5, ops=[Get("a"), Put("b")])],
        "store": [Loop(trip=1024, depth=3, ops=[Get("b")])],
    },
)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from allo_dse.common.records import Frozen

from ..engine.timeline import END, START, Timeline
from ..network.network import BANK_LATENCY, BY_DEPTH, ArrayStreams, Labels, filled, node_label
from ..run_time.records import State
from .trace_data import GET, PUT, IntArray, LoopOp, StreamOperations, TraceData, TraceError, TraceLoop, check_trace


class Get(Frozen):
    """Every iteration takes a token from `stream`, `stage` cycles after it starts (by default T9's)."""

    stream: str
    stage: int | None = None


class Put(Frozen):
    """Every iteration puts a token to `stream`, `stage` cycles after it starts (by default T9's)."""

    stream: str
    stage: int | None = None


Event = tuple[Literal["get", "put"], str, int]
"""Operation, stream, iteration."""


class Loop(Frozen):
    """A pipelined loop of a process; a piece of straight code is a loop of one iteration.

    Args:
        trip: number of iterations.
        ii, depth: initiation interval and pipeline depth, in cycles.
        ops: the operations of every iteration, in program order. A loop with them is *regular*.
        events: instead of `ops`, everything that happened, in program order, as (kind, stream, iteration).
        source: the loop's place in the program, for messages.
    """

    trip: int
    ii: int = 1
    depth: int = 1
    ops: Sequence[Get | Put] = ()
    events: Sequence[Event] | None = None
    source: str = ""


@dataclass(frozen=True)
class Frames:
    """A process that is started again and again: its loops, once per frame.

    A frame begins when the one before has been done for `restart` cycles, all arrays that the process reads have been
    filled by their writers, and arrays that it writes have a bank that their readers are done with.

    Args:
        reads, writes: names of array channels.
    """

    loops: Sequence[Loop]
    count: int = 1
    reads: Sequence[str] = ()
    writes: Sequence[str] = ()
    restart: int = 1


Process = Sequence[Loop] | Frames


def build_trace(
    streams: Mapping[str, int],
    processes: Mapping[str, Process],
    *,
    arrays: Mapping[str, int],
    name: str,
    clock_ns: float | None,
    looks_at_occupancy: Collection[str],
) -> TraceData:
    """See `Trace.build`."""
    banks = {half: banks for name, banks in arrays.items() for half in (name, filled(name))}
    if twice := [name for name in banks if name in streams]:
        raise TraceError(f"{twice[0]!r} is a stream and belongs to an array; give them different names")
    depths = {**streams, **banks}
    numbers = {stream: i for i, stream in enumerate(depths)}
    names = tuple(processes)
    unknown = [process for process in looks_at_occupancy if process not in processes]
    if unknown:
        raise TraceError(f"looks_at_occupancy names {unknown[0]!r}, which is not a process")
    loops: list[TraceLoop] = []
    columns: list[IntArray] = []
    for p, process in enumerate(names):
        for loop, tail in _loops(processes[process], arrays, process):
            _check_loop(loop, process)
            made = TraceLoop(p, loop.ii, loop.depth, loop.trip, _ops(loop, numbers, process), loop.source, tail)
            if loop.events is not None:
                columns.append(_listed(loop.events, made, len(loops), numbers, process))
            loops.append(made)
    table = np.concatenate(columns, axis=1) if columns else np.zeros((5, 0), np.int64)
    data = TraceData(
        name=name,
        clock_ns=clock_ns,
        processes=names,
        streams=tuple(depths),
        stream_depth=np.array([_integer(d, f"depth of stream {s}") for s, d in depths.items()], np.int64),
        loops=tuple(loops),
        listed=StreamOperations(*table),
        latency=np.array([BY_DEPTH] * len(streams) + [BANK_LATENCY] * (2 * len(arrays))) if arrays else None,
        arrays=tuple(ArrayStreams(numbers[name], numbers[filled(name)]) for name in arrays),
        occupancy_dependent=frozenset(names.index(process) for process in looks_at_occupancy),
    )
    check_trace(data)
    return data


def _loops(process: Process, arrays: Mapping[str, int], name: str) -> Iterator[tuple[Loop, int | None]]:
    """The loops of a process one by one, and their tails where these are not T8's."""
    if not isinstance(process, Frames):
        yield from ((loop, None) for loop in process)
        return
    count, restart = (_integer(getattr(process, what), f"{what} of process {name}") for what in ("count", "restart"))
    if count < 0:
        raise TraceError(f"process {name} has {count} frames")
    unknown = [array for array in (*process.reads, *process.writes) if array not in arrays]
    if unknown:
        raise TraceError(f"process {name} uses array {unknown[0]!r}, which has no banks in `arrays`")
    begin: list[Get | Put] = [Get(filled(array)) for array in process.reads]
    begin += [Put(array, 0) for array in process.writes]
    end: list[Get | Put] = [Put(filled(array), 0) for array in process.writes]
    end += [Get(array) for array in process.reads]
    loops = [loop for loop in process.loops if loop.trip]
    for frame in range(count):
        yield Loop(1, ops=begin), 0
        yield from ((loop, None) for loop in loops[:-1])
        # T10: the frame is done, and its arrays are handed over, in the cycle of the last stage.
        for loop in loops[-1:]:
            yield loop, max(0, loop.depth - 1, *(op.stage or 0 for op in loop.ops))
        yield Loop(1, ops=end), restart if frame < count - 1 else 0


def _check_loop(loop: Loop, process: str) -> None:
    if not all(isinstance(op, Get | Put) for op in loop.ops):
        raise TraceError(f"ops of a loop of process {process} are Get(...) and Put(...), not {loop.ops!r}")
    if loop.events is not None and any(len(event) != 3 for event in loop.events):
        raise TraceError(f"events of a loop of process {process} are (kind, stream, iteration)")
    if loop.events is not None and loop.ops:
        raise TraceError(f"a loop of process {process} has both ops and events; give one of them")
    for what in ("trip", "ii", "depth"):
        _integer(getattr(loop, what), f"{what} of a loop of process {process}")


def _integer(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TraceError(f"{what} is {value!r}, it must be an integer")
    return int(value)


def _stream(stream: str, numbers: Mapping[str, int], process: str) -> int:
    if stream not in numbers:
        raise TraceError(f"process {process} uses stream {stream!r}, which has no depth in `streams`")
    return numbers[stream]


def _ops(loop: Loop, numbers: Mapping[str, int], process: str) -> tuple[LoopOp, ...] | None:
    if loop.events is not None:
        return None
    made = []
    for op in loop.ops:
        kind = GET if isinstance(op, Get) else PUT
        default = TraceLoop(0, loop.ii, loop.depth, loop.trip).stage(kind)
        stage = default if op.stage is None else _integer(op.stage, f"stage of {op}")
        made.append(LoopOp(kind, _stream(op.stream, numbers, process), stage))
    return tuple(made)


def _listed(
    events: Sequence[Event], loop: TraceLoop, number: int, numbers: Mapping[str, int], process: str
) -> IntArray:
    """The five columns of `StreamOperations`."""
    kinds = {"get": GET, "put": PUT}
    rows = []
    for kind, stream, iteration in events:
        if kind not in kinds:
            raise TraceError(f"process {process} has an event of kind {kind!r}; there are 'get' and 'put'")
        number_of = _stream(stream, numbers, process)
        at = _integer(iteration, f"iteration of an event of process {process}")
        rows.append((number, kinds[kind], number_of, at, loop.stage(kinds[kind])))
    return np.array(rows, np.int64).reshape(-1, 5).T


# A program is run once, and re-timed for other stream depths by replay.
#
# Unless a process polls its streams, its operations do not depend on when tokens arrive. Neither do the times at which
# they would be due without any waiting. A trace holds these times: the recorded clocks minus all waiting before them.
# Each node is one loop with an iteration per cycle.


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
        listed=StreamOperations(
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
    # One running sum over the rows of all nodes; its value before a node's first row belongs to earlier nodes.
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
    counts, result = Counter[str](), []
    for name in names:
        counts[name] += 1
        result.append(name if counts[name] == 1 else f"{name} ({counts[name]})")
    return tuple(result)
