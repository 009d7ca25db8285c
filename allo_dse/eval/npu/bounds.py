"""What an NPU design cannot be better than, before it is simulated: the work that its resources have to do.

    level 0    from the fold alone: tasks over nodes, and the tiles that its loops let each node fetch again
    level 1    from the transport plan: what cores, channels and DRAM do from one intervention of the host to the next

The first costs tens of microseconds, the second as much as checking the device's limits, which need the plan too. Every
resource of `network.py`, a process or a shared one, works off its times without overlap: their sum is a lower bound of
the simulated time.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from allo_dse.device.device import Device, NpuDevice
from allo_dse.mapper.fold.fold import MeshFold
from allo_dse.mapper.graph.periods import Cadence, GroupSchedule, PortSchedule
from allo_dse.mapper.graph.ports import PortSide
from allo_dse.mapper.graph.tree import Repeat, Seq, Tree
from allo_dse.mapper.model.buffering import Buffering
from allo_dse.mapper.model.movement import Direction, Flow, Transport
from allo_dse.mapper.program import Program
from allo_dse.mapper.search.bounds import FoldBounds
from allo_dse.mapper.search.folds import Layout
from allo_dse.mapper.transport.plan import column_limits
from allo_dse.program.index_maps import IntArray
from allo_dse.space.design import Design
from allo_dse.space.draft import Draft

from ..bounds import Bounds, Interval
from .costs import class_cycles
from .network import TICKS_PER_CYCLE, is_paged, ports_of_nodes
from .work import blocks_of, host_us, macs_of_class, peak_of

_ANYTHING = float("inf")
_SLACK = 1e-9
"""Share by which a bound stays below what it was computed to be: sums of the evaluator are in another order."""

_DIRECTIONS: tuple[Direction, Direction] = ("in", "out")

Sizes = tuple[int, ...]
"""Nodes along each axis of a kernel."""

Walk = tuple[Sizes, tuple[int, ...]]
"""How the nodes of a kernel go through their tasks: how many there are, and the order of loops, outermost first."""


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
        return (_fold_bounds, _transport_bounds)[level](design, self._work(design.program, design.device))

    def of_region(self, draft: Draft, nodes: int, layout: Layout | None = None) -> Bounds:
        """Bounds for all folds of a draft onto so many nodes: each tile is moved once at least, or as often as the best
        order of the loops lets it.

        Raises:
            SimulationError: where it is not known what a task costs.
        """
        work = self._work(draft.compiled, draft.device)
        if layout is not None:
            sharing = sharing_sets(layout.chains, len(layout.sizes))
            return work.laid_out(nodes, layout.sizes, sharing, draft.buffering, work.moved(work.walks(layout.sizes)))
        several = [[(k, (2,) * len(kernel.mesh))] for k, kernel in enumerate(work.program.kernels)]
        memory = max(work.limits.core_bytes(kernel, draft.buffering) for kernel in several)
        moving, total = work.moved_once
        run = max(sum(work.kernel_ticks) / nodes, moving)
        return work.bounds(nodes, run, 0, (memory, _ANYTHING), (total, _ANYTHING))

    def _work(self, program: Program, device: Device) -> ProgramWork:
        key = program, device.key
        if key not in self._programs:
            self._programs[key] = ProgramWork(program, NpuDevice.of(device))
        return self._programs[key]


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
    def kernel_ticks(self) -> list[float]:
        """What all tasks of each kernel compute together."""
        pairs = zip(self._tasks, self.class_ticks, strict=True)
        return [float(tasks @ np.array(ticks, float)) for tasks, ticks in pairs]

    @cached_property
    def _tasks(self) -> list[IntArray]:
        """How many tasks there are: per kernel and class."""
        tables = [(kernel, kernel.varying_classes) for kernel in self.program.kernels]
        return [
            np.bincount(table.reshape(-1), minlength=len(kernel.classes)) * (kernel.task_count // table.size)
            for kernel, table in tables
        ]

    @cached_property
    def ports(self) -> list[list[_Port]]:
        """Per kernel the tensor ports that no kernel before it has."""
        return [
            [_Port.of(self, kernel, side) for side in sides] for kernel, sides in enumerate(self.limits.moved)
        ]  # fmt: skip

    @cached_property
    def channels(self) -> dict[Direction, int]:
        """Shim channels of the array that feed it, and that drain it."""
        limits = column_limits(self.device)
        return {"in": limits.columns * limits.shim_out, "out": limits.columns * limits.shim_in}

    @cached_property
    def moved_once(self) -> tuple[float, float]:
        """As `moved`, whatever the fold."""
        return self.moved(None)

    def moved(self, walks: Sequence[Sequence[Walk]] | None) -> tuple[float, float]:
        """Ticks and bytes that moving tiles takes at least: of DRAM in one direction, of a channel, or of its shims.

        Args:
            walks: that each kernel may take through its tiles; None for any, in which each is moved once at least.
        """
        sums, longest = np.zeros(5), 0.0
        for number in range(len(self.ports)):
            own, channel = self._moved_of(number, None if walks is None else tuple(walks[number]))
            sums, longest = sums + own, max(longest, channel)
        dram, shims, total = sums[:2].tolist(), sums[2:4].tolist(), float(sums[4])
        shared = (own / self.channels[way] for own, way in zip(shims, _DIRECTIONS, strict=True))
        return max(longest, *dram, *shared), total

    def _moved_of(self, kernel: int, walks: tuple[Walk, ...] | None) -> tuple[NDArray[np.float64], float]:
        """What one kernel's tiles take in the best of some walks: of DRAM and of the shims' channels in each direction
        and in bytes, (5,); of one channel."""
        key = kernel, walks
        if key not in self._moved:
            every = [self._moved_by(kernel, walk) for walk in walks or (None,)]
            self._moved[key] = np.min([sums for sums, _ in every], 0), min(channel for _, channel in every)
        return self._moved[key]

    @cached_property
    def _moved(self) -> dict[tuple[int, tuple[Walk, ...] | None], tuple[NDArray[np.float64], float]]:
        return {}

    def _moved_by(self, kernel: int, walk: Walk | None) -> tuple[list[float], float]:
        sums, longest = [0.0] * 5, 0.0
        for port in self.ports[kernel]:
            flows, tiles = (1, port.tiles) if walk is None else port.moved(*walk)
            way, count = _DIRECTIONS.index(port.way), flows * tiles
            sums[way] += count * port.dram
            sums[2 + way] += count * port.shim
            sums[4] += count * port.tile_bytes
            longest = max(longest, tiles * port.shim) if walk is not None else longest
        return sums, longest

    def walks(self, sizes: Sequence[Sizes]) -> list[list[Walk]]:
        """The walks that each kernel may take on so many nodes: with its loops in any order, and then those that follow
        a chain of another kernel."""
        found = []
        for kernel, rules, own in zip(self.program.kernels, self.program.vmg.graph.rules, sizes, strict=True):
            several = [axis for axis, nodes in enumerate(own) if kernel.mesh[axis] > nodes]
            loops = [axis for axis in several if rules[axis].how == "bundle"]
            last = [axis for axis in loops if rules[axis].follows]
            orders = itertools.permutations([axis for axis in loops if axis not in last])
            found.append([(tuple(own), (*order, *last)) for order in orders])
        return found

    @cached_property
    def limits(self) -> FoldBounds:
        return FoldBounds(self.program.vmg.graph, self.device)

    @cached_property
    def macs_and_peak(self) -> tuple[int, float]:
        """Multiply-accumulates of the program, and per cycle of one core at most."""
        every = [
            (int(count), cls)
            for kernel, tasks in zip(self.program.kernels, self._tasks, strict=True)
            for cls, count in zip(kernel.classes, tasks, strict=True)
            if count
        ]
        return sum(count * macs_of_class(cls) for count, cls in every), peak_of([cls for _, cls in every], self.device)

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

    def shim_ticks(self, tile_bytes: int, run_bytes: int, paged: bool) -> int:
        """What one tile takes of its shim channel."""
        column = self.ticks(self.device.board.column_us(tile_bytes, run_bytes) * self.cycles_per_us)
        return max(self.dram_ticks(tile_bytes, run_bytes, paged) + column, self.transfer_ticks(tile_bytes))

    def tree_ticks(self, tree: Tree) -> int:
        """What the tasks of a node compute."""
        if isinstance(tree, Repeat):
            return tree.count * self.tree_ticks(tree.child)
        if isinstance(tree, Seq):
            return sum(self.tree_ticks(child) for child in tree.children)
        return self.class_ticks[tree.kernel][tree.cls]

    def laid_out(
        self,
        nodes: int,
        sizes: Sequence[Sizes],
        sharing: Sequence[Sequence[int]],
        buffering: Buffering,
        moved: tuple[float, float],
    ) -> Bounds:
        """Bounds from the numbers of nodes along all axes: a node that has most to do has no less than the mean.

        Args:
            sizes: per kernel.
            sharing: kernels that share nodes.
            moved: ticks and bytes that moving tiles takes.
        """
        busiest = max(sum(self.kernel_ticks[k] for k in members) / prod(sizes[members[0]]) for members in sharing)
        cores = ([(k, sizes[k]) for k in members] for members in sharing)
        memory = max(self.limits.core_bytes(core, buffering) for core in cores)
        moving, total = moved
        return self.bounds(nodes, max(busiest, moving), 0, (memory, _ANYTHING), (total, _ANYTHING))

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


@dataclass(frozen=True)
class _Port:
    """A tensor port of a kernel, and what a tile of it takes. Times are ticks.

    Attributes:
        apart: mesh axes along which nodes have flows of their own.
        telling: mesh axes along which tiles surely differ; `alike`: along which all tasks use the port if one does.
        tiles: different ones that are needed at least.
        shim: of its shim channel, which takes longer than the memory tile's.
    """

    way: Direction
    mesh: tuple[int, ...]
    alike: frozenset[int]
    telling: frozenset[int]
    apart: tuple[int, ...]
    tiles: int
    tile_bytes: int
    dram: int
    shim: int

    @staticmethod
    def of(work: ProgramWork, kernel: int, side: PortSide) -> _Port:
        limits, port, way = work.limits, side.port, side.key[1]
        alike, telling = limits.alike(kernel, side), limits.telling(kernel, side)
        return _Port(
            way, work.program.kernels[kernel].mesh, frozenset(alike), frozenset(telling),
            tuple(telling if way == "in" else alike), limits.tiles(kernel, side), port.tile_bytes,
            work.dram_ticks(port.tile_bytes, port.run_bytes, paged=False),
            work.shim_ticks(port.tile_bytes, port.run_bytes, paged=False),
        )  # fmt: skip

    def moved(self, sizes: Sizes, order: tuple[int, ...]) -> tuple[int, int]:
        """Flows, and tiles that each moves: a node fetches a tile again whenever a loop outside of the innermost one
        that tiles depend on goes on."""
        flows = prod(sizes[axis] for axis in self.apart)
        tiles = rounds = 1
        for axis in (*order, *(axis for axis in range(len(self.mesh)) if axis not in order)):
            trips = self.mesh[axis] // sizes[axis]
            if axis in self.alike and trips > 1:
                rounds *= trips
                tiles = rounds if axis in self.telling else tiles
        return flows, tiles


def sharing_sets(chains: Sequence[Sequence[int]], kernels: int) -> list[Sequence[int]]:
    """Kernels in sets that have nodes of their own."""
    chained = {kernel for members in chains for kernel in members}
    return [*chains, *((kernel,) for kernel in range(kernels) if kernel not in chained)]


def _fold_bounds(design: Design, work: ProgramWork) -> Bounds:
    """From the fold alone."""
    fold = design.fold
    if not isinstance(fold, MeshFold):
        moving, total = work.moved_once
        run = max(sum(work.kernel_ticks) / fold.node_count, moving)
        return work.bounds(fold.node_count, run, 0, (0, _ANYTHING), (total, _ANYTHING))
    sizes = [tuple(axis.spatial for axis in kernel.axes) for kernel in fold.kernels]
    position = {kernel.kernel: number for number, kernel in enumerate(fold.kernels)}
    sharing = sharing_sets([[position[name] for name in members] for members in fold.chains], len(sizes))
    walks = [[(own, kernel.order)] for own, kernel in zip(sizes, fold.kernels, strict=True)]
    return work.laid_out(fold.node_count, sizes, sharing, design.buffering, work.moved(walks))


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
                work.shim_ticks(flow.tile_bytes, flow.run_bytes, paged),
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
