"""Folds of irregular programs: which tasks share a node, task by task."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from allo_dse.common.aliases import JsonObject

from ..graph.node_names import chain_name
from ..graph.program_graph import ProgramGraph
from .mesh_primitives import Primitives


class NodeFold(Struct, frozen=True):
    """Tasks in nodes, each of which runs its tasks one after the other, in the order of streams.

    Attributes:
        nodes: the names of the tasks of every node with more than one, in the order in which they run.
        names: of all tasks of the program, by id.
    """

    nodes: tuple[tuple[str, ...], ...]
    names: tuple[str, ...]

    @staticmethod
    def of(graph: ProgramGraph, sets: Sequence[Sequence[int]]) -> NodeFold:
        """The fold that has these sets of tasks (by id) on nodes of their own; canonical."""
        rank, names = graph.order.rank, graph.names
        nodes = [sorted(own, key=rank.__getitem__) for own in sets if len(own) > 1]
        nodes.sort(key=lambda own: rank[own[0]])
        return NodeFold(tuple(tuple(names[task] for task in own) for own in nodes), tuple(names))

    @property
    def node_count(self) -> int:
        return len(self.names) - sum(len(own) - 1 for own in self.nodes)

    @property
    def kernels(self) -> tuple[()]:
        """No kernel is folded as a whole."""
        return ()

    @property
    def chains(self) -> tuple[tuple[str, ...], ...]:
        """What shares a node."""
        return self.nodes

    def primitives(self, graph: ProgramGraph) -> Primitives:
        """The sequence of chains that makes this fold, task after task in the order of streams.

        Made in this order every chain is legal where streams do not lead round in circles: the task that joins a node
        leads to later tasks only, and those have nodes of their own yet.
        """
        rank = graph.order.rank
        number = {name: task for task, name in enumerate(self.names)}
        steps = [(rank[number[task]], node, task) for node, own in enumerate(self.nodes) for task in own[1:]]
        label = [own[0] for own in self.nodes]
        result: Primitives = []
        for _, node, task in sorted(steps):
            result.append(("chain", [label[node], task]))
            label[node] = chain_name((label[node], task))
        return result

    @property
    def text(self) -> str:
        """`to_dict` as JSON."""
        return json.dumps(self.to_dict(), sort_keys=True)

    def to_dict(self) -> JsonObject:
        """Plain data, JSON-serialisable."""
        return {"nodes": [list(own) for own in self.nodes], "tasks": list(self.names)}


def twin_tasks(graph: ProgramGraph) -> list[int]:
    """For each task the one before it that it can be exchanged with without changing the graph: -1 where there is none.

    Those are tasks of one class with streams from and to the same tasks.
    """
    program, feeds = graph.program, graph.order.feeds
    last: dict[tuple[object, ...], int] = {}
    before: list[int] = []
    for kernel, (first, end) in enumerate(zip(program.first_task, program.first_task[1:], strict=False)):
        classes = program.kernels[kernel].class_of(program.pids(kernel, np.arange(first, end)))
        for task in range(first, end):
            key = (kernel, int(classes[task - first]), feeds[task].tobytes(), feeds[:, task].tobytes())
            before.append(last.get(key, -1))
            last[key] = task
    return before
