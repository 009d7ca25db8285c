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

    Rows are assigned one after the other along shortest augmenting paths: R. Jonker, A. Volgenant, "A shortest
    augmenting path algorithm for dense and sparse linear assignment problems", Computing 38, 1987.
    """
    rows, columns = costs.shape
    row_price, price = np.zeros(rows, np.int64), np.zeros(columns, np.int64)
    row_of = np.full(columns, -1)
    for row in range(rows):
        least, before = costs[row] - row_price[row] - price, np.full(columns, -1)  # -1: straight from the new row
        done, length = np.zeros(columns, bool), 0
        while True:
            column = int(np.argmin(np.where(done, np.iinfo(np.int64).max, least)))
            length, done[column] = int(least[column]), True
            if (owner := row_of[column]) < 0:
                break
            through = length + costs[owner] - row_price[owner] - price
            shorter = ~done & (through < least)
            least[shorter], before[shorter] = through[shorter], column
        row_price[row] += length
        done[column] = False  # it has no row yet
        row_price[row_of[done]] += length - least[done]
        price[done] -= length - least[done]
        while column >= 0:
            came = int(before[column])
            row_of[column] = row if came < 0 else row_of[came]
            column = came
    found: list[int] = np.argsort(row_of, kind="stable")[columns - rows :].tolist()
    return found
