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
    by_source = np.argsort(source, kind="stable")
    targets = target[by_source].tolist()
    starts = np.searchsorted(source[by_source], np.arange(count + 1)).tolist()
    waiting = np.bincount(target, minlength=count)
    ready = np.flatnonzero(waiting == 0).tolist()
    # Kahn 1962. In lists: of deep graphs, a level has fewer nodes than a call of NumPy pays for.
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
