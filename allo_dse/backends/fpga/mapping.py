"""A folded graph on an FPGA: the cost of each task class, and the total resources.

    mapped = FpgaMapping(vmg, device, schedule, depths)
    mapped.cost(task_class)            # TaskCost: times, loops, operators
    mapped.resources["arrays"]         # Resources by part; mapped.total is their sum

A node is a processing element: tasks that a fold puts on one node use the same hardware in turn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np

from allo_dse.common.errors import StaticControlError
from allo_dse.common.records import replace
from allo_dse.compiler.program.compiled import Directive, TaskClass, conflicts, is_region, kept_in_common, of_region
from allo_dse.device.device import Device, FpgaDevice
from allo_dse.device.fpga_model import RESOURCES, Resources
from allo_dse.eval.token_exchange import exchange_depths, stream_deadlock
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.graph_algorithms import topological_levels
from allo_dse.mapper.violation import Violation
from allo_dse.space.backend import backend_of
from allo_dse.space.design import Design

from .cost.memory import fifo_resources
from .cost.task_cost import Measured, TaskCost, task_cost
from .shared_costs import BITS_PER_BYTE, Fifos, Pid, Scheduled, SharedCosts, TensorUse, observed_of

_HANG_ON_DEPTHS = ("depths", "resources", "total", "violations")


@dataclass(frozen=True, eq=False)
class FpgaMapping:
    """A folded graph with a schedule on an FPGA: costs of its tasks, FIFOs and tensors.

    Attributes:
        schedule: directives in addition to the program's.
        depths: stream depths by array name, if they differ from the declared ones.
        slowdown: as of `Design`.
        measured: known times of loops, per kernel and class (see `task_cost`).
        rates: known elements per cycle of a tensor's copies, by its name.
        run: index of the timed run on given inputs, if data decides.
    """

    vmg: VMG
    device: FpgaDevice
    schedule: tuple[Directive, ...] = ()
    depths: Mapping[str, int] | None = None
    slowdown: float | None = None
    measured: Mapping[tuple[str, str], Mapping[int, Measured]] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    run: int = 0

    @staticmethod
    def of(design: Design) -> FpgaMapping:
        """Return the mapping of a design.

        Raises:
            DeviceError: for a design on a device that is not an FPGA.
        """
        FpgaDevice.of(design.device)
        return cast(FpgaMapping, design.mapping)

    def on(self, device: Device) -> FpgaMapping:
        """The mapping on another FPGA."""
        return replace(self, device=FpgaDevice.of(device))

    @property
    def violations(self) -> tuple[Violation, ...]:
        """All limits of the device that the mapping exceeds; empty when it fits."""
        found = fpga_violations(self)
        # Designs that are rejected anyway need no execution.
        return tuple(found or [*stream_deadlock(exchange_depths(self.vmg))] or self._waiting_pipelines())

    def _waiting_pipelines(self) -> Iterator[Violation]:
        """Pipelines that wait for each other at any depths, though tasks in the order of the program do not (T7)."""
        edges, node = self.vmg.graph.edges, self.vmg.node_of_task
        source, target = node[edges.source], node[edges.target]
        between = source != target
        if (topological_levels(source[between], target[between], self.vmg.node_count) >= 0).all():
            return  # no FIFO that is deep enough blocks
        backend: Any = backend_of(self.device)
        if waiting := backend.waiting_pipelines(self):
            yield Violation("stream_deadlock", "pipelines deadlock at any stream depths", 1, 0, waiting)

    @property
    def early_violations(self) -> tuple[Violation, ...]:
        """None: every violation takes the costs of all tasks."""
        return ()

    @property
    def facts(self) -> dict[str, int]:
        """Metrics that need no evaluator: none."""
        return {}

    @cached_property
    def _reported(self) -> dict[tuple[str, str, Pid], TaskCost]:
        return {}

    def cost(self, task_class: TaskClass, pid: Pid = ()) -> TaskCost:
        """Return the times and operators of a class; of the task with `pid` if tasks of the class differ.

        Raises:
            SimulationError: where control depends on data.
        """
        pid = self.shared.deciding(task_class, pid, self.run)
        known = self.measured.get((task_class.kernel, task_class.name))
        if not known:
            return self.scheduled.cost(task_class, pid, self.run)
        key = task_class.kernel, task_class.name, pid
        if key not in self._reported:
            observed = observed_of(self.vmg.program, task_class, pid, self.run)
            own = self.scheduled.edged_class(task_class)
            self._reported[key] = task_cost(
                self.scheduled.edged.program, own, self.device, self.schedule, pid, known, observed
            )
        return self._reported[key]

    @property
    def remarks(self) -> list[str]:
        """Sentences about directives without effect, and about a clock that operators have no figures for.

        Raises:
            SimulationError: where control depends on data.
        """
        found = [self.device.beyond_figures] if self.device.beyond_figures else []
        for task_class, pid, *_ in self.shared.alike(self.run):
            lost = self.cost(task_class, pid).not_pipelined
            found += [f"{task_class.kernel}:{name} is not pipelined: {why}" for name, why in lost]
        return list(dict.fromkeys(found))

    @property
    def operations(self) -> int:
        """Arithmetic operations of the whole program; a multiply-add is two."""
        return sum(self.cost(cls, pid).operations * len(tasks) for cls, pid, tasks, _ in self.shared.alike(self.run))

    @property
    def runs(self) -> tuple[FpgaMapping, ...]:
        """The mapping in each of the program's runs on given inputs; only this one if data decides nothing."""
        return tuple(replace(self, run=number) for number in range(len(self.vmg.program.runs))) or (self,)

    @cached_property
    def shared(self) -> SharedCosts:
        """Costs shared by all designs of the program."""
        return self.vmg.graph.once(SharedCosts, self.device)

    @cached_property
    def scheduled(self) -> Scheduled:
        """Costs shared by all designs with its schedule."""
        return self.shared.scheduled(self.schedule, self.rates)

    @property
    def tensors(self) -> tuple[TensorUse, ...]:
        """The tensors that tasks use."""
        return self.scheduled.tensors

    @property
    def streamed(self) -> Mapping[str, TensorUse]:
        """The tensors that stay in DRAM, by name: a node has the tile of the task at work, and in a FIFO the next."""
        return self.scheduled.streamed

    @property
    def dram_bytes(self) -> int:
        """Bytes that are read from DRAM and written there."""
        return self.scheduled.copied_bytes + sum(map(self.moved_bytes, self.streamed.values()))

    def moved_bytes(self, use: TensorUse) -> int:
        """Return the bytes copied of a tensor that stays in DRAM, counting repeated copies."""
        words = sum(self.vmg.uses.moved_words(use.tensor.name, does) for does in use.directions)
        return words * use.tensor.dtype.bits // BITS_PER_BYTE

    @cached_property
    def resources(self) -> dict[str, Resources]:
        """By part: logic, arrays (their own and copies of tensors), streams, tensors (AXI)."""
        # Between tasks that a node runs in turn are buffers.
        inside = tuple((one.array, one.number, one.tokens) for one in self.vmg.uses.buffers)
        tables = [(self._table_of_tiles(use), use.reads + use.writes) for use in self.streamed.values()]
        direct = [(self.scheduled.adapter(use), self.ports(use)) for use in self.tensors if use.place == "direct"]
        tensors = Resources.weighted([(self.scheduled.interfaces, 1), *direct, *tables])
        return {
            **self.processing,
            "streams": self.shared.fifos(inside + self._deep(self.depths or {})),
            "tensors": tensors,
        }

    def ports(self, use: TensorUse) -> int:
        """Return the AXI ports of a tensor: at most one, or one per node if tasks access it in DRAM themselves."""
        if use.place != "direct":
            return int(use.uses_port)
        users = [
            tasks
            for task_class, tasks, _ in self.vmg.program.tasks_by_class
            if any(port.tensor == use.tensor for port in task_class.used_ports)
        ]
        return len(np.unique(self.vmg.node_of_task[np.concatenate(users)]))

    @cached_property
    def processing(self) -> dict[str, Resources]:
        """The parts of `resources` for processing elements, which do not depend on streams."""
        logic, arrays = [], []
        for number, group in enumerate(self.vmg.groups):
            for _, task_class, pid in self.vmg.uses.classes[number]:
                cost = self.cost(task_class, pid)
                logic.append((cost.logic, group.count))
                arrays.append((cost.arrays(self.device, self._held(number, task_class, cost)), group.count))
            if self.streamed:
                arrays.append((self._tile_fifos(number), group.count))
        return {"logic": Resources.weighted(logic), "arrays": Resources.weighted(arrays)}

    def _held(self, group: int, task_class: TaskClass, cost: TaskCost) -> tuple[int, ...]:
        """Return the number of copies of each array of a class on a node of a group."""
        ports, uses = {port.arg: port for port in task_class.tensor_ports}, self.vmg.uses
        held = (self.scheduled.held(storage, ports) for storage in cost.storages.values())
        # Tasks on nodes of their own overlap with the copies of their double-buffered tiles. Nodes with several tasks
        # keep tiles in arrays.
        overlaps = 1 < self.vmg.node_count == self.vmg.task_count
        return tuple(
            one if isinstance(one, int) else uses.tiles(group, task_class, one[0]) * (2 if one[1] and overlaps else 1)
            for one in held
        )

    @property
    def total(self) -> Resources:
        """Everything the design takes."""
        return Resources.total(self.resources.values())

    def at(self, depths: Mapping[str, int]) -> FpgaMapping:
        """Return the mapping at other stream depths, with all cached results that do not depend on them."""
        other = replace(self, depths=depths)
        vars(other).update((name, value) for name, value in vars(self).items() if name not in _HANG_ON_DEPTHS)
        return other

    def _tile_fifos(self, group: int) -> Resources:
        """Return the resources of one node's tile FIFOs: for the next tile, or the last result, of each tensor in
        DRAM.
        """
        words: dict[tuple[str, str], int] = {}
        for _, task_class, _ in self.vmg.uses.classes[group]:
            for port in task_class.tensor_ports:
                for does in ("reads", "writes"):
                    if port.tensor.name in self.streamed and getattr(port, does):
                        key = port.tensor.name, does
                        words[key] = max(words.get(key, 0), math.prod(port.tile_shape))
        parts = []
        for (name, _), count in words.items():
            use = self.streamed[name]
            parts.append(fifo_resources(self.device, use.tensor.dtype.bits * use.lanes, math.ceil(count / use.lanes)))
        return Resources.total(parts)

    @property
    def fifos(self) -> tuple[tuple[str, int], ...]:
        """Per stream array that is no ping-pong buffer, its name and the number of FIFOs it has between nodes."""
        return tuple(one for one in self.vmg.uses.connections if one[0] not in self.scheduled.edged.banks)

    def _deep(self, depths: Mapping[str, int]) -> Fifos:
        """Return the FIFOs between nodes at these depths; missing depths are as declared."""
        streams = self.shared.streams
        return tuple((name, count, depths.get(name, streams[name].depth)) for name, count in self.fifos)

    def fifos_at(self, depths: Mapping[str, int]) -> Resources:
        """Return the resources of the FIFOs between nodes at these depths; missing depths are as declared."""
        return self.shared.fifos(self._deep(depths))

    def bits_at(self, depths: Mapping[str, int]) -> int:
        """Bits of memory that these are."""
        return self.shared.fifo_bits(self._deep(depths))

    @property
    def fifo_bits(self) -> int:
        """Bits of memory that the FIFOs between nodes are."""
        return self.bits_at(self.depths or {})

    def _table_of_tiles(self, use: TensorUse) -> Resources:
        """Resources of the table of next tiles and their nodes: at most one entry per task."""
        kernels = [k for k in self.vmg.program.kernels if any(arg.name == use.tensor.name for arg in k.args)]
        words = sum(kernel.task_count for kernel in kernels)
        bits = math.prod(use.tensor.shape).bit_length() + self.vmg.node_count.bit_length()
        if words * bits <= self.device.arrays.lutram_bits:
            return Resources(lut=math.ceil(self.device.arrays.lut_per_bit * bits * math.ceil(words / 64)))
        return Resources(bram18=self.device.arrays.bram18(words, bits))


# Limits of an FPGA that a folded graph with its schedule exceeds.


_INTERFACES_PER_PORT = 16  # what one interconnect joins into one port of the memory

_FAR_TOO_LARGE = 8
"""Times a resource of the device: a design that needs more is refused without the cost of connecting its elements."""


def fpga_violations(mapping: FpgaMapping) -> list[Violation]:
    """All limits of an FPGA that a mapping exceeds; empty when it fits."""
    vmg = mapping.vmg
    schedule = (*vmg.program.schedule, *mapping.schedule)
    found = [*_partitions(vmg, schedule), *_common(mapping, schedule), *_interfaces(mapping), *_inside(mapping)]
    try:
        return [*found, *_resources(mapping)]
    except StaticControlError as error:
        return [*found, Violation("static_control", vmg.program.name, 1, 0, f"{error.message}; {error.hint}")]


def _partitions(vmg: VMG, schedule: Sequence[Directive]) -> Iterator[Violation]:
    """A tensor cannot have more banks along a dimension than elements."""
    shapes = {tensor.name: tensor.shape for tensor in vmg.program.tensors}
    for directive in of_region(vmg.program, schedule):
        shape = shapes.get(directive.name)
        if directive.kind != "partition" or shape is None or not is_region(directive.scope, vmg.program):
            continue
        for axis, banks in directive.banks(shape).items():
            if banks > shape[axis]:
                where = f"dimension {axis + 1} of {directive.name}"
                yield Violation("partition_factor", where, banks, shape[axis])


def _common(mapping: FpgaMapping, schedule: Sequence[Directive]) -> Iterator[Violation]:
    """Yield violations by shared tensors: each has one partition, and needs a port per bank for every task that uses
    it.
    """
    program, ports = mapping.vmg.program, mapping.device.arrays.ports
    for tensor, axis, uses in conflicts(program, schedule):
        yield Violation("partition_conflict", f"dimension {axis + 1} of {tensor}", 2, 1, uses)
    for tensor, common in kept_in_common(program, schedule).items():
        if common.users > ports:
            users = ", ".join(k.name for k in program.kernels if any(arg.name == tensor for arg in k.args))
            yield Violation("bank_ports", tensor, common.users, ports, users)


def _interfaces(mapping: FpgaMapping) -> Iterator[Violation]:
    needed = sum(map(mapping.ports, mapping.tensors))
    limit = mapping.device.external.ports * _INTERFACES_PER_PORT
    if needed > limit:
        yield Violation("axi_interfaces", mapping.device.name, needed, limit)


def _inside(mapping: FpgaMapping) -> Iterator[Violation]:
    banks = mapping.scheduled.edged.banks
    for buffer in mapping.vmg.uses.buffers if banks else ():
        if buffer.array in banks:
            yield Violation("ping_pong", buffer.array, 2, 1, "one node runs both of its tasks, in turn")


def _resources(mapping: FpgaMapping) -> Iterator[Violation]:
    """Yield exceeded resources; only those of processing elements if these alone exceed the device several times."""
    alone = list(_beyond(mapping, mapping.processing))
    is_hopeless = any(violation.needed > _FAR_TOO_LARGE * violation.limit for violation in alone)
    yield from alone if is_hopeless else _beyond(mapping, mapping.resources)


def _beyond(mapping: FpgaMapping, parts: Mapping[str, Resources]) -> Iterator[Violation]:
    total = Resources.total(parts.values())
    for resource in RESOURCES:
        needed, limit = getattr(total, resource), mapping.device.limit(resource)
        if needed > limit:
            detail = ", ".join(f"{part} {n:,}" for part, r in parts.items() if (n := getattr(r, resource)))
            yield Violation(resource, mapping.device.name, needed, limit, detail)


# Tensors that several kernels use: one partition serves all of them, and may be too small for one.
#
# `partition` of a region's tensor is one directive, so every kernel gets the same banks. A kernel's loop may still wait
# for ports if its accesses go along another dimension, or in other steps, than the banks.


def partition_conflicts(mapping: FpgaMapping) -> list[str]:
    """Return sentences about tensors of at least two kernels whose partition does not serve all of them.

    Each names the uses by kernel, those that wait last; of a kernel that of the class that waits longest.

    Raises:
        SimulationError: where control depends on data.
    """
    uses: dict[str, dict[str, tuple[int, int, str]]] = {}
    classes = {(k.name, c.name): (k, c, pid) for own in mapping.vmg.uses.classes for k, c, pid in own}
    for kernel, task_class, pid in classes.values():
        place = f"{kernel.name} ({kernel.location})" if kernel.location is not None else kernel.name
        cost = mapping.cost(task_class, pid)
        tensors = {port.arg: port.tensor.name for port in task_class.used_ports if port.tensor.shape}
        for name, storage in cost.storages.items():
            if storage.array.argument in tensors:
                slow = [(loop.ii, loop.names[-1]) for loop in cost.loops if loop.limit == f"ports of {name}"]
                ii, loop = max(slow, default=(0, ""))
                waits = f"are too few for {place}, whose loop {loop} waits for their ports (interval {ii})"
                own = ii, storage.banks, waits if ii else f"serve {place}"
                of_tensor = uses.setdefault(tensors[storage.array.argument], {})
                of_tensor[kernel.name] = max(of_tensor.get(kernel.name, own), own, key=lambda use: use[0])
    found = []
    for tensor, by_kernel in uses.items():
        ordered = sorted(by_kernel.values(), key=lambda use: use[0] > 0)
        if len(ordered) > 1 and ordered[-1][0]:
            banks = max(banks for _, banks, _ in ordered)
            found.append(f"the {banks} bank{'s' * (banks > 1)} of {tensor} {', '.join(words for *_, words in ordered)}")
    return found
