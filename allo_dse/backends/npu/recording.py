"""Recorded runs of NPU designs: activity of processes, their waits, and the content of every buffer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from allo_dse.device.device import NpuDevice
from allo_dse.eval.recording import Recorded, Recording, whole_run
from allo_dse.simulator.network.network import Labels
from allo_dse.space.design import Design

from .costs import TICKS_PER_CYCLE, blocks_of, channels_of
from .mapping import NpuMapping
from .movement.movement import Channel, Flow, Transport
from .network import build_npu_network

NAMED_NODES = 3
_PLACES = re.compile(r" (on|to|from) .*$")


@dataclass(frozen=True)
class NpuLabels(Labels):
    """Names of the processes, buffers and shared resources of an NPU design's network."""

    processes: tuple[str, ...]
    buffers: tuple[str, ...]

    def task(self, task: int) -> str:
        return self.processes[task]

    def stream(self, stream: int) -> str:
        """Every buffer is two streams: its filled slots, and its free ones."""
        return f"{self.buffers[stream // 2]}{'' if stream % 2 == 0 else ' (free slots)'}"

    def array(self, stream: int) -> str:
        return self.buffers[stream // 2]

    def operation(self, task: int, op: int) -> str:
        return f"operation {op} of {self.processes[task]}"

    def resource(self, resource: int) -> str:
        return ("reads of DRAM", "writes of DRAM")[resource]


class NpuRecording(Recording, frozen=True):
    """A recording of the array between two interventions of the host; times are ticks.

    Attributes:
        periods: of the design's schedule between the interventions, of `of` in all.
    """

    periods: int = 0
    of: int = 0


def record_npu(design: Design) -> NpuRecording:
    """Simulate a design from one intervention of the host to the next, so that any part of it can be looked at.

    Raises:
        DeviceError: if the design is not for an NPU.
        SimulationError: if it deadlocks.
    """
    device = NpuDevice.of(design.device)
    transport, schedules = NpuMapping.of(design).transport, NpuMapping.of(design).view.periods
    links = NpuMapping.of(design).view.channels
    periods = blocks_of(schedules[0].periods, transport, device.board)[0][0]
    built = build_npu_network(schedules, links, transport, device, periods)
    labels = _labels(design, transport, sorted(links.depth))
    whole = whole_run(built.network, labels)
    return NpuRecording(built.network, labels, whole, periods=periods, of=schedules[0].periods)


def _labels(design: Design, transport: Transport, channels: Sequence[Channel]) -> NpuLabels:
    """Names in the order in which `build_npu_network` makes processes and buffers."""
    nodes = [short_name(name) for name in design.vmg.nodes]

    def where(flow: Flow) -> str:
        names = [nodes[n] for n in flow.nodes[:NAMED_NODES]]
        more = len(flow.nodes) - len(names)
        return f"{flow.tensor} {'to' if flow.direction == 'in' else 'from'} {', '.join(names)}" + (
            f" and {more} more" if more > 0 else ""
        )

    shared = channels_of(design.program.task_classes, NpuDevice.of(design.device))
    processes = [f"memory tile: {where(flow)}" for flow in transport.flows]
    for transfer in transport.transfers:
        flows = [transport.flows[f] for f in transfer.flows]
        moved = dict.fromkeys(f"{flow.tensor} {flow.direction}" for flow in flows)
        name = f"shim: {', '.join(moved)} ({len(flows)} flow{'s' if len(flows) > 1 else ''})"
        processes += [name] * shared[transfer.direction]
    processes += [f"core {name}" for name in nodes]
    buffers = []
    for flow in transport.flows:
        buffers += [f"memory tile, {where(flow)}"] * shared[flow.direction]
        buffers += [f"{flow.tensor} {flow.direction} on {nodes[n]}" for n in flow.nodes]
    buffers += [f"{array}: {nodes[source]} to {nodes[target]}" for source, target, array in channels]
    return NpuLabels(tuple(processes), tuple(buffers))


def short_name(node: str) -> str:
    """A node by the first task of its chain: "a_0-a_1-a_2x8" is "a_0-…x8"."""
    first, dash, rest = node.partition("-")
    return first if not dash else first + "-…" + "".join(re.findall(r"x\d+$", rest))


def recorded(design: Design) -> Recorded:
    """Return the recording of a design, with the names of its processes, buffers and nodes."""
    found = record_npu(design)
    whole = found.periods == found.of
    note = f"{'all' if whole else f'{found.periods:,} of the'} {found.of:,} period{'s' if found.of > 1 else ''}"
    without = "without the host's time" if whole else "from one intervention of the host to the next"
    note += f" of the schedule, {without}"
    # Processes are called "core …", "memory tile: …" and "shim: …".
    kinds = tuple(
        "cores" if process.startswith("core ") else f"{process.partition(':')[0]} channels"
        for process in map(found.labels.task, range(found.network.task_count))
    )
    usual = -(-found.cycles // max(1, found.periods))
    # By tensor and place; the other stream of each buffer has its free slots.
    buffers = tuple(
        _PLACES.sub("", found.labels.stream(stream)) if stream % 2 == 0 else ""
        for stream in range(found.network.stream_count)
    )
    network = found.network
    nodes = np.arange(network.node_count) - (network.node_count - design.vmg.node_count)  # cores are the last processes
    names = [found.labels.stream(stream).partition(":") for stream in range(network.stream_count)]
    known = {array.name for array in design.vmg.program.streams}
    arrays = tuple(name if colon and name in known and n % 2 == 0 else "" for n, (name, colon, _) in enumerate(names))
    return Recorded(found, note, "", kinds, buffers, np.maximum(nodes, -1), arrays, TICKS_PER_CYCLE, usual)
