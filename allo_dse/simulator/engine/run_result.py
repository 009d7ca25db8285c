"""Results of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np

from allo_dse.common.errors import IndexRangeError, SimulationError
from allo_dse.common.records import Frozen

from ..codegen.signature import Signature
from ..deadlock import Blocked, Deadlock, DeadlockError, Growth, Increase, NoDepthHelps, OutOfWork, Search, deadlock_of
from ..network.memory_image import Arena
from ..network.network import UNKNOWN, IntArray, Labels, Network, node_label, stream_ends
from ..run_time.records import STATE_BITS, Header, Node, Resource, Slot, State, Stream
from .explanation import Explanation, explain
from .recording import Events, Samples, Window, operation_numbers
from .timeline import Timeline


@runtime_checkable
class SimResult(Protocol):
    """Times and counts of one simulation, in cycles; per processing element (process) and per stream."""

    @property
    def cycles(self) -> int:
        """The makespan."""

    @property
    def finished(self) -> bool:
        """True if everything has run to its end; otherwise `deadlock` says why not."""

    @property
    def deadlock(self) -> Deadlock | None:
        """Blocked tasks, and the cycle of tasks that wait for each other; None for a finished run."""

    @property
    def stall_get(self) -> IntArray:
        """Per processing element the cycles it waited for tokens."""

    @property
    def stall_put(self) -> IntArray:
        """Per processing element the cycles it waited for room."""

    @property
    def occupancy(self) -> IntArray:
        """Per stream the most tokens it held at one time."""

    def require_finished(self) -> None:
        """Raises DeadlockError, naming who waits for whom and what clears it, if the simulation did not finish."""

    def summary(self) -> dict[str, object]:
        """The totals as plain data."""

    def by_stream(self) -> list[dict[str, object]]:
        """One row per stream: name, depth, tokens and occupancy, and what else is known."""


MOST_COPIED = 1 << 14
"""Words of FIFOs and tasks that are copied in less time than new memory is filled in."""
MAX_DEPTH = 1 << 20
SEARCH_WORK = 20_000_000
"""Turns of the scheduler, and tasks and streams set up for runs, that a search may cost: about two seconds' work."""

OUT_OF_WORK = "no depth that helps was found within the work allowed"


Rerun = Callable[[Network, int], "RunResult"]
"""Runs a network for at most the given turns of the scheduler."""


def _groups(network: Network, arrays: Sequence[object] | None) -> IntArray:
    """Per stream a number; streams of the same number share a depth."""
    if arrays is None:
        return np.arange(network.stream_count)
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in arrays], np.int64)


class _Runs:
    """Runs at depths given per group: the full streams of a deadlock's cycle become four times as deep."""

    is_least = False

    def __init__(self, result: RunResult, rerun: Rerun, group: IntArray, max_depth: int, work: int) -> None:
        self._network, self._first, self._rerun = result.network, result, rerun
        self.group = group
        count = int(group.max(initial=-1)) + 1
        start = np.full(count, np.iinfo(np.int64).max)
        np.minimum.at(start, group, self._network.depth)
        self.start = tuple(start.tolist())
        self.weight = tuple(np.bincount(group, minlength=count).tolist())
        self._max_depth, self._work = max_depth, work

    def depths(self, of_groups: Sequence[int]) -> IntArray:
        """Per stream its depth; streams of a group that are deeper stay so."""
        return np.maximum(self._network.depth, np.array(of_groups, np.int64)[self.group])

    def __call__(self, depths: tuple[int, ...]) -> Growth:
        result = self._first if depths == self.start else self._run(depths)
        if result.finished:
            return []
        assert result.deadlock is not None
        full = {int(self.group[b.stream]) for b in result.deadlock.cycle if b.direction == "put"}
        if not full:
            raise NoDepthHelps("no depth helps: the tasks wait for tokens that no task will put")
        if max(4 * depths[g] for g in full) > self._max_depth:
            raise NoDepthHelps(f"no depth up to {self._max_depth:,} helps")
        return [(g, 3 * depths[g]) for g in sorted(full)]

    def _run(self, depths: Sequence[int]) -> RunResult:
        network = self._network
        self._work -= network.task_count + network.stream_count
        if self._work <= 0:
            raise OutOfWork
        try:
            result = self._rerun(network.with_depths(self.depths(depths)), self._work)
        except SimulationError as error:
            raise OutOfWork from error
        self._work -= result.turns
        return result


class IndexFault(Frozen):
    """An index that was out of range when a task computed it.

    Attributes:
        check: its number in the task's class.
    """

    task: int
    check: int
    index: int

    def describe(self, labels: Labels) -> str:
        """Describe the fault in a sentence."""
        return f"{labels.index_check(self.task, self.check)} is {self.index} in {labels.task(self.task)}"


class RunResult:
    """Times and counts of one run; times are cycles of the local clocks, all of which start at 0."""

    def __init__(
        self,
        network: Network,
        arena: Arena,
        signatures: Mapping[str, Signature],
        rerun: Rerun,
        recorded: tuple[Events, Window] | None = None,
        skipped: int = 0,
        samples: Samples | None = None,
    ) -> None:
        self.network = network
        self._arena = arena
        self._signatures = signatures
        self._rerun = rerun
        self._recorded = recorded
        self.skipped = skipped
        """Stream operations that were not executed one by one, because they repeat what was."""
        self.samples = samples
        """How far each node had come now and then, if the run was to note that."""
        self.labels: Labels = Labels()
        """Names for messages and drawings, where a call does not give others."""
        self.turns = 0
        """Turns of the scheduler: the work that the run was."""
        self.name = "run"
        """Of the program, for its trace."""

    def restarted(self, network: Network) -> Arena:
        """The memory of this run, for one of the same network at other depths; this result is lost."""
        return self._arena.restart(network)

    def leave_memory(self) -> None:
        """Leave the memory of this run to the next of its network, unless the copy that this result needs is large."""
        arena = self._arena
        if arena.rings.size + arena.slots.size <= MOST_COPIED:
            self._arena = copy(arena)  # with the addresses of what it is a copy of
            vars(self._arena).update(arena.copied())
            vars(self.network)["memory"] = arena

    @property
    def cycles(self) -> int:
        """The makespan: the largest clock of all nodes."""
        clocks = self._arena.nodes[:, Node.CLOCK]
        return int(clocks.max()) if clocks.size else 0

    @property
    def finished(self) -> bool:
        """Return whether every node has run all its tasks; `deadlock` explains why not."""
        return int(self._arena.header[Header.FINISHED]) == self.network.node_count

    @property
    def fault(self) -> IndexFault | None:
        """The first index that was out of range; results computed after it are meaningless."""
        header = self._arena.header
        if not header[Header.FAULT]:
            return None
        slot = int(self._arena.slot_number(header[Header.FAULT_SLOT : Header.FAULT_SLOT + 1])[0])
        task = int(self.network.order[slot])
        return IndexFault(task, int(header[Header.FAULT]) - 1, int(header[Header.FAULT_INDEX]))

    @cached_property
    def deadlock(self) -> Deadlock | None:
        """Return the blocked tasks, and the cycle in which they wait for each other; None for a finished run."""
        return None if self.finished else deadlock_of(blocked_tasks(self.network, self._arena, self._signatures))

    def require_finished(self, labels: Labels | None = None, *, search_work: int = SEARCH_WORK) -> None:
        """Check that the run has finished.

        Args:
            labels: names for the message.
            search_work: how much to do in search of the depths that would clear a deadlock, in turns; 0: nothing.

        Raises:
            IndexRangeError: naming an index that was out of range.
            DeadlockError: naming who waits for whom, and the smallest increase of depths that clears it.
        """
        names = labels or self.labels
        if self.fault is not None:
            raise IndexRangeError(self.fault.describe(names), hint="hardware would go on with some other element")
        if self.deadlock is None:
            return
        arrays = [names.array(stream) for stream in range(self.network.stream_count)]
        increase = self.smallest_increase(arrays=arrays, work=search_work) if search_work else None
        raise DeadlockError(self.deadlock, names, increase)

    def smallest_increase(
        self, *, arrays: Sequence[object] | None = None, max_depth: int = MAX_DEPTH, work: int = SEARCH_WORK
    ) -> Increase:
        """Find the smallest increase of depths that clears a deadlock.

        Arrays that tasks write hold what they held before, afterwards.

        Args:
            arrays: per stream a key; streams of equal keys share one depth, as the streams of an array do.
            max_depth: depths beyond this are not tried.
            work: see `SEARCH_WORK`.
        """
        network = self.network
        keep = [tensor.copy() for tensor in network.tensors]
        runs = _Runs(self, self._rerun, _groups(network, arrays), max_depth, work)
        try:
            found = Search(runs, runs.start, runs.weight).run(max_runs=0)
        except NoDepthHelps as error:
            return Increase((), network.depth, reason=str(error))
        except OutOfWork:
            return Increase((), network.depth, is_minimal=False, reason=OUT_OF_WORK)
        finally:
            for tensor, values in zip(network.tensors, keep, strict=True):
                tensor[...] = values
        changed = [g for g, (new, old) in enumerate(zip(found.depths, runs.start, strict=True)) if new > old]
        changes = tuple(sorted((int(np.argmax(runs.group == g)), runs.start[g], found.depths[g]) for g in changed))
        depths = runs.depths(found.depths)
        added = int((depths - network.depth).sum())
        return Increase(changes, depths, added, found.at_least, found.runs, found.is_minimal)

    @property
    def node_end(self) -> IntArray:
        """Per node the clock at its end (or where it is stuck)."""
        return self._arena.nodes[:, Node.CLOCK]

    @property
    def stall_get(self) -> IntArray:
        """Per node the cycles it waited for tokens, read latency included."""
        return self._arena.nodes[:, Node.STALL_GET]

    @property
    def stall_put(self) -> IntArray:
        """Per node the cycles it waited for room."""
        return self._arena.nodes[:, Node.STALL_PUT]

    @property
    def stall_request(self) -> IntArray:
        """Per node the cycles it waited for shared resources, service not included."""
        return self._arena.nodes[:, Node.STALL_REQUEST]

    @cached_property
    def task_start(self) -> IntArray:
        """Per task the clock at which it started (0 if it did not)."""
        return self._by_task(Slot.START)

    @cached_property
    def task_end(self) -> IntArray:
        """Per task the clock at which it ended (0 if it did not)."""
        return self._by_task(Slot.END)

    def _by_task(self, word: Slot) -> IntArray:
        result = np.empty(self.network.task_count, np.int64)
        result[self.network.order] = self._arena.slots[:, word]
        return result

    @property
    def puts(self) -> IntArray:
        """Per stream the tokens put, without those it started with."""
        return self._arena.streams[:, Stream.TAIL] - self.network.initial

    @property
    def gets(self) -> IntArray:
        """Per stream the tokens taken out."""
        return self._arena.streams[:, Stream.HEAD]

    @property
    def left(self) -> dict[str, int]:
        """The tokens that are still in streams, by the name of the array of streams."""
        found: dict[str, int] = {}
        tokens = self._arena.streams[:, Stream.TAIL] - self._arena.streams[:, Stream.HEAD]
        for stream in np.flatnonzero(tokens).tolist():
            name = self.labels.array(stream)
            found[name] = found.get(name, 0) + int(tokens[stream])
        return found

    @property
    def occupancy(self) -> IntArray:
        """Per stream the most tokens it held at one time: the smallest depth that gives the same times."""
        streams = self._arena.streams
        left = streams[:, Stream.TAIL] - streams[:, Stream.HEAD]
        found: IntArray = np.maximum(streams[:, Stream.OCCUPANCY], left)
        return found

    @property
    def operations(self) -> int:
        """Stream operations executed."""
        return int(self.puts.sum() + self.gets.sum())

    @property
    def resource_busy(self) -> IntArray:
        """Per resource the cycles it served."""
        return self._arena.resources[:, Resource.BUSY]

    @property
    def resource_requests(self) -> IntArray:
        """Per resource the requests it served."""
        return self._arena.resources[:, Resource.REQUESTS]

    @property
    def log(self) -> IntArray:
        """Clocks noted by marked operations of table processes, process after process."""
        return self._arena.log

    @cached_property
    def log_first(self) -> IntArray:
        """Per table process the position of its first entry in `log`."""
        parts = self._arena.log_first
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def process_log(self, process: int) -> IntArray:
        """The clocks that the table process at position `process` (counting table processes only) noted."""
        first = int(self.log_first[process])
        return self._arena.log[first : first + int(self._arena.log_counts()[process])]

    def by_node(self, labels: Labels | None = None) -> list[dict[str, object]]:
        """One row per processing element: name, end and stalls."""
        names = [node_label(labels or self.labels, self.network, node) for node in range(self.network.node_count)]
        columns = zip(
            names, *(a.tolist() for a in (self.node_end, self.stall_get, self.stall_put, self.stall_request)),
            strict=True,
        )  # fmt: skip
        keys = ("node", "end", "stall_get", "stall_put", "stall_request")
        return [dict(zip(keys, row, strict=True)) for row in columns]

    def by_stream(self) -> list[dict[str, object]]:
        """One row per stream: name, depth, tokens moved, and the most it held at one time."""
        names = [self.labels.stream(stream) for stream in range(self.network.stream_count)]
        columns = zip(names, *(a.tolist() for a in (self.network.depth, self.puts, self.occupancy)), strict=True)
        return [dict(zip(("stream", "depth", "tokens", "occupancy"), row, strict=True)) for row in columns]

    @cached_property
    def polling_nodes(self) -> frozenset[int]:
        """The nodes with a task that polls its streams: their behaviour depends on depths."""
        polls = np.array([False, *(s.polls for s in self._signatures.values())])
        tasks = np.flatnonzero(polls[self.network.body_numbers(self._signatures)])
        return frozenset(self.network.task_node[tasks].tolist())

    @cached_property
    def timeline(self) -> Timeline:
        """Return the activity of every processing element and FIFO over time.

        Raises:
            SimulationError: if the run was not recorded.
        """
        if self._recorded is None:
            raise SimulationError("this run was not recorded, so it has no timeline", hint="run it with record=True")
        slots, current, nodes = self._arena.slots, self._arena.current_slot(), self._arena.nodes
        ended = np.zeros(self.network.task_count, bool)
        started = ended.copy()
        for node, (first, at) in enumerate(zip(self.network.first[:-1].tolist(), current.tolist(), strict=True)):
            ended[first:at] = True
            started[first : at + int(nodes[node, Node.ACTIVE] != 0)] = True
        return Timeline(
            self.network, *self._recorded, started, ended, slots[:, Slot.START], slots[:, Slot.END], self.node_end
        )

    def explain(self, labels: Labels | None = None) -> Explanation:
        """The critical path and the bottleneck of a recorded run; `print` it, or take `sentence`.

        Raises:
            SimulationError: if the run was not recorded, or not all of it.
        """
        return explain(self.timeline, labels or self.labels)

    def summary(self) -> dict[str, object]:
        """The totals as plain data."""
        return {
            "cycles": self.cycles,
            "finished": self.finished,
            "operations": self.operations,
            "stall_get": int(self.stall_get.sum()),
            "stall_put": int(self.stall_put.sum()),
            "stall_request": int(self.stall_request.sum()),
        }


def blocked_tasks(network: Network, arena: Arena, signatures: Mapping[str, Signature]) -> list[Blocked]:
    """The tasks that wait in a run that stopped with nodes left."""
    ends = stream_ends(network, signatures)
    states = arena.nodes[:, Node.WAITS_IN] % (1 << STATE_BITS)
    nodes = np.flatnonzero(np.isin(states, [State.GET, State.PUT]))
    records = arena.nodes[nodes]
    tasks = network.order[arena.current_slot()[nodes]]
    streams = arena.stream_number(records[:, Node.WAITS_ON])
    ops = operation_numbers(network, tasks, records[:, Node.WAITS_IN])
    result = []
    for node, task, stream, op, clock in zip(
        nodes.tolist(), tasks.tolist(), streams.tolist(), ops.tolist(), records[:, Node.CLOCK].tolist(), strict=True
    ):
        getting = states[node] == State.GET
        peer = int((ends.producer if getting else ends.consumer)[stream])
        held = int(arena.streams[stream, Stream.TAIL] - arena.streams[stream, Stream.HEAD])
        result.append(
            Blocked(
                task=task,
                node=node,
                direction="get" if getting else "put",
                stream=stream,
                op=op,
                clock=clock,
                held=held,
                peer=None if peer == UNKNOWN else peer,
                peer_node=None if peer == UNKNOWN else int(network.task_node[peer]),
            )
        )
    return result
