"""A design on an FPGA as a network of operation tables.

Tasks do what the cost model says, at its intervals and depths; copies of tensors between DRAM and the chip are
processes of their own, which use their AXI port in turn and hand a token to each node whose tiles have arrived, and get
one when it has written its last. Of a tensor that stays in DRAM a tile waits in a FIFO of the node until its task
begins, which empties it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from msgspec import Struct

from allo_dse.backends.fpga.fifo import BRAM18_BITS
from allo_dse.backends.fpga.loops.parts import Again, Part, Pipe, Wait
from allo_dse.common.errors import SimulationError
from allo_dse.mapper.graph.class_tasks import tasks_by_class
from allo_dse.mapper.limits.fpga import FpgaCosts
from allo_dse.mapper.limits.fpga_schedule import TensorUse
from allo_dse.program.compiled import CompiledProgram
from allo_dse.program.index_maps import IntArray
from allo_dse.program.streams import StreamArray
from allo_dse.program.tasks import TaskClass
from allo_dse.program.tensors import ends_of, piece_grids, pieces_of
from allo_dse.simulator.network.network import Network, NetworkBuilder
from allo_dse.simulator.network.tables import Table

from ..program.stream_wiring import Wiring, wiring_of


class FpgaNetwork(Struct, frozen=True):
    """A network, and what its parts stand for.

    Attributes:
        task: table process of each of the program's tasks.
        wiring: the FIFOs, which are the network's first streams.
        movers: process numbers of copies in and out.
        deliveries: those of tensors that stay in DRAM, by tensor and "reads" or "writes"; where they were to, they log
            when each tile has been moved.
        inside: per FIFO the tokens it must hold because it is a buffer within a folded node; 0 between nodes.
    """

    network: Network
    task: IntArray
    wiring: Wiring
    movers: tuple[int, ...]
    inside: IntArray
    deliveries: Mapping[tuple[str, str], int]

    @property
    def fifos(self) -> int:
        return len(self.wiring.depth)

    @property
    def between(self) -> IntArray:
        """Per FIFO the number of its array of streams; -1 inside nodes."""
        return np.where(self.inside > 0, -1, self.wiring.array)


def fpga_network(mapping: FpgaCosts, depths: Mapping[str, int], *, logged: bool = False) -> FpgaNetwork:
    """The network of a design; `depths` by stream array, where they differ from the declared ones.

    Args:
        logged: processes that deliver tiles log when each has been moved.

    Raises:
        SimulationError: if the buffers inside its nodes are larger than the device's memory.
    """
    vmg, builder = mapping.vmg, NetworkBuilder()
    wiring = wiring_of(vmg, depths)
    _require_room(mapping)
    builder.streams(wiring.depth)
    network = _Builder(mapping, builder, wiring, logged)
    task = network.tasks()
    movers = network.movers()
    for group in vmg.groups:
        tasks = group.leaves.tasks()
        builder.nodes(task[tasks].ravel(), np.full(len(tasks), group.leaves.leaf_count, np.int64))
    for mover in movers:
        builder.node([mover])
    return FpgaNetwork(builder.build(), task, wiring, movers, vmg.uses.fifos.held, network.deliveries)


def _require_room(mapping: FpgaCosts) -> None:
    """Refuse buffers that no design can have before a simulation allocates them."""
    device, buffers = mapping.device, mapping.vmg.uses.buffers
    arrays = {stream.name: stream for stream in mapping.vmg.program.streams}
    bits = [arrays[b.array].dtype.bits * math.prod(arrays[b.array].block) * b.tokens * b.number for b in buffers]
    uram_bits = device.arrays.uram_words * device.arrays.uram_bits
    room = device.limit("bram18") * BRAM18_BITS + device.limit("uram") * uram_bits
    if sum(bits) > room:
        worst = buffers[bits.index(max(bits))]
        raise SimulationError(
            f"buffers inside the nodes take {sum(bits) / 8e6:,.1f} MB, the device has {room / 8e6:,.1f} MB: "
            f"nodes hold up to {worst.tokens:,} tokens of {worst.array} between their tasks",
            hint="fold less, or chain tasks in the order in which tokens are used",
        )


_NONE = 1 << 62
"""No piece; there are fewer."""


@dataclass
class _Piece:
    """A piece of a tensor: whether it is read and written, the tokens that say that it has arrived, of nodes whose last
    it is, and those that say that it is done, of nodes whose first it is."""

    is_read: bool = False
    is_written: bool = False
    arrived: list[int] = field(default_factory=list)
    done: list[int] = field(default_factory=list)


class _Bound:
    """The streams that a process uses, in the order in which it first does."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}

    def port(self, stream: int) -> int:
        return self.numbers.setdefault(stream, len(self.numbers))


class _Builder:
    """Adds processes for tasks and tensors."""

    def __init__(self, mapping: FpgaCosts, builder: NetworkBuilder, wiring: Wiring, logged: bool) -> None:
        self._mapping = mapping
        self._logged = logged
        self.deliveries: dict[tuple[str, str], int] = {}
        self._builder = builder
        self._wiring = wiring
        self._tables: dict[tuple[str, str, tuple[int, ...], int, int], Table] = {}
        self._uses = {use.tensor.name: use for use in mapping.tensors if not use.onchip}
        self._pieces: dict[str, dict[int, _Piece]] = defaultdict(lambda: defaultdict(_Piece))
        self._grids = piece_grids(mapping.vmg.program.tensor_ports)
        self._fifos: dict[tuple[str, str, int], tuple[int, int]] = {}
        self._node_of_task = mapping.vmg.node_of_task.tolist()
        every = [group.leaves.tasks() for group in mapping.vmg.groups]
        self._first, self._last = ({task for tasks in every for task in tasks[:, end].tolist()} for end in (0, -1))
        self._last_read = defaultdict[str, IntArray](lambda: np.full(mapping.vmg.node_count, -1, np.int64))
        self._first_written = defaultdict[str, IntArray](lambda: np.full(mapping.vmg.node_count, _NONE, np.int64))

    def tasks(self) -> IntArray:
        program = self._mapping.vmg.program
        classes = list(tasks_by_class(program))
        for task_class, tasks, pids in classes:
            self._find_pieces(task_class, self._mapping.vmg.node_of_task[tasks], pids)
        numbers = np.empty(program.task_count, np.int64)
        for task_class, tasks, pids in classes:
            numbers[tasks] = self._class(program, task_class, pids, tasks)
        return numbers

    def _class(self, program: CompiledProgram, task_class: TaskClass, pids: IntArray, tasks: IntArray) -> list[int]:
        streams = []
        for binding in task_class.body.streams:
            assert not isinstance(binding, StreamArray)  # the cost model refuses bodies that compute stream numbers
            number = program.first_stream[binding.stream.name] + binding.index.linear(pids)
            streams.append(self._wiring.fifo[number])
        streamed = self._streamed(task_class)
        room = {
            node: [number for name, does, _ in streamed for number in self._fifo(name, does, node)]
            for node in {self._node_of_task[one] for one in tasks.tolist()}
        }
        fifos = np.reshape(streams, (len(streams), len(tasks))).T.tolist()
        numbers = []
        for task, pid, ends in zip(tasks.tolist(), map(tuple, pids.tolist()), fifos, strict=True):
            arrivals, dones = self._tokens(task)
            table = self._table(task_class, pid, len(arrivals), len(dones))
            bound = [*ends, *arrivals, *dones, *room[self._node_of_task[task]]]
            numbers.append(self._builder.process(table, bound))
        return numbers

    def _streamed(self, task_class: TaskClass) -> list[tuple[str, str, int]]:
        """What tasks of a class copy of tensors that stay in DRAM, in the order in which they do: tensor, "reads" or
        "writes", and cycles."""
        found = []
        for name, use in self._mapping.streamed.items():
            for port in task_class.tensor_ports:
                if port.tensor.name == name:
                    cycles = use.cycles(math.prod(port.tile_shape))
                    found += [(name, does, cycles) for does in ("reads", "writes") if getattr(port, does)]
        return found

    def _fifo(self, name: str, does: str, node: int) -> tuple[int, int]:
        """The FIFO of a node for one tile of a tensor: streams that say whether there is room, and a tile."""
        key = name, does, node
        if key not in self._fifos:
            self._fifos[key] = self._builder.stream(1), self._builder.stream(1)
        return self._fifos[key]

    def _find_pieces(self, task_class: TaskClass, nodes: IntArray, pids: IntArray) -> None:
        """Which pieces the tasks of a class use, and which of them, copied in order, nodes wait for."""
        for port in task_class.tensor_ports:
            name = port.tensor.name
            if name not in self._uses or name in self._mapping.streamed:
                continue
            for one in pieces_of(port, pids, self._grids[name]):
                piece = self._pieces[name][one]
                piece.is_read |= port.reads
                piece.is_written |= port.writes
            first, last = ends_of(port, pids, self._grids[name])
            if port.reads:
                np.maximum.at(self._last_read[name], nodes, last)
            if port.writes:
                np.minimum.at(self._first_written[name], nodes, first)

    def _tokens(self, task: int) -> tuple[list[int], list[int]]:
        """Streams on which the first task of a node hears that the tiles of all are there, and the last says that the
        results of all are."""
        arrivals, dones = [], []
        for name, last in self._last_read.items() if task in self._first else ():
            if (piece := int(last[self._node_of_task[task]])) >= 0:
                arrivals.append(self._builder.stream(1))
                self._pieces[name][piece].arrived.append(arrivals[-1])
        for name, first in self._first_written.items() if task in self._last else ():
            if (piece := int(first[self._node_of_task[task]])) < _NONE:
                dones.append(self._builder.stream(1))
                self._pieces[name][piece].done.append(dones[-1])
        return arrivals, dones

    def _table(self, task_class: TaskClass, pid: tuple[int, ...], arrivals: int, dones: int) -> Table:
        key = (task_class.kernel, task_class.name, self._mapping.deciding(task_class, pid), arrivals, dones)
        if key not in self._tables:
            table, first = Table(), len(task_class.body.streams)
            streamed = self._streamed(task_class)
            fifos = [first + arrivals + dones + 2 * number for number in range(len(streamed))]
            for port in range(arrivals):
                table.get(first + port)
            copies = [(does, cycles, room) for (_, does, cycles), room in zip(streamed, fifos, strict=True)]
            _copy(table.get, table, [(cycles, room + 1, room) for does, cycles, room in copies if does == "reads"])
            write_parts(table, self._mapping.cost(task_class, pid).parts)
            _copy(table.put, table, [(cycles, room, room + 1) for does, cycles, room in copies if does == "writes"])
            for port in range(dones):
                table.put(first + arrivals + port)
            self._tables[key] = table
        return self._tables[key]

    def movers(self) -> tuple[int, ...]:
        """The processes that copy tensors; tensors beyond the number of AXI ports share them in turn."""
        external = self._mapping.device.external
        ports = [self._builder.resource() for _ in range(min(external.ports, len(self._uses)))]
        numbers = []
        for position, use in enumerate(self._uses.values()):
            port = ports[external.port_of(position)]
            pieces = [piece for _, piece in sorted(self._pieces[use.tensor.name].items())]
            if use.place == "dram":
                numbers += [self._deliver(use, does, port) for does in ("reads", "writes") if getattr(use, does)]
                continue
            if use.reads:
                numbers.append(self._load(use, pieces, port))
            if use.writes:
                numbers.append(self._store(use, pieces, port))
        return tuple(numbers)

    def _deliver(self, use: TensorUse, does: Literal["reads", "writes"], port: int) -> int:
        """Tiles of a tensor that stays in DRAM, on their way turn by turn."""
        table, bound, uses = Table(), _Bound(), self._mapping.vmg.uses
        external = self._mapping.device.external
        if does == "reads":
            table.wait(external.latency_cycles)
        for one in uses.deliveries(use.tensor.name, does):
            nodes = dict.fromkeys(self._node_of_task[task] for task in one.tasks)
            fifos = [self._fifo(use.tensor.name, does, node) for node in nodes]
            for room, tile in fifos:
                if does == "reads":
                    table.put(bound.port(room))
                else:
                    table.get(bound.port(tile))
            table.request(0, use.cycles(one.words), mark=self._logged)
            for room, tile in fifos:
                if does == "reads":
                    table.put(bound.port(tile))
                else:
                    table.get(bound.port(room))
        if does == "writes":
            table.wait(external.latency_cycles)
        log = len(table) if self._logged else 0
        number = self._builder.process(table, list(bound.numbers), [port], log=log)
        self.deliveries[use.tensor.name, does] = number
        return number

    def _cycles(self, use: TensorUse) -> int:
        """To copy a piece."""
        return use.cycles(math.prod(use.tensor.shape) // math.prod(self._grids[use.tensor.name]))

    def _load(self, use: TensorUse, pieces: Iterable[_Piece], port: int) -> int:
        table = Table()
        bound: list[int] = []
        table.wait(self._mapping.device.external.latency_cycles)
        cycles = self._cycles(use)
        for piece in pieces:
            if piece.is_read:
                table.request(0, cycles)
            for stream in piece.arrived:
                table.put(len(bound))
                bound.append(stream)
        return self._builder.process(table, bound, [port])

    def _store(self, use: TensorUse, pieces: Iterable[_Piece], port: int) -> int:
        table = Table()
        bound: list[int] = []
        cycles = self._cycles(use)
        for piece in pieces:
            for stream in piece.done:
                table.get(len(bound))
                bound.append(stream)
            if piece.is_written:
                table.request(0, cycles)
        table.wait(self._mapping.device.external.latency_cycles)
        return self._builder.process(table, bound, [port])


def _copy(use: Callable[[int], None], table: Table, copies: Sequence[tuple[int, int, int]]) -> None:
    """Copy tiles from FIFOs, or to them, at the same time: of each its cycles, and what to use before and after."""
    for _, before, _ in copies:
        use(before)
    clock = 0
    for cycles, _, after in sorted(copies):
        table.advance(cycles - clock)
        clock = cycles
        use(after)


def write_parts(table: Table, parts: Iterable[Part]) -> None:
    """What the cost model says a task does, as operations of a table."""
    for part in parts:
        if isinstance(part, Wait):
            table.advance(part.cycles)
        elif isinstance(part, Pipe):
            with table.pipeline(part.rounds, ii=part.ii, depth=max(part.depth, *(s for s, *_ in part.ops))) as round_:
                for stage, kind, port in part.ops:
                    getattr(round_, kind)(port, stage=stage)
        elif isinstance(part, Again):
            with table.repeat(part.count):
                write_parts(table, part.parts)
