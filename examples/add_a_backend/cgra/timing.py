"""The timing network of a design: a process for each task, and the port to DRAM as a shared resource.

A task loads the tiles that its node does not hold yet, works, and stores its results. Its work is spread evenly between
its stream operations. Configuration and the routing of links cost nothing in this model.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from allo_dse.common.errors import SimulationError
from allo_dse.compiler.program.compiled import CompiledProgram, TaskClass
from allo_dse.compiler.program.tensors import IntArray
from allo_dse.eval.recording import Recorded, Recording, whole_run
from allo_dse.simulator.codegen.static_steps import Move, Repeat, Steps
from allo_dse.simulator.network.network import Labels, Network, NetworkBuilder
from allo_dse.simulator.network.tables import Table
from allo_dse.space.design import Design

from .device import CgraDevice
from .mapping import CgraMapping, classes_by_task


class CgraLabels(Labels):
    """Names of tasks and streams."""

    def __init__(self, program: CompiledProgram, tasks: list[int], streams: IntArray) -> None:
        self.program, self.tasks = program, tasks
        self.arrays: list[str] = [program.streams[number].name for number in program.arrays_of(streams).tolist()]

    def task(self, task: int) -> str:
        return str(self.program.task_name(self.tasks[task]))

    def stream(self, stream: int) -> str:
        return self.arrays[stream]

    def resource(self, resource: int) -> str:
        return "DRAM"


class Timed(Struct, frozen=True):
    """A network, with the bytes that pass the port to DRAM and the cycles that elements work."""

    network: Network
    labels: CgraLabels
    dram_bytes: int
    busy: list[int]


def work_cycles(task_class: TaskClass, device: CgraDevice) -> int:
    """Return the cycles that a task works.

    Raises:
        SimulationError: if data decides how often a loop runs.
    """
    cycles = 0
    for op in task_class.work:
        if op.count is None:
            raise SimulationError(f"{op.location}: data decides how often this loop runs")
        cycles += op.count * math.ceil(max(1, math.prod(op.shape)) / device.macs_per_cycle)
    return cycles


def build(mapping: CgraMapping) -> Timed:
    """Return the network of a mapping.

    Raises:
        SimulationError: if data decides on the work or on the order of stream operations.
    """
    vmg, device, builder = mapping.vmg, mapping.device, NetworkBuilder()
    orders = vmg.graph.token_orders
    if orders is None:
        raise SimulationError("data decides the order of stream operations")
    fifos = vmg.uses.fifos
    builder.streams(mapping.depths)
    dram = builder.resource()
    streams = {task: (order, row) for order in orders for row, task in enumerate(order.own.tasks.tolist())}
    classes, tiles = vmg.graph.once(classes_by_task), _tiles(mapping)
    numbers, moved, busy = list[int](), 0, list[int]()
    for group in vmg.groups:
        for tasks in group.leaves.tasks().tolist():
            held: dict[str, int] = {}
            own, cycles = [], 0
            for position, task in enumerate(tasks):
                table, work = Table(), work_cycles(classes[task], device)
                read, written = Counter[str](), Counter[str]()
                for port in classes[task].used_ports:
                    name, tile = port.tensor.name, tiles[task, port.arg]
                    if port.reads and held.get(name) != tile:
                        read[name] = port.tile_bytes
                    later = [tiles.get((other, port.arg)) for other in tasks[position + 1 :]]
                    if port.writes and tile not in later[:1]:  # the next task goes on with the same tile
                        written[name] = port.tile_bytes
                    held[name] = tile
                _request(table, read, device)
                moves, ports = [], np.zeros(0, np.int64)
                if task in streams:
                    order, row = streams[task]
                    ports = fifos.fifo[order.streams[row]]
                    moves = list(_moves(order.kinds[int(order.which[row])], order.first))
                share, rest = divmod(work, len(moves) + 1)
                table.advance(share + rest)
                for is_put, stream in moves:
                    (table.put if is_put else table.get)(stream)
                    table.advance(share)
                _request(table, written, device)
                own.append(builder.process(table, ports.tolist(), [dram]))
                moved += read.total() + written.total()
                cycles += work
            builder.node(own)
            numbers += tasks
            busy.append(cycles)
    return Timed(builder.build(), CgraLabels(vmg.program, numbers, fifos.stream), moved, busy)


def _request(table: Table, sizes: Counter[str], device: CgraDevice) -> None:
    if sizes:
        table.request(0, math.ceil(sizes.total() / device.dram_bytes_per_cycle))


def _moves(steps: Steps, first: int) -> Iterator[tuple[bool, int]]:
    """Yield the stream operations of a task: puts or gets, and which of its streams."""
    for step in steps:
        if isinstance(step, Move):
            yield step.is_put, step.parameter - first
        elif isinstance(step, Repeat):
            for _ in range(step.count):
                yield from _moves(step.steps, first)


def _tiles(mapping: CgraMapping) -> dict[tuple[int, int], int]:
    """Return the tile that each task has of each of its arguments, as its first element in the tensor."""
    found: dict[tuple[int, int], int] = {}
    for own in mapping.vmg.graph.class_tasks:
        pids = np.stack([np.broadcast_to(axis, own.tasks.shape) for axis in own.pid], axis=1)
        for port in own.task_class.used_ports:
            found.update(zip(((t, port.arg) for t in own.tasks.tolist()), port.offsets(pids).tolist(), strict=True))
    return found


def record(design: Design) -> Recorded:
    """Return the run of a design, to be looked at in the dashboard."""
    timed = build(CgraMapping.of(design))
    run = Recording(timed.network, timed.labels, whole_run(timed.network, timed.labels))
    nodes = np.arange(timed.network.node_count)
    arrays = tuple(timed.labels.arrays)
    return Recorded(run, "", "", ("elements",) * len(nodes), arrays, nodes, arrays)
