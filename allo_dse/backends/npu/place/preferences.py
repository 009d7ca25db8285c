"""Preferred cores of nodes, for short wires: near their memory tiles, and beside nodes that take the same flow."""

from __future__ import annotations

from collections import Counter

import numpy as np
from ortools.graph.python import linear_sum_assignment

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
    costs, cores = wire_costs(problem), problem.limits.cores
    solver = linear_sum_assignment.SimpleLinearSumAssignment()
    for row in range(len(cores)):  # rows beyond the nodes stand for cores that stay empty
        for number in range(len(cores)):
            solver.add_arc_with_cost(row, number, int(costs[row, number]) if row < len(costs) else 0)
    solver.solve()
    return tuple(cores[solver.right_mate(node)] for node in range(len(costs)))
