"""Costs shared by all folds of a program on an FPGA, under one schedule or under any.

shared = graph.once(SharedCosts, device)    # one for a program and a device
shared.scheduled(schedule).tensors          # how tensors reach designs with that schedule
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from typing import Literal

from msgspec import field

from allo_dse.common.records import MOST_SMALL_KEPT, Frozen, once
from allo_dse.compiler.program.compiled import (
    CompiledProgram,
    Directive,
    TaskClass,
    is_region,
    kept_in_common,
    lanes_in,
    lanes_of,
    of_region,
)
from allo_dse.compiler.program.tensors import IntArray, StreamArray, Tensor, TensorPort
from allo_dse.compiler.schedule.edges import Edged
from allo_dse.device.device import FpgaDevice
from allo_dse.device.fpga_model import Resources
from allo_dse.eval.execute.observed_control import Observed
from allo_dse.mapper.graph.program_graph import ProgramGraph, TensorPieces

from .cost.loops.loop_round import KnownRounds
from .cost.memory import Storage, fifo_resources, fifo_steps, word_of
from .cost.plan import Plan, Planner
from .cost.simplify import simplified
from .cost.task_cost import TaskCost, control_key, deciding_pids, planned_cost
from .edges import AXIS, Transfers, buffered_streams, edged_program, interface_of, transfers_of, with_banks
from .footprint import contested, partly_written


def observed_of(program: CompiledProgram, task_class: TaskClass, pid: tuple[int, ...], run: int) -> Observed | None:
    """Return the observed control of a task in one of the program's runs; None if no control depends on data."""
    decisions = program.runs[run].of_class(task_class.kernel, task_class.name) if program.runs else {}
    return Observed(decisions[pid]) if decisions else None


class ClassCosts:
    """Costs of the task classes of one program, computed once for all designs with equal directives.

    Classes that differ only in the arguments that they use, such as blocks of a matrix, share them.
    """

    def __init__(self, program: CompiledProgram) -> None:
        self._program = program
        self._known: dict[Hashable, tuple[tuple[str, ...], TaskCost]] = {}
        self._rounds: dict[object, KnownRounds] = {}
        self._planners: dict[tuple[str, str], Planner] = {}
        self._latest: dict[tuple[str, str], tuple[Sequence[Directive], Plan, Hashable]] = {}

    def of(
        self,
        task_class: TaskClass,
        device: FpgaDevice,
        schedule: Sequence[Directive],
        pid: tuple[int, ...] = (),
        run: int = 0,
    ) -> TaskCost:
        """Times and operators of a class, of the task with this pid where tasks of the class differ.

        Args:
            run: which of the program's runs on given inputs is timed, where data decides.

        Raises:
            SimulationError: where control depends on data.
        """
        own = task_class.kernel, task_class.name
        planner = once(
            self._planners, own, lambda: Planner(self._program, task_class, simplified(task_class.body.mlir))
        )
        if own not in self._latest or self._latest[own][0] is not schedule:  # tasks of a class follow one another
            plan = planner.plan(schedule)
            self._latest[own] = schedule, plan, plan.key(planner.arguments)
        _, plan, said = self._latest[own]
        observed = observed_of(self._program, task_class, pid, run)
        key = (device.key, planner.code, pid, said, observed and (own, run))
        rounds = self._rounds.setdefault(device.key, KnownRounds(device))
        others, cost = once(
            self._known,
            key,
            lambda: (planner.arguments, planned_cost(task_class, rounds, plan, pid, observed=observed)),
        )
        return cost.with_arguments(dict(zip(others, planner.arguments, strict=True)), plan.storages)


Pid = tuple[int, ...]
Fifos = tuple[tuple[str, int, int], ...]
"""Stream arrays by name, how many FIFOs there are of each, and their depth in tokens."""
AlikeTasks = tuple[TaskClass, Pid, IntArray, IntArray]
"""Tasks that cost the same: their class, the process ids that decide on it, their numbers, and all their ids."""
Held = int | tuple[TensorPort, bool]
"""Copies of an array on a node: a number, or a port and a flag. With a port there is one copy for each of the node's
tiles of the port's tensor, or two if the flag is true and tasks overlap."""
BITS_PER_BYTE = 8


class TensorUse(Frozen):
    """Transport of a tensor to and from the design.

    Attributes:
        place: "onchip" in the design's memory already, so that nothing is copied; "dram" if it stays there and tiles
            are copied task by task; "auto" copied as a whole, to the nodes that use it and back; "stream" read or
            written in order through a FIFO, "axis" through an AXI-Stream port; "direct" if tasks access it in DRAM
            themselves, each node through a port of its own; "rom" if the bitstream has its elements.
        words_per_cycle: elements that are copied per cycle.
        lanes: elements per word.
        transfers: bursts of a streamed tensor.
    """

    tensor: Tensor
    reads: bool
    writes: bool
    place: str
    words_per_cycle: float
    lanes: int
    transfers: Transfers = Transfers()

    @property
    def onchip(self) -> bool:
        return self.place == "onchip"

    @property
    def uses_port(self) -> bool:
        """True if an AXI port moves it between DRAM and the chip."""
        return self.place not in ("onchip", "axis", "rom")

    @property
    def is_copied(self) -> bool:
        """True if a process of its own moves it."""
        return self.uses_port and self.place != "direct"

    @property
    def directions(self) -> tuple[Literal["reads", "writes"], ...]:
        """Directions in which tasks use it."""
        ways: tuple[Literal["reads", "writes"], ...] = ("reads", "writes")
        return tuple(does for does in ways if getattr(self, does))

    def cycles(self, words: int) -> int:
        """Return the time to copy a number of elements."""
        return math.ceil(words / self.words_per_cycle)

    def burst_cycles(self, words: int, latency_cycles: int) -> int:
        """Return the time from burst to burst: no more requests are under way than the adapter allows."""
        return max(self.cycles(words), math.ceil(latency_cycles / self.transfers.outstanding))

    def tail_cycles(self, latency_cycles: int) -> int:
        """Return the time from the last element of a tensor that streams to its arrival in DRAM."""
        burst = self.transfers.burst
        return latency_cycles + self.burst_cycles(math.prod(self.tensor.shape) % burst or burst, latency_cycles)


class SharedCosts(Frozen, eq=False, dict=True):
    """Costs shared by all designs of one program on one device."""

    graph: ProgramGraph
    device: FpgaDevice
    _schedules: dict[object, Scheduled] = field(default_factory=dict)
    _alike: dict[int, tuple[AlikeTasks, ...]] = field(default_factory=dict)
    _deciding: dict[Hashable, Pid] = field(default_factory=dict)

    def scheduled(self, schedule: tuple[Directive, ...], rates: Mapping[str, float] | None = None) -> Scheduled:
        """Return the costs shared by all designs with one schedule.

        Args:
            rates: known elements per cycle of a tensor's copies, by its name.
        """
        key = (schedule, tuple(rates.items())) if rates else schedule
        return once(self._schedules, key, lambda: Scheduled(self, schedule, rates or {}))

    @cached_property
    def streams(self) -> Mapping[str, StreamArray]:
        """By name."""
        return {stream.name: stream for stream in self.graph.program.streams}

    def deciding(self, task_class: TaskClass, pid: Pid, run: int) -> Pid:
        """Return the ids of a task of the class that takes the same time; empty if no id decides.

        It is one for all tasks that run the same rounds. Ids that decide nothing are 0.
        """
        runs = self.graph.program.runs
        if runs and (task_class.kernel, task_class.name) in runs[run].classes:  # data decides what its tasks do
            return pid
        decides = deciding_pids(task_class.body.mlir)
        if not any(decides):
            return ()
        own = tuple(one if decides_it else 0 for one, decides_it in zip(pid, decides, strict=True))
        key = task_class.kernel, task_class.name, control_key(task_class.body.mlir, own)
        return once(self._deciding, key, lambda: own, MOST_SMALL_KEPT)

    def alike(self, run: int) -> tuple[AlikeTasks, ...]:
        """Return all tasks in groups of equal ones, which depend neither on the fold nor on the schedule."""
        return once(self._alike, run, lambda: tuple(self._alike_tasks(run)))

    def _alike_tasks(self, run: int) -> Iterator[AlikeTasks]:
        for cls, tasks, pids in self.graph.program.tasks_by_class:
            groups = defaultdict[Pid, list[int]](list)
            for at, pid in enumerate(pids.tolist()):
                groups[self.deciding(cls, tuple(pid), run)].append(at)
            for decides, group in groups.items():
                yield cls, decides, tasks[group], pids[group]

    @cached_property
    def pieces(self) -> TensorPieces:
        """Pieces of tensors, as tasks use them."""
        return TensorPieces.of(self.graph.program)

    @cached_property
    def rows(self) -> Mapping[str, int]:
        """Greatest common divisor of the rows of each tensor's tiles: no word has elements of two rows."""
        found = defaultdict[str, int](int)
        for port in self.graph.program.tensor_ports:
            found[port.tensor.name] = math.gcd(found[port.tensor.name], *port.tile_shape[-1:])
        return found

    def fifos(self, fifos: Fifos) -> Resources:
        """Return the resources of FIFOs."""
        sizes = self._sizes(fifos)
        parts = ((fifo_resources(self.device, bits, depth), count) for bits, depth, count in sizes)
        return Resources.weighted(parts)

    def fifo_bits(self, fifos: Fifos) -> int:
        """The bits of memory that FIFOs are."""
        bits = (fifo_steps(self.device, bits, depth)[-1][1] * count for bits, depth, count in self._sizes(fifos))
        return sum(bits)

    def _sizes(self, fifos: Fifos) -> Iterator[tuple[int, int, int]]:
        """Bits of an element, depth in elements, and how many there are."""
        for name, count, depth in fifos:
            bits, words = word_of(self.streams[name])
            yield bits, depth * words, count


class Scheduled(Frozen, eq=False, dict=True):
    """Costs shared by all folds of a program under one schedule on one device.

    Attributes:
        schedule: directives in addition to the program's.
        rates: known elements per cycle of a tensor's copies, by its name.
        costs: of task classes, by kernel, class, process ids and run, as they are requested.
    """

    _shared: SharedCosts
    schedule: tuple[Directive, ...]
    rates: Mapping[str, float]
    costs: dict[tuple[str, str, Pid, int], TaskCost] = field(default_factory=dict)

    @property
    def program(self) -> CompiledProgram:
        return self._shared.graph.program

    @cached_property
    def edged(self) -> Edged:
        """The program with streams in place of tensors at its edge, and tokens in place of blocks in common buffers."""
        buffered = buffered_streams(self.program, (*self.program.schedule, *self.schedule))
        return with_banks(edged_program(self.program, self.schedule), buffered)

    @cached_property
    def _edged_classes(self) -> Mapping[tuple[str, str], TaskClass]:
        return {(one.kernel, one.name): one for one in self.edged.program.task_classes}

    def edged_class(self, task_class: TaskClass) -> TaskClass:
        """Return a task class with streams in place of the tensors that stream at the program's edge."""
        return self._edged_classes.get((task_class.kernel, task_class.name), task_class)

    @property
    def device(self) -> FpgaDevice:
        return self._shared.device

    def cost(self, task_class: TaskClass, pid: Pid, run: int) -> TaskCost:
        """Times and operators of a class.

        Raises:
            SimulationError: where control depends on data.
        """
        key = (task_class.kernel, task_class.name, pid, run)
        if key not in self.costs:
            costs = self._shared.graph.table("class costs")
            own = once(
                costs,
                (frozenset(self.edged.streams), frozenset(self.edged.banks)),
                lambda: ClassCosts(self.edged.program),
            )
            self.costs[key] = own.of(self.edged_class(task_class), self.device, self.schedule, pid, run)
        return self.costs[key]

    @cached_property
    def tensors(self) -> tuple[TensorUse, ...]:
        """The tensors that tasks use."""
        found = []
        every = of_region(self.program, (*self.program.schedule, *self.schedule))
        about = [d for d in every if is_region(d.scope, self.program)]
        for tensor in self.program.tensors:
            ports = [port for port in self.program.tensor_ports if port.tensor.name == tensor.name]
            reads, writes = any(port.reads for port in ports), any(port.writes for port in ports)
            if not tensor.shape or not (reads or writes):
                continue
            own = [d for d in about if d.name == tensor.name]
            place, rate, lanes = self._transfer(tensor, own)
            if tensor.name in self.edged.streams:
                place = "axis" if interface_of(own) == AXIS else "stream"
            if place in ("auto", "dram") and tensor.name in contested(self.edged.program):
                place = "direct"
            reads = reads or (place == "auto" and tensor.name in partly_written(self.program))
            found.append(TensorUse(tensor, reads, writes, place, rate, lanes, transfers_of(own)))
        return tuple(found)

    def _transfer(self, tensor: Tensor, about: Sequence[Directive]) -> tuple[str, float, int]:
        """Return the place of a tensor, and for a copied one its elements per cycle and per word."""
        options = {d.kind: d.options for d in about}
        said = str(options.get("place", {}).get("memory"))
        bits = min(int(options.get("pack", {}).get("bits", tensor.dtype.bits)), self.device.external.port_bits)
        splits = {axis: n for d in about if d.kind == "partition" for axis, n in d.banks(tensor.shape).items()}
        splits.setdefault(
            len(tensor.shape) - 1,
            lanes_of(lanes_in((*self.program.schedule, *self.schedule)), self._shared.rows[tensor.name]),
        )
        per_port = self.device.external.port_gb_s / self.device.clock_ghz * BITS_PER_BYTE / tensor.dtype.bits
        if tensor.name in self.edged.streams:
            return "stream", self.rates.get(tensor.name, min(1.0, per_port)), 1
        packed = math.gcd(max(1, bits // tensor.dtype.bits), self._shared.rows[tensor.name])
        banks = math.prod(splits.values())
        rate = self.rates.get(tensor.name, min(packed, per_port, self.device.arrays.ports * banks))
        return (said if said in ("onchip", "dram", "rom") else "auto"), rate, packed

    @cached_property
    def streamed(self) -> Mapping[str, TensorUse]:
        """The tensors that stay in DRAM, by name: a node has the tile of the task at work, and in a FIFO the next."""
        return {use.tensor.name: use for use in self.tensors if use.place == "dram"}

    @property
    def onchip(self) -> frozenset[str]:
        """Names of the tensors that are not copied."""
        return frozenset(use.tensor.name for use in self.tensors if use.onchip)

    @cached_property
    def common(self) -> Set[str]:
        """Names of the tensors in memory on the chip that one kernel writes and another one uses."""
        return kept_in_common(self.program, (*self.program.schedule, *self.schedule)).keys()

    @property
    def copies_key(self) -> Hashable:
        """Key that is equal for schedules with equal times of all copies."""
        uses = (use for use in self.tensors if not use.onchip)
        return tuple((use.tensor.name, use.place, use.words_per_cycle, use.transfers) for use in uses)

    @property
    def timing_key(self) -> Hashable:
        """Key that is equal for schedules with equal timing of all tasks and copies.

        Raises:
            SimulationError: where control depends on data.
        """
        runs = range(len(self.program.runs) or 1)
        costs = (self.cost(cls, pid, run) for run in runs for cls, pid, *_ in self._shared.alike(run))
        return self.copies_key, tuple((cost.parts, cost.interval) for cost in costs)

    @cached_property
    def copied_bytes(self) -> int:
        """Bytes of the tensors that are copied as a whole, to the nodes and back."""
        copied = [use for use in self.tensors if use.uses_port and use.place != "dram"]
        return sum(use.tensor.bytes * (use.reads + use.writes) for use in copied)

    @cached_property
    def interfaces(self) -> Resources:
        """Resources of AXI ports and copying tasks, without those of direct accesses; none if nothing is copied."""
        external, copied = self.device.external, [use for use in self.tensors if use.uses_port]
        if not copied:
            return Resources()
        bits = external.port_bits
        parts = [external.control.resources]
        for use in copied:
            if use.is_copied:
                parts += [self.adapter(use)]
                parts += [external.load.resources(bits)] * use.reads + [external.store.resources(bits)] * use.writes
        return Resources.total(parts)

    def adapter(self, use: TensorUse) -> Resources:
        """Return the resources of an AXI port of a tensor."""
        external = self.device.external
        return external.adapter.of(external.port_bits, reads=use.reads)

    def held(self, storage: Storage, ports: Mapping[int, TensorPort]) -> Held:
        """Return the number of copies of an array on a node that executes a class with these ports, by argument."""
        if storage.array.argument is None:
            return 1
        port = ports.get(storage.array.argument)
        if port is None or not (port.reads or port.writes) or not storage.array.shape:
            return 0
        if port.tensor.name in self.edged.streams or port.tensor.name in contested(self.edged.program) - self.onchip:
            return 0
        if port.tensor.name in self.streamed:
            return 1
        if port.tensor.name in self.onchip - self.common:
            return 0  # a memory beside the design, which has a port to it
        copied = port.tensor.name not in self.onchip and storage.place != "rom"
        # Results that stay on the chip are in the memory of whoever reads them.
        return (port, copied and port.reads) if copied or port.reads else 0
