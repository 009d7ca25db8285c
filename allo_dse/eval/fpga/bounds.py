"""What `FpgaSimulator` says of a design at least: copies, processing elements and paths between them, and resources.

A node takes as long as its tasks take without waiting. Its first task begins when its tiles have been copied and its
streams have got their first token, and what its last one writes is copied afterwards. Resources are known but for the
depths of streams that the evaluator solves; those count with the least that any depth takes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from allo_dse.backends.fpga.fifo import fifo_resources
from allo_dse.backends.fpga.loops.parts import Again, Part, Pipe, cycles_of
from allo_dse.device.device import FpgaDevice
from allo_dse.device.fpga_model import RESOURCES
from allo_dse.mapper.limits.fpga import FpgaCosts, Pid, TensorUse
from allo_dse.program.compiled import CompiledProgram
from allo_dse.program.index_maps import IntArray
from allo_dse.program.streams import StreamArray
from allo_dse.program.tasks import TaskClass
from allo_dse.program.tensors import TensorPort
from allo_dse.space.design import Design

from ..bounding import Bounds, Interval

SMALLEST_DEPTH = 2  # that the evaluator solves for: the tool's default; less saves nothing
_ANYTHING = float("inf")
_MOST_HOPS = 64  # streams along which a first token is followed: any number of them gives a bound
_TIMES = ("latency_cycles", "latency_us", "throughput_gops")
_SHARES = tuple(f"{resource}_utilization" for resource in RESOURCES)

Times = NDArray[np.int64]


class FpgaBounds:
    """Bounds what `FpgaSimulator` says of designs: of the copies alone, which hang on no fold, then of everything.

    Args:
        solves: whether depths of streams are found by the evaluator where a design does not say them.
    """

    levels = 2
    metrics = frozenset({*_TIMES, "pe_count", "dram_bytes", "fifo_bits", "utilization", *RESOURCES, *_SHARES})

    def __init__(self, *, solves: bool) -> None:
        self._solves = solves
        self._known: dict[CompiledProgram, tuple[Tiles, Sequence[AlikeTasks]]] = {}
        self._times: dict[CompiledProgram, tuple[tuple[object, ...], OwnTimes]] = {}

    def __call__(self, design: Design, level: int) -> Bounds:
        """Bounds of the metrics that a level can say something of.

        Raises:
            SimulationError: where control depends on data.
        """
        program, device, nodes = design.program, FpgaDevice.of(design.device), design.fold.node_count
        unfolded = FpgaCosts(program.vmg, device, design.schedule, dict(design.depths))
        if program not in self._known:
            self._known[program] = Tiles.of(program), tuple(alike_tasks(unfolded))
        tiles, alike = self._known[program]
        mapping = design.mapping.fpga if level else unfolded
        copies = _Copies(mapping, tiles)
        known: dict[str, Interval] = {"pe_count": (nodes, nodes)}
        if not mapping.streamed:  # how often tiles of what stays in DRAM come takes long to count
            known["dram_bytes"] = (mapping.dram_bytes, mapping.dram_bytes)
        if level == 0:
            return known | _times(mapping.device, copies.cycles)
        times = self._own_times(unfolded, alike)
        cycles = max(copies.cycles, _Tasks(mapping, copies, alike, times).cycles)
        solved = self._solves and not design.depths
        known |= _times(mapping.device, cycles, times.operations) | _resources(mapping, solved=solved)
        shallow = dict.fromkeys((stream.name for stream in program.streams), SMALLEST_DEPTH)
        bits = mapping.at(shallow).fifo_bits if solved else mapping.fifo_bits
        return known | {"fifo_bits": (bits, _ANYTHING if solved and mapping.fifos else bits)}

    def _own_times(self, unfolded: FpgaCosts, alike: Sequence[AlikeTasks]) -> OwnTimes:
        """What tasks take by themselves; kept for each program with the schedule that was asked for last."""
        program, key = unfolded.vmg.program, (unfolded.device.key, unfolded.schedule)
        if program not in self._times or self._times[program][0] != key:
            self._times[program] = key, OwnTimes.of(unfolded, alike)
        return self._times[program][1]


def _times(device: FpgaDevice, cycles: int, operations: int | None = None) -> dict[str, Interval]:
    latency_us = cycles / (device.clock_ghz * 1e3)
    most = operations / latency_us * 1e-3 if operations is not None and latency_us else _ANYTHING
    return dict(zip(_TIMES, ((cycles, _ANYTHING), (latency_us, _ANYTHING), (0.0, most)), strict=True))


AlikeTasks = tuple[TaskClass, Pid, IntArray, IntArray]
"""Tasks that cost the same: their class, the process ids that decide on it, their numbers, and all their ids."""


def alike_tasks(mapping: FpgaCosts) -> Iterator[AlikeTasks]:
    """All tasks; which are alike does not hang on how the program is folded and scheduled."""
    program = mapping.vmg.program
    for position, kernel in enumerate(program.kernels):
        tasks = np.arange(program.first_task[position], program.first_task[position + 1])
        pids = program.pids(position, tasks)
        classes = kernel.class_of(pids)
        for number, cls in enumerate(kernel.classes):
            own = np.flatnonzero(classes == number)
            groups = defaultdict[Pid, list[int]](list)
            if mapping.differs(cls):
                for at in own.tolist():
                    groups[mapping.deciding(cls, tuple(pids[at].tolist()))].append(at)
            elif len(own):
                groups[()] = own.tolist()
            for pid, group in groups.items():
                yield cls, pid, tasks[group], pids[group]


@dataclass(frozen=True)
class Tiles:
    """The tiles of each tensor that a program's tasks read, and those that they write, in ascending order; and the
    elements of each by its number."""

    reads: Mapping[str, IntArray]
    writes: Mapping[str, IntArray]
    words: Mapping[str, IntArray]

    @classmethod
    def of(cls, program: CompiledProgram) -> Tiles:
        reads, writes = defaultdict[str, set[int]](set), defaultdict[str, set[int]](set)
        words: dict[str, dict[int, int]] = {}
        for position, kernel in enumerate(program.kernels):
            tasks = np.arange(program.first_task[position], program.first_task[position + 1])
            pids = program.pids(position, tasks)
            classes = kernel.class_of(pids)
            for number, own in enumerate(kernel.classes):
                for port in own.tensor_ports:
                    name, tiles = port.tensor.name, set(tiles_of(port, pids[classes == number]).tolist())
                    reads[name] |= tiles if port.reads else set()
                    writes[name] |= tiles if port.writes else set()
                    known = words.setdefault(name, {})
                    known.update({tile: math.prod(port.tile_shape) for tile in tiles if tile not in known})
        sizes = {name: np.zeros(max(known, default=-1) + 1, np.int64) for name, known in words.items()}
        for name, known in words.items():
            sizes[name][list(known)] = list(known.values())
        return cls(_sorted(reads), _sorted(writes), sizes)


def _sorted(tiles: Mapping[str, set[int]]) -> dict[str, IntArray]:
    return {name: np.array(sorted(own), np.int64) for name, own in tiles.items()}


@dataclass(frozen=True)
class _Copies:
    """Copies of tensors between DRAM and the chip."""

    mapping: FpgaCosts
    tiles: Tiles

    @cached_property
    def uses(self) -> dict[str, TensorUse]:
        return {use.tensor.name: use for use in self.mapping.tensors if not use.onchip}

    def ports(self, cls: TaskClass) -> list[TensorPort]:
        """The tensor ports of a class that are copied."""
        return [port for port in cls.tensor_ports if port.tensor.name in self.uses]

    @cached_property
    def cycles_of_tiles(self) -> dict[str, IntArray]:
        """By tensor, cycles of its AXI port for each of its tiles."""
        words = self.tiles.words
        return {
            name: np.ceil(words[name] / use.words_per_cycle).astype(np.int64)
            for name, use in self.uses.items()
            if name in words
        }

    @cached_property
    def arrivals(self) -> dict[str, IntArray]:
        """By tensor, when each tile that is read is on the chip at the earliest."""
        found = {}
        for name, cycles in self.cycles_of_tiles.items():
            # In the order of copying, and as if the port served no other tensor: no tile can be there sooner.
            found[name], tiles = np.zeros_like(cycles), self.tiles.reads[name]
            own = cycles[tiles] if name in self.mapping.streamed else np.cumsum(cycles[tiles])
            found[name][tiles] = self.mapping.device.external.latency_cycles + own
        return found

    @cached_property
    def cycles(self) -> int:
        """What the copies alone take: tensors that share an AXI port are copied in turn."""
        external = self.mapping.device.external
        busy, longest = defaultdict[int, int](int), 0
        for position, name in enumerate(self.uses):
            for tiles in (self.tiles.reads[name], self.tiles.writes[name]) if name in self.tiles.words else ():
                own = int(self.cycles_of_tiles[name][tiles].sum())
                busy[external.port_of(position)] += own
                longest = max(longest, own + external.latency_cycles if len(tiles) else 0)
        return max([longest, *busy.values()])


@dataclass(frozen=True)
class OwnTimes:
    """What tasks take that never wait, in cycles, by their numbers; which hangs on no fold.

    Attributes:
        whole: of each task.
        first_put, last_get: by array of streams and task, when it has put a token into one of its streams, and has
            taken one from each; not finite where it does not.
        operations: arithmetic ones of all tasks.
    """

    whole: Times
    first_put: NDArray[np.float64]
    last_get: NDArray[np.float64]
    operations: int

    @classmethod
    def of(cls, mapping: FpgaCosts, alike: Sequence[AlikeTasks]) -> OwnTimes:
        streams, count, operations = mapping.vmg.program.streams, mapping.vmg.task_count, 0
        number = {stream.name: n for n, stream in enumerate(streams)}
        whole = np.zeros(count, np.int64)
        puts, gets = np.full((len(streams), count), -math.inf), np.full((len(streams), count), math.inf)
        for own, pid, tasks, _ in alike:
            cost = mapping.cost(own, pid)
            copied = [use.cycles(math.prod(p.tile_shape)) * (p.reads + p.writes) for p, use in _streamed(mapping, own)]
            whole[tasks], at = cost.cycles + sum(copied), first_times(cost.parts)
            operations += cost.operations * len(tasks)
            for port, binding in enumerate(own.body.streams):
                assert not isinstance(binding, StreamArray)  # the cost model refuses bodies that compute stream numbers
                array = number[binding.stream.name]
                if (put := at.get(("put", port))) is not None:
                    known = puts[array, tasks]
                    puts[array, tasks] = np.where(np.isinf(known), put, np.minimum(known, put))
                if (get := at.get(("get", port))) is not None:
                    known = gets[array, tasks]
                    gets[array, tasks] = np.where(np.isinf(known), get, np.maximum(known, get))
        return cls(whole, puts, gets, operations)


@dataclass(frozen=True)
class _Tasks:
    """All tasks of a design, as arrays by their numbers. Times are cycles."""

    mapping: FpgaCosts
    copies: _Copies
    alike: Sequence[AlikeTasks]
    own: OwnTimes

    @property
    def cycles(self) -> int:
        """What the slowest node takes from the first copy to the last."""
        begins, ends = self._with_tiles()
        begins, longest = self._with_streams(begins), 0
        for group in self.mapping.vmg.groups:
            tasks = group.leaves.tasks()
            # A node runs its tasks one after the other: when its first could begin, plus the work of all, plus the copy
            # of its last result. The minima leave open which task is first and which is last.
            whole = begins[tasks].min(1) + self.own.whole[tasks].sum(1) + ends[tasks].min(1)
            longest = max(longest, int(whole.max()))
        return longest

    def _with_tiles(self) -> tuple[Times, Times]:
        """When each task has its tiles, and what copying its results takes."""
        count, latency = self.mapping.vmg.task_count, self.mapping.device.external.latency_cycles
        begins, ends = np.zeros(count, np.int64), np.zeros(count, np.int64)
        for cls, _, tasks, pids in self.alike:
            for port in self.copies.ports(cls):
                name, tiles = port.tensor.name, tiles_of(port, pids)
                if port.reads:
                    begins[tasks] = np.maximum(begins[tasks], self.copies.arrivals[name][tiles])
                if port.writes:
                    ends[tasks] = np.maximum(ends[tasks], self.copies.cycles_of_tiles[name][tiles] + latency)
        return begins, ends

    def _with_streams(self, begins: Times) -> Times:
        """When tasks begin if they wait for the first token of each stream and for nothing else."""
        edges = self.mapping.vmg.graph.edges
        if not len(edges):
            return begins
        lead = self.own.first_put[edges.array, edges.source] - self.own.last_get[edges.array, edges.target]
        known = np.isfinite(lead)
        source, target, lead = edges.source[known], edges.target[known], lead[known].astype(np.int64)
        # Longest paths (Bellman 1958): a consumer begins no earlier than the tokens that it gets allow. Times only grow
        # towards the true ones, so they are bounds wherever this stops.
        for _ in range(_MOST_HOPS):
            later = begins.copy()
            np.maximum.at(later, target, begins[source] + lead)
            if (later == begins).all():
                break
            begins = later
        return begins


def _streamed(mapping: FpgaCosts, task_class: TaskClass) -> Iterator[tuple[TensorPort, TensorUse]]:
    """The ports of a class to tensors that stay in DRAM, whose tiles each task copies."""
    ports = (port for port in task_class.tensor_ports if port.tensor.name in mapping.streamed)
    return ((port, mapping.streamed[port.tensor.name]) for port in ports)


def tiles_of(port: TensorPort, pids: IntArray) -> IntArray:
    """The tile of each task."""
    return port.tile.linear(pids) if port.tile.grid else np.zeros(len(pids), np.int64)


def first_times(parts: Iterable[Part]) -> Mapping[tuple[str, int], int]:
    """When something that never waits first uses each of its streams: by direction and stream argument."""
    found: dict[tuple[str, int], int] = {}
    clock = 0
    for part in parts:
        if isinstance(part, Pipe) and part.rounds:
            for stage, kind, port in sorted(part.ops):
                found.setdefault((kind, port), clock + stage)
        elif isinstance(part, Again) and part.count:
            for use, at in first_times(part.parts).items():
                found.setdefault(use, clock + at)
        clock += cycles_of((part,))
    return found


def _resources(mapping: FpgaCosts, *, solved: bool) -> dict[str, Interval]:
    """Of everything, and their shares of the device; exact where the depths of streams are known."""
    total, least = mapping.total, dict.fromkeys(RESOURCES, 0.0)
    streams = {stream.name: stream for stream in mapping.vmg.program.streams}
    for name, count in mapping.fifos if solved else ():
        stream, block = streams[name], math.prod(streams[name].block)
        built = fifo_resources(
            mapping.device, stream.dtype.bits, dict(mapping.depths or {}).get(name, stream.depth) * block
        )
        fewest = _least_fifo(mapping.device, stream.dtype.bits, SMALLEST_DEPTH * block)
        for resource in RESOURCES:
            least[resource] += count * (fewest[resource] - getattr(built, resource))
    low = {resource: getattr(total, resource) + least[resource] for resource in RESOURCES}
    exact = not (solved and mapping.fifos)
    limits = {resource: mapping.device.limit(resource) for resource in RESOURCES}
    shares = {resource: low[resource] / limit for resource, limit in limits.items() if limit}
    found: dict[str, Interval] = {r: (value, value if exact else _ANYTHING) for r, value in low.items()}
    found |= {f"{r}_utilization": (round(s, 4), round(s, 4) if exact else _ANYTHING) for r, s in shares.items()}
    most = round(max(shares.values()), 4)
    return found | {"utilization": (most, most if exact else _ANYTHING)}


def _least_fifo(device: FpgaDevice, bits: int, least: int) -> dict[str, float]:
    """The least of each resource that a FIFO of at least so many elements can take, whatever its depth."""
    rules = device.fifo
    # What a FIFO takes grows with its depth as long as it is built in one way, so each resource is least at the depth
    # where a way of building begins.
    first_of_kind = (least, rules.register_depth + 1, rules.shift_bits // bits + 1, rules.lutram_bits // bits + 1)
    kinds = [fifo_resources(device, bits, depth) for depth in first_of_kind if depth >= least]
    return {resource: min(getattr(kind, resource) for kind in kinds) for resource in RESOURCES}
