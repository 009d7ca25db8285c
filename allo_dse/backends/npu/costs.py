"""Core cycles of a task on an NPU, from the operations of its class and the device's cost tables.

The matrix kernel computes C += A @ B: it adds to an accumulator that is already in place. An addition to the product,
and moving the sum on to the next task of a chain or into the output slot, are part of the kernel and cost nothing more.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.errors import SimulationError
from allo_dse.common.records import Frozen
from allo_dse.compiler.program.compiled import CompiledProgram, ExternalCall, TaskClass, TileOp
from allo_dse.compiler.program.tensors import IntArray
from allo_dse.device.device import NpuDevice
from allo_dse.device.npu_model import Board
from allo_dse.eval.evaluator import Bounds, Interval
from allo_dse.lang.externals import external
from allo_dse.mapper.graph.groups import Repeat, Seq, Tree
from allo_dse.mapper.graph.ports import Direction, PortSide
from allo_dse.mapper.program import Program
from allo_dse.mapper.violation import Buffering

from .fold_bounds import NpuFoldBounds
from .movement.layout_plan import layouts_on
from .movement.movement import Transport
from .movement.periods import GroupSchedule
from .movement.transport import column_limits

_MOVES = ("copy", "get", "put")
_ACCUMULATING = ("add", *_MOVES)


def class_cycles(task_class: TaskClass, device: NpuDevice, free: Collection[int] = ()) -> float:
    """Cycles one task of the class computes, data movement not included.

    Args:
        free: positions in its `work` of operations that cost nothing: changes of layout that DMA channels carry out.

    Raises:
        SimulationError: if it calls a vendor kernel whose cycles are not known.
    """
    total, accumulator, kernel = 0.0, None, None
    calls = iter(task_class.externals)
    turned: dict[tuple[int, ...], float] = {}  # operands stored by columns, with the time of turning them on the core
    for site, op in enumerate(task_class.work):
        if op.kind == "transpose":
            turned[op.shape] = turned.get(op.shape, 0.0) + (
                0.0 if site in free else _count(op) * _elementwise_cycles(op, device)
            )
            continue
        if site in free:
            continue
        if op.kind == "external":
            total += _count(op) * _external_cycles(next(calls))
            continue
        if op.kind == "matmul":
            accumulator = (op.shape[0], op.shape[2])
            kernel = device.matmul_kernel(op.dtypes, op.shape)
            slower = 1.0
            m, k, n = op.shape
            for side, factor in zip(((k, n), (m, k)), reversed(kernel.column_major or ()), strict=False):
                slower *= factor if turned.pop(side, None) is not None else 1.0
            total += _count(op) * kernel.cycles(m, k, n, slower)
        elif not (op.kind in _ACCUMULATING and op.shape == accumulator):
            total += _count(op) * _elementwise_cycles(op, device)
    total += sum(turned.values())
    if any(op.kind == "loop" for op in task_class.work):
        total += device.scalar_loop.task_cycles
    if kernel is not None:
        results = [port.tile_bytes for port in task_class.tensor_ports if port.writes]
        total += kernel.task_cycles + kernel.drain_cycles_per_byte * sum(results)
        total += kernel.result_cycles if results else 0.0
    return total


def _external_cycles(call: ExternalCall) -> int:
    known = external(call.top)
    cycles = None if known is None else known.cycles_for(tuple(shape for _, shape in call.operands))
    if cycles is None:
        raise SimulationError(
            f"it is not known how many cycles the vendor kernel {call.top!r} takes",
            hint=f"allo_dse.lang.define_external({call.top!r}, meaning, cycles=...)",
        )
    return cycles


def _elementwise_cycles(op: TileOp, device: NpuDevice) -> float:
    if op.kind == "loop":
        return device.scalar_loop.cycles_per_iteration
    return device.elementwise_cost(op.kind).cycles(prod(op.shape) * op.dtypes[-1].bits // 8)


def _count(op: TileOp) -> int:
    """Return how often the operation runs; once if that depends on data, which makes the time a lower bound."""
    return 1 if op.count is None else op.count


# Work of an NPU design in any order: its blocks, its multiplications, and the host's part of a call.


TICKS_PER_CYCLE = 16
"""Fine enough that rounding a short transfer does not matter."""


class TileTicks(Frozen):
    """Time of one tile of a flow on each resource, in ticks.

    Attributes:
        dram: of DRAM in the flow's direction.
        channel: of one DMA channel of a memory tile or a shim.
        shim: of each of its shim channels, which hold DRAM and are themselves busy, each for an equal share of the
            tile's bytes.
    """

    dram: int
    channel: int
    shim: int

    @staticmethod
    def of(device: NpuDevice, tile_bytes: int, run_bytes: int, *, paged: bool, channels: int = 1) -> TileTicks:
        """Time a tile with contiguous runs of `run_bytes`; `paged` if it walks down pages (`network.is_paged`).

        Args:
            channels: that share it (`channels_of`).
        """
        board, per_us = device.board, TICKS_PER_CYCLE * device.board.clock_ghz * 1e3
        dram = channels * round(board.dram_us(tile_bytes, run_bytes, paged) * per_us / channels)
        channel = round(tile_bytes / (device.interconnect.stream_bytes_per_cycle * channels) * TICKS_PER_CYCLE)
        return TileTicks(dram, channel, max(dram // channels, channel))


def channels_of(classes: Iterable[TaskClass], device: NpuDevice) -> dict[Direction, int]:
    """Channels that share each transfer, by direction: kernels of the classes may have several for an operand."""
    ops = (op for cls in classes for op in cls.work if op.kind == "matmul")
    shared = max((device.matmul_kernel(op.dtypes, op.shape).operand_channels for op in ops), default=1)
    return {"in": shared, "out": 1}


def blocks_of(periods: int, transport: Transport, board: Board) -> list[tuple[int, int]]:
    """(periods, how many such blocks): the periods, shared out evenly between the host's interventions.

    A host that needs no time for them writes descriptors ahead, while others are in use.
    """
    interventions = max((t.pattern.descriptors for t in transport.transfers), default=1) if board.host_rewrite_us else 1
    count = min(periods, interventions)
    short, longer = divmod(periods, count)
    return [(p, n) for p, n in ((short, count - longer), (short + 1, longer)) if n]


def host_us(program: CompiledProgram, device: NpuDevice, rewrites: int) -> float:
    """The host's part of a call.

    Args:
        rewrites: how many descriptors it writes while the array runs.
    """
    tensor_bytes = sum(tensor.bytes for tensor in program.tensors)
    return device.board.host_us(device.array.columns, tensor_bytes, rewrites)


def macs_of(schedules: Sequence[GroupSchedule]) -> int:
    """Multiply-accumulates of the whole program."""
    total = 0
    for group in schedules:
        macs = group.priced(macs_of_class)
        total += int(macs.sum()) * group.periods * (group.group.count // len(macs))
    return total


def macs_of_class(cls: TaskClass) -> int:
    """Multiply-accumulates of one task."""
    return sum(prod(op.shape) * (op.count or 1) for op in cls.work if op.kind == "matmul")


def peak_of(classes: Sequence[TaskClass], device: NpuDevice) -> float:
    """Multiply-accumulates per cycle of one core at most, for the element types that classes multiply."""
    peaks = [
        device.kernel_cost(*op.dtypes).peak_mac_per_cycle for cls in classes for op in cls.work if op.kind == "matmul"
    ]
    return max(peaks, default=0.0)


# Costs of a program under any fold, and lower bounds of moving its tiles. The evaluator's bounds are made of these:
# nothing here depends on a folded graph or a transport plan.


ANYTHING = float("inf")
_SLACK = 1e-9
"""Relative reduction of bounds, because the evaluator adds in another order."""
DIRECTIONS: tuple[Direction, Direction] = ("in", "out")

Sizes = tuple[int, ...]
"""Nodes along each axis of a kernel."""

Walk = tuple[Sizes, tuple[int, ...]]
"""Task order of a kernel's nodes: their number per axis, and the order of loops, outermost first."""


class ProgramWork(Frozen, eq=False, dict=True):
    """Costs of a program on a device, whatever the fold. Times are ticks."""

    program: Program
    device: NpuDevice

    @cached_property
    def class_ticks(self) -> list[list[int]]:
        """Least computing time of one task, by kernel and class."""
        return [
            [
                min(t for t, cls in zip(ticks, kernel.by_work[0], strict=True) if cls.name == own.name)
                for own in kernel.classes
            ]
            for kernel, ticks in zip(self.program.kernels, self._work_ticks, strict=True)
        ]

    @cached_property
    def _work_ticks(self) -> list[list[int]]:
        """Computing time of one task, by kernel and class of equal work."""
        layouts = layouts_on(self.program.vmg.graph, self.device)
        return [
            [
                round(TICKS_PER_CYCLE * class_cycles(cls, self.device, layouts.free_sites(cls)))
                for cls in kernel.by_work[0]
            ]
            for kernel in self.program.kernels
        ]

    @cached_property
    def kernel_ticks(self) -> list[float]:
        """Total computing time of each kernel's tasks."""
        pairs = zip(self._tasks, self._work_ticks, strict=True)
        return [float(tasks @ np.array(ticks, float)) for tasks, ticks in pairs]

    @cached_property
    def _tasks(self) -> list[IntArray]:
        """Number of tasks, by kernel and class of equal work."""
        return [
            np.bincount(table.reshape(-1), minlength=len(classes)) * (kernel.task_count // table.size)
            for kernel in self.program.kernels
            for classes, table in (kernel.by_work,)
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
        # Columns are not known before there is a transport plan: at best all channels are equally busy.
        shared = (own / self.channels[way] for own, way in zip(shims, DIRECTIONS, strict=True))
        return max(longest, *dram, *shared), total

    def _moved_of(self, kernel: int, walks: tuple[Walk, ...] | None) -> tuple[NDArray[np.float64], float]:
        """Return the least times of one kernel's tiles over some walks.

        Returns:
            (5,): DRAM ticks and shim ticks, each per direction, and bytes; and the ticks of one channel.
        """
        key = kernel, walks
        if key not in self._moved:
            every = [self._moved_by(kernel, walk) for walk in walks or (None,)]
            # The minimum of each figure alone is a lower bound, even if no single walk is best in all of them.
            self._moved[key] = np.min([sums for sums, _ in every], 0), min(channel for _, channel in every)
        return self._moved[key]

    @cached_property
    def _moved(self) -> dict[tuple[int, tuple[Walk, ...] | None], tuple[NDArray[np.float64], float]]:
        return {}

    def _moved_by(self, kernel: int, walk: Walk | None) -> tuple[list[float], float]:
        sums, longest = [0.0] * 5, 0.0
        for port in self.ports[kernel]:
            flows, tiles = (1, port.tiles) if walk is None else port.moved(*walk)
            way, count = DIRECTIONS.index(port.way), flows * tiles
            sums[way] += count * port.ticks.dram
            sums[2 + way] += count * port.ticks.shim
            sums[4] += count * port.tile_bytes
            longest = max(longest, tiles * port.ticks.shim) if walk is not None else longest
        return sums, longest

    def walks(self, sizes: Sequence[Sizes]) -> list[list[Walk]]:
        """Return the walks of each kernel on `nodes` nodes: with its loops in any order, then those that follow a chain
        of another kernel."""
        found = []
        for kernel, rules, own in zip(self.program.kernels, self.program.vmg.graph.rules, sizes, strict=True):
            # A chained axis is innermost and its order fixed: only bundled loops are exchanged for each other.
            several = [axis for axis, nodes in enumerate(own) if kernel.mesh[axis] > nodes]
            loops = [axis for axis in several if rules[axis].how == "bundle"]
            last = [axis for axis in loops if rules[axis].follows]
            orders = itertools.permutations([axis for axis in loops if axis not in last])
            found.append([(tuple(own), (*order, *last)) for order in orders])
        return found

    @cached_property
    def limits(self) -> NpuFoldBounds:
        return NpuFoldBounds(self.program.vmg.graph, self.device)

    @cached_property
    def macs_and_peak(self) -> tuple[int, float]:
        """Multiply-accumulates of the program, and per cycle of one core at most."""
        every = [
            (int(count), cls)
            for kernel, tasks in zip(self.program.kernels, self._tasks, strict=True)
            for cls, count in zip(kernel.by_work[0], tasks, strict=True)
            if count
        ]
        return sum(count * macs_of_class(cls) for count, cls in every), peak_of([cls for _, cls in every], self.device)

    @property
    def cycles_per_us(self) -> float:
        return self.device.board.clock_ghz * 1e3

    def tree_ticks(self, tree: Tree) -> int:
        """Return the computing time of a node's tasks."""
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
        rewrites: int = 0,
    ) -> Bounds:
        """Bounds from the numbers of nodes along all axes: a node that has most to do has no less than the mean.

        Args:
            sizes: per kernel.
            sharing: kernels that share nodes.
            moved: ticks and bytes that moving tiles takes.
            rewrites: of descriptors by the host.
        """
        busiest = max(sum(self.kernel_ticks[k] for k in members) / prod(sizes[members[0]]) for members in sharing)
        cores = ([(k, sizes[k]) for k in members] for members in sharing)
        memory = max(self.limits.core_bytes(core, buffering) for core in cores)
        moving, total = moved
        return self.bounds(nodes, max(busiest, moving), rewrites, (memory, ANYTHING), (total, ANYTHING))

    def bounds(self, nodes: int, ticks: float, rewrites: int, memory: Interval, dram: Interval) -> Bounds:
        """Bounds of all metrics.

        Args:
            ticks: that the array runs at least.
            rewrites: of descriptors by the host, at least.
        """
        run_us = ticks / TICKS_PER_CYCLE / self.cycles_per_us
        # Floating-point sums in another order differ in their last digits: with the slack a bound stays one.
        latency_us = (run_us + host_us(self.program, self.device, rewrites)) * (1 - _SLACK)
        macs, peak = self.macs_and_peak
        most = (1 + _SLACK) / latency_us if latency_us else ANYTHING
        return {
            "latency_us": (latency_us, ANYTHING),
            "latency_cycles": (round(latency_us * self.cycles_per_us), ANYTHING),
            "throughput_gops": (0.0, 2 * macs * most * 1e-3),
            "pe_count": (nodes, nodes),
            "utilization": (0.0, macs * most / (peak * nodes * self.cycles_per_us) if peak else 0.0),
            "local_memory_bytes": memory,
            "dram_bytes": dram,
        }


class _Port(Frozen):
    """A tensor port of a kernel, and what a tile of it takes. Times are ticks.

    Attributes:
        apart: mesh axes along which nodes have flows of their own.
        telling: mesh axes along which tiles surely differ; `alike`: along which all tasks use the port if one does.
        tiles: different ones that are needed at least.
    """

    way: Direction
    mesh: tuple[int, ...]
    alike: frozenset[int]
    telling: frozenset[int]
    apart: tuple[int, ...]
    tiles: int
    tile_bytes: int
    ticks: TileTicks

    @staticmethod
    def of(work: ProgramWork, kernel: int, side: PortSide) -> _Port:
        limits, port, way = work.limits, side.port, side.key[1]
        shared = channels_of(work.program.task_classes, work.device)
        alike, telling = limits.alike(kernel, side), limits.telling(kernel, side)
        return _Port(
            way, work.program.kernels[kernel].mesh, frozenset(alike), frozenset(telling),
            tuple(telling if way == "in" else alike), limits.tiles(kernel, side), port.tile_bytes,
            TileTicks.of(work.device, port.tile_bytes, port.run_bytes, paged=False, channels=shared[way]),
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
