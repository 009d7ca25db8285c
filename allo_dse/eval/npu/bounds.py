"""What an NPU design cannot be better than, before it is simulated: the work that its resources have to do.

    level 0    from the fold alone: tasks over nodes, and the tiles that its loops let each node fetch again
    level 1    from the transport plan: how often the host rewrites descriptors, too
    level 2    from the plan and the schedules: what cores, channels and DRAM do from one such intervention to the next

The first costs tens of microseconds, the last as much as checking the device's limits, which need plan and schedules
too; what the host does takes half of that, and decides about most designs. Every resource of `network.py`, a process or
a shared one, works off its times without overlap: their sum is a lower bound of the simulated time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from allo_dse.device.device import Device, NpuDevice
from allo_dse.mapper.fold.fold import MeshFold
from allo_dse.mapper.fold.joint import JointFold
from allo_dse.mapper.graph.kernel_graph import node_sets
from allo_dse.mapper.graph.node_schedules import Cadence, GroupSchedule, PortSchedule
from allo_dse.mapper.model.movement import Flow, Transport
from allo_dse.mapper.program import Program
from allo_dse.mapper.search.fold_space import Layout
from allo_dse.space.design import Design
from allo_dse.space.draft import Draft

from ..bounding import Bounds
from .network import is_paged, ports_of_nodes
from .program_work import ANYTHING, DIRECTIONS, ProgramWork
from .work import TileTicks, blocks_of


class NpuBounds:
    """Bounds what `NpuSimulator` says of designs; keeps what designs of one program have in common."""

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
        """Bounds of the metrics that a level can say something of.

        Raises:
            SimulationError: where it is not known what a task costs.
        """
        return (_fold_bounds, _rewrite_bounds, _plan_bounds)[level](design, self._work(design.program, design.device))

    def of_region(self, draft: Draft, nodes: int, layout: Layout | None = None) -> Bounds:
        """Bounds for all folds of a draft onto so many nodes: each tile is moved once at least, or as often as the best
        order of the loops lets it.

        Raises:
            SimulationError: where it is not known what a task costs.
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
    """From the fold alone, and what the host is known to rewrite."""
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
    """From the fold and the transport plan's descriptors; the fold alone where there is no plan."""
    transport = design.mapping.transport
    return _fold_bounds(design, work, 0 if transport.violations else transport.host_rewrites)


def _plan_bounds(design: Design, work: ProgramWork) -> Bounds:
    """From the transport plan and the schedules: what is done from one intervention of the host to the next."""
    mapping = design.mapping
    if mapping.core_violations or mapping.transport.violations:
        return _rewrite_bounds(design, work)
    transport, schedules = mapping.transport, mapping.view.periods
    plan = _Plan(work, transport, schedules)
    blocks = blocks_of(schedules[0].periods, transport, work.device.board)
    # The host rewrites a descriptor when nothing is in flight, so blocks do not overlap and their bounds add up.
    ticks = sum(count * plan.block_ticks(periods) for periods, count in blocks)
    dram = float(transport.dram_bytes)
    memory = float(mapping.local_memory_bytes)
    return work.bounds(design.vmg.node_count, ticks, transport.host_rewrites, (memory, memory), (dram, dram))


class _Moved(NamedTuple):
    """A flow with what a tile of it takes, and how often one moves. Times are ticks."""

    flow: Flow
    cadence: Cadence
    ticks: TileTicks


class _Plan:
    """A transport plan as sums over its resources."""

    def __init__(self, work: ProgramWork, transport: Transport, schedules: Sequence[GroupSchedule]) -> None:
        self._work, self._schedules = work, schedules
        ports = ports_of_nodes(schedules)
        self._moved: list[_Moved] = []
        self._of_transfer: list[list[_Moved]] = [[] for _ in transport.transfers]
        # Per node, what its first task waits for at least, and what its last one's results take to leave.
        self._waits = [{"in": 0, "out": 0} for _ in ports]
        for flow, transfer in zip(transport.flows, transport.transfer_of_flow, strict=True):
            schedule = ports[flow.nodes[0]][flow.ports[0]]
            paged = is_paged(transfer, schedule.port.tensor, work.device.board)
            ticks = work.tile_ticks(flow.tile_bytes, flow.run_bytes, paged=paged)
            moved = _Moved(flow, schedule.cadence, ticks)
            self._moved.append(moved)
            self._of_transfer[transfer.index].append(moved)
            for node, port in zip(flow.nodes, flow.ports, strict=True):
                if _is_waited_for(ports[node][port]):
                    own = self._waits[node]
                    own[flow.direction] = max(own[flow.direction], ticks.shim + ticks.channel)

    def block_ticks(self, periods: int) -> float:
        """What a block takes at least: any of its resources works so long."""
        dram = (
            sum(m.cadence.over(periods) * m.ticks.dram for m in self._moved if m.flow.direction == way)
            for way in DIRECTIONS
        )  # fmt: skip
        shims = (sum(m.cadence.over(periods) * m.ticks.shim for m in moved) for moved in self._of_transfer)
        memory = (m.cadence.over(periods) * m.ticks.channel for m in self._moved)
        # Each of these is work of one server, which does one thing at a time; the slowest of them is the least that all
        # together can take.
        return max(*dram, max(shims, default=0), max(memory, default=0), self._busiest_core(periods))

    def _busiest_core(self, periods: int) -> float:
        """The busiest node computes once its first tiles have arrived; its last ones leave when it has computed."""
        node, longest = 0, 0.0
        for schedule in self._schedules:
            # Before its first tile and after its last a core has nothing to compute: what these take adds to its work.
            computed = self._work.tree_ticks(schedule.group.tree) / schedule.periods * periods
            last = node + schedule.group.count
            longest = max(longest, computed + max(sum(own.values()) for own in self._waits[node:last]))
            node = last
        return longest


def _is_waited_for(schedule: PortSchedule) -> bool:
    """Whether the first task of a block takes a tile of the port, or the last one gives one away."""
    if schedule.key[1] == "in":
        return bool(schedule.first[0])
    return bool(schedule.first[-1] and schedule.steady[-1])
