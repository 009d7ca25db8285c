"""Streams between folded nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from allo_dse.common.records import Frozen
from allo_dse.compiler.program.compiled import CompiledProgram, Kernel, TaskClass
from allo_dse.compiler.program.tensors import BoolArray, IntArray, TensorPort

from ..graph.groups import MeshLeaves, NodeGroup, first_leaves
from ..graph.program_graph import ProgramGraph
from ..graph_algorithms import topological_levels


class NodeEdges(Frozen):
    """Streams from node to node, one entry per (source node, target node, stream array), sorted in that order.

    Attributes:
        source, target: node numbers.
        array: position of the stream array in `compiler.program.tensors`.
        count: how many streams of that array lead from the source's tasks to the target's.
    """

    source: IntArray
    target: IntArray
    array: IntArray
    count: IntArray

    def __len__(self) -> int:
        return len(self.source)


def node_edges(source: IntArray, target: IntArray, array: IntArray, count: IntArray) -> NodeEdges:
    """The streams between nodes, added up; those inside a node are left out."""
    between = source != target
    source, target, array, count = source[between], target[between], array[between], count[between]
    # Sorting makes equal (source, target, array) neighbours; each run of them is one edge.
    order = np.lexsort((array, target, source))
    source, target, array, count = source[order], target[order], array[order], count[order]
    if not len(source):
        return NodeEdges(source, target, array, count)
    new = np.ones(len(source), bool)
    new[1:] = (np.diff(source) != 0) | (np.diff(target) != 0) | (np.diff(array) != 0)
    starts = np.flatnonzero(new)
    return NodeEdges(source[starts], target[starts], array[starts], np.add.reduceat(count, starts))


def node_grids(groups: Sequence[NodeGroup]) -> dict[int, IntArray]:
    """Per kernel the number of the node at each spatial coordinate, of a fold in which kernels share no nodes."""
    found: dict[int, IntArray] = {}
    first = 0
    for group in groups:
        assert isinstance(group.leaves, MeshLeaves)
        grid = found.setdefault(group.leaves.kernel, np.empty(group.leaves.spatial, np.int64))
        grid.flat[group.leaves.nodes] = np.arange(first, first + group.count)
        first += group.count
    return found


# Assignment of a folded graph's streams to FIFOs.
#
# The streams of one array from one node to another share a FIFO if their tokens are consumed in the order in which they
# are produced, also if one task uses several of them. Otherwise each stream keeps its own FIFO. A FIFO inside a node is
# a local buffer: it holds the most tokens that its node leaves in it at one time.


_UNKNOWN_TOKENS = 1024  # assumed tokens that a task puts to a stream, if the number depends on data


class FoldFifos(Frozen):
    """The FIFOs of a folded graph.

    Attributes:
        fifo: per stream of the program, the number of the FIFO that carries it.
        stream: per FIFO, one of the streams it carries.
        held: per FIFO, the tokens that it must hold because it is a buffer within a node; 0 between nodes.
        used: per FIFO, whether tasks exchange anything through it.
    """

    fifo: IntArray
    stream: IntArray
    held: IntArray
    used: BoolArray


def edge_fifos(
    graph: ProgramGraph, position: IntArray, node_of_task: IntArray, merges: bool
) -> tuple[IntArray, IntArray]:
    """The edges of a graph by source node, target node, array and the time of their puts; and the FIFO of each.

    Args:
        position: of each task in its node's schedule.
        merges: whether edges may share one.
    """
    edges = graph.edges
    if not merges or not len(edges):
        return np.arange(len(edges)), np.arange(len(edges))
    source, target = node_of_task[edges.source], node_of_task[edges.target]
    put_place, get_place, single = graph.once(_places)
    order = np.lexsort((put_place, position[edges.source], edges.array, target, source))
    key = np.stack([source, target, edges.array], axis=1)[order]
    new = np.concatenate(([True], (key[1:] != key[:-1]).any(axis=1)))
    consumed, taken = position[edges.target][order], get_place[order]
    later = (np.diff(consumed) > 0) | ((np.diff(consumed) == 0) & (np.diff(taken) > 0))
    same_task = (np.diff(edges.source[order]) == 0) | (np.diff(edges.target[order]) == 0)
    one_by_one = single[order]
    mixed = same_task & ~(one_by_one[1:] & one_by_one[:-1])
    # In the order of puts: one FIFO serves them if gets come in the same order. Any pair out of order splits its set.
    out_of_turn = np.concatenate(([False], (~later | mixed) & ~new[1:]))
    bundle = np.cumsum(new) - 1
    split = np.isin(bundle, bundle[out_of_turn])
    return order, np.cumsum(new | split) - 1


def _joined(graph: ProgramGraph, streams: IntArray, of_edge: IntArray, inside: BoolArray, turns: IntArray) -> FoldFifos:
    """FIFOs numbered by the edges they carry; streams without an edge, which nothing uses, have the last ones.

    Args:
        turns: of the edges within a node, when in its schedule each is put to, and then when each is got from.
    """
    program = graph.program
    used = int(of_edge[-1]) + 1
    unused = np.setdiff1d(np.arange(program.stream_count), streams, assume_unique=True)
    fifo = np.empty(program.stream_count, np.int64)
    fifo[streams] = of_edge
    fifo[unused] = used + np.arange(len(unused))
    first = np.flatnonzero(np.concatenate(([True], np.diff(of_edge) > 0)))
    held = np.zeros(used + len(unused), np.int64)
    numbers = of_edge[inside]
    np.maximum.at(held, numbers, 1)
    tokens = graph.once(_tokens)[streams[inside]]
    change, of = np.concatenate([tokens, -tokens]), np.concatenate([numbers, numbers])
    in_time = np.lexsort((turns, of))
    np.maximum.at(held, of[in_time], np.cumsum(change[in_time]))
    return FoldFifos(fifo, np.concatenate([streams[first], unused]), held, np.arange(len(held)) < used)


def _places(graph: ProgramGraph) -> tuple[IntArray, IntArray, BoolArray]:
    """Per edge: its stream's place among the ports of the task that puts to it, and among those of the one that gets.

    Also whether it carries exactly one token: the tokens of streams that one task uses come in the order of their ports
    only if each carries one.
    """
    program = graph.program
    streams, of_edge = np.unique(graph.edges.stream, return_inverse=True)
    places = np.zeros((2, len(streams)), np.int64)
    single = np.ones(len(streams), np.bool_)
    for task_class, _, pids in program.tasks_by_class:
        for place, port in enumerate(task_class.stream_ports):
            own = program.first_stream[port.stream.name] + port.index.linear(pids)
            at = np.searchsorted(streams, own[np.isin(own, streams)])
            places[int(port.direction == "get"), at] = place
            single[at] &= port.tokens == 1
    return places[0][of_edge], places[1][of_edge], single[of_edge]


def _tokens(graph: ProgramGraph) -> IntArray:
    return tokens_of(graph.program)


def tokens_of(program: CompiledProgram) -> IntArray:
    """Tokens that one task puts to each stream; a thousand where that depends on data."""
    per_stream = np.zeros(program.stream_count, np.int64)
    for task_class in program.task_classes:
        for port in task_class.stream_ports:
            if port.direction == "put":
                first = program.first_stream[port.stream.name]
                count = _UNKNOWN_TOKENS if port.tokens is None else port.tokens
                view = per_stream[first : first + port.stream.count]
                np.maximum(view, count, out=view)
    return per_stream


# Work, transfers and storage of a folded graph's nodes: equal for all of its schedules, so computed once.


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
        merges: whether streams between two nodes may share a FIFO.
    """

    def __init__(
        self, graph: ProgramGraph, groups: tuple[NodeGroup, ...], node_of_task: IntArray, merges: bool
    ) -> None:
        self._merges = merges
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
            result.append((kernel, kernel.classes[leaf.cls], tuple(pid.tolist())))
        return result

    def tiles(self, group: int, task_class: TaskClass, port: TensorPort) -> int:
        """Different tiles that a node of a group uses of the tensor of a port, which is one of the class's."""
        key = (group, (task_class.kernel, task_class.name), port.arg)
        if key not in self._tiles:
            program, tasks, tile = self._program, self._groups[group].first_tasks, port.tile
            kernels = [n for n, k in enumerate(program.kernels) if any(a.name == port.tensor.name for a in k.args)]
            rank = len(tile.matrix[0]) if tile.matrix else 0 if tile.table is None else tile.table.ndim  # mesh axes
            found: set[int] = set()
            for kernel in kernels:
                own = tasks[(tasks >= program.first_task[kernel]) & (tasks < program.first_task[kernel + 1])]
                if len(own) and tile.grid and len(program.kernels[kernel].mesh) == rank:
                    found.update(tile.linear(program.pids(kernel, own)).tolist())
            self._tiles[key] = max(1, len(found))
        return self._tiles[key]

    @property
    def turns(self) -> IntArray:
        """The least number of tasks that each task comes after, one after the other: (task_count,).

        A task comes after those before it on its node, and after the sources of its streams.
        """
        edges, tasks = self._graph.edges, [group.leaves.tasks() for group in self._groups]
        different = edges.source != edges.target
        before = np.concatenate([edges.source[different], *(own[:, :-1].ravel() for own in tasks)])
        after = np.concatenate([edges.target[different], *(own[:, 1:].ravel() for own in tasks)])
        levels = topological_levels(before, after, len(self._node))
        for own in tasks if (levels < 0).any() else ():
            # Tasks that exchange tokens in both directions have no order except their node's.
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
            for own, tasks, pids in self._program.tasks_by_class
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
        graph, position, node = self._graph, self.position, self._node
        edges = graph.edges
        if not self._merges or not len(edges):
            numbers = np.arange(graph.program.stream_count)
            return FoldFifos(numbers, numbers, np.zeros_like(numbers), np.isin(numbers, edges.stream))
        order, of_edge = edge_fifos(graph, position, node, self._merges)
        source, target = edges.source[order], edges.target[order]
        inside = node[source] == node[target]
        # In half tasks: puts come after the task's gets, which make room, unless the task puts first.
        put = 2 * position[source] + 1 - 2 * graph.early_puts[edges.stream[order]]
        turns = np.concatenate([put[inside], 2 * position[target][inside]])
        return _joined(graph, edges.stream[order], of_edge, inside, turns)

    @cached_property
    def position(self) -> IntArray:
        """The position of each task in its node's schedule: (task_count,)."""
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
        array = program.arrays_of(fifos.stream[fifos.used])
        kinds, counts = np.unique(np.stack([array, fifos.held[fifos.used]], axis=1), axis=0, return_counts=True)
        return [
            (program.streams[number].name, held, count)
            for (number, held), count in zip(kinds.tolist(), counts.tolist(), strict=True)
        ]
