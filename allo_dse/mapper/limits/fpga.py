"""A folded graph on an FPGA: what each task class costs, and the resources of the whole.

    mapped = FpgaCosts(vmg, device, schedule, depths)
    mapped.cost(task_class)            # TaskCost: times, loops, operators
    mapped.resources["arrays"]         # Resources by part; mapped.total is their sum

A node is a processing element: tasks that a fold puts on one node use the same hardware in turn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from allo_dse.backends.fpga.costs import observed_of
from allo_dse.backends.fpga.fifo import fifo_resources
from allo_dse.backends.fpga.task import Measured, TaskCost, task_cost
from allo_dse.common.records import replace
from allo_dse.device.device import FpgaDevice
from allo_dse.device.fpga_model import Resources
from allo_dse.program.directive import Directive
from allo_dse.program.tasks import TaskClass

from ..fold.vmg import VMG
from .fpga_schedule import BITS_PER_BYTE, Fifos, Pid, Processing, Scheduled, SharedCosts, TensorUse

_HANG_ON_DEPTHS = ("depths", "resources", "total")


@dataclass(frozen=True, eq=False)
class FpgaCosts:
    """What a folded graph with a schedule costs on a device: its tasks, FIFOs and tensors.

    Attributes:
        schedule: directives beside those of the program.
        depths: stream depths by array name, where they differ from the declared ones.
        measured: per kernel and class what is known of its loops (see `task_cost`).
        rates: elements per cycle that a tensor's copies are known to move, by its name.
        run: which of the program's runs on given inputs is timed, where data decides.
    """

    vmg: VMG
    device: FpgaDevice
    schedule: tuple[Directive, ...] = ()
    depths: Mapping[str, int] | None = None
    measured: Mapping[tuple[str, str], Mapping[int, Measured]] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    run: int = 0

    @cached_property
    def _reported(self) -> dict[tuple[str, str, Pid], TaskCost]:
        return {}

    def cost(self, task_class: TaskClass, pid: Pid = ()) -> TaskCost:
        """Times and operators of a class; `pid` of the task, where tasks of the class differ.

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
            self._reported[key] = task_cost(
                self.vmg.program, task_class, self.device, self.schedule, pid, known, observed
            )
        return self._reported[key]

    @property
    def operations(self) -> int:
        """Arithmetic operations of the whole program; a multiply-add is two."""
        return sum(self.cost(cls, pid).operations * len(tasks) for cls, pid, tasks, _ in self.shared.alike(self.run))

    @property
    def runs(self) -> tuple[FpgaCosts, ...]:
        """The mapping in each of the program's runs on given inputs; just this one where data decides on nothing."""
        return tuple(replace(self, run=number) for number in range(len(self.vmg.program.runs))) or (self,)

    @cached_property
    def shared(self) -> SharedCosts:
        """What it has in common with all designs of the program."""
        return SharedCosts.of(self.vmg.graph, self.device)

    @cached_property
    def scheduled(self) -> Scheduled:
        """What it has in common with those that have its schedule."""
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
        """Of a tensor that stays in DRAM, as often as they come and go."""
        words = sum(self.vmg.uses.moved_words(use.tensor.name, does) for does in use.directions)
        return words * use.tensor.dtype.bits // BITS_PER_BYTE

    @cached_property
    def resources(self) -> dict[str, Resources]:
        """By part: logic, arrays (their own and copies of tensors), streams, tensors (AXI)."""
        return {**self.processing, "streams": self._streams(), "tensors": self._axi()}

    @cached_property
    def processing(self) -> Processing:
        """The parts of `resources` that processing elements take, which are known without a look at any stream."""
        fold = self.vmg.mesh_fold
        if fold is None or self.measured or self.run:
            return self._processing()
        return self.shared.processing((fold, self.scheduled.processing_key), self._processing)

    def _processing(self) -> Processing:
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
        """How many of each array of a class a node of a group has."""
        held, uses = self.scheduled.held(task_class, cost), self.vmg.uses
        # Tasks on nodes of their own overlap with what hands them their tiles, which are double-buffered; nodes with
        # several keep them in arrays.
        overlaps = 1 < self.vmg.node_count == self.vmg.task_count
        return tuple(
            one if isinstance(one, int) else uses.tiles(group, task_class, one[0]) * (2 if one[1] and overlaps else 1)
            for one in held
        )

    @property
    def total(self) -> Resources:
        """Everything the design takes."""
        return Resources.total(self.resources.values())

    def at(self, depths: Mapping[str, int]) -> FpgaCosts:
        """The same at other depths of its streams, on which nothing that is kept depends but their resources."""
        other = replace(self, depths=depths)
        vars(other).update((name, value) for name, value in vars(self).items() if name not in _HANG_ON_DEPTHS)
        return other

    def _tile_fifos(self, group: int) -> Resources:
        """Of one node: a FIFO for the next tile, or the last result, of each tensor that stays in DRAM."""
        words: dict[tuple[str, str], int] = {}
        for _, task_class, _ in self.vmg.uses.classes[group] if self.streamed else ():
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
        """Per stream array its name and the number of FIFOs it has between nodes."""
        return self.vmg.uses.connections

    def _streams(self) -> Resources:
        """FIFOs between nodes, and inside nodes, where tasks run in turn, buffers for what one leaves for others."""
        inside = tuple((one.array, one.number, one.tokens) for one in self.vmg.uses.buffers)
        return self.shared.fifos(inside + self._deep(self.depths or {}))

    def _deep(self, depths: Mapping[str, int]) -> Fifos:
        """The FIFOs between nodes at these depths, and as declared where they say none."""
        streams = self.shared.streams
        return tuple((name, count, depths.get(name, streams[name].depth)) for name, count in self.fifos)

    def fifos_at(self, depths: Mapping[str, int]) -> Resources:
        """What the FIFOs between nodes take at these depths, and as declared where they say none."""
        return self.shared.fifos(self._deep(depths))

    def bits_at(self, depths: Mapping[str, int]) -> int:
        """Bits of memory that these are."""
        return self.shared.fifo_bits(self._deep(depths))

    @property
    def fifo_bits(self) -> int:
        """Bits of memory that the FIFOs between nodes are."""
        return self.bits_at(self.depths or {})

    def _table_of_tiles(self, use: TensorUse) -> Resources:
        """Memory that says which tile is next and which nodes it is for: an entry for each task at most."""
        kernels = [k for k in self.vmg.program.kernels if any(arg.name == use.tensor.name for arg in k.args)]
        words = sum(kernel.task_count for kernel in kernels)
        bits = math.prod(use.tensor.shape).bit_length() + self.vmg.node_count.bit_length()
        if words * bits <= self.device.arrays.lutram_bits:
            return Resources(lut=math.ceil(self.device.arrays.lut_per_bit * bits * math.ceil(words / 64)))
        return Resources(bram18=self.device.arrays.bram18(words, bits))

    def _axi(self) -> Resources:
        tables = [(self._table_of_tiles(use), use.reads + use.writes) for use in self.streamed.values()]
        return Resources.weighted([(self.scheduled.interfaces, 1), *tables])
