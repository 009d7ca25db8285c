"""What the nodes of a folded graph execute, exchange and hold: the same for all of its schedules, so found once."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from allo_dse.program.index_maps import IntArray
from allo_dse.program.kernel import Kernel
from allo_dse.program.tasks import TaskClass
from allo_dse.program.tensors import TensorPort

from ..graph.class_tasks import tasks_by_class
from ..graph.groups import NodeGroup
from ..graph.program_graph import ProgramGraph
from ..graph.tree import first_leaves
from ..model.order import topological_levels
from .fold_fifos import FoldFifos, fold_fifos

Pid = tuple[int, ...]
Use = tuple[Kernel, TaskClass, Pid]
"""A class, with its kernel and the process ids of a task of it."""


class Deliveries(NamedTuple):
    """Tiles of a tensor on their way between DRAM and the nodes whose tasks use them in one turn, in order.

    Attributes:
        tile: its number in the grid of tiles: (deliveries,).
        words: elements of the tile: (deliveries,).
        task: all that read a tile then, or the one that has written it, delivery after delivery: (uses,).
        number: of the delivery, for each of `task`: (uses,).
    """

    tile: IntArray
    words: IntArray
    task: IntArray
    number: IntArray


class Buffer(NamedTuple):
    """FIFOs inside nodes, through which tasks of a node hand on to one another.

    Attributes:
        array: name of the stream array. tokens: that each holds. number: of such FIFOs.
    """

    array: str
    tokens: int
    number: int


class FoldUses:
    """Facts about a folded graph.

    Args:
        groups: its nodes.
        node_of_task: (task_count,).
    """

    def __init__(self, graph: ProgramGraph, groups: tuple[NodeGroup, ...], node_of_task: IntArray) -> None:
        self._graph, self._program, self._groups, self._node = graph, graph.program, groups, node_of_task
        self._tiles: dict[tuple[int, tuple[str, str], int], int] = {}
        self._moved: dict[tuple[str, str], int] = {}

    @cached_property
    def classes(self) -> tuple[tuple[Use, ...], ...]:
        """Per group the classes that its nodes execute, each with the pid of its first task."""
        return tuple(tuple(self._classes(group)) for group in self._groups)

    def _classes(self, group: NodeGroup) -> list[Use]:
        program, result = self._program, []
        for leaf, position in first_leaves(group.tree).items():
            first = int(group.first_tasks[position])
            kernel = program.kernels[leaf.kernel]
            pid = program.pids(leaf.kernel, np.array([first]))[0]
            result.append((kernel, kernel.classes[leaf.cls], tuple(int(p) for p in pid)))
        return result

    def tiles(self, group: int, task_class: TaskClass, port: TensorPort) -> int:
        """Different tiles that a node of a group uses of the tensor of a port, which is one of the class's."""
        key = (group, (task_class.kernel, task_class.name), port.arg)
        if key not in self._tiles:
            self._tiles[key] = self._count_tiles(self._groups[group], port)
        return self._tiles[key]

    def _count_tiles(self, group: NodeGroup, port: TensorPort) -> int:
        program, tasks = self._program, group.first_tasks
        kernels = [n for n, k in enumerate(program.kernels) if any(a.name == port.tensor.name for a in k.args)]
        found: set[int] = set()
        for kernel in kernels:
            own = tasks[(tasks >= program.first_task[kernel]) & (tasks < program.first_task[kernel + 1])]
            if len(own) and port.tile.grid and len(program.kernels[kernel].mesh) == _rank(port):
                found.update(port.tile.linear(program.pids(kernel, own)).tolist())
        return max(1, len(found))

    @cached_property
    def turns(self) -> IntArray:
        """Per task how many others it comes after at least, one after the other: those before it on its node, and those
        that its streams come from: (task_count,)."""
        edges, tasks = self._graph.edges, [group.leaves.tasks() for group in self._groups]
        different = edges.source != edges.target
        before = np.concatenate([edges.source[different], *(own[:, :-1].ravel() for own in tasks)])
        after = np.concatenate([edges.target[different], *(own[:, 1:].ravel() for own in tasks)])
        levels = topological_levels(before, after, len(self._node))
        for own in tasks if (levels < 0).any() else ():
            # Tasks that talk back and forth have no order but that of their nodes.
            levels[own] = np.where(levels[own] < 0, levels.max() + 1 + np.arange(own.shape[1]), levels[own])
        return levels

    def moved_words(self, tensor: str, does: Literal["reads", "writes"]) -> int:
        """Elements of all deliveries of a tensor, which are too many to keep themselves."""
        if (tensor, does) not in self._moved:
            self.deliveries(tensor, does)
        return self._moved[tensor, does]

    def deliveries(self, tensor: str, does: Literal["reads", "writes"]) -> Deliveries:
        """The tiles of a tensor as tasks need or have written them, turn after turn.

        A tile goes to all nodes that read it in one turn at once, and comes again for those that do later.
        """
        uses = [
            (port, tasks, port.tile.linear(pids) if port.tile.grid else np.zeros_like(tasks))
            for own, tasks, pids in tasks_by_class(self._program)
            for port in own.tensor_ports
            if port.tensor.name == tensor and getattr(port, does)
        ]
        shapes = sorted({port.tile_shape for port, *_ in uses})
        most = 1 + max((int(tiles.max(initial=0)) for *_, tiles in uses), default=0)
        none = np.zeros(0, np.int64)
        tasks = np.concatenate([none, *(own for _, own, _ in uses)])
        which = np.concatenate([none, *(shapes.index(port.tile_shape) * most + tiles for port, _, tiles in uses)])
        turn_of_tile = self.turns[tasks] * (len(shapes) * most) + which
        order = np.lexsort((tasks, turn_of_tile))
        begins = np.ones(len(order), bool)
        if does == "reads":
            begins[1:] = np.diff(turn_of_tile[order]) != 0
        of_shape, tile = np.divmod(which[order][begins], most)
        words = np.array([math.prod(shape) for shape in shapes], np.int64)[of_shape]
        self._moved[tensor, does] = int(words.sum())
        return Deliveries(tile, words, tasks[order], np.cumsum(begins) - 1)

    @cached_property
    def fifos(self) -> FoldFifos:
        """The FIFO of every stream."""
        return fold_fifos(self._graph, self.position, self._node)

    @cached_property
    def position(self) -> IntArray:
        """Where each task stands in its node's schedule: (task_count,)."""
        found = np.zeros(self._program.task_count, np.int64)
        for group in self._groups:
            tasks = group.leaves.tasks()
            found[tasks] = np.arange(tasks.shape[1])[None, :]
        return found

    @cached_property
    def connections(self) -> tuple[tuple[str, int], ...]:
        """Per stream array its name and the number of its FIFOs between nodes."""
        return tuple((array, count) for array, held, count in self._fifo_kinds if not held)

    @cached_property
    def buffers(self) -> tuple[Buffer, ...]:
        """The FIFOs inside nodes, those of an array that hold as much together."""
        return tuple(Buffer(*kind) for kind in self._fifo_kinds if kind[1])

    @cached_property
    def _fifo_kinds(self) -> list[tuple[str, int, int]]:
        """Stream array, tokens held inside a node, and number of the FIFOs that are alike in that."""
        fifos, program = self.fifos, self._program
        starts = np.array([program.first_stream[array.name] for array in program.streams], np.int64)
        array = np.searchsorted(starts, fifos.stream[fifos.used], side="right") - 1
        kinds, counts = np.unique(np.stack([array, fifos.held[fifos.used]], axis=1), axis=0, return_counts=True)
        return [
            (program.streams[number].name, held, count)
            for (number, held), count in zip(kinds.tolist(), counts.tolist(), strict=True)
        ]


def _rank(port: TensorPort) -> int:
    """Axes of the mesh that a port's tile index is a function of."""
    return len(port.tile.matrix[0]) if port.tile.matrix else port.tile.table.ndim if port.tile.table is not None else 0
