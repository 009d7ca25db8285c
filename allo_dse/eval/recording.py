"""A design's whole run, and any part of it in detail."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.records import Frozen
from allo_dse.compiler.program.tensors import BoolArray
from allo_dse.simulator.engine.engine import table_engine
from allo_dse.simulator.engine.explanation import Explanation
from allo_dse.simulator.engine.recording import Samples
from allo_dse.simulator.engine.run_result import RunResult
from allo_dse.simulator.engine.timeline import Activity, Timeline
from allo_dse.simulator.engine.whatif import Faster, twice_as_fast
from allo_dse.simulator.network.network import Labels, Network, node_label, stream_ends

MAX_EVENTS = 300_000
"""Most operations kept of a part; a part with more ends earlier."""
SAMPLES = 400
"""Points in time at which progress is sampled."""


class Recording(Frozen):
    """The events of a run: totals and samples of the whole, and every operation of any chosen part.

    Attributes:
        whole: the whole run, without single operations.
    """

    network: Network
    labels: Labels
    whole: RunResult
    max_events: int = MAX_EVENTS

    @property
    def cycles(self) -> int:
        """The network's clock at the end."""
        return self.whole.cycles

    @property
    def samples(self) -> Samples:
        """Progress of all processes, sampled during the run."""
        assert self.whole.samples is not None
        return self.whole.samples

    @property
    def executed(self) -> int:
        """Stream operations of the whole run that had to be executed, since they do not repeat others."""
        return self.whole.operations - self.whole.skipped

    @property
    def length(self) -> int:
        """Longest part in cycles whose operations can all be kept, at the average rate; all of a short run."""
        operations = self.whole.operations + int(self.whole.resource_requests.sum())
        if operations <= self.max_events:
            return self.cycles
        return max(1, int(self.cycles * (0.9 * self.max_events / operations)))

    def part(self, start: int = 0, end: int | None = None) -> RunResult:
        """Return every operation between two cycles, by default of the whole run.

        Repeating parts before it are not executed. The timeline says where the part ends if there were too many
        operations.
        """
        end = self.cycles if end is None else end
        repeats = self.whole.skipped > 0  # look for repetition only if there is any
        result = table_engine().run(self.network, record=self.max_events, window=(start, end), extrapolate=repeats)
        result.labels = self.labels
        return result


def whole_run(network: Network, labels: Labels) -> RunResult:
    """Run a network to its end, and sample its progress.

    Raises:
        DeadlockError: if it does not finish.
    """
    whole = table_engine().run(network, extrapolate=True, samples=SAMPLES)
    whole.require_finished(labels)
    return whole


PARTS = (Activity.WORK, Activity.WAIT_GET, Activity.WAIT_PUT, Activity.WAIT_RESOURCE)
"""Activities that have shares; service by a resource counts as work."""

_LONGER = 4
_SECONDS = 1.0
"""Time limit of each run that finds out what would help."""
_FAR = 4_000_000
"""Operations that it takes too long to execute on the way to the middle of a run."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Span = tuple[int, int]


class Total(Frozen):
    """Activity of all processing elements of one kind over a whole run.

    Attributes:
        name: of the kind; count: how many there are.
        shares: of the run's cycles, mean over the elements, per `PARTS`; what is missing to 1 is idle.
    """

    name: str
    count: int
    shares: tuple[float, ...]


class Held(Frozen):
    """The buffers of a name over a whole run.

    Attributes:
        count: how many there are. depth: tokens that each holds. most: the most that one of them has held at a time.
        tokens: that went through all of them.
    """

    name: str
    count: int
    depth: int
    most: int
    tokens: int


class Part(Frozen):
    """The recording of a part of a run, or of all of it.

    Attributes:
        asked: the part that was asked for, in ticks; the timeline ends earlier if it had too many operations.
        is_whole: whether this is all of the run.
    """

    timeline: Timeline
    explanation: Explanation
    asked: Span
    is_whole: bool


class Recorded(Frozen, dict=True):
    """A simulated run of a design, recorded over time.

    Attributes:
        note: what the run is, if it is not all there is; costs: what loops take, within a sentence.
        kinds: of each processing element.
        buffers: of each stream the name of the buffers that it is one of; empty for none.
        nodes: of each processing element the node of the design's graph, or -1.
        arrays: of each stream the program's array of streams that it belongs to; empty for none.
        ticks_per_cycle: units of the recording's clocks in a clock cycle.
        usual: ticks of a part that shows something, if it is not to be as long as can be kept.
    """

    recording: Recording
    note: str
    costs: str
    kinds: tuple[str, ...]
    buffers: tuple[str, ...]
    nodes: Ints
    arrays: tuple[str, ...]
    ticks_per_cycle: int = 1
    usual: int | None = None

    @property
    def cycles(self) -> float:
        """Clock cycles of the whole run."""
        return self.recording.cycles / self.ticks_per_cycle

    @property
    def length(self) -> int:
        """Ticks of a part that is shown when none is chosen."""
        most = self.recording.length
        return most if self.usual is None else min(most, self.usual)

    @property
    def opening(self) -> Span:
        """The part that is shown first: the middle, or the beginning of a run that it would take long to get into."""
        return self.place("first" if self.recording.executed > _FAR else "middle")

    def place(self, name: str) -> Span:
        """The part to look at in the "middle", at the "first" or the "last", in ticks; of a short run all."""
        whole, length = self.recording.cycles, self.length
        if length >= whole:
            return 0, whole
        if name == "last":
            return self._last, whole
        if name == "first":
            return 0, whole if self.usual is None else length
        middle = (whole - length) // 2
        return middle, middle + length

    @cached_property
    def _last(self) -> int:
        """The start of the last part. It may be longer than usual, as less can happen at the end of a run than on
        average."""
        whole, length = self.recording.cycles, self.length
        while self.usual is None and length < whole:
            longer = min(whole, _LONGER * length)
            if self.recording.part(whole - longer, whole).timeline.end < whole:
                break
            length = longer
        return whole - length

    def span(self, start: float, end: float) -> Span:
        """A part of the run, in ticks, from cycles in any order, as far as it is within."""
        low, high = sorted((start, end))
        whole, per = self.recording.cycles, self.ticks_per_cycle
        first = min(max(0, round(low * per)), max(0, whole - 1))
        return first, max(first + 1, min(whole, round(high * per)))

    def shown(self, part: Part) -> Span:
        """From and to which whole cycle a part goes."""
        per = self.ticks_per_cycle
        return part.timeline.start // per, -(-part.timeline.end // per)

    def part(self, span: Span) -> Part:
        """A part in detail."""
        result = self.recording.part(*span)
        line = result.timeline
        return Part(line, result.explain(), span, (line.start, line.end) == (0, self.recording.cycles))

    @cached_property
    def shares(self) -> Floats:
        """(processing elements, parts): of the run's cycles."""
        whole = self.recording.whole
        stalls = [whole.stall_get, whole.stall_put, whole.stall_request]
        parts = [whole.node_end - sum(stalls), *stalls]
        return np.stack([np.asarray(part, float) for part in parts], axis=1) / max(1, whole.cycles)

    @cached_property
    def totals(self) -> tuple[Total, ...]:
        """Means by kind, in the order in which kinds occur."""
        shares = self.shares
        return tuple(
            Total(kind, int(own.sum()), tuple(shares[own].mean(axis=0).tolist())) for kind, own in self._members()
        )

    @cached_property
    def ends(self) -> tuple[Ints, Ints]:
        """The producer and consumer of each stream as nodes of the design's graph, or -1."""
        network = self.recording.network
        found = stream_ends(network, {})
        return self._node_of(found.producer), self._node_of(found.consumer)

    def _node_of(self, tasks: Ints) -> Ints:
        known = self.nodes[self.recording.network.task_node[tasks]]
        return np.where(tasks < 0, -1, known)

    def over_time(self, edges: Floats) -> Floats:
        """(kinds, intervals, parts): the mean share of each interval; edges in ticks."""
        shares = self.recording.samples.shares(edges)
        return np.stack([shares[own].mean(axis=0) for _, own in self._members()])

    def _members(self) -> list[tuple[str, BoolArray]]:
        of = np.array(self.kinds)
        return [(kind, of == kind) for kind in dict.fromkeys(self.kinds)]

    @property
    def busiest(self) -> tuple[str, float]:
        """The element that works most over the whole run, and for which share of it."""
        work = self.shares[:, PARTS.index(Activity.WORK)]
        node = int(np.argmax(work))
        return node_label(self.recording.labels, self.recording.network, node), float(work[node])

    @cached_property
    def helps(self) -> list[Faster]:
        """The run's predicted length if one kind of elements worked twice as fast, the most helpful first.

        Raises:
            SimulationError: if that takes too long to find out.
        """
        return twice_as_fast(self.recording.network, self.kinds, seconds=_SECONDS)

    @cached_property
    def held(self) -> tuple[Held, ...]:
        """Buffers by name, those that are fullest first."""
        whole, network = self.recording.whole, self.recording.network
        groups: dict[tuple[str, int], list[int]] = {}
        for stream, (name, depth) in enumerate(zip(self.buffers, network.depth.tolist(), strict=True)):
            if name:
                groups.setdefault((name, depth), []).append(stream)
        found = [
            Held(name, len(own), depth, int(whole.occupancy[own].max()), int(whole.puts[own].sum()))
            for (name, depth), own in groups.items()
        ]
        return tuple(sorted(found, key=lambda held: (-held.most / held.depth, -held.tokens)))
