"""Object FIFOs between nodes as Allo makes them: streams that a bundle merges at either end are one.

A bundle repeats the body of a node, so all its iterations use one FIFO per operation in that body; whatever else leads
to streams of that FIFO uses it too. Streams of an array that no bundle touches, such as those that a loop of a single
task picks, are FIFOs of their own.

Source: `ComputationGraph.bundle_multi` in `allo.backend.aie.mapping`, commit a098603.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping

from allo_dse.program.compiled import CompiledProgram
from allo_dse.program.index_maps import IntArray

from ..fold.vmg import VMG
from ..graph.groups import NodeGroup
from ..graph.tree import Repeat, Seq, Task
from ..model.disjoint_sets import DisjointSets
from ..model.movement import StreamFlow
from .interfaces import one_iteration

Pair = tuple[str, int, int]
"""A stream array, and the nodes that it leads from and to."""


def fifo_counts(vmg: VMG, between: tuple[StreamFlow, ...]) -> Mapping[Pair, int]:
    """How many FIFOs there are for each stream array from node to node, where there is more than one stream."""
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
    """How many FIFOs a stream array had between tasks of one node before they were chained: 1 where bundles did it."""
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
    """What one round of a group's nodes does; the other rounds reach the same peers."""
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
