"""What an NPU design cannot be better than, before it is simulated: the work that its resources have to do.

    level 0    from the fold alone: tasks over nodes, and every tile that is needed is moved once
    level 1    from the transport plan: what cores, channels and DRAM do from one intervention of the host to the next

The first costs tens of microseconds, the second as much as checking the device's limits, which need the plan too. Every
resource of `network.py`, a process or a shared one, works off its times without overlap: their sum is a lower bound of
the simulated time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from allo_dse.device.device import NpuDevice
from allo_dse.mapper.fold.fold import MeshFold
from allo_dse.mapper.graph.periods import Cadence, GroupSchedule, PortSchedule
from allo_dse.mapper.graph.tree import Repeat, Seq, Tree
from allo_dse.mapper.model.movement import Direction, Flow, Transport
from allo_dse.mapper.program import Program
from allo_dse.mapper.search.bounds import FoldBounds
from allo_dse.space.design import Design

from ..bounds import Bounds, Interval
from .costs import class_cycles
from .network import TICKS_PER_CYCLE, is_paged, ports_of_nodes
from .work import blocks_of, host_us, macs_of, peak_of

_ANYTHING = float("inf")
_SLACK = 1e-9
"""Share by which a bound stays below what it was computed to be: sums of the evaluator are in another order."""

_DIRECTIONS: tuple[Direction, Direction] = ("in", "out")


class NpuBounds:
    """Bounds what `NpuSimulator` says of designs; keeps what designs of one program have in common."""

    levels = 2
    metrics = frozenset(
        {
            "latency_us",
            "latency_cycles",
            "throughput_gops",
            "pe_count",
            "utilization",
            "local_memory_bytes",
            "dram_bytes",
        }
    )

    def __init__(self) -> None:
        self._programs: dict[tuple[Program, str], ProgramWork] = {}

    def __call__(self, design: Design, level: int) -> Bounds:
        """Bounds of the metrics that a level can say something of.

        Raises:
            SimulationError: where it is not known what a task costs.
        """
        key = design.program, design.device.key
        if key not in self._programs:
            self._programs[key] = ProgramWork(design.program, NpuDevice.of(design.device))
        work = self._programs[key]
        return (_fold_bounds, _transport_bounds)[level](design, work)


@dataclass(frozen=True, eq=False)
class ProgramWork:
    """What a program costs on a device however it is folded. Times are ticks."""

    program: Program
    device: NpuDevice

    @cached_property
    def class_ticks(self) -> list[list[int]]:
        """What one task computes: per kernel and class."""
        layouts = self.program.vmg.graph.layouts(self.device)
        return [
            [self.ticks(class_cycles(cls, self.device, layouts.free_sites(cls))) for cls in kernel.classes]
            for kernel in self.program.kernels
        ]

    @cached_property
    def kernel_ticks(self) -> dict[str, float]:
        """What all tasks of each kernel compute together, by its name."""
        found = {}
        for kernel, ticks in zip(self.program.kernels, self.class_ticks, strict=True):
            table = kernel.varying_classes
            tasks = np.bincount(table.reshape(-1), minlength=len(ticks)) * (kernel.task_count // table.size)
            found[kernel.name] = float(tasks @ np.array(ticks, float))
        return found

    @cached_property
    def moved(self) -> tuple[dict[Direction, float], float]:
        """Ticks of DRAM service by direction, and bytes, of every tile that tasks need, moved once."""
        ticks: dict[Direction, float] = dict.fromkeys(_DIRECTIONS, 0.0)
        total = 0.0
        for kernel, sides in enumerate(self.limits.moved):
            for side in sides:
                tiles = self.limits.tiles(kernel, side)
                total += tiles * side.port.tile_bytes
                ticks[side.key[1]] += tiles * self.dram_ticks(side.port.tile_bytes, side.port.run_bytes, paged=False)
        return ticks, total

    @cached_property
    def limits(self) -> FoldBounds:
        return FoldBounds(self.program.vmg.graph, self.device)

    @cached_property
    def macs_and_peak(self) -> tuple[int, float]:
        """Multiply-accumulates of the program, and per cycle of one core at most."""
        schedules = self.program.vmg.graph.periods.schedules(self.program.vmg.groups)
        return macs_of(schedules), max(peak_of(group, self.device) for group in schedules)

    @property
    def cycles_per_us(self) -> float:
        return self.device.board.clock_ghz * 1e3

    def ticks(self, cycles: float) -> int:
        return round(cycles * TICKS_PER_CYCLE)

    def transfer_ticks(self, tile_bytes: int) -> int:
        """A tile through one DMA channel."""
        return self.ticks(tile_bytes / self.device.interconnect.stream_bytes_per_cycle)

    def dram_ticks(self, tile_bytes: int, run_bytes: int, paged: bool) -> int:
        """DRAM service for one tile."""
        return self.ticks(self.device.board.dram_us(tile_bytes, run_bytes, paged) * self.cycles_per_us)

    def shim_ticks(self, flow: Flow, paged: bool) -> int:
        """What one tile takes of its shim channel."""
        column = self.ticks(self.device.board.column_us(flow.tile_bytes, flow.run_bytes) * self.cycles_per_us)
        memory = self.dram_ticks(flow.tile_bytes, flow.run_bytes, paged) + column
        return max(memory, self.transfer_ticks(flow.tile_bytes))

    def tree_ticks(self, tree: Tree) -> int:
        """What the tasks of a node compute."""
        if isinstance(tree, Repeat):
            return tree.count * self.tree_ticks(tree.child)
        if isinstance(tree, Seq):
            return sum(self.tree_ticks(child) for child in tree.children)
        return self.class_ticks[tree.kernel][tree.cls]

    def bounds(self, nodes: int, ticks: float, rewrites: int, memory: Interval, dram: Interval) -> Bounds:
        """Bounds of all metrics.

        Args:
            ticks: that the array runs at least.
            rewrites: of descriptors by the host, at least.
        """
        run_us = ticks / TICKS_PER_CYCLE / self.cycles_per_us
        latency_us = (run_us + host_us(self.program, self.device, rewrites)) * (1 - _SLACK)
        macs, peak = self.macs_and_peak
        most = (1 + _SLACK) / latency_us if latency_us else _ANYTHING
        return {
            "latency_us": (latency_us, _ANYTHING),
            "latency_cycles": (round(latency_us * self.cycles_per_us), _ANYTHING),
            "throughput_gops": (0.0, 2 * macs * most * 1e-3),
            "pe_count": (nodes, nodes),
            "utilization": (0.0, macs * most / (peak * nodes * self.cycles_per_us) if peak else 0.0),
            "local_memory_bytes": memory,
            "dram_bytes": dram,
        }


def _fold_bounds(design: Design, work: ProgramWork) -> Bounds:
    """From the fold alone: a node that has most to do has no less than the mean."""
    fold, own, names = design.fold, work.kernel_ticks, list(work.kernel_ticks)
    if isinstance(fold, MeshFold):
        sizes = {kernel.kernel: tuple(axis.spatial for axis in kernel.axes) for kernel in fold.kernels}
        chained = {name for members in fold.chains for name in members}
        sharing = [*fold.chains, *((name,) for name in names if name not in chained)]
        busiest = max(sum(own[name] for name in members) / prod(sizes[members[0]]) for members in sharing)
        cores = [[(names.index(name), sizes[name]) for name in members] for members in sharing]
    else:
        busiest, cores = sum(own.values()) / fold.node_count, []
    memory = max((work.limits.core_bytes(core, design.buffering) for core in cores), default=0)
    moved, total = work.moved
    run = max(busiest, *moved.values())
    return work.bounds(fold.node_count, run, 0, (memory, _ANYTHING), (total, _ANYTHING))


def _transport_bounds(design: Design, work: ProgramWork) -> Bounds:
    """From the transport plan: what is done from one intervention of the host to the next."""
    mapping = design.mapping
    transport, schedules = mapping.transport, mapping.periods
    if transport.violations:
        return _fold_bounds(design, work)
    plan = _Plan(work, transport, schedules)
    blocks = blocks_of(schedules[0].periods, transport, work.device.board)
    ticks = sum(count * plan.block_ticks(periods) for periods, count in blocks)
    dram = float(sum(count * plan.dram_bytes(periods) for periods, count in blocks))
    memory = float(mapping.local_memory_bytes)
    return work.bounds(design.vmg.node_count, ticks, transport.host_rewrites, (memory, memory), (dram, dram))


@dataclass(frozen=True)
class _Moved:
    """A flow with what a tile of it takes, and how often one moves. Times are ticks.

    Attributes:
        memory: of the memory tile's channel.
        waits: whether the first task of a block takes a tile of it, or the last one gives one away.
    """

    flow: Flow
    cadence: Cadence
    dram: int
    shim: int
    memory: int
    waits: bool


class _Plan:
    """A transport plan as sums over its resources."""

    def __init__(self, work: ProgramWork, transport: Transport, schedules: Sequence[GroupSchedule]) -> None:
        self._work, self._schedules = work, schedules
        ports = ports_of_nodes(schedules)
        self._moved: list[_Moved] = []
        self._of_transfer: list[list[_Moved]] = [[] for _ in transport.transfers]
        for flow, transfer in zip(transport.flows, transport.transfer_of_flow, strict=True):
            schedule = ports[flow.nodes[0], flow.tensor, flow.direction, flow.tile_bytes]
            paged = is_paged(transfer, schedule.port.tensor, work.device.board)
            moved = _Moved(
                flow,
                schedule.cadence,
                work.dram_ticks(flow.tile_bytes, flow.run_bytes, paged),
                work.shim_ticks(flow, paged),
                work.transfer_ticks(flow.tile_bytes),
                _waits(schedule),
            )
            self._moved.append(moved)
            self._of_transfer[transfer.index].append(moved)

    def dram_bytes(self, periods: int) -> int:
        """Bytes from and to DRAM in a block."""
        return sum(m.cadence.over(periods) * m.flow.tile_bytes for m in self._moved)

    def block_ticks(self, periods: int) -> float:
        """What a block takes at least: any of its resources works so long."""
        dram = (
            sum(m.cadence.over(periods) * m.dram for m in self._moved if m.flow.direction == way)
            for way in _DIRECTIONS
        )  # fmt: skip
        shims = (sum(m.cadence.over(periods) * m.shim for m in moved) for moved in self._of_transfer)
        memory = (m.cadence.over(periods) * m.memory for m in self._moved)
        return max(*dram, max(shims, default=0), max(memory, default=0), self._busiest_core(periods))

    def _busiest_core(self, periods: int) -> float:
        """The busiest node computes once its first tiles have arrived; its last ones leave when it has computed."""
        per_node: dict[int, tuple[int, int]] = {}
        for moved in self._moved:
            way, ticks = moved.flow.direction, (moved.shim + moved.memory) * moved.waits
            for node in moved.flow.nodes:
                fill, drain = per_node.get(node, (0, 0))
                per_node[node] = (max(fill, ticks), drain) if way == "in" else (fill, max(drain, ticks))
        node, longest = 0, 0.0
        for schedule in self._schedules:
            computed = self._work.tree_ticks(schedule.group.tree) / schedule.periods * periods
            last = node + schedule.group.count
            longest = max(longest, computed + max(sum(per_node.get(own, (0, 0))) for own in range(node, last)))
            node = last
        return longest


def _waits(schedule: PortSchedule) -> bool:
    if schedule.key[1] == "in":
        return bool(schedule.first[0])
    return bool(schedule.first[-1] and schedule.steady[-1])
