"""Search over single tasks, for programs whose kernels cannot be folded as a whole.

    node_folds(graph, max_nodes=4)                         every fold, of symmetric ones only the first
    beam_folds(graph, 4, load=...)                         the most promising ones of a larger program

The search assigns tasks to nodes; the order within a node is that of streams.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from allo_dse.common.errors import IllegalFold
from allo_dse.common.records import Frozen, Ints, JsonObject
from allo_dse.compiler.program.compiled import CompiledProgram, TaskClass

from ..graph.groups import chain_name
from ..graph.program_graph import ProgramGraph

if TYPE_CHECKING:
    from .primitives import Primitives

# Folds of irregular programs, which assign single tasks to nodes.


class NodeFold(Frozen):
    """An assignment of tasks to nodes, each of which runs its tasks in the order of streams.

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
        """The tasks that share a node, for each such node."""
        return self.nodes

    def primitives(self, graph: ProgramGraph) -> Primitives:
        """The sequence of chains that makes this fold, task after task in the order of streams.

        In this order every chain is legal unless streams form a cycle: the task that joins a node leads to later tasks
        only, and those are still on nodes of their own.
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
    """Return for each task the previous one that it can be exchanged with; -1 if none.

    An exchange leaves the graph unchanged.

    Such tasks are of one class, with streams from and to the same tasks.
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


PARTNERS = 4
"""Number of least busy nodes for which a step of the beam search looks for partners."""

Sets = list[list[int]]

Load = Callable[[TaskClass], float]
"""Time that a task of a class takes at least, whatever shares its node."""

Fits = Callable[[Sequence[int]], bool]
"""Test whether tasks can share a node, judged by them alone. True for tasks implies true for every subset of them."""


def anything_fits(tasks: Sequence[int]) -> bool:
    """The test that every set of tasks passes."""
    return True


def rough_work(task_class: TaskClass) -> float:
    """Estimate a task's work in elements and multiply-accumulates, for ranking only."""
    return 1.0 + sum(max(1, math.prod(op.shape)) * (op.count or 1) for op in task_class.work)


def node_folds(graph: ProgramGraph, max_nodes: int, *, fits: Fits = anything_fits) -> Iterator[NodeFold]:
    """Yield every fold onto at most `max_nodes` nodes; folds that differ by an exchange of twins count once."""
    order, before = graph.order.order, twin_tasks(graph)
    place: dict[int, int] = {}

    def extend(position: int, sets: Sets) -> Iterator[NodeFold]:
        if position == len(order):
            yield NodeFold.of(graph, sets)
            return
        task = order[position]
        # Break symmetries, so that each partition is yielded once. Twins can be exchanged without changing the graph,
        # so they are placed in the order of nodes. Empty nodes are alike, so only one is opened at a time.
        least = place.get(before[task], 0)
        for number in range(least, len(sets)):
            if fits([*sets[number], task]):
                sets[number].append(task)
                yield from descend(position, sets, task, number)
                sets[number].pop()
        if len(sets) < max_nodes:
            sets.append([task])
            yield from descend(position, sets, task, len(sets) - 1)
            sets.pop()

    def descend(position: int, sets: Sets, task: int, number: int) -> Iterator[NodeFold]:
        place[task] = number
        yield from extend(position + 1, sets)
        del place[task]

    yield from extend(0, [])


def beam_folds(
    graph: ProgramGraph,
    max_nodes: int,
    *,
    load: Load = rough_work,
    fits: Fits = anything_fits,
    width: int = 16,
) -> list[NodeFold]:
    """Search for the most promising folds onto each number of nodes up to `max_nodes`.

    The beam search starts from the unfolded graph.

    Each step merges two nodes, one of which is among the `PARTNERS` with the least load. Folds are ranked by the
    load of the busiest node, then by the number of streams that stay inside nodes.

    Raises:
        IllegalFold: if tasks wait for each other in a cycle, so that no order can run them.
    """
    program, tasks = graph.program, graph.order
    streams = np.argwhere(tasks.feeds)
    if any(tasks.rank[a] > tasks.rank[b] for a, b in streams.tolist()):
        raise IllegalFold(f"{program.name}: streams lead round in circles", hint="fold it by chain and bundle by hand")
    loads = task_loads(program, load)
    states: list[Sets] = [[[task] for task in tasks.order]]
    result = []
    for nodes in range(program.task_count, 0, -1):
        if nodes <= max_nodes:
            result += [NodeFold.of(graph, state) for state in states]
        load_of = _sums(loads)  # new for each number of nodes, so that the cache stays small
        ranked: dict[frozenset[Ints], tuple[float, int, Sets]] = {}
        for state in states:
            for merged in _merges(state, load_of, fits):
                key = frozenset(map(tuple, map(sorted, merged)))
                if key not in ranked:
                    ranked[key] = (*_score(merged, program.task_count, load_of, streams), merged)
        states = [entry[2] for entry in sorted(ranked.values(), key=lambda entry: entry[:2])[:width]]
    return result


def task_loads(program: CompiledProgram, load: Load) -> np.ndarray:
    """The load of every task, by id: (task_count,)."""
    parts = []
    for number, kernel in enumerate(program.kernels):
        own = np.array([load(cls) for cls in kernel.classes])
        tasks = np.arange(program.first_task[number], program.first_task[number + 1])
        parts.append(own[kernel.class_of(program.pids(number, tasks))])
    return np.concatenate(parts)


def _sums(loads: np.ndarray) -> Callable[[list[int]], float]:
    """The load of a node, added up once: all nodes of a state but one are those of the state before."""
    known: dict[Ints, float] = {}

    def load_of(tasks: list[int]) -> float:
        key = tuple(tasks)
        if key not in known:
            known[key] = float(loads[tasks].sum())
        return known[key]

    return load_of


def _merges(state: Sets, load_of: Callable[[list[int]], float], fits: Fits) -> Iterator[Sets]:
    """The states after merging one of the least busy nodes with another."""
    busy = sorted(range(len(state)), key=lambda node: load_of(state[node]))
    pairs = (sorted((first, other)) for first in busy[:PARTNERS] for other in range(len(state)) if first != other)
    for a, b in dict.fromkeys(map(tuple, pairs)):
        joined = state[a] + state[b]
        if fits(joined):
            yield [*state[:a], joined, *state[a + 1 : b], *state[b + 1 :]]


def _score(state: Sets, count: int, load_of: Callable[[list[int]], float], streams: np.ndarray) -> tuple[float, int]:
    """The load of the busiest node, and how many of the streams, (streams, 2), lead from node to node."""
    place = np.empty(count, np.int64)
    for node, own in enumerate(state):
        place[own] = node
    return max(map(load_of, state)), int((place[streams[:, 0]] != place[streams[:, 1]]).sum())
