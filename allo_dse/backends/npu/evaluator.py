"""The simulator as an evaluator of NPU designs: periods are simulated until they repeat, the rest is arithmetic."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec import msgpack

from allo_dse.common.errors import SimulationError
from allo_dse.common.records import MOST_SMALL_KEPT, keep
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.device.device import Device, NpuDevice
from allo_dse.device.npu_model import Accuracy, type_key
from allo_dse.eval.evaluator import Bounds, Metrics
from allo_dse.mapper.fold.fold import JointFold, MeshFold
from allo_dse.mapper.fold.fold_space import Layout
from allo_dse.mapper.graph.kernel_graph import node_sets
from allo_dse.mapper.program import Program
from allo_dse.simulator.engine.engine import table_engine
from allo_dse.simulator.engine.run_result import RunResult
from allo_dse.space.design import Design, Draft

from .costs import ANYTHING, TICKS_PER_CYCLE, ProgramWork, blocks_of, host_us, macs_of, peak_of
from .mapping import NpuMapping
from .movement.movement import Transport
from .movement.periods import GroupSchedule
from .movement.streams import Links
from .network import build_npu_network, is_paged, ports_of_nodes, timed_flows

# Accuracy of a predicted latency, from comparisons with measurements in the device file.


_MOVES = frozenset({"copy", "fill", "get", "put"})
_MATMUL, _GEMV = "matmul", "gemv"


def operations_of(program: Program) -> tuple[str, ...]:
    """Return the names of a program's operations, sorted.

    Moving tiles, adding to a product and turning its operands count only if the program does nothing else.
    """
    ops = [op for cls in program.task_classes for op in cls.work]
    kinds = {_GEMV if op.kind == _MATMUL and op.shape[2] == 1 else op.kind for op in ops}
    accumulating = {"add"} if kinds & {_MATMUL, _GEMV} else set()
    found = (kinds - _MOVES - accumulating) or kinds
    return tuple(sorted(found - {"transpose"} if found == {_MATMUL, "transpose"} else found))


def accuracy_of(design: Design, latency_us: float) -> Accuracy | None:
    """Return the accuracy of a predicted latency; None if nothing was compared with measurements."""
    tensors = design.program.tensors
    element = type_key(tensors[0].dtype) if tensors else ""
    return NpuDevice.of(design.device).accuracy_of(operations_of(design.program), element, latency_us)


def overdue(device: NpuDevice, latency_us: float, percent: float = 0.0) -> str:
    """Return a warning about a call that the driver aborts, or may abort within its range; empty if it runs."""
    limit_s = device.host.call_timeout_s
    if latency_us * (1 + percent / 100) <= limit_s * 1e6:
        return ""
    return (
        f"a call {'takes' if latency_us > limit_s * 1e6 else 'may take'} longer than the {limit_s:g} s after which the "
        "driver aborts it: load amdxdna with a longer tdr_timeout_ms (older drivers: timeout_in_sec), or share the "
        "work out over several calls"
    )


# Bounds of an NPU design before it is simulated: the work of its resources.
#
#     level 0    from the fold alone: tasks per node, and the tiles that its loops make each node fetch again
#     level 1    from the transport plan: also the host's rewrites of descriptors
#     level 2    from the plan and the schedules: work of cores, channels and DRAM between two of these rewrites
#
# Level 0 takes tens of microseconds. Level 2 takes as long as checking the device's limits, which need plan and
# schedules too. Level 1 takes half of that, and decides about most designs. Every resource of `network.py` serves its
# times without overlap, so their sum is a lower bound of the simulated time.


class NpuBounds:
    """Bounds on results of `NpuSimulator`; caches data shared by designs of one program."""

    levels = 3
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
        """Return the bounds of the metrics that a level bounds.

        Raises:
            SimulationError: where it is not known what a task costs.
        """
        return (_fold_bounds, _rewrite_bounds, _plan_bounds)[level](design, self._work(design.program, design.device))

    def of_region(self, draft: Draft, nodes: int, layout: Layout | None = None) -> Bounds:
        """Return bounds for all folds of a draft onto a number of nodes.

        Each tile is moved at least once, or as often as the best order of the loops allows.

        Raises:
            SimulationError: if the cost of a task is unknown.
        """
        work = self._work(draft.compiled, draft.device)
        if layout is not None:
            sharing = node_sets(layout.chains, range(len(layout.sizes)))
            return work.laid_out(nodes, layout.sizes, sharing, draft.buffering, work.moved(work.walks(layout.sizes)))
        several = [[(k, (2,) * len(kernel.mesh))] for k, kernel in enumerate(work.program.kernels)]
        memory = max(work.limits.core_bytes(kernel, draft.buffering) for kernel in several)
        moving, total = work.moved_once
        # However work is shared out, some node has no less than the mean.
        run = max(sum(work.kernel_ticks) / nodes, moving)
        return work.bounds(nodes, run, 0, (memory, ANYTHING), (total, ANYTHING))

    def _work(self, program: Program, device: Device) -> ProgramWork:
        key = program, device.key
        if key not in self._programs:
            self._programs[key] = ProgramWork(program, NpuDevice.of(device))
        return self._programs[key]


def _fold_bounds(design: Design, work: ProgramWork, rewrites: int = 0) -> Bounds:
    """Return bounds from the fold alone, and from descriptor rewrites that are known already."""
    fold = design.fold
    if not isinstance(fold, MeshFold):
        moving, total = work.moved_once
        run = max(sum(work.kernel_ticks) / fold.node_count, moving)
        return work.bounds(fold.node_count, run, rewrites, (0, ANYTHING), (total, ANYTHING))
    sizes = [tuple(axis.spatial for axis in kernel.axes) for kernel in fold.kernels]
    chains = JointFold.of(work.program.vmg.graph, fold).chains
    sharing = node_sets(chains, range(len(sizes)))
    walks = [[(own, kernel.order)] for own, kernel in zip(sizes, fold.kernels, strict=True)]
    return work.laid_out(fold.node_count, sizes, sharing, design.buffering, work.moved(walks), rewrites)


def _rewrite_bounds(design: Design, work: ProgramWork) -> Bounds:
    """Return bounds from the fold and the transport plan's descriptors; from the fold alone without a plan."""
    transport = NpuMapping.of(design).transport
    return _fold_bounds(design, work, 0 if transport.violations else transport.host_rewrites)


def _plan_bounds(design: Design, work: ProgramWork) -> Bounds:
    """Return bounds from the transport plan and the schedules: the work between two interventions of the host."""
    mapping = NpuMapping.of(design)
    if mapping.early_violations or mapping.transport.violations:
        return _rewrite_bounds(design, work)
    transport, schedules = mapping.transport, mapping.view.periods
    plan = _Plan(work, transport, schedules)
    blocks = blocks_of(schedules[0].periods, transport, work.device.board)
    # The host rewrites a descriptor when nothing is in flight, so blocks do not overlap and their bounds add up.
    ticks = sum(count * plan.block_ticks(periods) for periods, count in blocks)
    dram = float(transport.dram_bytes)
    memory = float(mapping.local_memory_bytes)
    return work.bounds(design.vmg.node_count, ticks, transport.host_rewrites, (memory, memory), (dram, dram))


class _Plan:
    """A transport plan as sums over its resources."""

    def __init__(self, work: ProgramWork, transport: Transport, schedules: Sequence[GroupSchedule]) -> None:
        self._work, self._schedules = work, schedules
        ports = ports_of_nodes(schedules)
        self._moved = list(timed_flows(schedules, transport, work.device))
        # Per node, the least wait of its first task, and the time for the results of its last one to leave.
        self._waits = [{"in": 0, "out": 0} for _ in ports]
        for flow, _, _, ticks, _ in self._moved:
            for node, port in zip(flow.nodes, flow.ports, strict=True):
                used = ports[node][port]
                # The first task of a block takes a tile of the port, or the last one gives one away.
                if used.first[0] if used.key[1] == "in" else used.first[-1] and used.steady[-1]:
                    own = self._waits[node]
                    own[flow.direction] = max(own[flow.direction], ticks.shim + ticks.channel)

    def block_ticks(self, periods: int) -> float:
        """Return a lower bound of a block's time: the work of its busiest resource."""
        # Each of these is the work of one server that does one thing at a time, so the slowest is a lower bound.
        busy: Counter[object] = Counter()
        for number, (flow, transfer, cadence, ticks, _) in enumerate(self._moved):
            moves = cadence.over(periods)
            busy[flow.direction] += moves * ticks.dram
            busy["shim", transfer.index] += moves * ticks.shim
            busy["memory tile", number] += moves * ticks.channel
        return max(*busy.values(), self._busiest_core(periods))

    def _busiest_core(self, periods: int) -> float:
        """The busiest node computes once its first tiles have arrived; its last ones leave when it has computed."""
        node, longest = 0, 0.0
        for schedule in self._schedules:
            # Before its first tile and after its last one a core is idle, so these waits add to its work.
            computed = self._work.tree_ticks(schedule.group.tree) / schedule.periods * periods
            last = node + schedule.group.count
            longest = max(longest, computed + max(sum(own.values()) for own in self._waits[node:last]))
            node = last
        return longest


# Key of a design's network: designs of a program with equal keys take the same time, and only one is simulated.
#
# Folds may differ in the tiles of a node, but not in the times at which it needs others, and have equal networks.


def network_key(
    program: CompiledProgram, schedules: Sequence[GroupSchedule], links: Links, transport: Transport, device: NpuDevice
) -> bytes:
    """Equal only for designs of one program for which `build_npu_network` makes equal networks."""
    tensors = {tensor.name: tensor for tensor in program.tensors}
    flows = [(flow.nodes, flow.ports, flow.tile_bytes, flow.run_bytes, flow.depth) for flow in transport.flows]
    transfers = [(t.flows, t.depth, is_paged(t, tensors[t.tensor], device.board)) for t in transport.transfers]
    channels = [sorted(links.depth.items()), *((own.channels, [*own.uses.by_leaf.items()]) for own in links.groups)]
    parts = (device.array_key, list(_nodes(schedules)), channels, flows, transfers)
    return hashlib.blake2b(msgpack.encode(parts), digest_size=16).digest()


def _nodes(schedules: Sequence[GroupSchedule]) -> Iterator[object]:
    for schedule in schedules:
        # Classes by work can have equal names; they live as long as the program.
        yield schedule.group.count, [id(cls) for cls in schedule.work_list], schedule.work.tobytes()
        for port in schedule.ports:
            flags = [flags.tobytes() for flags in (port.first, port.steady, port.last_use)]
            yield port.key, port.port.tile_bytes, flags


class _Timed(NamedTuple):
    """Results of simulating a number of periods. Ticks.

    Attributes:
        ticks: from the first operation to the last.
        core: of the busiest core, per period.
        channel: of the busiest DMA channel, per later period.
        dram: of service in the first period, and in each later one.
    """

    ticks: float
    core: float
    channel: float
    dram: tuple[int, int]


class _Block(NamedTuple):
    """A run of periods between two host interventions, its time, and the number of such blocks."""

    periods: int
    times: int
    timed: _Timed


class NpuSimulator:
    """Times a design on an NPU: cores, DMA channels, memory tiles and DRAM as processes with exact clocks.

    Between two rewrites of shim descriptors by the host the array runs undisturbed; a rewrite waits until everything
    in flight has arrived. The latency is the host's part of the call, plus the simulated time between rewrites.
    """

    name = "npu-simulator"
    version = "7"
    quick = True
    metrics = NpuBounds.metrics | {"bound", "bottleneck", "latency_range", "evaluator"}

    def bounding(self) -> NpuBounds:
        """Return the bounds of designs before evaluation."""
        return NpuBounds()

    def evaluate(self, design: Design) -> Metrics:
        """Metrics of one design that has passed the device checks.

        Raises:
            SimulationError: if the design deadlocks.
        """
        mapping, device = NpuMapping.of(design), NpuDevice.of(design.device)
        view, transport = mapping.view, mapping.transport
        array = network_key(design.program, view.periods, view.channels, transport, device)
        known = design.vmg.graph.table("simulated times")
        blocks = []
        for periods, times in blocks_of(view.periods[0].periods, transport, device.board):
            key = array, periods
            timed = known.get(key) or keep(known, key, _simulated(design, transport, periods), MOST_SMALL_KEPT)
            blocks.append(_Block(periods, times, timed))
        return _metrics(design, view.periods, transport, blocks)


def _simulated(design: Design, transport: Transport, periods: int) -> _Timed:
    """Simulate a number of periods of a design.

    Raises:
        SimulationError: if it deadlocks.
    """
    view = NpuMapping.of(design).view
    built = build_npu_network(view.periods, view.channels, transport, NpuDevice.of(design.device), periods)
    result = table_engine().run(built.network, extrapolate=True)
    if not result.finished:
        raise SimulationError(
            f"the design deadlocks: {_waiting(design, view.channels, result)}",
            hint="raise the depths of buffers (`Buffering`), or of the streams where they are declared",
        )
    return _Timed(float(result.cycles), max(built.core_ticks), built.channel_ticks, built.dram_ticks)


def _waiting(design: Design, links: Links, result: RunResult) -> str:
    """Describe the nodes that wait and their streams; nodes that wait for tiles of tensors are only counted."""
    assert result.deadlock is not None
    names, channels = design.vmg.nodes, sorted(links.depth)
    first_stream = result.network.stream_count - 2 * len(channels)
    first_core = result.network.node_count - len(names)
    said, others = [], 0
    for blocked in result.deadlock.cycle or result.deadlock.blocked:
        place, is_room = divmod(blocked.stream - first_stream, 2)
        if blocked.node < first_core or place < 0:
            others += 1
            continue
        source, target, name = channels[place]
        said.append(f"{names[blocked.node - first_core]} waits for {'room in' if is_room else 'a token of'} {name} "
                    f"(depth {links.depth[channels[place]]}) from {names[source]} to {names[target]}")  # fmt: skip
    return "; ".join([*said[:4], *([f"{others} wait for tiles of tensors"] if others else [])])


def _metrics(
    design: Design, schedules: tuple[GroupSchedule, ...], transport: Transport, blocks: list[_Block]
) -> Metrics:
    device = NpuDevice.of(design.device)
    board = device.board
    cycles_per_us = board.clock_ghz * 1e3
    run_us = sum(block.timed.ticks * block.times for block in blocks) / TICKS_PER_CYCLE / cycles_per_us
    waited_us = host_us(design.program, device, transport.host_rewrites)
    latency_us = run_us + waited_us
    macs, cores = macs_of(schedules), design.vmg.node_count
    busy = {
        "compute": sum(b.times * b.periods * b.timed.core for b in blocks),
        "DRAM": sum(b.times * (b.timed.dram[0] + (b.periods - 1) * b.timed.dram[1]) for b in blocks),
        "DMA channel": sum(b.times * b.periods * b.timed.channel for b in blocks),
    }
    bound = {name: ticks / TICKS_PER_CYCLE / cycles_per_us / latency_us for name, ticks in busy.items()}
    bound["host"] = waited_us / latency_us
    known = accuracy_of(design, latency_us)
    peak = peak_of([cls for group in schedules for cls in group.class_list], device)
    return Metrics(
        latency_us=latency_us,
        latency_cycles=round(latency_us * cycles_per_us),
        throughput_gops=2 * macs / latency_us * 1e-3,
        pe_count=cores,
        utilization=macs / (peak * cores * latency_us * cycles_per_us) if peak else 0.0,
        local_memory_bytes=NpuMapping.of(design).local_memory_bytes,
        dram_bytes=transport.dram_bytes,
        bound={name: round(share, 4) for name, share in bound.items()},
        bottleneck=max(bound, key=lambda name: bound[name]),
        latency_range={
            # Nine of ten are within these per cent.
            "percent": device.unmeasured_percent if known is None else known.percent,
            "measurements": 0 if known is None else known.measurements,
        },
        evaluator=f"{NpuSimulator.name} {NpuSimulator.version}",
    )
