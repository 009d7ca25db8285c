"""Preferred cores of nodes, for short wires: near their memory tiles, and beside nodes that take the same flow."""

from __future__ import annotations

from collections import Counter

import numpy as np

from allo_dse.compiler.program.tensors import IntArray

from .array import FIRST_CORE_ROW, Tile
from .problem import Problem


def wire_costs(problem: Problem) -> IntArray:
    """Return wire costs of each node on each core, with the columns of the transport plan: (nodes, cores).

    Cores that take one flow are cheapest side by side: in the column of its memory tile, or else in one row, a row for
    each flow of a tensor.
    """
    columns, rows = np.array(problem.limits.cores).T
    up = rows - FIRST_CORE_ROW
    result = np.zeros((len(problem.nodes), len(up)), np.int64)
    rank: Counter[str] = Counter()
    for flow in problem.flows:
        row = rank[flow.tensor] % problem.limits.core_rows
        rank[flow.tensor] += 1
        column = problem.transfers[problem.carriers[flow.index]].column
        near = max(1, 4 // len(flow.nodes)) * (abs(columns - column) + up // 2)
        result[list(flow.nodes)] += near + (abs(up - row) if len(flow.nodes) > 1 else 0)
    return result


def cheapest(problem: Problem) -> tuple[Tile, ...]:
    """Return the cheapest tiles of all nodes, whatever their streams."""
    return tuple(problem.limits.cores[core] for core in assigned(wire_costs(problem)))


def assigned(costs: IntArray) -> list[int]:
    """Return the columns, one per row and each for one row only, with the least sum of costs, (rows, columns).

    Rows are assigned one after the other along cheapest augmenting paths: R. Busacker, P. Gowen, "A procedure for
    determining a family of minimal-cost network flow patterns", ORO Technical Report 15, 1960.
    """
    rows, columns = costs.shape
    row_of = np.full(columns, -1)
    for row in range(rows):
        least, before = costs[row].copy(), np.full(columns, -1)
        held = np.flatnonzero(row_of >= 0)
        moved = costs[row_of[held]] - costs[row_of[held], held, None]  # of a held column's row to another column
        for _ in held:  # Bellman-Ford: no path is longer
            through = least[held, None] + moved
            shorter = through.min(0) < least
            if not shorter.any():
                break
            least[shorter], before[shorter] = through.min(0)[shorter], held[through.argmin(0)[shorter]]
        column = int(np.argmin(np.where(row_of < 0, least, np.iinfo(np.int64).max)))
        while column >= 0:
            came = int(before[column])
            row_of[column] = row if came < 0 else row_of[came]
            column = came
    found: list[int] = np.argsort(row_of, kind="stable")[columns - rows :].tolist()
    return found
