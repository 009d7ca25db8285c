"""Flows: the tile sequences of all nodes, with those that several nodes share moved once."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from allo_dse.common.records import Frozen
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.compiler.program.tensors import IndexMap, IntArray, TensorPort
from allo_dse.mapper.graph.groups import MeshLeaves, NodeGroup, nest_offsets
from allo_dse.mapper.graph.ports import ClassUse, Direction, PortKey, PortSide, Round, schedule_round
from allo_dse.mapper.graph.program_graph import ProgramGraph
from allo_dse.mapper.graph_algorithms import Nest, change_count, loop_nest, nest_moves, simplest_nest
from allo_dse.mapper.violation import Buffering

from .movement import Flow, StreamFlow

# Tile sequences: the tile of a tensor that each task of a node uses, derived per node group.
#
# In a mesh fold the first byte of a tile is `f(node) + g(leaf)`. So nodes that start with the same tile go through the
# same sequence, and nothing is computed per task. In graphs folded node by node, tiles are compared one by one.


Users = list[tuple[ClassUse, PortSide]]


class TilePattern(Frozen, eq=False):
    """The tiles that pass through one port of a node, one per task that uses the port, relative to the first.

    Attributes:
        identity: equal for equal patterns.
        nest: the sequence as loops, outermost first; None when it is none.
        uses, moves: how many tasks use the port, and how many of them use another tile than the one before.
    """

    identity: Hashable
    nest: Nest | None
    uses: int
    moves: int


# One entry per node: the first byte of its first tile, and the pattern, which nodes share.
TileSequences = list[tuple[int, TilePattern]]


class GroupTiles:
    """A node group in a folded graph, with its ports and the tile sequences of its nodes.

    Attributes:
        first_node: the number of its first node.
        ports: what the group has in every graph that it is in.
    """

    def __init__(self, graph: ProgramGraph, group: NodeGroup, first_node: int) -> None:
        self.group, self.first_node = group, first_node
        self.ports = group.once(GroupPorts, graph)
        self.round, self.rounds, self.users = self.ports.round, self.ports.rounds, self.ports.users


class GroupPorts:
    """The ports of a node group and the tile sequences of its nodes."""

    def __init__(self, group: NodeGroup, graph: ProgramGraph) -> None:
        self.program = graph.program
        self.group = group
        self.round: Round = schedule_round(group.tree)
        self.rounds = group.tree.leaf_count // self.round.length
        self.users: dict[PortKey, Users] = {}
        for use in self.round.classes:
            for side in graph.ports.of_task(use.task).sides:
                self.users.setdefault(side.key, []).append((use, side))
        self._sequences: dict[PortKey, TileSequences] = {}

    def sequences(self, key: PortKey) -> TileSequences:
        """The tile sequence of each node of the group at one port."""
        if key not in self._sequences:
            self._sequences[key] = self._found(self.users[key])
        return self._sequences[key]

    def grid_places(self, kernel: int, tile: IndexMap, leaves: IntArray) -> Iterator[IntArray]:
        """Yield the grid coordinates of the tiles of tasks at some leaves, all of one kernel.

        There is one array per dimension of the grid, or a single one for a tensor without any. Each broadcasts to
        (nodes, leaves).
        """
        if isinstance(self.group.leaves, MeshLeaves) and tile.is_affine and tile.grid:
            own = self.group.leaves
            for row, offset in zip(tile.matrix, tile.offset, strict=True):
                steps = [row[axis] * step for axis, step in zip(own.loop_axes, self._pid_steps, strict=True)]
                first = self._base_pids @ np.array(row, np.int64) + offset
                yield first[:, None] + nest_offsets(leaves, own.loops, steps)
        else:
            tasks = self.group.leaves.tasks()[:, leaves]
            places = np.unravel_index(tile.linear(self.program.pids(kernel, tasks.reshape(-1))), tile.grid or (1,))
            yield from (place.reshape(tasks.shape) for place in places)

    def _found(self, users: Users) -> TileSequences:
        factors = users[0][1].factors
        leaves = self.group.leaves
        if isinstance(leaves, MeshLeaves) and factors is not None and all(s.factors == factors for _, s in users):
            return self._mesh_sequences(leaves, users)
        return self._explicit_sequences(users)

    def _mesh_sequences(self, leaves: MeshLeaves, users: Users) -> TileSequences:
        factors = users[0][1].factors
        # A tile's first byte is linear in the pid, and the pid is so in the loops' digits: each loop has one step.
        steps = [factors[a] * s if factors else 0 for a, s in zip(leaves.loop_axes, self._pid_steps, strict=True)]
        first_use, first_side = min(users, key=lambda user: user[0].first_leaf)
        starts = first_side.first_bytes(self._base_pids) + nest_offsets(first_use.first_leaf, leaves.loops, steps)
        outer = int(np.searchsorted(np.cumprod((1, *leaves.loops)), self.rounds))  # loops that make up the rounds
        outer_nest: Nest = tuple(zip(leaves.loops[:outer], steps[:outer], strict=True))
        places = np.concatenate([use.in_round for use, _ in users])
        inner: Nest | None
        if len(places) == 1:
            inner, moves = (), 1
        elif len(places) == self.round.length and all(s.offset == first_side.offset for _, s in users):
            inner = tuple(zip(leaves.loops[outer:], steps[outer:], strict=True))
            moves = nest_moves(inner)
        else:
            parts = [s.offset + nest_offsets(use.in_round, leaves.loops, steps) for use, s in users]
            sequence = np.concatenate(parts)[np.argsort(places)]
            inner, moves = loop_nest(sequence), change_count(sequence)
        nest = None if inner is None else simplest_nest(outer_nest + inner)
        moves = self.rounds * moves if nest is None else nest_moves(nest)
        uses = self.rounds * len(places)
        identity = nest if nest is not None else (outer_nest, self.group.tree, users[0][1].key)
        pattern = TilePattern(identity, nest, uses, moves)
        return [(start, pattern) for start in starts.tolist()]

    @cached_property
    def _base_pids(self) -> IntArray:
        leaves = self.group.leaves
        assert isinstance(leaves, MeshLeaves)
        return self.program.pids(leaves.kernel, leaves.base)

    @cached_property
    def _pid_steps(self) -> list[int]:
        """Increment of the pid along a temporal loop's axis per iteration, for each loop."""
        leaves = self.group.leaves
        assert isinstance(leaves, MeshLeaves)
        mesh = self.program.kernels[leaves.kernel].mesh
        task_step = [1] * len(mesh)
        for axis in range(len(mesh) - 2, -1, -1):
            task_step[axis] = task_step[axis + 1] * mesh[axis + 1]
        return [stride // task_step[axis] for stride, axis in zip(leaves.loop_stride, leaves.loop_axes, strict=True)]

    def _explicit_sequences(self, users: Users) -> TileSequences:
        tasks = self.group.leaves.tasks()
        rounds = np.arange(self.rounds)[:, None] * self.round.length
        places, columns = [], []
        for use, side in users:
            leaves = (rounds + use.in_round).reshape(-1)
            pids = self.program.pids(use.task.kernel, tasks[:, leaves].reshape(-1))
            places.append(leaves)
            columns.append(side.first_bytes(pids).reshape(len(tasks), -1))
        order = np.argsort(np.concatenate(places))
        rows = np.concatenate(columns, axis=1)[:, order]
        known: dict[bytes, TilePattern] = {}
        result = []
        for row in rows:
            relative = (row - row[0]).tobytes()
            if relative not in known:
                nest, moves = loop_nest(row), change_count(row)
                # A tile that ends one loop and begins the next is not moved again.
                nest = nest if nest is not None and nest_moves(nest) == moves else None
                known[relative] = TilePattern(relative if nest is None else nest, nest, len(row), moves)
            result.append((int(row[0]), known[relative]))
        return result


class FlowFamily(Frozen, eq=False):
    """Flows of one tensor that move tiles of one shape in step: a shim channel can carry any of them in turns.

    Attributes:
        flows: ordered by first tile; their nodes are in one phase (see `phases`).
    """

    port: TensorPort
    direction: Direction
    pattern: TilePattern
    flows: tuple[Flow, ...]


@dataclass(eq=False)
class _Draft:
    """A family in the making: first byte of each flow, and its nodes with the port of each."""

    port: TensorPort
    direction: Direction
    pattern: TilePattern
    flows: list[tuple[int, dict[int, PortKey]]]


def phases(streams: Sequence[StreamFlow], node_count: int) -> list[int]:
    """For each node, how many nodes at most stand before it in a line of streams; 0 for all where streams form a cycle.

    A node waits for the ones before it, so nodes of different phases run out of step. Flows that take turns on a
    channel must not wait for each other, or the array hangs: they have to be of one phase.
    """
    result = [0] * node_count
    # Each round settles lines one stream longer. Without a cycle none has as many streams as there are nodes, so a
    # change in the last round shows a cycle.
    for _ in range(node_count):
        changed = False
        for stream in streams:
            if result[stream.target] <= result[stream.source]:
                result[stream.target] = result[stream.source] + 1
                changed = True
        if not changed:
            return result
    return [0] * node_count


def plan_flows(
    program: CompiledProgram, groups: list[GroupTiles], streams: Sequence[StreamFlow], buffering: Buffering
) -> list[FlowFamily]:
    """The flows of a mapping by family, inputs first and in the order of the region's tensors.

    Nodes of one phase whose sequences at input ports of one tensor are equal share a flow (multicast); every output has
    its own.
    """
    position = {tensor.name: number for number, tensor in enumerate(program.tensors)}
    phase = phases(streams, sum(group.group.count for group in groups))
    drafts = sorted(_drafts(groups, phase), key=lambda d: (d.direction != "in", position[d.port.tensor.name]))
    families: list[FlowFamily] = []
    first = 0
    for draft in drafts:
        flows = _flows(first, draft, buffering)
        first += len(flows)
        families.append(FlowFamily(draft.port, draft.direction, draft.pattern, flows))
    return families


def _drafts(groups: list[GroupTiles], phase: list[int]) -> list[_Draft]:
    families: dict[Hashable, _Draft] = {}
    shared: dict[tuple[int, int], dict[int, PortKey]] = {}
    for group in groups:
        for port_key, users in group.users.items():
            tensor, direction, _, tile_shape = port_key
            known: tuple[TilePattern | None, int] = (None, 0)
            for node, (first_byte, pattern) in enumerate(group.ports.sequences(port_key), group.first_node):
                if pattern is not known[0] or phase[node] != known[1]:
                    key = (tensor, direction, tile_shape, pattern.identity, pattern.uses, phase[node])
                    family = families.setdefault(key, _Draft(users[0][1].port, direction, pattern, []))
                    known = pattern, phase[node]
                nodes = shared.get((id(family), first_byte)) if direction == "in" else None
                # A node that takes the same tiles at two ports has a channel for each, and a flow to each.
                if nodes is not None and node not in nodes:
                    nodes[node] = port_key
                    continue
                shared[id(family), first_byte] = nodes = {node: port_key}
                family.flows.append((first_byte, nodes))
    return list(families.values())


def _flows(first: int, draft: _Draft, buffering: Buffering) -> tuple[Flow, ...]:
    port, pattern = draft.port, draft.pattern
    depth = buffering.input_depth if draft.direction == "in" else buffering.output_depth
    tensor, tile_bytes, run_bytes = port.tensor.name, port.tile_bytes, port.run_bytes
    return tuple(
        Flow(
            index=index,
            tensor=tensor,
            direction=draft.direction,
            nodes=tuple(nodes),
            tile_bytes=tile_bytes,
            run_bytes=run_bytes,
            depth=depth,
            moves=pattern.moves,
            first_byte=first_byte,
            ports=tuple(nodes.values()),
        )
        for index, (first_byte, nodes) in enumerate(sorted(draft.flows, key=lambda f: (f[0], *f[1])), first)
    )
