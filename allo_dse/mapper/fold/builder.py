"""Folding node by node: one mutable graph on which a sequence of `chain` and `bundle` is carried out.

Merging two nodes costs the smaller one's streams and tasks, so that a sequence of n primitives is near-linear in n. The
graph never leaves this module: `Builder.finish` returns immutable groups.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import numpy as np

from allo_dse.common.errors import IllegalFold
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.compiler.program.tensors import IntArray

from ..graph.groups import (
    ArrayLeaves,
    NodeGroup,
    Repeat,
    Seq,
    Task,
    Tree,
    bundle_name,
    repeat,
    seq,
    task_names,
    unknown_name_hint,
)
from ..graph.kernel_graph import TaskGraph
from ..graph_algorithms import topological_ranks

# Path search in a graph that is being folded.


Adjacency = Mapping[int, Mapping[int, int]]
"""Per node its neighbours, each written `neighbour * types + element type`, with the number of streams."""


def find_path(
    out: Adjacency, inn: Adjacency, types: int, starts: Mapping[int, int], goals: Mapping[int, int]
) -> list[int] | None:
    """A path from a start to a goal that bears another label, or None.

    Searched from both ends in turn, one node at a time, so that it is over as soon as either side is exhausted: folding
    along a chain meets sources or sinks at once, and costs nothing however large the rest of the graph is.

    Args:
        types: how many element types neighbours are multiplied by.
        starts, goals: labels of the nodes a path may begin and end with; a node can be both.
    """
    forward = _search(out, types, starts, goals)
    backward = _search(inn, types, goals, starts)
    while True:
        for side in (forward, backward):
            try:
                next(side)
            except StopIteration as end:
                path: list[int] | None = end.value
                return path[::-1] if path and side is backward else path


def _search(
    neighbours: Adjacency, types: int, sources: Mapping[int, int], targets: Mapping[int, int]
) -> Generator[None, None, list[int] | None]:
    """Breadth-first from all sources at once; yields after each node, returns the path found.

    A node is visited for at most two labels: whatever a target's label is, one of two different ones differs from it.
    """
    came_from: dict[tuple[int, int], int | None] = dict.fromkeys(sources.items())
    labels = dict.fromkeys(sources, 1)
    queue = deque(sources.items())
    while queue:
        node, label = queue.popleft()
        for key in neighbours.get(node, ()):
            peer = key // types
            if targets.get(peer, label) != label:
                path, step = [peer], came_from[node, label]
                path.append(node)
                while step is not None:
                    path.append(step)
                    step = came_from[step, label]
                return path[::-1]
            if labels.get(peer, 0) < 2 and (peer, label) not in came_from:
                came_from[peer, label] = node
                labels[peer] = labels.get(peer, 0) + 1
                queue.append((peer, label))
        yield
    return None


Primitive = tuple[str, Sequence[Any]]
"""`("chain", [first, second])`, or `("bundle", [name, ...])`, or `("bundle", [(name, ...), ...])`."""

EXAMPLE = '[("chain", ["a", "b"]), ("bundle", ["c", "d"])]'
SHOWN = 8
"""Nodes of a path that an error message spells out, at most."""
LONGEST_NAME = 60
"""Characters of a node's name in an error message."""


class Builder:
    """A graph under construction.

    Nodes are numbers. `label`, `parts` (top-level pieces of the schedule tree), `leaves` (task ids), `out` and `inn`
    (streams, see `Adjacency`) describe each of them; `ranks` are topological, so that a higher rank means that no
    path leads to a lower one, or None where there are none to be had.
    """

    def __init__(self, graph: TaskGraph, groups: Sequence[NodeGroup], names: Sequence[str]) -> None:
        self.program: CompiledProgram = graph.program
        self.types = max(1, int(graph.element_type.max(initial=0)) + 1)
        rows = [row for group in groups for row in group.leaves.tasks()]
        owner = np.empty(graph.program.task_count, np.int64)
        owner[np.concatenate(rows)] = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
        trees = [group.tree for group in groups for _ in range(group.count)]
        self._trees: dict[int, Tree] = dict(enumerate(trees))
        self.leaves: dict[int, list[int]] = {node: row.tolist() for node, row in enumerate(rows)}
        self.parts: dict[int, list[Tree]] = {
            node: list(tree.children) if isinstance(tree, Seq) else [tree] for node, tree in enumerate(trees)
        }
        self.label: dict[int, str] = dict(enumerate(names))
        self.node: dict[str, int] = {name: node for node, name in enumerate(names)}
        edges, count = graph.edges, len(rows)
        source, target = owner[edges.source], owner[edges.target]
        between = source != target
        source, target, kind = source[between], target[between], graph.element_type[edges.array][between]
        self.out = _adjacency(count, source, target * self.types + kind)
        self.inn = _adjacency(count, target, source * self.types + kind)
        ranks = topological_ranks(source, target, count)
        self.ranks: list[int] | None = ranks.tolist() if (ranks >= 0).all() else None

    def apply(self, primitives: Sequence[Primitive]) -> None:
        """Carry out a sequence of primitives.

        Raises:
            IllegalFold: naming the primitive that is illegal.
        """
        listed = isinstance(primitives, Sequence)
        if not listed or not all(isinstance(one, tuple | list) and len(one) == 2 for one in primitives):
            raise IllegalFold(f"{primitives!r}: not a list of mapping primitives", hint=f"for example {EXAMPLE}")
        for kind, operands in primitives:
            if kind == "chain":
                if len(operands) != 2:
                    raise IllegalFold(f"chain takes two nodes, not {len(operands)}: {list(operands)}")
                self.chain(*operands)
            elif kind == "bundle":
                self.bundle(operands)
            else:
                raise IllegalFold(f"unknown mapping primitive {kind!r}", hint='there are "chain" and "bundle"')

    def chain(self, first: str, second: str) -> str:
        """Merge two nodes into one that runs `second` after `first`; returns its name."""
        a, b = self._find(first), self._find(second)
        if a == b:
            raise IllegalFold(f"chain of {first} with itself", hint="name two different nodes")
        # Ranks grow along every stream: if the second's is larger, no path leads from it back to the first.
        if self.out[b] and self.inn[a] and not (self.ranks and self.ranks[b] > self.ranks[a]):
            path = find_path(self.out, self.inn, self.types, {b: 0}, {a: 1})
            if path:
                there = find_path(self.out, self.inn, self.types, {a: 0}, {b: 1})
                message = f"a path leads back from the second to the first: {self._show(path)}"
                hint = "the second would wait for the first, and the first for the second"
                if len(path) == 2:
                    message = f"{second} feeds {first}"
                    if there is None:  # the second may run before the first
                        hint = f"chain them the other way round: chain({second!r}, {first!r})"
                raise IllegalFold(f"chain of {_shorten(first)} and {_shorten(second)}: {message}", hint=hint)
        name = f"{first}-{second}"
        del self.node[first], self.node[second]
        # Merge the smaller node into the larger one: over a whole sequence a task moves at most log(tasks) times.
        keep, drop = (a, b) if len(self.leaves[a]) >= len(self.leaves[b]) else (b, a)
        self._merge_streams(keep, drop)
        # The tasks of the first node run first, whichever object is kept.
        place = 0 if keep == b else len(self.leaves[keep])
        self.leaves[keep][place:place] = self.leaves.pop(drop)
        self.parts[keep][place:place] = self.parts.pop(drop)
        self._trees.pop(keep, None)
        del self.label[drop]
        self._rename(keep, name)
        return name

    def bundle(self, operands: Sequence[str | Sequence[str]]) -> tuple[str, ...]:
        """Merge nodes (or, position by position, tuples of nodes) that run in turn; returns the new names."""
        rows = [(row,) if isinstance(row, str) else tuple(row) for row in operands]
        if len(rows) < 2:
            raise IllegalFold(f"bundle of {len(rows)} {'node' if rows else 'nodes'}", hint="a bundle takes two or more")
        width = len(rows[0])
        if any(len(row) != width for row in rows) or not width:
            raise IllegalFold("the tuples of a bundle differ in length", hint="give corresponding nodes")
        nodes = [[self._find(name) for name in row] for row in rows]
        label_of = {node: number for number, row in enumerate(nodes) for node in row}
        if len(label_of) != len(rows) * width:
            twice = next(name for name, n in Counter(name for row in rows for name in row).items() if n > 1)
            raise IllegalFold(f"bundle names {twice} twice", hint="a node takes its turn once")
        for first, *others in zip(*nodes, strict=True):
            for node in others:
                if (tree := self._tree(first)) != (other := self._tree(node)):
                    raise IllegalFold(
                        f"bundle of {self.label[first]} and {self.label[node]}: they execute different tasks, "
                        f"{self._describe(tree)} and {self._describe(other)}",
                        hint="a bundle takes nodes with the same task classes in the same order",
                    )
        # Bundled nodes run in turn: a path between two of them would make one wait for a token before its turn.
        path = find_path(self.out, self.inn, self.types, label_of, label_of)
        if path:
            raise IllegalFold(
                f"bundle of {self.label[path[0]]} and {self.label[path[-1]]}: tokens flow from one to the other: "
                f"{self._show(path)}",
                hint="nodes that run in turn on one processing element cannot wait for each other; chain them instead",
            )
        # Every bundled node must have the same peers, where nodes of its own tuple count by position.
        expected = self._signature(nodes[0])
        for row in nodes[1:]:
            found = self._signature(row)
            if found != expected:
                position = next(i for i, pair in enumerate(zip(expected, found, strict=True)) if pair[0] != pair[1])
                a, b = nodes[0][position], row[position]
                raise IllegalFold(
                    f"bundle of {self.label[a]} and {self.label[b]}: their streams lead to different nodes, "
                    f"{self._peers(a)} and {self._peers(b)}",
                    hint="fold the peers first, or bundle whole subgraphs: give tuples of corresponding nodes",
                )
        return tuple(self._merge_column([row[position] for row in nodes]) for position in range(width))

    def finish(self) -> tuple[tuple[NodeGroup, ...], tuple[str, ...]]:
        """Immutable groups, ordered by their first task, and the nodes' names in the same order."""
        members: dict[Tree, list[int]] = {}
        # Order by tasks, not by names or history: sequences that make the same graph must make equal groups.
        for node in sorted(self.label, key=lambda node: self.leaves[node][0]):
            members.setdefault(self._tree(node), []).append(node)
        leaves = [ArrayLeaves(np.array([self.leaves[node] for node in nodes], np.int64)) for nodes in members.values()]
        result = [NodeGroup(tree, len(members[tree]), own) for tree, own in zip(members, leaves, strict=True)]
        return tuple(result), tuple(self.label[node] for nodes in members.values() for node in nodes)

    def _find(self, name: str) -> int:
        if not isinstance(name, str):
            raise IllegalFold(f"no node is called {name!r}", hint="node names are in vmg.nodes")
        node = self.node.get(name)
        if node is not None:
            return node
        names = task_names(self.program)
        if name in set(names):
            task = names.index(name)
            holder = next(n for n, leaves in self.leaves.items() if task in leaves)
            raise IllegalFold(f"{name} is not a node any more", hint=f"it is part of {_shorten(self.label[holder])}")
        hint = unknown_name_hint(self.program, name, self.node)
        raise IllegalFold(f"no node is called {name!r}", hint=hint)

    def _tree(self, node: int) -> Tree:
        if node not in self._trees:
            self._trees[node] = seq(self.parts[node])
        return self._trees[node]

    def _rename(self, node: int, name: str) -> None:
        self.label[node] = name
        self.node[name] = node

    def _merge_streams(self, keep: int, drop: int) -> None:
        """Give the streams of `drop` to `keep`; those between the two become internal."""
        types, ranks = self.types, self.ranks
        rank, fits = (ranks[keep], True) if ranks else (0, True)
        for near, far, sign in ((self.out, self.inn, 1), (self.inn, self.out, -1)):
            mine = near[keep]
            for key, count in near.pop(drop).items():
                peer, kind = divmod(key, types)
                theirs = far[peer]
                del theirs[drop * types + kind]
                if peer != keep:
                    mine[key] = mine.get(key, 0) + count
                    key = keep * types + kind
                    theirs[key] = theirs.get(key, 0) + count
                    if ranks and (ranks[peer] - rank) * sign <= 0:
                        fits = False
        if ranks and not fits:
            # Try the rank of `drop`; if that does not fit either, do without ranks from now on. Ranks only ever spare
            # searches, and keeping them up must not cost more than looking at neighbours.
            rank = ranks[keep] = ranks[drop]
            before = all(ranks[key // types] < rank for key in self.inn[keep])
            if not (before and all(ranks[key // types] > rank for key in self.out[keep])):
                self.ranks = None

    def _merge_column(self, column: Sequence[int]) -> str:
        """Merge bundled nodes into the first of them."""
        first, *rest = column
        tree = repeat(len(column), self._tree(first))
        name = bundle_name(self.label[first], len(column))
        for node in column:
            del self.node[self.label[node]]
        for node in rest:
            self._merge_streams(first, node)
            self.leaves[first].extend(self.leaves.pop(node))
            del self.label[node], self.parts[node]
        self.parts[first] = [tree]
        self._trees[first] = tree
        self._rename(first, name)
        return name

    def _signature(self, row: Sequence[int]) -> list[tuple[dict[tuple[bool, int, int], int], ...]]:
        """Return the inputs and outputs of each node of a tuple: the number and type of streams by peer."""
        place = {node: position for position, node in enumerate(row)}
        result = []
        for node in row:
            sides = []
            for side in (self.inn, self.out):
                found = {}
                for key, count in side[node].items():
                    peer, kind = divmod(key, self.types)
                    found[peer in place, place.get(peer, peer), kind] = count
                sides.append(found)
            result.append(tuple(sides))
        return result

    def _peers(self, node: int) -> str:
        names = [
            f"{arrow} {_shorten(self.label[key // self.types])}"
            for arrow, side in (("from", self.inn), ("to", self.out))
            for key in side[node]
        ]
        return f"({', '.join(names[:SHOWN]) or 'none'})"

    def _describe(self, tree: Tree) -> str:
        if isinstance(tree, Task):
            kernel = self.program.kernels[tree.kernel]
            return f"{kernel.name}:{kernel.classes[tree.cls].name}"
        if isinstance(tree, Repeat):
            return f"{tree.count} times {self._describe(tree.child)}"
        parts = [self._describe(child) for child in tree.children]
        shown = parts if len(parts) <= SHOWN else [*parts[: SHOWN - 1], f"… {len(parts) - SHOWN} more …", parts[-1]]
        return f"[{'; '.join(shown)}]"

    def _show(self, path: Sequence[int]) -> str:
        names = [_shorten(self.label[node]) for node in path]
        if len(names) > SHOWN:
            names = [*names[: SHOWN - 1], f"… {len(names) - SHOWN} more …", names[-1]]
        return " -> ".join(names)


def _adjacency(count: int, near: IntArray, keys: IntArray) -> dict[int, dict[int, int]]:
    """Per node how many streams it shares with each of its neighbours (`keys`)."""
    adjacency: dict[int, dict[int, int]] = {node: {} for node in range(count)}
    for node, key in zip(near.tolist(), keys.tolist(), strict=True):
        neighbours = adjacency[node]
        neighbours[key] = neighbours.get(key, 0) + 1
    return adjacency


def _shorten(name: str) -> str:
    """A node's name, with its middle left out when it is long."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 21]}…{name[-20:]}"
