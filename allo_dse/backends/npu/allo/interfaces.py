"""The tensor interfaces of folded nodes as Allo makes them: one per tensor argument of a node's kernel function.

A node's function holds the body of each task once (`bundle` repeats it in a loop), so its arguments are those of the
tasks of one iteration. The tiles that an argument stands for, iteration by iteration, are its sequence.

Source: `allo.backend.aie.mapping` (CollocatedNode, ComputationGraph.get_global_io) and `allo.memory.DTensor`, commit
a098603.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.records import Frozen, replace
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.compiler.program.tensors import IntArray, TensorPort
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.graph.groups import NodeGroup, Repeat, Seq, Task, Tree
from allo_dse.mapper.graph.program_graph import ProgramGraph
from allo_dse.mapper.graph_algorithms import DisjointSets

from ..movement.flows import GroupPorts
from ..movement.movement import StreamFlow

Places = NDArray[np.int32]
"""Half the memory of other integers: a node may have tens of thousands of tiles."""
PORTS_PER_CORE = 2
"""Interfaces of a core per direction: `allo.backend.aie.utils.Config` COMPUTE_MAX_RECV, COMPUTE_MAX_SEND."""


class Interface(Frozen, eq=False):
    """A tensor argument of a node, or of the function of a group of nodes, with the tiles of each.

    Attributes:
        node: the first of the group.
        place: position of its task in the body.
        tensor: its position among the region's tensors.
        port: as one of the tasks uses it.
        tiles: places of its tiles in the tensor's grid of tiles, in 4 dimensions: (groups, tiles per group, 4). Tiles
            of one group are requested together: a group is an iteration of the node's outermost bundle.
        leaves: positions in the node's schedule of the tasks that use them: (tiles,).
    """

    node: int
    place: int
    tensor: int
    is_input: bool
    port: TensorPort
    tiles: Places
    leaves: IntArray

    @property
    def first(self) -> tuple[int, ...]:
        """Place of the first tile."""
        return tuple(self.tiles[0, 0].tolist())

    def same_transfer(self, other: Interface) -> bool:
        """Return whether both need the same tiles at the same times, so that one transfer serves both."""
        return (
            self.tiles.shape == other.tiles.shape
            and np.array_equal(self.leaves, other.leaves)
            and np.array_equal(self.tiles, other.tiles)
        )


class PortShortage(Frozen, eq=False):
    """A node with more tensors in one direction than a core has ports."""

    node: int
    is_input: bool
    needed: int
    tensors: tuple[str, ...]


def one_iteration(tree: Tree, start: int = 0) -> list[tuple[Task, IntArray]]:
    """Return the tasks in the body of a node's function, each with its positions in the schedule."""
    if isinstance(tree, Task):
        return [(tree, np.array([start]))]
    if isinstance(tree, Seq):
        found = []
        for child in tree.children:
            found += one_iteration(child, start)
            start += child.leaf_count
        return found
    length = tree.child.leaf_count
    rounds = np.arange(tree.count)[:, None] * length
    return [(task, (rounds + leaves).reshape(-1)) for task, leaves in one_iteration(tree.child, start)]


def tensor_order(program: CompiledProgram) -> tuple[int, ...]:
    """Return the positions of the region's tensors in Allo's order: kernel by kernel, read tensors first."""
    numbers = {tensor.name: number for number, tensor in enumerate(program.tensors)}
    found: dict[int, None] = {}
    for cls in program.task_classes:
        ports = cls.used_ports
        found.update({numbers[port.tensor.name]: None for port in sorted(ports, key=lambda port: port.writes)})
    return tuple(found)


def node_interfaces(vmg: VMG) -> Iterator[list[Interface] | PortShortage]:
    """The interfaces of every node, node by node."""
    for first_node, group in vmg.numbered_groups:
        arguments = _merged(_arguments(vmg, group, first_node), first_node)
        for number in range(group.count):
            if isinstance(arguments, PortShortage):
                yield arguments
            else:
                yield [replace(one, node=first_node + number, tiles=one.tiles[number]) for one in arguments]


def _arguments(vmg: VMG, group: NodeGroup, first_node: int) -> list[Interface]:
    """Return the arguments of a group's function in order: task by task of the body, read ones first."""
    program = vmg.program
    tensors = {tensor.name: number for number, tensor in enumerate(program.tensors)}
    uses: dict[Task, list[tuple[int, IntArray]]] = {}
    for place, (task, leaves) in enumerate(one_iteration(group.tree)):
        uses.setdefault(task, []).append((place, leaves))
    result: list[Interface] = []
    for task, own in uses.items():
        groups = request_groups(vmg, group.tree, task.kernel)
        ports = program.kernels[task.kernel].classes[task.cls].used_ports
        leaves = np.stack([leaves for _, leaves in own])
        for port in sorted(ports, key=lambda port: not port.reads):
            places = tile_places(vmg.graph, group, task.kernel, port, leaves.reshape(-1))
            places = places.reshape(group.count, len(own), groups, -1, 4)
            tensor = tensors[port.tensor.name]
            result += [
                Interface(first_node, place, tensor, not port.writes, port, places[:, number], leaves[number])
                for number, (place, _) in enumerate(own)
            ]
    return sorted(result, key=lambda one: one.place)


def _merged(arguments: list[Interface], first_node: int) -> list[Interface] | PortShortage:
    """Return the arguments after Allo has merged as many as the core's ports require.

    It merges arguments for one tensor, the first of all first, whatever their direction, until both directions fit.
    """
    alike: dict[tuple[int, bool, int], list[Interface]] = {}
    for one in arguments:
        alike.setdefault((one.tensor, one.is_input, one.tiles.shape[1]), []).append(one)
    count = {way: sum(one.is_input == way for one in arguments) for way in (True, False)}
    result: list[Interface] = []
    for members in alike.values():
        kept = len(members)
        while kept > 1 and max(count.values()) > PORTS_PER_CORE:
            kept -= 1
            count[members[0].is_input] -= 1
        taken = len(members) - kept + 1
        result += [_joined(members[:taken]), *members[taken:]]
    if max(count.values()) <= PORTS_PER_CORE:
        return sorted(result, key=lambda one: one.place)
    is_input = count[True] > PORTS_PER_CORE
    names = tuple(dict.fromkeys(one.port.tensor.name for one in result if one.is_input == is_input))
    return PortShortage(first_node, is_input, count[is_input], names)


def _joined(members: list[Interface]) -> Interface:
    if len(members) == 1:
        return members[0]
    tiles = np.concatenate([one.tiles for one in members], axis=2)
    return replace(members[0], tiles=tiles, leaves=np.concatenate([one.leaves for one in members]))


def request_groups(vmg: VMG, tree: Tree, kernel: int) -> int:
    """Into how many groups a node's requests fall: one per iteration of the bundle that was made last.

    A chain made after all bundles puts them into one.
    """
    if not isinstance(tree, Repeat):
        return 1
    joint = vmg.joint
    if joint is None:
        return tree.count
    linked = [(link, axis) for link, axis in joint.loops[kernel] if link is not None]
    if not linked:
        return tree.count
    order = [step.link for step in joint.steps or () if step.link is not None]
    _, axis = max(linked, key=lambda item: order.index(item[0]))
    return vmg.program.kernels[kernel].mesh[axis] // joint.fold.kernels[kernel].axes[axis].spatial


def tile_places(graph: ProgramGraph, group: NodeGroup, kernel: int, port: TensorPort, leaves: IntArray) -> Places:
    """Places of the tiles of a group's tasks in 4 dimensions, as Allo numbers them: (nodes, leaves, 4).

    A vector's tiles lie along dimension 2, those of a matrix that is cut along one dimension along dimension 1, and
    those of one that is cut along both along dimensions 0 and 1.
    """
    places = np.zeros((group.count, len(leaves), 4), np.int32)
    coordinates = group.once(GroupPorts, graph).grid_places(kernel, port.tile, leaves)
    for dimension, coordinate in zip(tile_dimensions(port), coordinates, strict=True):
        if dimension is not None:
            places[:, :, dimension] = coordinate
    return places


def tile_dimensions(port: TensorPort) -> list[int | None]:
    """Return, per dimension of the tensor, the dimension that numbers its tiles; None if it is not split."""
    cut = [axis is not None for axis in port.layout]
    if len(cut) <= 1:  # a single value has a place, too
        return [2 if any(cut) else None]
    if all(cut):
        return list(range(len(cut)))
    return [1 if one else None for one in cut]


def tile_counts(port: TensorPort) -> list[int]:
    """Return the number of tiles in each of the 4 dimensions."""
    counts = [1, 1, 1, 1]
    for dimension, count in zip(tile_dimensions(port), port.tile.grid or (1,), strict=True):
        if dimension is not None:
            counts[dimension] = count
    return counts


# Object FIFOs between nodes as Allo makes them: streams that a bundle merges at either end are one.
#
# A bundle repeats the body of a node, so all its iterations use one FIFO per operation in that body, and so does every
# other user of these streams. Streams that no bundle touches, such as those that a loop of a single task picks, are
# FIFOs of their own.
#
# Source: `ComputationGraph.bundle_multi` in `allo.backend.aie.mapping`, commit a098603.


Pair = tuple[str, int, int]
"""A stream array, and the nodes that it leads from and to."""


def fifo_counts(vmg: VMG, between: tuple[StreamFlow, ...]) -> Mapping[Pair, int]:
    """Return the number of FIFOs per stream array and pair of nodes, for pairs with more than one stream."""
    wanted = {(flow.stream, flow.source, flow.target) for flow in between if flow.count > 1}
    if not wanted:
        return {}
    nodes = {node for _, source, target in wanted for node in (source, target)}
    arrays = {name for name, _, _ in wanted}
    ends: dict[tuple[str, int], dict[str, list[tuple[int, Hashable]]]] = {}
    for first_node, group in vmg.numbered_groups:
        own = range(first_node, first_node + group.count)
        if not nodes.isdisjoint(own):
            tasks = group.leaves.tasks(0, body_of(group).leaf_count)
            for name, direction, node, stream, operation in _uses(vmg.program, group, tasks, arrays):
                ends.setdefault((name, stream), {}).setdefault(direction, []).append((first_node + node, operation))
    found: dict[Pair, DisjointSets[Hashable]] = {}
    for (name, _), sides in ends.items():
        for source, put in sides.get("put", ()):
            for target, get in sides.get("get", ()):
                if (name, source, target) in wanted:
                    found.setdefault((name, source, target), DisjointSets[Hashable]()).join(("put", put), ("get", get))
    return {pair: len(sets.groups()) for pair, sets in found.items()}


def fifos_inside(program: CompiledProgram, group: NodeGroup, array: str) -> int:
    """Return the number of FIFOs of a stream array between tasks of one node before chaining: 1 if bundles merged
    them.
    """
    tasks = group.leaves.tasks(0, body_of(group).leaf_count)[:1]
    ends: dict[int, dict[str, list[Hashable]]] = {}
    for _, direction, _, stream, operation in _uses(program, group, tasks, {array}):
        ends.setdefault(stream, {}).setdefault(direction, []).append(operation)
    sets = DisjointSets[Hashable]()
    for sides in ends.values():
        for put in sides.get("put", ()):
            for get in sides.get("get", ()):
                sets.join(("put", put), ("get", get))
    return len(sets.groups())


def body_of(group: NodeGroup) -> Task | Seq:
    """Return the tree of one round of a group's nodes; all rounds reach the same peers."""
    return group.tree.child if isinstance(group.tree, Repeat) else group.tree


def _uses(
    program: CompiledProgram, group: NodeGroup, tasks: IntArray, arrays: set[str]
) -> Iterator[tuple[str, str, int, int, Hashable]]:
    """Array, direction, node of the group, stream and operation in the body, for all streams of one round.

    Args:
        tasks: of one round of some of the group's nodes: (nodes, tasks).
    """
    for place, (task, leaves) in enumerate(one_iteration(body_of(group))):
        ports = program.kernels[task.kernel].classes[task.cls].stream_ports
        used = [(number, port) for number, port in enumerate(ports) if port.stream.name in arrays]
        if not used:
            continue
        pids = program.pids(task.kernel, tasks[:, leaves].reshape(-1))
        for number, port in used:
            for node, row in enumerate(port.index.linear(pids).reshape(len(tasks), -1).tolist()):
                for stream in row:
                    yield port.stream.name, port.direction, node, stream, (place, number)
