"""Topological orders of graphs given as arrays of edges, disjoint sets, and loop nests."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

import numpy as np

from allo_dse.compiler.program.tensors import IntArray


def topological_ranks(source: IntArray, target: IntArray, count: int) -> IntArray:
    """A number for each of `count` nodes, larger at the end of every edge than at its start.

    Nodes on cycles, and those after them, have -1.
    """
    levels = topological_levels(source, target, count)
    ranks = np.full(count, -1, np.int64)
    by_level = np.argsort(levels, kind="stable")
    ranked = by_level[levels[by_level] >= 0]
    ranks[ranked] = np.arange(len(ranked))
    return ranks


def topological_levels(source: IntArray, target: IntArray, count: int) -> IntArray:
    """Edges of the longest path that leads to each of `count` nodes.

    Nodes on cycles, and those after them, have -1.
    """
    by_source = np.argsort(source, kind="stable")
    targets = target[by_source].tolist()
    starts = np.searchsorted(source[by_source], np.arange(count + 1)).tolist()
    waiting = np.bincount(target, minlength=count)
    ready = np.flatnonzero(waiting == 0).tolist()
    # Kahn 1962. Lists, because a level of a deep graph has too few nodes to pay for a NumPy call.
    levels, waiting, level = [-1] * count, waiting.tolist(), 0
    while ready:
        freed = []
        for node in ready:
            levels[node] = level
            for after in targets[starts[node] : starts[node + 1]]:
                waiting[after] -= 1
                if not waiting[after]:
                    freed.append(after)
        ready, level = freed, level + 1
    return np.array(levels, np.int64)


# Disjoint sets (Galler and Fischer 1964).


Member = TypeVar("Member", bound=Hashable)


class DisjointSets(Generic[Member]):
    """Each member is a set of its own until it is joined to another; new ones are taken in when asked for."""

    def __init__(self, members: Iterable[Member] = ()) -> None:
        self._parent = {member: member for member in members}

    def join(self, one: Member, other: Member) -> bool:
        """Make one set of two members'; whether they were in different ones."""
        a, b = self._root(one), self._root(other)
        self._parent[a] = b
        return a != b

    def groups(self) -> list[list[Member]]:
        """The sets, in the order of their first members; members in the order in which they came."""
        found: dict[Member, list[Member]] = {}
        for member in list(self._parent):
            found.setdefault(self._root(member), []).append(member)
        return list(found.values())

    def _root(self, member: Member) -> Member:
        parent = self._parent
        while parent.setdefault(member, member) != member:
            # Path halving keeps later look-ups short.
            parent[member] = member = parent[parent[member]]
        return member


# Recovery of loop nests from sequences of addresses.


Nest = tuple[tuple[int, int], ...]


def loop_nest(sequence: IntArray) -> Nest | None:
    """(count, step) of the loops, outermost first, that produce a sequence; None when it is not affine in a loop nest.

    >>> loop_nest(np.array([0, 1, 2, 10, 11, 12]))
    ((2, 10), (3, 1))
    """
    nest: list[tuple[int, int]] = []
    while len(sequence) > 1:
        steps = np.diff(sequence)
        step = int(steps[0])
        changes = np.flatnonzero(steps != step)
        count = int(changes[0]) + 1 if len(changes) else len(sequence)
        inside = np.arange(len(steps)) % count != count - 1  # steps that do not lead from one run to the next
        if len(sequence) % count or (steps[inside] != step).any():
            return None
        # The innermost loop ends where the step first changes. In a nest, all of its runs have that length and step,
        # and their first elements are the sequence of the outer loops.
        nest.append((count, step))
        sequence = sequence[::count]
    return tuple(reversed(nest))


def simplest_nest(nest: Nest) -> Nest:
    """The nest that `loop_nest` finds in what a nest produces: equal for nests that produce equal sequences.

    >>> simplest_nest(((2, 10), (2, 2), (1, 7), (2, 1)))
    ((2, 10), (4, 1))
    """
    found: list[tuple[int, int]] = []
    for count, step in reversed(nest):
        if found and step == found[-1][0] * found[-1][1]:
            found[-1] = count * found[-1][0], found[-1][1]
        elif count > 1:
            found.append((count, step))
    return tuple(reversed(found))


def change_count(sequence: IntArray) -> int:
    """Count the elements that differ from the one before; the first always counts."""
    return 1 + int(np.count_nonzero(np.diff(sequence)))


def nest_moves(nest: Nest) -> int:
    """Count the tiles that a loop nest moves.

    Loops inside the innermost one with a step only repeat a tile.
    """
    moves = 1
    moving = False
    for count, step in reversed(nest):
        moving = moving or (step != 0 and count > 1)
        if moving:
            moves *= count
    return moves
