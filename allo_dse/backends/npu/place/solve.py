"""Placement and routing of a folded graph on the array, or the limits that forbid it.

    solve(problem_of(view, transport, memories, device))        # PlacedDesign | Infeasible

Nodes without streams between them fit on any core alike: each gets the core where its wires are shortest. Where there
are streams, or no routes for that, constraint models decide (`by_models.py`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from allo_dse.mapper.violation import Violation

from .placed_design import Infeasible, PlacedDesign
from .preferences import cheapest
from .problem import Assignment, Problem
from .router import routed

# Limits that depend on the placement of nodes and transfers; all others hold for any placement.
_DECIDED_HERE = (
    "core_memory",
    "core_locks",
    "memory_tile_memory",
    "memory_tile_descriptors",
    "memory_tile_locks",
    "shim_descriptors",
)


def unplaceable(violations: Iterable[Violation]) -> Infeasible | None:
    """Return the violations that no placement of nodes and transfers can avoid; None if there are none."""
    # Host buffers are no limit of the array, and different for each target.
    fixed = tuple(v for v in violations if v.constraint not in (*_DECIDED_HERE, "host_buffers"))
    return Infeasible(fixed) if fixed else None


def solve(problem: Problem, *, time_limit_s: float = 10.0) -> PlacedDesign | Infeasible:
    """Give every node a tile, every stream shared memory or a route, every flow a route and channels.

    The plan's transfers, which all have a column there, stay as they are (which flows share a shim channel); columns
    may change. Deterministic as long as the time limit is not reached.
    """
    if len(problem.nodes) > len(problem.limits.cores):
        return Infeasible((Violation("compute_tiles", problem.device, len(problem.nodes), len(problem.limits.cores)),))
    deadline = time.monotonic() + time_limit_s
    start, limits = None, problem.limits.core_limits
    if not problem.streams and all(needs[what] <= limits[what] for needs in problem.needs for what in needs):
        start = Assignment(cheapest(problem), tuple(transfer.column for transfer in problem.transfers), ())
        if (placed := routed(problem, start)) is not None:
            return placed
    from .cp_sat_placement import search  # the solver takes longer to import than most placements to find

    return search(problem, start, deadline)
