"""Search over single tasks, for programs whose kernels cannot be folded as a whole.

    node_folds(graph, max_nodes=4)                         every fold, of symmetric ones only the first
    best_node_fold(graph, cost, 4, load=...)               the cheapest: all of them, without those that cannot be
    beam_folds(graph, 4, load=...)                         the most promising ones of a larger program

Which tasks share a node is searched; the order within a node is that of streams.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from allo_dse.common.errors import IllegalFold
from allo_dse.program.compiled import CompiledProgram
from allo_dse.program.tasks import TaskClass

from ..fold.node_fold import NodeFold, twin_tasks
from ..graph.program_graph import ProgramGraph

EXHAUSTIVE_TASKS = 12
"""Programs of more tasks are searched by beam."""

Sets = list[list[int]]

Load = Callable[[TaskClass], float]
"""Time that a task of a class takes at least, whatever shares its node."""

Fits = Callable[[Sequence[int]], bool]
"""Whether tasks can share a node, as far as that can be told from them alone; true of every part of tasks that can."""


def anything_fits(tasks: Sequence[int]) -> bool:
    """The test that every set of tasks passes."""
    return True


def rough_work(task_class: TaskClass) -> float:
    """How much a task computes, in elements and multiply-accumulates: for ranking only."""
    return 1.0 + sum(max(1, math.prod(op.shape)) * (op.count or 1) for op in task_class.work)


def node_folds(
    graph: ProgramGraph,
    max_nodes: int,
    *,
    fits: Fits = anything_fits,
    bound: Callable[[Sets], bool] | None = None,
) -> Iterator[NodeFold]:
    """Every fold onto at most `max_nodes` nodes; of those that only exchange alike tasks, the first.

    Args:
        bound: whether the nodes made so far are worth going on with.
    """
    order, before = graph.order.order, twin_tasks(graph).before
    place: dict[int, int] = {}

    def extend(position: int, sets: Sets) -> Iterator[NodeFold]:
        if position == len(order):
            yield NodeFold.of(graph, sets)
            return
        task = order[position]
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
        if bound is None or bound(sets):
            place[task] = number
            yield from extend(position + 1, sets)
            del place[task]

    yield from extend(0, [])


@dataclass(frozen=True)
class Found:
    """The outcome of a search.

    Attributes:
        cost: of the best fold; infinite when there is none.
        tried: folds whose cost was asked for.
        exact: whether no fold can be better.
    """

    fold: NodeFold | None
    cost: float
    tried: int
    exact: bool


def best_node_fold(
    graph: ProgramGraph,
    cost: Callable[[NodeFold], float],
    max_nodes: int,
    *,
    load: Load | None = None,
    fits: Fits = anything_fits,
) -> Found:
    """The cheapest fold onto at most `max_nodes` nodes.

    Up to `EXHAUSTIVE_TASKS` tasks all folds are tried, but for those whose busiest node alone costs as much as the
    best one.

    Args:
        cost: infinite for a fold that is not possible.
        load: in units of `cost`; nothing is left out without it.
    """
    program = graph.program
    loads = task_loads(program, load) if load else np.zeros(program.task_count)
    best, lowest, tried = None, math.inf, 0
    small = program.task_count <= EXHAUSTIVE_TASKS

    def worthwhile(sets: Sets) -> bool:
        return max(float(loads[own].sum()) for own in sets) < lowest

    for fold in beam_folds(graph, max_nodes, load=load or rough_work, fits=fits, width=4 if small else 16):
        tried += 1
        if (found := cost(fold)) < lowest:
            best, lowest = fold, found
    if small:
        for fold in node_folds(graph, max_nodes, fits=fits, bound=worthwhile):
            tried += 1
            if (found := cost(fold)) < lowest:
                best, lowest = fold, found
    return Found(best, lowest, tried, small)


def beam_folds(
    graph: ProgramGraph,
    max_nodes: int,
    *,
    load: Load = rough_work,
    fits: Fits = anything_fits,
    width: int = 16,
    partners: int = 4,
) -> list[NodeFold]:
    """The most promising folds onto each number of nodes up to `max_nodes`, by a beam search from the unfolded graph.

    Each step merges two nodes, one of which is among the `partners` with the least load. What counts is the load of the
    busiest node, and then how many streams stay inside nodes.

    Raises:
        IllegalFold: where tasks wait for each other in circles, so that there is no order to run them in.
    """
    program, tasks = graph.program, graph.order
    if any(tasks.rank[a] > tasks.rank[b] for a, b in np.argwhere(tasks.feeds).tolist()):
        raise IllegalFold(f"{program.name}: streams lead round in circles", hint="fold it by chain and bundle by hand")
    loads = task_loads(program, load)
    states: list[Sets] = [[[task] for task in tasks.order]]
    result = []
    for nodes in range(program.task_count, 0, -1):
        if nodes <= max_nodes:
            result += [NodeFold.of(graph, state) for state in states]
        ranked: dict[frozenset[tuple[int, ...]], tuple[float, int, Sets]] = {}
        for state in states:
            for merged in _merges(state, loads, partners, fits):
                key = frozenset(map(tuple, map(sorted, merged)))
                if key not in ranked:
                    ranked[key] = (*_score(merged, loads, tasks.feeds), merged)
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


def _merges(state: Sets, loads: np.ndarray, partners: int, fits: Fits) -> Iterator[Sets]:
    """The states after merging one of the least busy nodes with another."""
    busy = sorted(range(len(state)), key=lambda node: float(loads[state[node]].sum()))
    seen: set[tuple[int, int]] = set()
    for first in busy[:partners]:
        for second in range(len(state)):
            a, b = min(first, second), max(first, second)
            if a == b or (a, b) in seen:
                continue
            seen.add((a, b))
            joined = state[a] + state[b]
            if fits(joined):
                yield [*state[:a], joined, *state[a + 1 : b], *state[b + 1 :]]


def _score(state: Sets, loads: np.ndarray, feeds: np.ndarray) -> tuple[float, int]:
    """The load of the busiest node, and how many streams lead from node to node."""
    inside = sum(int(feeds[np.ix_(own, own)].sum()) for own in state if len(own) > 1)
    return max(float(loads[own].sum()) for own in state), int(feeds.sum()) - inside
