"""Kernels and the streams between them: in which order kernels can be chained, and which chains are legal together."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from allo_dse.common.errors import AlloDseError
from allo_dse.common.records import Frozen, Ints
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.compiler.program.tensors import BoolArray, IntArray

from ..axes import AxisRule, axis_rules, computed_arrays
from ..graph_algorithms import topological_ranks
from .groups import NodeGroup, task_names

# The streams of a program as arrays, with the tasks that put and get. Built at the first use.


MOST_EDGES = 4_000_000
"""More edges than this are not listed: they only arise where stream indices are computed at run time."""


FEW_NAMES = 1 << 12
"""Tasks whose names take no longer to make than those of the nodes of a fold."""


class StreamEdges(Frozen):
    """Streams that connect tasks, one entry each.

    Attributes:
        source, target: task ids.
        array: position of the stream's array in `compiler.program.tensors`.
        stream: the stream's number.
    """

    source: IntArray
    target: IntArray
    array: IntArray
    stream: IntArray

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True, eq=False)
class TaskGraph:
    """Tasks and streams of a compiled program."""

    program: CompiledProgram

    @cached_property
    def rules(self) -> tuple[tuple[AxisRule, ...], ...]:
        """The rule of each mesh axis of each kernel."""
        return axis_rules(self.program)

    @cached_property
    def names(self) -> list[str]:
        """The name of every task, by task id."""
        return task_names(self.program)

    @cached_property
    def name_of(self) -> Callable[[int], str]:
        """The name of a task, by its id; all names are made of few tasks, or where two tasks may have one name."""
        names = [kernel.name for kernel in self.program.kernels]
        alike = any(name.startswith(f"{other}_") for name in names for other in names)
        few = self.program.task_count <= FEW_NAMES
        return self.names.__getitem__ if alike or few else self.program.task_name

    @cached_property
    def edges(self) -> StreamEdges:
        """All streams that have both a producer and a consumer.

        Where a task computes at run time which stream of an array it uses, every stream it can reach counts.

        Raises:
            AlloDseError: if two tasks use the same end of a stream.
        """
        ends: tuple[list[IntArray], list[IntArray]] = ([], [])
        for task_class, tasks, pids in self.program.tasks_by_class:
            for port in task_class.stream_ports:
                streams = self.program.first_stream[port.stream.name] + port.index.linear(pids)
                ends[int(port.direction == "get")].append(np.stack([streams, tasks]))
        if not (ends[0] and ends[1]):
            return StreamEdges(*(np.zeros(0, np.int64) for _ in range(4)))
        puts, gets = (
            self._users(np.concatenate(end, axis=1), word) for end, word in zip(ends, ("put", "get"), strict=True)
        )
        starts = np.searchsorted(gets[0], puts[0], side="left")
        counts = np.searchsorted(gets[0], puts[0], side="right") - starts
        if counts.sum() > MOST_EDGES:
            raise AlloDseError(
                f"{self.program.name}: too many streams could connect too many tasks",
                hint="let stream indices depend on the process id only, so that it is known which tasks they connect",
            )
        stream, source = np.repeat(puts, counts, axis=1)
        first = np.repeat(starts - np.cumsum(counts) + counts, counts)
        return StreamEdges(source, gets[1, first + np.arange(len(first))], self.program.arrays_of(stream), stream)

    def _users(self, pairs: IntArray, word: str) -> IntArray:
        """Streams and the tasks at one end of them, (2, n), sorted by stream; a stream has one task at each end."""
        order = np.lexsort((pairs[1], pairs[0]))
        pairs = pairs[:, order]
        new = np.ones(pairs.shape[1], bool)
        new[1:] = (np.diff(pairs) != 0).any(axis=0)
        pairs = pairs[:, new]
        shared = np.flatnonzero(np.diff(pairs[0]) == 0)
        for at in shared.tolist():
            array = self.program.streams[int(self.program.arrays_of(pairs[0, at : at + 1])[0])]
            if array.name in self._computed:
                continue
            names = [self.program.task_name(int(task)) for task in pairs[1, at : at + 2]]
            raise AlloDseError(
                f"stream {array.name}: both {names[0]} and {names[1]} {word} tokens on the same stream",
                hint="a stream connects one producer with one consumer; use an array of streams",
            )
        return pairs

    @cached_property
    def _computed(self) -> set[str]:
        """Arrays with streams that a task selects at run time."""
        return {name for cls in self.program.task_classes for name in computed_arrays(cls)}

    @cached_property
    def element_type(self) -> IntArray:
        """Per stream array a number for its element type and block shape; equal numbers are equal types."""
        types: dict[tuple[object, ...], int] = {}
        numbers = [types.setdefault((a.dtype, a.block), len(types)) for a in self.program.streams]
        return np.array(numbers, np.int64)


Chains = tuple[Ints, ...]
"""Sets of kernels that share their nodes, by position, each in the order in which its members run."""

MOST_PARTITIONED = 8
"""Programs of more kernels are partitioned into runs of neighbours in the order of streams only."""


def node_sets(chains: Sequence[Sequence[int]], kernels: Sequence[int]) -> list[Sequence[int]]:
    """Kernels in sets that have nodes of their own: those of a chain together, others alone."""
    chained = {kernel for members in chains for kernel in members}
    return [*chains, *((kernel,) for kernel in kernels if kernel not in chained)]


class KernelGraph(Frozen, eq=False, dict=True):
    """The kernels of a program, as far as streams order them.

    Attributes:
        feeds: whether streams lead from one kernel to another: (kernels, kernels).
    """

    feeds: BoolArray

    @cached_property
    def order(self) -> Ints:
        """Kernels so that streams lead forwards as far as possible; otherwise in program order."""
        left, result = list(range(len(self.feeds))), []
        while left:
            free = (k for k in left if not any(self.feeds[other, k] for other in left))
            result.append(next(free, left[0]))
            left.remove(result[-1])
        return tuple(result)

    @cached_property
    def rank(self) -> Ints:
        """Position of each kernel in `order`."""
        return tuple(self.order.index(kernel) for kernel in range(len(self.feeds)))

    @cached_property
    def connected(self) -> tuple[tuple[int, int], ...]:
        """Pairs of kernels that exchange tokens, in either direction, in program order."""
        return tuple((a, b) for a, b in np.argwhere(np.triu(self.feeds | self.feeds.T, 1)).tolist())

    def refusal(self, chains: Chains) -> tuple[int, int] | None:
        """Return two kernels that cannot be chained, because a path of streams leads from the second back to the first.

        Chains are made one after the other, member by member, as `VMG.chain` would. None when all of them are legal.
        """
        return next(self.refusals(chains), None)

    def refusals(self, chains: Chains) -> Iterator[tuple[int, int]]:
        """Yield every member that has to leave its chain, after the first kernel of the chain."""
        node = list(range(len(self.feeds)))
        feeds = list(self._targets)  # of each node, as bits
        for first, *rest in chains:
            keep = node[first]
            for member in rest:
                drop = node[member]
                if _leads(feeds, drop, keep):
                    yield first, member
                    continue
                both = 1 << keep | 1 << drop
                feeds = [own & ~(1 << drop) | 1 << keep if own >> drop & 1 else own for own in feeds]
                feeds[keep], feeds[drop] = (feeds[keep] | feeds[drop]) & ~both, 0
                node = [keep if n == drop else n for n in node]

    @cached_property
    def _targets(self) -> Ints:
        """Per kernel the kernels that its streams lead to, as bits."""
        return tuple(sum(1 << int(target) for target in np.flatnonzero(row)) for row in self.feeds)

    def partitions(self) -> Iterator[Chains]:
        """Yield every legal choice of kernels to chain, none first. Their number is exponential in the kernels."""
        found = _partitions(self.order) if self._is_small else _runs(self.order)
        return (chains for chains in map(self.normalised, found) if self.refusal(chains) is None)

    def random_partition(self, rng: np.random.Generator) -> tuple[Chains, int] | None:
        """Return a random choice of kernels to chain, and the number of choices that it stands for: 0 if it is illegal.

        None for few kernels, whose choices can all be listed.
        """
        if self._is_small:
            return None
        cuts = 1 + np.flatnonzero(rng.random(len(self.order) - 1) < 0.5)
        chains = self.normalised([run.tolist() for run in np.split(np.array(self.order), cuts)])
        return chains, 1 << len(self.order) - 1 if self.refusal(chains) is None else 0

    @cached_property
    def single_chains(self) -> tuple[Ints, ...]:
        """Every chain that is legal while all other kernels have nodes of their own."""
        kernels, count = self.order, len(self.order)
        if self._is_small:
            chosen = itertools.chain.from_iterable(itertools.combinations(kernels, n) for n in range(2, count + 1))
            return tuple(members for members in chosen if self.refusal((members,)) is None)
        found: list[Ints] = []
        for start in range(count):  # a run is legal up to the first kernel that has to leave it
            refused = self.refusal((kernels[start:],))
            end = count if refused is None else kernels.index(refused[1])
            found += (kernels[start:last] for last in range(start + 2, end + 1))
        return tuple(found)

    @property
    def _is_small(self) -> bool:
        return len(self.order) <= MOST_PARTITIONED

    def normalised(self, chains: Sequence[Sequence[int]]) -> Chains:
        """Members in the order of streams, chains in the order of their first kernels, none with one member only."""
        ordered = (tuple(sorted(members, key=self.rank.__getitem__)) for members in chains if len(members) > 1)
        return tuple(sorted(ordered, key=lambda members: self.rank[members[0]]))


def _leads(feeds: Sequence[int], start: int, goal: int) -> bool:
    """Return whether a path leads from one node to another; `feeds` has the targets of each as bits."""
    seen = todo = 1 << start
    while todo:
        node = (todo & -todo).bit_length() - 1
        todo ^= 1 << node
        if feeds[node] >> goal & 1:
            return True
        todo |= feeds[node] & ~seen
        seen |= feeds[node]
    return False


def _partitions(members: Sequence[int]) -> Iterator[list[list[int]]]:
    """All partitions of a set, the one into single members first."""
    if not members:
        yield []
        return
    last = members[-1]
    for parts in _partitions(members[:-1]):
        yield [*parts, [last]]
        for position, part in enumerate(parts):
            yield [*parts[:position], [*part, last], *parts[position + 1 :]]


def _runs(members: Sequence[int]) -> Iterator[list[list[int]]]:
    """All partitions into runs of neighbours, the one into single members first."""
    for joined in range(1 << len(members) - 1):
        parts = [[members[0]]]
        for position, member in enumerate(members[1:]):
            if joined >> position & 1:
                parts[-1].append(member)
            else:
                parts.append([member])
        yield parts


# Executability of a folded graph: there must be an order of tasks in which none waits for a later one.


def precedence_cycle(graph: TaskGraph, groups: Sequence[NodeGroup], node_of_task: IntArray) -> list[int] | None:
    """Task ids in order, each of which waits for the one before, and the first for the last; None without a cycle.

    If the graph of nodes is acyclic there is nothing to find. Otherwise tasks are looked at one by one: a task comes
    after the tasks before it on its node and after the producers of its streams. Tasks count as atomic here (all gets
    before all puts), so a program whose tasks talk back and forth has a cycle even if it runs with deep enough streams.
    """
    edges = graph.edges
    source, target = node_of_task[edges.source], node_of_task[edges.target]
    between = source != target
    if (topological_ranks(source[between], target[between], sum(group.count for group in groups)) >= 0).all():
        return None
    own = [(tasks[:, :-1].ravel(), tasks[:, 1:].ravel()) for tasks in (group.leaves.tasks() for group in groups)]
    different = edges.source != edges.target
    before = np.concatenate([edges.source[different], *(pair[0] for pair in own)])
    after = np.concatenate([edges.target[different], *(pair[1] for pair in own)])
    left = np.flatnonzero(topological_ranks(before, after, len(node_of_task)) < 0)
    return _find_cycle(before, after, left) if len(left) else None


def _find_cycle(before: IntArray, after: IntArray, left: IntArray) -> list[int]:
    """A cycle among nodes each of which has a predecessor that is left too: walk backwards until one comes again."""
    inside = np.isin(before, left) & np.isin(after, left)
    predecessor = dict(zip(after[inside].tolist(), before[inside].tolist(), strict=True))
    node = int(left[0])
    seen: dict[int, None] = {}
    while node not in seen:
        seen[node] = None
        node = predecessor[node]
    walk = list(seen)
    return walk[walk.index(node) :][::-1]
