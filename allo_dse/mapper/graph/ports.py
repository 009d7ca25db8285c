"""Ports of task classes, prepared once per program, and the rounds that schedule trees repeat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
from msgspec import field

from allo_dse.common.records import Frozen, Ints
from allo_dse.compiler.program.compiled import CompiledProgram, TaskClass
from allo_dse.compiler.program.tensors import IntArray, StreamArray, StreamPort, TensorPort

from .groups import Seq, Task, Tree, leaf_tasks

# Tasks of every class, with the arguments of their bodies that are equal in every run.


class ClassTasks(Frozen):
    """The tasks of one class, and the arguments of theirs that are the same in every run.

    Attributes:
        pid: per mesh axis.
        tiles: per tensor its name, where each task's tile begins, and the tile's strides, in elements.
        streams: per stream argument the number of the stream, of each task or of the array that the body indexes.
    """

    task_class: TaskClass
    tasks: IntArray
    pid: tuple[IntArray, ...]
    tiles: tuple[tuple[str, IntArray, Ints], ...]
    streams: tuple[IntArray | int, ...]


def class_tasks(program: CompiledProgram) -> tuple[ClassTasks, ...]:
    """The tasks of a program by class."""
    return tuple(_group(program, *own) for own in program.tasks_by_class)


def _group(program: CompiledProgram, task_class: TaskClass, tasks: IntArray, pids: IntArray) -> ClassTasks:
    streams: list[IntArray | int] = []
    for binding in task_class.body.streams:
        if isinstance(binding, StreamArray):
            streams.append(program.first_stream[binding.name])
        else:
            streams.append(program.first_stream[binding.stream.name] + binding.index.linear(pids))
    ports = sorted(task_class.tensor_ports, key=lambda port: port.arg)
    pid = tuple(np.ascontiguousarray(pids[:, axis]) for axis in range(pids.shape[1]))
    tiles = tuple((port.tensor.name, port.offsets(pids), port.tensor.strides) for port in ports)
    return ClassTasks(task_class, tasks, pid, tiles, tuple(streams))


Direction = Literal["in", "out"]

PortKey = tuple[str, Direction, tuple[int | None, ...], Ints]
"""Tensor name, direction, layout and tile shape: tensor ports of a node that agree in it share their tiles."""


class PortFamily(Frozen, eq=False):
    """Ports to streams of one array that are at constant distances from each other.

    Attributes:
        port: the first of them.
        members: their positions among the ports they were made from.
        steps: how far each one's stream is from the first one's: (members,).
    """

    port: StreamPort
    members: Ints
    steps: IntArray

    def streams(self, program: CompiledProgram, pids: IntArray) -> IntArray:
        """The numbers of the streams that tasks use: (members, tasks)."""
        first = program.first_stream[self.port.stream.name] + self.port.index.linear(pids)
        return first[None, :] + self.steps[:, None]


def port_families(ports: Sequence[StreamPort]) -> list[PortFamily]:
    """Ports by family, in the order of their first members."""
    found: dict[Hashable, list[int]] = {}
    for position, port in enumerate(ports):
        index = port.index
        key = (port.stream.name, port.direction, port.tokens, index.matrix if index.is_affine else position)
        found.setdefault(key, []).append(position)
    result = []
    for members in found.values():
        places = np.array([ports[member].index.offset for member in members], np.int64).reshape(len(members), -1)
        steps = np.zeros(len(members), np.int64)
        for dimension, extent in enumerate(ports[members[0]].index.grid if len(members) > 1 else ()):
            steps = steps * extent + places[:, dimension] - places[0, dimension]
        result.append(PortFamily(ports[members[0]], tuple(members), steps))
    return result


class PortSide(Frozen, eq=False):
    """One direction of a tensor port of a class.

    Attributes:
        key: sides of one node that agree in it (tensor, direction, layout, tile shape) share a DMA channel.
        factors, offset: first byte of the tile = factors @ pid + offset; factors is None when it is not affine, and
            empty when it is constant.
    """

    key: PortKey
    port: TensorPort
    factors: Ints | None
    offset: int

    def first_bytes(self, pids: IntArray) -> IntArray:
        """First byte of the tile for each pid; `pids` has shape (n, mesh rank)."""
        if self.factors == ():
            return np.full(len(pids), self.offset, np.int64)
        if self.factors is not None:
            return pids @ np.array(self.factors, np.int64) + self.offset
        return self.port.offsets(pids) * self.port.tensor.dtype.bits // 8


def port_key(port: TensorPort, direction: Direction) -> PortKey:
    """Return a key; ports of one node with equal keys share a DMA channel."""
    return (port.tensor.name, direction, port.layout, port.tile_shape)


def _side(port: TensorPort, direction: Direction) -> PortSide:
    key = port_key(port, direction)
    tile = port.tile
    if not tile.is_affine:
        return PortSide(key, port, None, 0)
    pairs = zip(port.tile_shape, port.tensor.strides, strict=True)
    steps = [extent * stride * port.tensor.dtype.bits // 8 for extent, stride in pairs]
    columns = zip(*tile.matrix, strict=True)
    factors = tuple(sum(f * step for f, step in zip(column, steps, strict=True)) for column in columns)
    return PortSide(key, port, factors, sum(o * step for o, step in zip(tile.offset, steps, strict=True)))


class Sink(Frozen):
    """The destination of a block that a task gets and updates in place: a `put` of the task, or a tensor it writes.

    Attributes:
        put: position of the put in the class's stream ports; None if it is a tensor.
        tensor: the key of the tensor port; None if it is a put.
    """

    put: int | None = None
    tensor: PortKey | None = None


def _sinks(cls: TaskClass) -> dict[int, Sink]:
    """Sinks of the stream ports of a class that get whole blocks, by position of the port.

    A task that gets one block and hands on one of the same element type and shape (a partial sum, say) is taken to
    update it in place. Each put and each tensor receives one block at most.
    """
    free = [(p.stream.dtype, p.stream.block, Sink(put=i)) for i, p in enumerate(cls.stream_ports) if _one(p, "put")]
    free += [(p.tensor.dtype, p.tile_shape, Sink(tensor=port_key(p, "out"))) for p in cls.tensor_ports if p.writes]
    result = {}
    for position, port in enumerate(cls.stream_ports):
        if not _one(port, "get") or not port.stream.block:
            continue
        # A put before the block's get cannot depend on it.
        later = (f for f in free if f[2].put is None or f[2].put > position)
        match = next((f for f in later if f[:2] == (port.stream.dtype, port.stream.block)), None)
        if match is not None:
            free.remove(match)
            result[position] = match[2]
    return result


def _one(port: StreamPort, direction: str) -> bool:
    return port.direction == direction and port.tokens == 1


def _forwards(cls: TaskClass) -> frozenset[int]:
    """Positions of the puts that hand on an input tile as it is: the task computes nothing and gets nothing."""
    if cls.work or any(port.direction == "get" for port in cls.stream_ports):
        return frozenset()
    tiles = {(port.tensor.dtype, port.tile_shape) for port in cls.tensor_ports if port.reads}
    return frozenset(i for i, p in enumerate(cls.stream_ports) if (p.stream.dtype, p.stream.block) in tiles)


class ClassPorts(Frozen, eq=False, dict=True):
    """The ports of a task class: tensor port sides (inputs first), and the sinks of its stream ports.

    Attributes:
        forwards: positions of the stream ports through which it hands on an input tile as it is.
    """

    sides: tuple[PortSide, ...]
    streams: tuple[StreamPort, ...]
    sinks: dict[int, Sink]
    forwards: frozenset[int]

    @cached_property
    def rolled(self) -> frozenset[int]:
        """Positions of the stream ports that, with others, stand for one operation of the source in a loop."""
        sites = Counter((port.location, port.direction) for port in self.streams)
        several = {site for site, count in sites.items() if count > 1 and site[0] is not None}
        return frozenset(i for i, port in enumerate(self.streams) if (port.location, port.direction) in several)

    @cached_property
    def families(self) -> list[PortFamily]:
        """The stream ports in families whose members are positions in `streams`."""
        return port_families(self.streams)


def _class_ports(cls: TaskClass) -> ClassPorts:
    # A tensor that is passed to a task twice in one layout is one port.
    sides = {port_key(port, way): _side(port, way) for port in cls.tensor_ports for way in port.directions}
    in_order = sorted(sides.values(), key=lambda side: side.key[1])  # "in" before "out"
    return ClassPorts(tuple(in_order), cls.stream_ports, _sinks(cls), _forwards(cls))


class ProgramPorts(Frozen, eq=False):
    """The ports of every class of every kernel, `classes[kernel][class]`, with data derived from them.

    Attributes:
        wirings: results of `round_wiring.group_wirings`, which alone reads them.
    """

    classes: tuple[tuple[ClassPorts, ...], ...]
    wirings: dict[Hashable, object] = field(default_factory=dict)

    @staticmethod
    def of(program: CompiledProgram) -> ProgramPorts:
        return ProgramPorts(tuple(tuple(_class_ports(cls) for cls in kernel.classes) for kernel in program.kernels))

    def of_task(self, task: Task) -> ClassPorts:
        return self.classes[task.kernel][task.cls]


def tokens_said(program: CompiledProgram, classes: Iterable[ClassTasks]) -> IntArray:
    """Return the number of tokens that a task moves through each stream: (streams,).

    It is 1 for streams without a declared number at either end.
    """
    said = np.ones(program.stream_count, np.int64)
    position = {kernel.name: number for number, kernel in enumerate(program.kernels)}
    for own in classes:
        pids = program.pids(position[own.task_class.kernel], own.tasks)
        for family in port_families(own.task_class.stream_ports):
            if family.port.tokens is not None:
                said[family.streams(program, pids)] = max(family.port.tokens, 1)
    return said


class ClassUse(Frozen, eq=False):
    """A task class in a schedule tree.

    Attributes:
        first_leaf: position of its first task in the schedule.
        in_round: positions of its tasks within one round: (n,).
    """

    task: Task
    first_leaf: int
    in_round: IntArray


class Round(Frozen, eq=False):
    """One round of a schedule: all of it, or one iteration of the `Repeat` at its root; the others are isomorphic.

    Attributes:
        length: tasks in a round.
        classes: the classes that occur, in order of first occurrence.
    """

    length: int
    classes: tuple[ClassUse, ...]


def schedule_round(tree: Tree) -> Round:
    """Return one round of a schedule tree."""
    body = tree if isinstance(tree, Task | Seq) else tree.child
    return _round_of(body)


@lru_cache(maxsize=512)
def _round_of(body: Task | Seq) -> Round:
    positions: dict[Task, list[int]] = {}
    for position, task in enumerate(leaf_tasks(body)):
        positions.setdefault(task, []).append(position)
    uses = tuple(ClassUse(task, places[0], np.array(places, np.int64)) for task, places in positions.items())
    return Round(body.leaf_count, uses)
