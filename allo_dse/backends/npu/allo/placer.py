"""Allo's assignment of nodes to cores: nodes that exchange tokens are adjacent, in columns that turn at their ends.

Connected nodes are joined into strings, the pairs with most FIFOs first. Only the two ends of a string can be extended.
If these two ends are connected, the string closes on itself, and its nodes take several cores each. Strings are laid
out from the first free core, up and down the columns to the right. Strings that run out of columns are not placed.
Single nodes take any core that is left.

Source: `CodeGenerator.map_core_func_to_physical_tiles` in `allo.backend.aie.mlir_codegen` and `string_sort_key` in
`allo.backend.aie.utils`, commit a098603. An independent implementation of their behaviour.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from allo_dse.common.records import Frozen
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.mapper.fold.primitives import plans
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.graph.groups import MeshLeaves, bundle_name, chain_name
from allo_dse.mapper.graph.ports import schedule_round

from ..movement.movement import StreamFlow
from .transfers import TransferRun

ROWS = 4
"""Rows of compute tiles in all of Allo's arrays: `device_config_map`."""

Core = tuple[int, int]
"""Column and row of a compute tile, counted among compute tiles."""


class NotPlaced(Exception):
    """A node that Allo finds no core for."""

    def __init__(self, node: int) -> None:
        self.node = node


class PlacedNode(Frozen):
    """A node, as the placer sees it.

    Attributes:
        name: as Allo composes it.
        column: of the memory tile with which it has most transfers.
    """

    name: str
    column: int


@dataclass
class _Cores:
    """Cores of an array, with the taken ones marked."""

    columns: int
    of: dict[int, Core] = field(default_factory=dict)
    taken: set[Core] = field(default_factory=set)

    def take(self, node: int, cores: Iterable[Core]) -> Core:
        """Put a node on the first of some cores that is free."""
        core = next((core for core in cores if core not in self.taken), None)
        if core is None or core[0] >= self.columns:
            raise NotPlaced(node)
        self.of[node] = core
        self.taken.add(core)
        return core

    def lay(self, nodes: Sequence[int]) -> None:
        """Lay a string of nodes: its first on the first free core, row by row, the others along the columns."""
        by_row = ((column, row) for row in range(ROWS) for column in range(self.columns))
        (column, row), step = self.take(nodes[0], by_row), 1
        for node in nodes[1:]:
            while (column, row) in self.taken:
                row += step
                if not 0 <= row < ROWS:
                    row, column, step = row - step, column + 1, -step
            self.take(node, [(column, row)])

    def settle(self, node: int, column: int) -> None:
        """Put a single node into a column, or the next that has a free core."""
        order = [*range(column, self.columns), *range(column)]
        self.take(node, ((c, row) for c in order for row in range(ROWS)))


def place_nodes(
    nodes: Mapping[int, PlacedNode], pairs: Sequence[tuple[int, int, int]], columns: int
) -> Mapping[int, Core]:
    """The cores of nodes.

    Args:
        nodes: in the order in which Allo has made them.
        pairs: nodes that exchange tokens, the one made first first, and their FIFOs; in the order of Allo's streams.

    Raises:
        NotPlaced: where Allo gives up.
    """
    ends: dict[int, list[int]] = {node: [node] for node in nodes}
    for one, other, _ in sorted(pairs, key=lambda pair: -pair[2]):
        if one in ends and other in ends:
            joined = _strung(one, other, ends.pop(one), ends.pop(other))
            ends[joined[0]] = ends[joined[-1]] = joined
    cores = _Cores(columns)
    numbers = {node: tuple(map(int, re.findall(r"\d+", nodes[node].name))) for node in ends}
    order = sorted(ends, key=lambda node: (len(numbers[node]), numbers[node]))
    strings = list({id(ends[node]): ends[node] for node in order}.values())
    for string in strings:
        if len(string) > 1:
            cores.lay(string)
    for string in strings:
        if len(string) == 1:
            cores.settle(string[0], nodes[string[0]].column)
    return cores.of


def _strung(one: int, other: int, first: list[int], second: list[int]) -> list[int]:
    """Two strings as one, joined at a pair of their ends; a string joined to itself is there twice."""
    if other == second[-1]:
        one, other, first, second = other, one, second, first
    if one == first[0]:
        first.reverse()
    if other == second[-1]:
        second.reverse()
    return first + second


# Inputs of Allo's placer: nodes in the order of their creation, and the FIFOs between them.


TaskRank = tuple[bool, int, int]
"""False for the first task of a class; the first task of the class; and the task."""
Position = tuple[TaskRank, int, TaskRank]
"""First place of a stream in Allo's order: the task, the stream's place in it, and the task at its other end."""


def place_graph(
    vmg: VMG, fifos: Sequence[StreamFlow], transfers: Sequence[TransferRun], columns: int
) -> Mapping[int, Core]:
    """The cores that Allo gives the nodes of a graph.

    Raises:
        NotPlaced: where Allo gives up.
    """
    order = creation_order(vmg)
    wanted = memory_columns(transfers)
    nodes = {node: PlacedNode(vmg.nodes[node], wanted.get(node, 0)) for node in order}
    rank = {node: number for number, node in enumerate(order)}
    pairs: dict[tuple[int, int], int] = {}
    for flow in by_position(vmg, fifos):
        one, other = sorted((flow.source, flow.target), key=rank.__getitem__)
        pairs[one, other] = pairs.get((one, other), 0) + flow.count
    return place_nodes(nodes, [(*pair, count) for pair, count in pairs.items()], columns)


def creation_order(vmg: VMG) -> list[int]:
    """Return the nodes in the order in which the primitives make them; single tasks come first."""
    first = [int(task) for group in vmg.groups for task in group.leaves.tasks(0, 1)[:, 0]]
    if vmg.joint is not None:
        number = {name: node for node, name in enumerate(vmg.nodes)}
        return [number[name] for name in vmg.joint_names.values()]
    if vmg.mesh_fold is not None:
        places = _mesh_places(vmg)
        return sorted(range(vmg.node_count), key=lambda node: places.get(node, (-1, first[node])))
    made: dict[str, tuple[int, int]] = {}
    for step, (kind, operands) in enumerate(vmg.mapping_primitives):
        if kind == "chain":
            made[chain_name(operands)] = (step, 0)
            continue
        heads = (operands[0],) if isinstance(operands[0], str) else operands[0]
        made |= {bundle_name(head, len(operands)): (step, place) for place, head in enumerate(heads)}
    return sorted(range(vmg.node_count), key=lambda node: made.get(vmg.nodes[node], (-1, first[node])))


def _mesh_places(vmg: VMG) -> dict[int, tuple[int, ...]]:
    """Return the kernel and coordinates of each node of folded kernels, in the order of `mesh_primitives`' loops.

    The result equals that of the full list of tasks, without making the list.
    """
    assert vmg.mesh_fold is not None
    found: dict[int, tuple[int, ...]] = {}
    kernels = plans(vmg.program, vmg.mesh_fold, vmg.graph.rules)
    for start, group in vmg.numbered_groups:
        leaves = group.leaves
        assert isinstance(leaves, MeshLeaves)
        plan = kernels[leaves.kernel]
        outer, inner = (plan.free, plan.linked)
        if not plan.bundled:
            outer, inner = tuple(a for a in range(len(leaves.spatial)) if a not in plan.chained), plan.chained
        if plan.bundled or plan.chained:
            along = np.unravel_index(leaves.nodes, leaves.spatial)
            rows = np.stack([along[axis] for axis in (*outer, *inner)], axis=1).tolist()
            found |= {start + number: (leaves.kernel, *row) for number, row in enumerate(rows)}
    return found


def memory_columns(transfers: Sequence[TransferRun]) -> Mapping[int, int]:
    """Per node with tensors the memory tile that it has most interfaces to."""
    counts: dict[int, Counter[int]] = {}
    for run in transfers:
        for stream in run.streams:
            for interface in stream:
                counts.setdefault(interface.node, Counter())[run.memory_tile] += 1
    return {node: min(own, key=lambda tile: (-own[tile], tile)) for node, own in counts.items()}


def by_position(vmg: VMG, fifos: Sequence[StreamFlow]) -> list[StreamFlow]:
    """Return the streams between nodes in Allo's order: argument by argument of task after task.

    The first task of every class comes before all others, whose arguments are copies of that one's; these are class by
    class (`move_stream_to_interface` in `allo.dataflow`, without unrolling).
    """
    first: dict[tuple[int, str, str], tuple[TaskRank, int]] = {}
    samples = _first_tasks(vmg.program)
    for start, group in vmg.numbered_groups:
        for use in sorted(schedule_round(group.tree).classes, key=lambda use: use.first_leaf):
            ports = vmg.program.kernels[use.task.kernel].classes[use.task.cls].stream_ports
            tasks = group.leaves.tasks(use.first_leaf, use.first_leaf + 1)[:, 0].tolist() if ports else ()
            sample = samples[use.task.kernel, use.task.cls]
            for node, task in enumerate(tasks, start):
                for place, port in enumerate(ports):
                    rank = (task != sample, sample, task)
                    first.setdefault((node, port.stream.name, port.direction), (rank, place))

    def position(flow: StreamFlow) -> Position:
        put, got = first[flow.source, flow.stream, "put"], first[flow.target, flow.stream, "get"]
        (task, place), (other, _) = sorted((put, got))
        return task, place, other

    return sorted(fifos, key=position)


def _first_tasks(program: CompiledProgram) -> dict[tuple[int, int], int]:
    """The first task of every class, by kernel and position of the class."""
    found = {}
    for number, kernel in enumerate(program.kernels):
        classes, at = np.unique(kernel.class_table, return_index=True)
        tasks = np.ravel_multi_index(np.unravel_index(at, kernel.class_table.shape), kernel.mesh)
        for cls, task in zip(classes.tolist(), tasks.tolist(), strict=True):
            found[number, cls] = program.first_task[number] + task
    return found
