"""A folded graph on an FPGA: what each task class costs, and the resources of the whole.

    mapped = FpgaCosts(vmg, device, schedule, depths)
    mapped.cost(task_class)            # TaskCost: times, loops, operators
    mapped.resources["arrays"]         # Resources by part; mapped.total is their sum

A node is a processing element: tasks that a fold puts on one node use the same hardware in turn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

from allo_dse.backends.fpga.costs import observed_of
from allo_dse.backends.fpga.fifo import fifo_bits, fifo_resources
from allo_dse.backends.fpga.task import Measured, TaskCost, deciding_pids, task_cost
from allo_dse.device.device import FpgaDevice
from allo_dse.device.fpga_model import Resources
from allo_dse.program.common_arrays import is_region, of_region
from allo_dse.program.directive import Directive
from allo_dse.program.tasks import TaskClass
from allo_dse.program.tensors import Tensor

from ..fold.vmg import VMG

Pid = tuple[int, ...]
BITS_PER_BYTE = 8
_TENSORS_KEPT = 1024
"""Schedules of one program of which it is known how tensors reach the design."""


@dataclass(frozen=True)
class TensorUse:
    """How a tensor reaches the design.

    Attributes:
        place: "onchip" in the design's memory already, so that nothing is copied; "dram" where it stays, tiles coming
            and going task by task; "auto" copied as a whole, to the nodes that use it and back.
        words_per_cycle: elements that are copied per cycle. lanes: of a word.
    """

    tensor: Tensor
    reads: bool
    writes: bool
    place: str
    words_per_cycle: float
    lanes: int

    @property
    def onchip(self) -> bool:
        return self.place == "onchip"

    def cycles(self, words: int) -> int:
        """What so many elements take to copy."""
        return math.ceil(words / self.words_per_cycle)


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
    def _costs(self) -> dict[tuple[str, str, Pid], TaskCost]:
        return {}

    def cost(self, task_class: TaskClass, pid: Pid = ()) -> TaskCost:
        """Times and operators of a class; `pid` of the task, where tasks of the class differ.

        Raises:
            SimulationError: where control depends on data.
        """
        pid = self.deciding(task_class, pid)
        key = (task_class.kernel, task_class.name, pid)
        if key not in self._costs:
            self._costs[key] = self._cost(task_class, pid)
        return self._costs[key]

    def _cost(self, task_class: TaskClass, pid: Pid) -> TaskCost:
        known = self.measured.get((task_class.kernel, task_class.name))
        if known:
            observed = observed_of(self.vmg.program, task_class, pid, self.run)
            return task_cost(self.vmg.program, task_class, self.device, self.schedule, pid, known, observed)
        return self.vmg.graph.fpga_costs.of(task_class, self.device, self.schedule, pid, self.run)

    def differs(self, task_class: TaskClass) -> bool:
        """Whether tasks of a class take different times."""
        return self._is_observed(task_class) or any(deciding_pids(task_class.body.mlir))

    def deciding(self, task_class: TaskClass, pid: Pid) -> Pid:
        """What tasks of a class that take the same times have in common: of the task's ids those that decide on them,
        and 0 for others; nothing where no id does."""
        if self._is_observed(task_class):
            return pid
        decides = deciding_pids(task_class.body.mlir)
        return tuple(one if own else 0 for one, own in zip(pid, decides, strict=True)) if any(decides) else ()

    def _is_observed(self, task_class: TaskClass) -> bool:
        """Whether data decides on what tasks of a class do."""
        runs = self.vmg.program.runs
        return bool(runs) and (task_class.kernel, task_class.name) in runs[self.run].classes

    @property
    def runs(self) -> tuple[FpgaCosts, ...]:
        """The mapping in each of the program's runs on given inputs; just this one where data decides on nothing."""
        return tuple(replace(self, run=number) for number in range(len(self.vmg.program.runs))) or (self,)

    @cached_property
    def tensors(self) -> tuple[TensorUse, ...]:
        """The tensors that tasks use: the same for all folds of the program with one schedule."""
        known = self.vmg.graph.fpga_tensors
        key = self.device.key, self.schedule, tuple(self.rates.items())
        if key not in known:
            if len(known) == _TENSORS_KEPT:
                known.clear()
            known[key] = tuple(self._tensors())
        return cast(tuple[TensorUse, ...], known[key])

    def _tensors(self) -> Iterator[TensorUse]:
        program = self.vmg.program
        every = of_region(program, (*program.schedule, *self.schedule))
        about = [d for d in every if is_region(d.scope, program)]
        classes = list(program.task_classes)
        for tensor in program.tensors:
            ports = [p for c in classes for p in c.tensor_ports if p.tensor.name == tensor.name]
            reads, writes = any(p.reads for p in ports), any(p.writes for p in ports)
            if tensor.shape and (reads or writes):
                own = [d for d in about if d.name == tensor.name]
                yield TensorUse(tensor, reads, writes, *self._transfer(tensor, own))

    @cached_property
    def streamed(self) -> Mapping[str, TensorUse]:
        """The tensors that stay in DRAM, by name: a node has the tile of the task at work, and in a FIFO the next."""
        return {use.tensor.name: use for use in self.tensors if use.place == "dram"}

    @cached_property
    def dram_bytes(self) -> int:
        """Bytes that are read from DRAM and written there."""
        total = 0
        for use in self.tensors:
            if use.place == "dram":
                total += self.moved_bytes(use)
            elif not use.onchip:
                total += use.tensor.bytes * (use.reads + use.writes)
        return total

    def moved_bytes(self, use: TensorUse) -> int:
        """Of a tensor that stays in DRAM, as often as they come and go."""
        words = self.vmg.uses.moved_words(use.tensor.name, "reads") if use.reads else 0
        words += self.vmg.uses.moved_words(use.tensor.name, "writes") if use.writes else 0
        return words * use.tensor.dtype.bits // BITS_PER_BYTE

    def _transfer(self, tensor: Tensor, about: Sequence[Directive]) -> tuple[str, float, int]:
        """Where a tensor is, and if it is copied, elements per cycle and in a word."""
        options = {d.kind: d.options for d in about}
        said = str(options.get("place", {}).get("memory"))
        bits = min(int(options.get("pack", {}).get("bits", tensor.dtype.bits)), self.device.external.port_bits)
        splits = [d.banks(tensor.shape) for d in about if d.kind == "partition"]
        banks = math.prod(count for split in splits for count in split.values())
        per_port = self.device.external.port_gb_s / self.device.clock_ghz * BITS_PER_BYTE / tensor.dtype.bits
        packed = max(1, bits // tensor.dtype.bits)
        rate = self.rates.get(tensor.name, min(packed, per_port, self.device.arrays.ports * banks))
        return (said if said in ("onchip", "dram") else "auto"), rate, packed

    @property
    def resources(self) -> dict[str, Resources]:
        """By part: logic, arrays (their own and copies of tensors), streams, tensors (AXI)."""
        return {**self.processing, "streams": self._streams(), "tensors": self._axi()}

    @cached_property
    def processing(self) -> dict[str, Resources]:
        """The parts of `resources` that processing elements take, which are known without a look at any stream."""
        logic, arrays = [], []
        for number, group in enumerate(self.vmg.groups):
            for _, task_class, pid in self.vmg.uses.classes[number]:
                cost = self.cost(task_class, pid)
                logic.append(cost.logic * group.count)
                arrays.append(self._arrays(number, task_class, cost) * group.count)
            arrays.append(self._tile_fifos(number) * group.count)
        return {"logic": Resources.total(logic), "arrays": Resources.total(arrays)}

    @property
    def total(self) -> Resources:
        """Everything the design takes."""
        return Resources.total(self.resources.values())

    def at(self, depths: Mapping[str, int]) -> FpgaCosts:
        """The same at other depths of its streams, on which nothing that is kept depends."""
        other = replace(self, depths=depths)
        vars(other).update((name, value) for name, value in vars(self).items() if name != "depths")
        return other

    def _arrays(self, group: int, task_class: TaskClass, cost: TaskCost) -> Resources:
        ports = {port.arg: port for port in task_class.tensor_ports}
        onchip = {use.tensor.name for use in self.tensors if use.onchip}
        parts = []
        for storage in cost.storages.values():
            argument = storage.array.argument
            if argument is None:
                parts.append(storage.resources(self.device))
                continue
            port = ports.get(argument)
            if port is None or not (port.reads or port.writes) or not storage.array.shape:
                continue
            copied = port.tensor.name not in onchip
            if port.tensor.name in self.streamed:
                parts.append(storage.resources(self.device))
            elif copied or port.reads:  # results that stay on the chip are in the memory of whoever reads them
                buffers = 2 if copied and port.reads and self._is_dataflow else 1
                parts.append(storage.resources(self.device, buffers * self.vmg.uses.tiles(group, task_class, port)))
        return Resources.total(parts)

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
    def _is_dataflow(self) -> bool:
        """Whether tasks overlap, so that what they hand on is double-buffered."""
        return self.vmg.node_count > 1

    @property
    def fifos(self) -> tuple[tuple[str, int], ...]:
        """Per stream array its name and the number of FIFOs it has between nodes."""
        return self.vmg.uses.connections

    def _streams(self) -> Resources:
        """FIFOs between nodes, and inside nodes, where tasks run in turn, buffers for what one leaves for others."""
        inside = (self.fifo_total(((one.array, one.number),), {one.array: one.tokens}) for one in self.vmg.uses.buffers)
        return Resources.total([*inside, self.fifo_total(self.fifos, self._depths)])

    @property
    def _depths(self) -> dict[str, int]:
        """Of all stream arrays."""
        return {stream.name: stream.depth for stream in self.vmg.program.streams} | dict(self.depths or {})

    @property
    def fifo_bits(self) -> int:
        """Bits of memory that the FIFOs between nodes are."""
        arrays = {stream.name: stream for stream in self.vmg.program.streams}
        return sum(
            count * fifo_bits(self.device, arrays[name].dtype.bits, self._depths[name] * math.prod(arrays[name].block))
            for name, count in self.fifos
        )

    def fifo_total(self, fifos: Iterable[tuple[str, int]], depths: Mapping[str, int]) -> Resources:
        """What FIFOs take, given how many there are of each stream array; `depths` in tokens."""
        arrays = {stream.name: stream for stream in self.vmg.program.streams}
        parts = []
        for name, count in fifos:
            elements = depths[name] * math.prod(arrays[name].block)
            parts.append(fifo_resources(self.device, arrays[name].dtype.bits, elements) * count)
        return Resources.total(parts)

    def _table_of_tiles(self, use: TensorUse) -> Resources:
        """Memory that says which tile is next and which nodes it is for: an entry for each task at most."""
        kernels = [k for k in self.vmg.program.kernels if any(arg.name == use.tensor.name for arg in k.args)]
        words = sum(kernel.task_count for kernel in kernels)
        bits = math.prod(use.tensor.shape).bit_length() + self.vmg.node_count.bit_length()
        if words * bits <= self.device.arrays.lutram_bits:
            return Resources(lut=math.ceil(self.device.arrays.lut_per_bit * bits * math.ceil(words / 64)))
        return Resources(bram18=self.device.arrays.bram18(words, bits))

    def _axi(self) -> Resources:
        external, parts = self.device.external, []
        for use in self.tensors:
            if not use.onchip:
                parts += [external.adapter, *([external.load] * use.reads), *([external.store] * use.writes)]
            if use.place == "dram":
                parts.append(self._table_of_tiles(use) * (use.reads + use.writes))
        return Resources.total([*parts, external.control]) if parts else Resources()
