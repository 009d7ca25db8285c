"""Preferred cores of nodes, for short wires: near their memory tiles, and beside nodes that take the same flow."""

from __future__ import annotations

from collections import Counter
from functools import cached_property

from ortools.graph.python import linear_sum_assignment

from .array import FIRST_CORE_ROW, Tile
from .problem import Problem


class Preferences:
    """Wire costs of each node on each core, with the columns of the transport plan.

    Cores that take one flow are cheapest side by side: in the column of its memory tile, or else in one row, a row for
    each flow of a tensor.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        rank: Counter[str] = Counter()
        self.rows: list[int] = []
        for flow in problem.flows:
            self.rows.append(rank[flow.tensor] % problem.limits.core_rows)
            rank[flow.tensor] += 1

    @cached_property
    def costs(self) -> list[dict[Tile, int]]:
        """By node and core."""
        problem = self.problem
        result = [dict.fromkeys(problem.limits.cores, 0) for _ in problem.nodes]
        for flow, row in zip(problem.flows, self.rows, strict=True):
            column = problem.transfers[problem.carriers[flow.index]].column
            weight = max(1, 4 // len(flow.nodes))
            for node in flow.nodes:
                for tile in problem.limits.cores:
                    up = tile.row - FIRST_CORE_ROW
                    cost = weight * (abs(tile.column - column) + up // 2)
                    result[node][tile] += cost + (abs(up - row) if len(flow.nodes) > 1 else 0)
        return result

    def cheapest(self) -> tuple[Tile, ...]:
        """The cheapest tiles of all nodes, whatever their streams."""
        cores = self.problem.limits.cores
        solver = linear_sum_assignment.SimpleLinearSumAssignment()
        for row in range(len(cores)):  # rows beyond the nodes stand for cores that stay empty
            for number, tile in enumerate(cores):
                solver.add_arc_with_cost(row, number, self.costs[row][tile] if row < len(self.problem.nodes) else 0)
        solver.solve()
        return tuple(cores[solver.right_mate(node)] for node in range(len(self.problem.nodes)))
