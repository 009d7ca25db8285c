"""Recorded runs of FPGA designs: activity of processes, their waits, and the content of every FIFO."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.compiler.program.tensors import IntArray, StreamArray
from allo_dse.eval.execute.run import class_of_task
from allo_dse.eval.recording import MAX_EVENTS, Recorded, Recording, whole_run
from allo_dse.simulator.network.network import Ends, Labels, node_label, stream_ends
from allo_dse.simulator.run_time.records import Code
from allo_dse.space.design import Design

from .depths.solver import timed_runs
from .hls.retime import ReportTimes, retimed
from .mapping import FpgaMapping
from .network import FpgaNetwork, fpga_network

_DIRECTIONS = {int(Code.GET): "get", int(Code.PUT): "put"}
_NUMBERS = re.compile(r"(_\d+)+$")


@dataclass(frozen=True)
class FpgaLabels(Labels):
    """Names of the tasks, copies and FIFOs of an FPGA design's network.

    Attributes:
        number: per table process the program's task, or -1 for copies.
        copies: names of the copies, by table process.
        ends: who is at either end of each stream: those beyond the program's FIFOs say that a tile has arrived or is
            done.
    """

    program: CompiledProgram
    network: FpgaNetwork
    number: IntArray
    copies: Mapping[int, str]
    ends: Ends

    def task(self, task: int) -> str:
        return self.copies[task] if task in self.copies else self.program.task_name(int(self.number[task]))

    def stream(self, stream: int) -> str:
        if stream >= self.network.fifos:
            return self._tile(stream)
        return self.program.stream_name(int(self.network.wiring.stream[stream]))

    def _tile(self, stream: int) -> str:
        source, target = int(self.ends.producer[stream]), int(self.ends.consumer[stream])
        if source in self.copies:
            return f"{self.copies[source]} for {self.task(target)}"
        return f"{self.copies[target]} from {self.task(source)}"

    def array(self, stream: int) -> str:
        """Return the name of the stream array, or the tile FIFO, whose depth a stream shares."""
        if stream >= self.network.fifos:
            return self._tile(stream)
        return self.program.streams[int(self.network.wiring.array[stream])].name

    def operation(self, task: int, op: int) -> str:
        """Return the lines of the source that a row of a task's operation table may be of."""
        number = int(self.number[task])
        if number < 0:
            return f"operation {op} of {self.task(task)}"
        task_class = class_of_task(self.program, number)
        built = self.network.network
        kind, port = built.rows.reshape(-1, 4)[built.first_row[task] + op, :2].tolist()
        bound = task_class.body.streams[port]
        array = bound if isinstance(bound, StreamArray) else bound.stream
        uses = [one for one in task_class.stream_ops if one.stream == array]
        same = [one for one in uses if one.direction == _DIRECTIONS.get(kind)] or uses
        return " or ".join(dict.fromkeys(str(one.location) for one in same))

    def resource(self, resource: int) -> str:
        return f"AXI port {resource}"


class FpgaRecording(Recording, frozen=True):
    """A recording of an FPGA design; times are cycles.

    Attributes:
        depths: stream depths of the run.
        task_of: per process the program's task, or -1 for copies.
        fifos: how many of the streams are the program's FIFOs; they come first.
    """

    depths: Mapping[str, int] = msgspec.field(default_factory=dict)
    task_of: IntArray = msgspec.field(default_factory=lambda: np.empty(0, np.int64))
    fifos: int = 0


def record_fpga(
    design: Design,
    depths: Mapping[str, int] | None = None,
    *,
    report: ReportTimes | None = None,
    max_events: int | None = None,
) -> FpgaRecording:
    """Simulate a design so that any part of its run can be looked at.

    Args:
        depths: stream depths by array where they differ from the declared ones; by default the design's, or else the
            smallest that cost no time.
        report: intervals and depths of loops that the HLS tool has reported; by default the cost model's.
        max_events: operations of a part that are kept; by default `MAX_EVENTS`.

    Raises:
        DeviceError: if the design is not for an FPGA.
        SimulationError: if it deadlocks, or its control flow depends on data.
    """
    mapping = FpgaMapping.of(design)
    used = dict(design.depths if depths is None else depths)
    used, timed = timed_runs(mapping, None if depths is None and not used else used)
    mapping = max(timed, key=lambda one: one.result.cycles).mapping
    if report is not None:
        mapping = retimed(mapping, report)
    network = fpga_network(mapping, used)
    labels = labels_of(mapping, network)
    whole = whole_run(network.network, labels)
    return FpgaRecording(
        network.network,
        labels,
        whole,
        max_events or MAX_EVENTS,
        used,
        labels.number,
        network.fifos,
    )


def labels_of(mapping: FpgaMapping, network: FpgaNetwork) -> FpgaLabels:
    """Return names in the order in which `fpga_network` makes processes and streams."""
    program = mapping.vmg.program
    number = np.full(network.network.task_count, -1)
    number[network.task] = np.arange(len(network.task))
    names = [
        f"{verb} {use.tensor.name}"
        for use in mapping.tensors
        if use.uses_port
        for verb, does in (("load", use.reads), ("store", use.writes))
        if does
    ]
    streamed = [use for place in ("stream", "axis") for use in mapping.tensors if use.place == place]
    names += [f"stream {use.tensor.name}" for use in streamed]
    copies = dict(zip((*network.movers, *network.passing), names, strict=True))
    return FpgaLabels(program, network, number, copies, stream_ends(network.network, {}))


def recorded(design: Design, metrics: Mapping[str, Any]) -> Recorded:
    """Return the recording of a design, with the names of its processes, buffers and nodes.

    Args:
        metrics: it is run at its stream depths, and at the loops' intervals that the HLS tool has reported, if it has.
    """
    times = metrics.get("report_times")
    report = None if times is None else ReportTimes.from_dict(times)
    found = record_fpga(design, metrics.get("stream_depths"), report=report)
    kinds = tuple(_kind(node_label(found.labels, found.network, node)) for node in range(found.network.node_count))
    streams = range(found.network.stream_count)
    buffers = tuple(_NUMBERS.sub("", found.labels.array(stream)) for stream in streams)
    own = [found.labels.array(stream) if stream < found.fifos else "" for stream in streams]
    nodes = _nodes(found, design.vmg.node_of_task)
    return Recorded(found, "", _costs(metrics, found.cycles), kinds, buffers, nodes, tuple(own))


def _nodes(found: FpgaRecording, node_of_task: IntArray) -> IntArray:
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


def _kind(name: str) -> str:
    """Elements by kernel: "pe_0_1" and "pe_0_2 and 3 more" are both "pe"; copies are of their own kind."""
    return _NUMBERS.sub("", name.partition(" and ")[0])
