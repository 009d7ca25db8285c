"""Recorded runs of FPGA designs: activity of processes, their waits, and the content of every FIFO."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from allo_dse.compiler.program.tensors import IntArray
from allo_dse.eval.recording import MAX_EVENTS, Recorded, Recording, whole_run
from allo_dse.simulator.network.network import node_label
from allo_dse.space.design import Design

from .depths.solver import timed_runs
from .hls.retime import ReportTimes, retimed
from .mapping import FpgaMapping
from .network import FpgaLabels, fpga_network, labels_of

_NUMBERS = re.compile(r"(_\d+)+$")


def record_fpga(
    design: Design,
    depths: Mapping[str, int] | None = None,
    *,
    report: ReportTimes | None = None,
    max_events: int | None = None,
) -> Recording:
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
    return Recording(network.network, labels, whole, max_events or MAX_EVENTS)


def recorded(design: Design, metrics: Mapping[str, Any]) -> Recorded:
    """Return the recording of a design, with the names of its processes, buffers and nodes.

    Args:
        metrics: it is run at its stream depths, and at the loops' intervals that the HLS tool has reported, if it has.
    """
    times = metrics.get("report_times")
    report = None if times is None else ReportTimes.from_dict(times)
    found = record_fpga(design, metrics.get("stream_depths"), report=report)
    labels = found.labels
    assert isinstance(labels, FpgaLabels)
    nodes = (node_label(labels, found.network, node) for node in range(found.network.node_count))
    kinds = tuple(_NUMBERS.sub("", name.partition(" and ")[0]) for name in nodes)  # of "pe_0_2 and 3 more" it is "pe"
    streams = range(found.network.stream_count)
    buffers = tuple(_NUMBERS.sub("", labels.array(stream)) for stream in streams)
    own = [labels.array(stream) if stream < labels.network.fifos else "" for stream in streams]
    places = _nodes(labels, design.vmg.node_of_task)
    return Recorded(found, "", _costs(metrics, found.cycles), kinds, buffers, places, tuple(own))


def _nodes(labels: FpgaLabels, node_of_task: IntArray) -> IntArray:
    """Map each processing element to the design graph's node of its tasks; -1 for copies of tensors."""
    network, number = labels.network.network, labels.number
    nodes = np.full(network.node_count, -1)
    nodes[network.task_node[number >= 0]] = node_of_task[number[number >= 0]]
    return nodes


def _costs(metrics: Mapping[str, Any], cycles: int) -> str:
    """Whose intervals and depths of loops the picture has, and the run's cycles if they were measured otherwise."""
    known = metrics.get("report_times") is not None
    tool = " ".join(("the HLS tool", *filter(None, [metrics.get("hls_tool")])))
    costs = f"at the intervals and depths that {tool} reports" if known else "at the cost model's intervals"
    measured, by = metrics.get("latency_cycles"), metrics.get("cycles_from") or metrics.get("evaluator")
    return costs if measured in (None, cycles) else f"{costs} ({by}: {measured:,} cycles)"
