"""A design on an FPGA as a network of operation tables.

Tasks have the intervals and depths of the cost model. Copies of tensors between DRAM and the chip are processes of
their own, which use their AXI port in turn. They put a token to each node whose tiles have arrived, and get one from a
node that has written its last. A tile of a tensor that stays in DRAM waits in a FIFO of the node until its task begins,
which empties the FIFO.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.errors import SimulationError
from allo_dse.common.records import Frozen
from allo_dse.compiler.program.compiled import CompiledProgram, TaskClass
from allo_dse.compiler.program.tensors import IntArray, StreamArray, TensorPort, ends_of
from allo_dse.eval.execute.run import Wiring, class_of_task, wiring_of
from allo_dse.simulator.network.network import Ends, Labels, Network, NetworkBuilder, stream_ends
from allo_dse.simulator.network.tables import Table
from allo_dse.simulator.run_time.records import Code

from .cost.loops.events import Again, Part, Pipe, Wait
from .cost.memory import BRAM18_BITS
from .footprint import partly_written
from .shared_costs import TensorUse

if TYPE_CHECKING:
    from .mapping import FpgaMapping

# Copies of tensors between DRAM and the chip, as processes of a design's network.


Does = Literal["reads", "writes"]
_Step = tuple[IntArray, Code, IntArray | int, IntArray | int]
"""Operations of one kind: what they belong to, their code, ports and cycles."""

NAME, VERSION = "fpga-simulator", "14"
"""Of the evaluator that times these networks; the version changes when numbers do."""
SMALLEST_DEPTH = 2  # that the evaluator solves for: the tool's default; less saves nothing
_NO_PIECE = 1 << 62
"""There are fewer."""


class TensorCopies:
    """Processes that copy tensors, and the streams that synchronize them with tasks.

    Of a tensor that is copied as a whole, a node hears that its tiles are all there, and says when it has written the
    last of its results. Of one that stays in DRAM, a node has a FIFO for one tile.

    Args:
        logged: processes that deliver tiles log when each has been moved.

    Attributes:
        arrived, done: by tensor, the stream on which each node hears that its tiles are there, and on which it says
            that its results are; -1 where it has none: (nodes,).
        fifo: by tensor and what is done with it, the streams of each node that say whether there is room, and whether
            there is a tile: (2, nodes).
        deliveries: the processes that move tiles of tensors that stay in DRAM.
        edges: by name of an array of streams at the program's edge, or of the banks of buffers, its first number.
        passing: the processes between those and AXI adapters of their own, or ports, with the tensors' names.
    """

    def __init__(self, mapping: FpgaMapping, builder: NetworkBuilder, *, logged: bool = False) -> None:
        self._mapping = mapping
        self._builder = builder
        self._logged = logged
        self._last_read: dict[str, IntArray] = {}
        self._first_written: dict[str, IntArray] = {}
        # Find the last piece that each node reads, and the first that it writes, in copying order.
        count, grids = mapping.vmg.node_count, mapping.shared.pieces.grids
        for port, nodes, pids in self._ports("auto"):
            name = port.tensor.name
            first, last = ends_of(port, pids, grids[name])
            if port.reads or name in partly_written(mapping.vmg.program):
                np.maximum.at(self._last_read.setdefault(name, np.full(count, -1)), nodes, last)
            if port.writes:
                np.minimum.at(self._first_written.setdefault(name, np.full(count, _NO_PIECE)), nodes, first)
        self.arrived = {name: self._streams(last >= 0)[0] for name, last in self._last_read.items()}
        self.done = {name: self._streams(first < _NO_PIECE)[0] for name, first in self._first_written.items()}
        used = defaultdict[tuple[str, str], NDArray[np.bool_]](lambda: np.zeros(mapping.vmg.node_count, bool))
        for port, nodes, _ in self._ports("dram"):
            for does in ("reads", "writes"):
                if getattr(port, does):
                    used[port.tensor.name, does][nodes] = True
        self.fifo = {key: self._streams(nodes, 2) for key, nodes in used.items()}
        self.deliveries: dict[tuple[str, str], int] = {}
        edged = mapping.scheduled.edged
        self.edges = {
            stream.name: int(self._builder.streams(np.full(math.prod(stream.shape), stream.depth))[0])
            for stream in (*edged.streams.values(), *edged.banks.values())
        }
        self.passing: dict[int, str] = {}

    def _ports(self, place: str) -> Iterator[tuple[TensorPort, IntArray, IntArray]]:
        """The ports of tensors in one place, with the nodes and the process ids of the tasks that use them."""
        vmg, names = self._mapping.vmg, {use.tensor.name for use in self._mapping.tensors if use.place == place}
        for task_class, tasks, pids in vmg.program.tasks_by_class:
            for port in task_class.tensor_ports:
                if port.tensor.name in names:
                    yield port, vmg.node_of_task[tasks], pids

    def _streams(self, used: NDArray[np.bool_], each: int = 1) -> IntArray:
        """New streams for these nodes, which hold one token: (each, nodes)."""
        found = np.full((each, len(used)), -1)
        found[:, used] = self._builder.streams(np.ones(each * used.sum(), np.int64)).reshape(each, -1)
        return found

    def movers(self) -> dict[int, str]:
        """Add the processes, with their names; tensors beyond the number of AXI ports share them in turn."""
        external = self._mapping.device.external
        uses = [use for use in self._mapping.tensors if use.is_copied]
        ports = [self._builder.resource() for _ in range(min(external.ports, len(uses)))]
        numbers = dict[int, str]()
        for position, use in enumerate(uses):
            port = ports[external.port_of(position)]
            move = {"dram": self.deliver, "stream": self._burst}.get(use.place, self._copy)
            for does in use.directions:
                numbers[move(use, does, port)] = f"{'load' if does == 'reads' else 'store'} {use.tensor.name}"
        for use in self._mapping.tensors:
            if use.place == "axis":
                self.passing[self._pass_on(use, use.directions[0], None)] = use.tensor.name
        return numbers

    def _burst(self, use: TensorUse, does: Does, port: int) -> int:
        """The AXI adapter of a streamed tensor; another process moves elements between its bursts and the task.

        Where bursts are as fast as elements, on a port of their own, a reader only waits for the first element, and the
        last burst is written after the last element.
        """
        words, latency_cycles = math.prod(use.tensor.shape), self._mapping.device.external.latency_cycles
        bursts, rest = divmod(words, use.transfers.burst)
        is_alone = sum(one.is_copied for one in self._mapping.tensors) <= self._mapping.device.external.ports
        if is_alone and use.burst_cycles(use.transfers.burst, latency_cycles) <= use.transfers.burst:
            wait = latency_cycles if does == "reads" else use.tail_cycles(latency_cycles)
            return self._pass_on(use, does, None, wait)
        between = self._builder.stream(use.transfers.outstanding)
        table = Table()
        if does == "reads":
            table.wait(latency_cycles)
        for count, length in ((bursts, use.transfers.burst), (rest > 0, rest)):
            with table.repeat(count):
                if does == "writes":
                    table.get(0)
                table.request(0, use.burst_cycles(length, latency_cycles))
                if does == "reads":
                    table.put(0)
        if does == "writes":
            table.wait(latency_cycles)
        adapter = self._builder.process(table, [between], [port])
        self.passing[self._pass_on(use, does, between)] = use.tensor.name
        return adapter

    def _pass_on(self, use: TensorUse, does: Does, bursts: int | None, latency: int = 0) -> int:
        """A process that moves an element per cycle; from or to bursts, if there is an adapter.

        Args:
            latency: cycles before the first element of a tensor that is read, or after the last of one that is written.
        """
        words, table = math.prod(use.tensor.shape), Table()
        table.advance(latency * (does == "reads"))
        length = words if bursts is None else use.transfers.burst
        for count, size in ((words // length, length), (words % length > 0, words % length)):
            with table.repeat(count):
                if bursts is not None and does == "reads":
                    table.get(1)
                with table.repeat(size):
                    (table.put if does == "reads" else table.get)(0)
                    table.wait(1)
                if bursts is not None and does == "writes":
                    table.put(1)
        table.advance(latency * (does == "writes"))
        ends = [self.edges[self._mapping.scheduled.edged.streams[use.tensor.name].name]]
        return self._builder.process(table, ends if bursts is None else [*ends, bursts], [])

    def deliver(self, use: TensorUse, does: Does, port: int) -> int:
        """Tiles of a tensor that stays in DRAM, on their way turn by turn."""
        vmg, streams = self._mapping.vmg, self.fifo[use.tensor.name, does]
        tiles, nodes = vmg.uses.deliveries(use.tensor.name, does), np.flatnonzero(streams[0] >= 0)
        place = np.searchsorted(nodes, vmg.node_of_task[tiles.task])
        number, place = np.divmod(np.unique(tiles.number * len(nodes) + place), len(nodes))
        room, tile = place, place + len(nodes)
        words, of = np.unique(tiles.words, return_inverse=True)
        cycles = np.array([use.cycles(one) for one in words.tolist()], np.int64)[of]
        request: _Step = np.arange(len(of)), Code.REQUEST, 0, cycles
        if does == "reads":
            steps: list[_Step] = [(number, Code.PUT, room, 0), request, (number, Code.PUT, tile, 0)]
        else:
            steps = [(number, Code.GET, tile, 0), request, (number, Code.GET, room, 0)]
        process = self._process(does, steps, streams[:, nodes].ravel(), port, logged=self._logged)
        self.deliveries[use.tensor.name, does] = process
        return process

    def _copy(self, use: TensorUse, does: Does, port: int) -> int:
        """Move a whole tensor, piece by piece; each node waits for its last piece, or signals its first."""
        name, pieces = use.tensor.name, self._mapping.shared.pieces
        streams, ends = (self.arrived, self._last_read) if does == "reads" else (self.done, self._first_written)
        nodes = np.flatnonzero(streams[name] >= 0)
        # What tasks may write in part is loaded, and no task reads it.
        moved = pieces.reads[name] if does == "reads" and len(pieces.reads[name]) else pieces.writes[name]
        request: _Step = moved, Code.REQUEST, 0, use.cycles(pieces.words[name])
        code = Code.PUT if does == "reads" else Code.GET
        told: _Step = ends[name][nodes], code, np.arange(len(nodes)), 0
        steps = [request, told] if does == "reads" else [told, request]
        return self._process(does, steps, streams[name][nodes], port)

    def _process(
        self, does: Does, steps: Sequence[_Step], streams: IntArray, port: int, *, logged: bool = False
    ) -> int:
        """A process that does, of all that belongs to one tile or piece, step after step, and then of the next."""
        belongs = np.concatenate([own for own, *_ in steps])
        rows, at = np.zeros((len(belongs), 4), np.int64), 0
        for own, code, ports, cycles in steps:
            part = rows[at : at + len(own)]
            part[:, 0], part[:, 1], part[:, 2], part[:, 3] = code, ports, cycles, logged and code == Code.REQUEST
            at += len(own)
        table, latency_cycles = Table(), self._mapping.device.external.latency_cycles
        if does == "reads":
            table.wait(latency_cycles)
        table.add(rows[np.argsort(belongs, kind="stable")])
        if does == "writes":
            table.wait(latency_cycles)
        return self._builder.process(table, streams.tolist(), [port], log=len(table) if logged else 0)


class FpgaNetwork(Frozen):
    """A network, with the meaning of its parts.

    Attributes:
        task: table process of each of the program's tasks.
        wiring: the FIFOs, which are the network's first streams.
        movers: process numbers of copies in and out, with their names.
        deliveries: those of tensors that stay in DRAM, by tensor and "reads" or "writes"; where they were to, they log
            when each tile has been moved.
        passing: process numbers between tasks and what streams at the program's edge, with the tensors' names.
        inside: per FIFO the tokens it must hold because it is a buffer within a folded node; 0 between nodes.
    """

    network: Network
    task: IntArray
    wiring: Wiring
    movers: Mapping[int, str]
    passing: Mapping[int, str]
    inside: IntArray
    deliveries: Mapping[tuple[str, str], int]

    @property
    def fifos(self) -> int:
        return len(self.wiring.depth)

    @property
    def between(self) -> IntArray:
        """Per FIFO the number of its array of streams; -1 inside nodes."""
        return np.where(self.inside > 0, -1, self.wiring.array)


def fpga_network(
    mapping: FpgaMapping, depths: Mapping[str, int], *, logged: bool = False, frames: bool = False
) -> FpgaNetwork:
    """The network of a design; `depths` by stream array, where they differ from the declared ones.

    Args:
        logged: processes that deliver tiles log when each has been moved.
        frames: tasks that work on several frames at once take the time from frame to frame, not that of a frame.

    Raises:
        SimulationError: if the buffers inside its nodes are larger than the device's memory.
    """
    vmg, builder = mapping.vmg, NetworkBuilder()
    wiring = wiring_of(vmg, depths)
    _require_room(mapping)
    builder.streams(wiring.depth)
    copies = TensorCopies(mapping, builder, logged=logged)
    task = add_tasks(mapping, builder, wiring.fifo, copies, frames=frames)
    movers = copies.movers()
    for group in vmg.groups:
        tasks = group.leaves.tasks()
        builder.nodes(task[tasks].ravel(), np.full(len(tasks), group.leaves.leaf_count, np.int64))
    for mover in (*movers, *copies.passing):
        builder.node([mover])
    return FpgaNetwork(builder.build(), task, wiring, movers, copies.passing, vmg.uses.fifos.held, copies.deliveries)


def _require_room(mapping: FpgaMapping) -> None:
    """Refuse buffers that no design can have before a simulation allocates them."""
    device, buffers, arrays = mapping.device, mapping.vmg.uses.buffers, mapping.shared.streams
    bits = [arrays[b.array].dtype.bits * math.prod(arrays[b.array].block) * b.tokens * b.number for b in buffers]
    uram_bits = device.arrays.uram_words * device.arrays.uram_bits
    room = device.limit("bram18") * BRAM18_BITS + device.limit("uram") * uram_bits
    if sum(bits) > room:
        worst = buffers[bits.index(max(bits))]
        raise SimulationError(
            f"buffers inside the nodes take {sum(bits) / 8e6:,.1f} MB, the device has {room / 8e6:,.1f} MB: "
            f"nodes hold up to {worst.tokens:,} tokens of {worst.array} between their tasks",
            hint="fold less, or chain tasks in the order they use tokens",
        )


def add_tasks(
    mapping: FpgaMapping, builder: NetworkBuilder, fifo: IntArray, copies: TensorCopies, *, frames: bool = False
) -> IntArray:
    """A table process for each of the program's tasks.

    Args:
        fifo: per stream of the program, the stream of the network that carries it.

    Returns:
        Their numbers: (tasks,).
    """
    program, node_of_task = mapping.vmg.program, mapping.vmg.node_of_task
    numbers, orders = np.empty(program.task_count, np.int64), [group.leaves.tasks() for group in mapping.vmg.groups]
    arrived = _at_end(copies.arrived, node_of_task, np.concatenate([tasks[:, 0] for tasks in orders]))
    done = _at_end(copies.done, node_of_task, np.concatenate([tasks[:, -1] for tasks in orders]))
    base = 1 + len(copies.done)
    ends = (arrived >= 0).sum(axis=1) * base + (done >= 0).sum(axis=1)
    for task_class, pid, tasks, pids in mapping.shared.alike(mapping.run):
        own = []
        for binding in mapping.scheduled.edged_class(task_class).body.streams:
            assert not isinstance(binding, StreamArray)  # the cost model refuses bodies that compute stream numbers
            if (name := binding.stream.name) in copies.edges:
                own.append(copies.edges[name] + binding.index.linear(pids))
            else:
                own.append(fifo[program.first_stream[name] + binding.index.linear(pids)])
        moves, cost = _moves(mapping, task_class), mapping.cost(task_class, pid)
        parts = (Wait(cost.interval),) if frames and cost.interval else cost.parts
        room = [side for name, does, _ in moves for side in copies.fifo[name, does][:, node_of_task[tasks]]]
        kinds, which = np.unique(ends[tasks], return_inverse=True)
        tables = [_table(len(own), divmod(kind, base), moves, parts) for kind in kinds.tolist()]
        numbers[tasks] = builder.processes(tables, which, np.vstack([*own, arrived[tasks].T, done[tasks].T, *room]).T)
    return numbers


def _at_end(streams: Mapping[str, IntArray], node_of_task: IntArray, tasks: IntArray) -> IntArray:
    """The streams of nodes by tensor, given to tasks of theirs; -1 for all others: (tasks of the program, tensors)."""
    found = np.full((len(node_of_task), len(streams)), -1)
    for column, of_node in enumerate(streams.values()):
        found[tasks, column] = of_node[node_of_task[tasks]]
    return found


_Moves = Sequence[tuple[str, str, int]]
"""Copies by tasks of a class for tensors that stay in DRAM, in order: tensor, "reads" or "writes", and cycles."""


def _moves(mapping: FpgaMapping, task_class: TaskClass) -> _Moves:
    found = []
    for name, use in mapping.streamed.items():
        for port in task_class.tensor_ports:
            if port.tensor.name == name:
                cycles = use.cycles(math.prod(port.tile_shape))
                found += [(name, does, cycles) for does in ("reads", "writes") if getattr(port, does)]
    return found


def _table(first: int, ends: tuple[int, int], moves: _Moves, parts: Iterable[Part]) -> Table:
    """Return the operations of a task.

    Args:
        first: number of the task's own streams; the others follow.
        ends: number of tensors that it waits for, and of tensors that wait for it.
    """
    table, (arrivals, dones) = Table(), ends
    for port in range(first, first + arrivals):
        table.get(port)
    rooms = range(first + arrivals + dones, first + arrivals + dones + 2 * len(moves), 2)
    own = [(does, cycles, room) for (_, does, cycles), room in zip(moves, rooms, strict=True)]
    _copy(table.get, table, [(cycles, room + 1, room) for does, cycles, room in own if does == "reads"])
    write_parts(table, parts)
    _copy(table.put, table, [(cycles, room, room + 1) for does, cycles, room in own if does == "writes"])
    for port in range(first + arrivals, first + arrivals + dones):
        table.put(port)
    return table


def _copy(use: Callable[[int], None], table: Table, copies: Sequence[tuple[int, int, int]]) -> None:
    """Copy tiles from or to FIFOs concurrently: for each its cycles, and the streams to use before and after."""
    for _, before, _ in copies:
        use(before)
    clock = 0
    for cycles, _, after in sorted(copies):
        table.advance(cycles - clock)
        clock = cycles
        use(after)


def write_parts(table: Table, parts: Iterable[Part]) -> None:
    """Write the cost model's parts of a task as operations of a table."""
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


_DIRECTIONS = {Code.GET: "get", Code.PUT: "put"}


@dataclass(frozen=True)
class FpgaLabels(Labels):
    """Names of the tasks, copies and FIFOs of an FPGA design's network.

    Attributes:
        number: per table process the program's task, or -1 for copies.
        copies: names of the copies, by table process.
        ends: who is at either end of each stream: those beyond the program's FIFOs say that a tile has arrived or is
            done.
    """

    program: CompiledProgram
    network: FpgaNetwork
    number: IntArray
    copies: Mapping[int, str]
    ends: Ends

    def task(self, task: int) -> str:
        return self.copies[task] if task in self.copies else self.program.task_name(int(self.number[task]))

    def stream(self, stream: int) -> str:
        return self._tile(stream) or self.program.stream_name(int(self.network.wiring.stream[stream]))

    def _tile(self, stream: int) -> str:
        """Return the name of a stream between tasks and copies; empty for a FIFO of the program."""
        if stream < self.network.fifos:
            return ""
        source, target = int(self.ends.producer[stream]), int(self.ends.consumer[stream])
        if source in self.copies:
            return f"{self.copies[source]} for {self.task(target)}"
        if target in self.copies:
            return f"{self.copies[target]} from {self.task(source)}"
        return f"bank that {self.task(source)} fills for {self.task(target)}"

    def array(self, stream: int) -> str:
        """Return the name of the stream array, or the tile FIFO, whose depth a stream shares."""
        return self._tile(stream) or self.program.streams[int(self.network.wiring.array[stream])].name

    def operation(self, task: int, op: int) -> str:
        """Return the lines of the source that a row of a task's operation table may be of."""
        number = int(self.number[task])
        if number < 0:
            return f"operation {op} of {self.task(task)}"
        task_class = class_of_task(self.program, number)
        built = self.network.network
        kind, port = built.rows.reshape(-1, 4)[built.first_row[task] + op, :2].tolist()
        bound = task_class.body.streams[port]
        array = bound if isinstance(bound, StreamArray) else bound.stream
        uses = [one for one in task_class.stream_ops if one.stream == array]
        same = [one for one in uses if one.direction == _DIRECTIONS.get(kind)] or uses
        return " or ".join(dict.fromkeys(str(one.location) for one in same))

    def resource(self, resource: int) -> str:
        return f"AXI port {resource}"


def labels_of(mapping: FpgaMapping, network: FpgaNetwork) -> FpgaLabels:
    """Return names in the order in which `fpga_network` makes processes and streams."""
    program = mapping.vmg.program
    number = np.full(network.network.task_count, -1)
    number[network.task] = np.arange(len(network.task))
    copies = {**network.movers, **{process: f"stream {name}" for process, name in network.passing.items()}}
    return FpgaLabels(program, network, number, copies, stream_ends(network.network, {}))
