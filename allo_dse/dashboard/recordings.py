"""Recorded runs of designs, for timelines: the whole in numbers, any part of it in detail."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from allo_dse.backends.npu.place.placed_design import PlacedDesign
from allo_dse.drawing.summary import Flow, Summary
from allo_dse.eval.recording import Recording
from allo_dse.simulator.engine.explanation import Explanation
from allo_dse.simulator.engine.timeline import Activity, Timeline
from allo_dse.simulator.engine.whatif import Faster, twice_as_fast
from allo_dse.simulator.network.network import Labels, node_label
from allo_dse.simulator.network.stream_ends import stream_ends

if TYPE_CHECKING:
    from allo_dse.backends.fpga.recording import FpgaRecording

PARTS = (Activity.WORK, Activity.WAIT_GET, Activity.WAIT_PUT, Activity.WAIT_RESOURCE)
"""What shares are of; being served by a resource counts as work."""

_LONGER = 4
_SECONDS = 1.0
"""Time limit of each run that finds out what would help."""
_FAR = 4_000_000
"""Operations that it takes too long to execute on the way to the middle of a run."""
_NUMBERS = re.compile(r"(_\d+)+$")
_PLACES = re.compile(r" (on|to|from) .*$")

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Span = tuple[int, int]


class Total(Struct, frozen=True):
    """Activity of all processing elements of one kind over a whole run.

    Attributes:
        name: of the kind; count: how many there are.
        shares: of the run's cycles, mean over the elements, per `PARTS`; what is missing to 1 is idle.
    """

    name: str
    count: int
    shares: tuple[float, ...]


class Held(Struct, frozen=True):
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


class Part(Struct, frozen=True):
    """The recording of a part of a run, or of all of it.

    Attributes:
        asked: the part that was asked for, in ticks; the timeline ends earlier if it had too many operations.
        is_whole: whether this is all of the run.
    """

    timeline: Timeline
    explanation: Explanation
    asked: Span
    is_whole: bool


class Recorded(Struct, frozen=True, dict=True):
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

    def _members(self) -> list[tuple[str, NDArray[np.bool_]]]:
        of = np.array(self.kinds)
        return [(kind, of == kind) for kind in dict.fromkeys(self.kinds)]

    @cached_property
    def busiest(self) -> tuple[str, float]:
        """The element that works most over the whole run, and for which share of it."""
        whole = self.recording.whole
        work = whole.node_end - whole.stall_get - whole.stall_put - whole.stall_request
        node = int(np.argmax(work))
        name = node_label(self.recording.labels, self.recording.network, node)
        return name, float(work[node] / max(1, whole.cycles))

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


def record(design: Any, metrics: Mapping[str, Any]) -> Recorded:
    """Run a design so that any part of it can be looked at.

    Args:
        metrics: what was measured of it: an FPGA design is run at its stream depths, and at the loops' intervals that
            the HLS tool has reported, if it has.

    Raises:
        AlloDseError: if it cannot be simulated.
    """
    return _npu(design) if design.device.family == "npu" else _fpga(design, metrics)


def _npu(design: Any) -> Recorded:
    from allo_dse.backends.npu.recording import record_npu

    found = record_npu(design)
    whole = found.periods == found.of
    note = f"{'all' if whole else f'{found.periods:,} of the'} {found.of:,} period{'s' if found.of > 1 else ''}"
    without = "without the host's time" if whole else "from one intervention of the host to the next"
    note += f" of the schedule, {without}"
    kinds = tuple(_npu_kind(found.labels.task(task)) for task in range(found.network.task_count))
    usual = -(-found.cycles // max(1, found.periods))
    buffers = tuple(_npu_buffer(found.labels, stream) for stream in range(found.network.stream_count))
    network = found.network
    nodes = np.arange(network.node_count) - (network.node_count - found.cores)  # cores are the last processes
    names = [found.labels.stream(stream).partition(":") for stream in range(network.stream_count)]
    known = {array.name for array in design.vmg.program.streams}
    arrays = tuple(name if colon and name in known and n % 2 == 0 else "" for n, (name, colon, _) in enumerate(names))
    return Recorded(found, note, "", kinds, buffers, np.maximum(nodes, -1), arrays, found.ticks_per_cycle, usual)


def _npu_buffer(labels: Labels, stream: int) -> str:
    """Buffers by tensor and place; the other stream of each has its free slots."""
    return _PLACES.sub("", labels.stream(stream)) if stream % 2 == 0 else ""


def _npu_kind(process: str) -> str:
    """Processes are called "core …", "memory tile: …" and "shim: …"."""
    return "cores" if process.startswith("core ") else f"{process.partition(':')[0]} channels"


def _fpga(design: Any, metrics: Mapping[str, Any]) -> Recorded:
    from allo_dse.backends.fpga.hls.retime import ReportTimes
    from allo_dse.backends.fpga.recording import record_fpga

    times = metrics.get("report_times")
    report = None if times is None else ReportTimes.from_dict(times)
    found = record_fpga(design, metrics.get("stream_depths"), report=report)
    kinds = tuple(_fpga_kind(node_label(found.labels, found.network, node)) for node in range(found.network.node_count))
    streams = range(found.network.stream_count)
    buffers = tuple(_NUMBERS.sub("", found.labels.array(stream)) for stream in streams)
    own = [found.labels.array(stream) if stream < found.fifos else "" for stream in streams]
    nodes = _fpga_nodes(found, design.vmg.node_of_task)
    return Recorded(found, "", _costs(metrics, found.cycles), kinds, buffers, nodes, tuple(own))


def _fpga_nodes(found: FpgaRecording, node_of_task: Ints) -> Ints:
    """Map each processing element to the design graph's node of its tasks; -1 for copies of tensors."""
    nodes = np.full(found.network.node_count, -1)
    number = found.task_of
    nodes[found.network.task_node[number >= 0]] = node_of_task[number[number >= 0]]
    return nodes


def _costs(metrics: Mapping[str, Any], cycles: int) -> str:
    """Whose intervals and depths of loops the picture has, and the run's cycles if they were measured otherwise."""
    known = metrics.get("report_times") is not None
    tool = " ".join(("the HLS tool", *filter(None, [metrics.get("hls_tool")])))
    costs = f"at the intervals and depths that {tool} reports" if known else "at the cost model's intervals"
    measured, by = metrics.get("latency_cycles"), metrics.get("cycles_from") or metrics.get("evaluator")
    return costs if measured in (None, cycles) else f"{costs} ({by}: {measured:,} cycles)"


def _fpga_kind(name: str) -> str:
    """Elements by kernel: "pe_0_1" and "pe_0_2 and 3 more" are both "pe"; copies are of their own kind."""
    head = name.partition(" and ")[0]
    while head.rpartition("_")[2].isdigit() and head.rpartition("_")[0]:
        head = head.rpartition("_")[0]
    return head


Facts = list[tuple[str, str]]
"""Names and values, to be shown as they are."""

_PARTS = ("works", "waits for a token", "waits for room", "waits for DRAM")
"""As `recordings.PARTS`."""


def box_facts(summary: Summary, run: Recorded | None, placed: PlacedDesign | None) -> list[Facts]:
    """Return each box's tasks, memory and activity. For a box of several nodes: mean activity and largest memory."""
    found: list[Facts] = []
    for number, box in enumerate(summary.boxes):
        nodes = np.flatnonzero(summary.box_of_node == number)
        found.append([("runs", box.tip), *box.facts])
        if placed is not None:
            found[-1].append(("memory", _memory(placed, nodes)))
        if run is not None:
            shares = run.shares[np.isin(run.nodes, nodes)]
            if len(shares):
                means = shares.mean(axis=0)
                found[-1] += [(name, f"{share:.0%}") for name, share in zip(_PARTS, means, strict=True)]
                found[-1].append(("idle", f"{max(0.0, 1 - means.sum()):.0%}"))
    return found


def flow_facts(summary: Summary, run: Recorded | None) -> list[Facts]:
    """Return each flow's depth, peak number of tokens, and number of tokens transferred."""
    found: list[Facts] = [_counts(flow) for flow in summary.flows]
    if run is None:
        return found
    box = np.append(summary.box_of_node, -1)  # of no node: none
    source, target = (box[ends] for ends in run.ends)
    arrays = np.array(run.arrays)
    depth, whole = run.recording.network.depth, run.recording.whole
    for facts, flow in zip(found, summary.flows, strict=True):
        own = np.flatnonzero((arrays == flow.array) & (source == flow.source) & (target == flow.target))
        if len(own):
            facts += [
                ("depth", _span(depth[own])),
                ("most tokens held at a time", _span(whole.occupancy[own])),
                ("tokens simulated", f"{int(whole.puts[own].sum()):,}"),
            ]
    return found


def _counts(flow: Flow) -> Facts:
    tokens = "depends on data" if flow.tokens is None else f"{flow.tokens:,}"
    return [("streams", f"{flow.streams:,}"), ("tokens over the run", tokens)]


def _memory(placed: PlacedDesign, nodes: Ints) -> str:
    tiles = [placed.tiles[node] for node in nodes]
    limit = placed.problem.limits.core.bytes
    return f"{max(placed.usage[tile].bytes for tile in tiles):,} of {limit:,} bytes"


def _span(values: Sequence[int] | Ints) -> str:
    low, high = int(min(values)), int(max(values))
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
