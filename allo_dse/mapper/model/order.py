"""Topological order, for graphs given as arrays of edges."""

from __future__ import annotations

import numpy as np

from allo_dse.program.index_maps import IntArray


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
    levels = np.full(count, -1, np.int64)
    waiting = np.bincount(target, minlength=count)
    by_source = np.argsort(source, kind="stable")
    targets = target[by_source]
    starts = np.searchsorted(source[by_source], np.arange(count + 1))
    ready = np.flatnonzero(waiting == 0)
    level = 0
    # Kahn 1962, a whole level at a time.
    while len(ready):
        levels[ready] = level
        level += 1
        lengths = starts[ready + 1] - starts[ready]
        if not lengths.any():
            break
        first = np.repeat(starts[ready] - np.cumsum(lengths) + lengths, lengths)
        freed = targets[first + np.arange(len(first))]
        np.subtract.at(waiting, freed, 1)
        freed = np.unique(freed)
        ready = freed[waiting[freed] == 0]
    return levels
