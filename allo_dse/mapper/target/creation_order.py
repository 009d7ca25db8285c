"""What Allo's placer is given: nodes in the order in which they were made, and the FIFOs between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from allo_dse.program.compiled import CompiledProgram

from ..fold.mesh_primitives import plans
from ..fold.vmg import VMG
from ..graph.groups import MeshLeaves
from ..graph.node_names import bundle_name, chain_name
from ..graph.ports import schedule_round
from ..model.movement import StreamFlow
from .placer import Core, PlacedNode, place_nodes
from .transfers import TransferRun

TaskRank = tuple[bool, int, int]
"""Whether a task is not the first of its class, the first task of its class, and the task."""
Position = tuple[TaskRank, int, TaskRank]
"""Where Allo meets a stream first: the task, the stream's place among the task's, and the task at its other end."""


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
    """The nodes in the order in which the primitives make them; those that are single tasks come first."""
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
    """Per node of folded kernels its kernel and its coordinates, in the order of `mesh_primitives`' loops: what that
    list of all tasks says, without making it."""
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
    """Streams between nodes in the order in which Allo meets them: argument by argument of task after task.

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
