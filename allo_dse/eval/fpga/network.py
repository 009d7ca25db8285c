"""A design on an FPGA as a network of operation tables.

Tasks do what the cost model says, at its intervals and depths; copies of tensors between DRAM and the chip are
processes of their own, which use their AXI port in turn and hand a token to each node whose tiles have arrived, and get
one when it has written its last. Of a tensor that stays in DRAM a tile waits in a FIFO of the node until its task
begins, which empties it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from allo_dse.backends.fpga.fifo import BRAM18_BITS
from allo_dse.backends.fpga.loops.parts import Again, Part, Pipe, Wait
from allo_dse.common.errors import SimulationError
from allo_dse.mapper.limits.fpga import FpgaCosts
from allo_dse.program.index_maps import IntArray
from allo_dse.program.streams import StreamArray
from allo_dse.program.tasks import TaskClass
from allo_dse.simulator.network.network import Network, NetworkBuilder
from allo_dse.simulator.network.tables import Table

from ..program.stream_wiring import Wiring, wiring_of
from .tensor_copies import TensorCopies


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
    copies = TensorCopies(mapping, builder, logged=logged)
    task = add_tasks(mapping, builder, wiring.fifo, copies)
    movers = copies.movers()
    for group in vmg.groups:
        tasks = group.leaves.tasks()
        builder.nodes(task[tasks].ravel(), np.full(len(tasks), group.leaves.leaf_count, np.int64))
    for mover in movers:
        builder.node([mover])
    return FpgaNetwork(builder.build(), task, wiring, movers, vmg.uses.fifos.held, copies.deliveries)


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


def add_tasks(mapping: FpgaCosts, builder: NetworkBuilder, fifo: IntArray, copies: TensorCopies) -> IntArray:
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
        for binding in task_class.body.streams:
            assert not isinstance(binding, StreamArray)  # the cost model refuses bodies that compute stream numbers
            own.append(fifo[program.first_stream[binding.stream.name] + binding.index.linear(pids)])
        moves, parts = _moves(mapping, task_class), mapping.cost(task_class, pid).parts
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
"""What tasks of a class copy of tensors that stay in DRAM, in the order in which they do: tensor, "reads" or "writes",
and cycles."""


def _moves(mapping: FpgaCosts, task_class: TaskClass) -> _Moves:
    found = []
    for name, use in mapping.streamed.items():
        for port in task_class.tensor_ports:
            if port.tensor.name == name:
                cycles = use.cycles(math.prod(port.tile_shape))
                found += [(name, does, cycles) for does in ("reads", "writes") if getattr(port, does)]
    return found


def _table(first: int, ends: tuple[int, int], moves: _Moves, parts: Iterable[Part]) -> Table:
    """What a task does.

    Args:
        first: how many streams are the task's own; the others follow.
        ends: how many tensors it waits for, and how many wait for it.
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
