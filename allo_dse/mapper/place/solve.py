"""Placement and routing of a folded graph on the array, or the limits that forbid it.

    solve(problem_of(view, transport, memories, device))        # PlacedDesign | Infeasible

1. Nodes are placed by CP-SAT, with the transport plan's columns, near the memory tiles they exchange tiles with; routes
   are found by negotiated congestion. Where nodes can only be neighbours, chains of them are tried upright first: there
   are few such placements, and their routes do not cross. This decides nearly all mappings.
2. If no routes are found, one model of placement, columns and routes decides.
3. If a model has no solution, the same model with limits that may be exceeded at a price says which, and by how much.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ortools.sat.python import cp_model

from ..model.violation import Violation
from .dma_channels import nets_of, numbered
from .exact_model import JointModel
from .placed_design import Infeasible, PlacedDesign
from .placement_model import Excess, Placement, PlacementModel, make_solver
from .problem import Problem
from .router import route
from .wishes import Wishes

MAX_REASONS = 8
"""Messages beyond these say nothing new."""

# What depends on where nodes and transfers are; the other limits of a mapping hold wherever they are put.
_DECIDED_HERE = (
    "core_memory",
    "core_locks",
    "memory_tile_memory",
    "memory_tile_descriptors",
    "memory_tile_locks",
    "shim_descriptors",
)

# Deterministic seconds for shortening wires, once a placement is known to exist.
_POLISH = 0.4
_WORK = 20.0  # of a search in full; it takes about as many seconds on an idle machine
# The same for finding out what is in the way of a placement, once it is known that there is none.
_REASONS = 1.0

_OF_CALLS = ("host_buffers",)  # no matter of the array, and another one for each target


def unplaceable(violations: Iterable[Violation]) -> Infeasible | None:
    """What forbids a mapping wherever its nodes and transfers are put; None when that is left to decide."""
    fixed = tuple(v for v in violations if v.constraint not in (*_DECIDED_HERE, *_OF_CALLS))
    return Infeasible(fixed) if fixed else None


def solve(problem: Problem, *, time_limit_s: float = 10.0) -> PlacedDesign | Infeasible:
    """Give every node a tile, every stream shared memory or a route, every flow a route and channels.

    The plan's transfers, which all have a column there, stay as they are (which flows share a shim channel); columns
    may change. Deterministic as long as the time limit is not reached.
    """
    if len(problem.nodes) > len(problem.limits.cores):
        array = problem.limits
        return Infeasible((Violation("compute_tiles", problem.device, len(problem.nodes), len(array.cores)),))
    deadline = time.monotonic() + time_limit_s
    if problem.neighbours:
        upright = PlacementModel(problem)
        upright.keep_in_columns()
        _, placement = _quick(upright, deadline, work=_POLISH)
        if placement is not None and (placed := _routed(problem, placement)) is not None:
            return placed
    status, placement = _quick(PlacementModel(problem), deadline)
    if status == cp_model.INFEASIBLE:
        return _why(PlacementModel(problem, soft=True), deadline)
    if placement is not None and (placed := _routed(problem, placement)) is not None:
        return placed
    return _exact(problem, placement, deadline)


def _quick(
    model: PlacementModel, deadline: float, work: float = _WORK
) -> tuple[cp_model.CpSolverStatus, Placement | None]:
    """A placement with short wires, with the columns of the plan.

    Args:
        work: deterministic seconds to find any placement in.
    """
    problem = model.problem
    columns = [transfer.column for transfer in problem.transfers]
    if problem.streams:
        model.model.minimize(model.wires())
        solver = make_solver(_left(deadline), _POLISH)
        solver.parameters.relative_gap_limit = 0.1
        status = solver.solve(model.model)
        model.model.clear_objective()  # type: ignore[no-untyped-call]
    else:
        status = cp_model.UNKNOWN
    if status == cp_model.UNKNOWN:
        solver = make_solver(_left(deadline), work)
        status = solver.solve(model.model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return status, None
    placement = model.read(solver, columns)
    if not problem.streams:  # then every core has room for every node
        placement = replace(placement, tiles=Wishes(problem).cheapest())
    return status, placement


def _routed(problem: Problem, placement: Placement) -> PlacedDesign | None:
    """Routes and channels for a placement, when its memory and shim tiles hold and the quick router finds routes."""
    if not _columns_hold(problem, placement):
        return None
    trees = route(nets_of(problem, placement), problem.limits.links)
    return None if trees is None else numbered(problem, placement, trees)


def _columns_hold(problem: Problem, placement: Placement) -> bool:
    """Whether the shim channels, bytes and locks of every column suffice; banks show when channels are numbered."""
    limits = problem.limits
    transfers = list(zip(problem.transfers, placement.columns, strict=True))
    used = Counter((column, t.direction) for t, column in transfers)
    if any(n > (limits.shim.dma_out if d == "in" else limits.shim.dma_in) for (_, d), n in used.items()):
        return False
    for column in set(placement.columns):
        own = [t for t, c in transfers if c == column]
        locks = sum(t.locks for t in own)
        staged = sum(t.staged_bytes for t in own)
        if len(own) > limits.shim.descriptors or locks > limits.memory.locks or staged > limits.memory.bytes:
            return False
    return True


def _exact(problem: Problem, start: Placement | None, deadline: float) -> PlacedDesign | Infeasible:
    model = JointModel(problem)
    if start is not None:
        model.hint(start)
    solver = make_solver(_left(deadline), _WORK)
    status = solver.solve(model.model)
    if status == cp_model.INFEASIBLE:
        return _why(JointModel(problem, soft=True), deadline)
    if status == cp_model.UNKNOWN:
        return Infeasible((), proven=False)
    placement = model.read(solver, model.columns(solver))
    nets = nets_of(problem, placement)
    first = len(problem.transfers)
    direct = route(nets[:first], problem.limits.links)
    assert direct is not None, "a shim tile and the memory tile above it are linked"
    trees = [*direct, *model.trees(solver, nets[first:])]
    placed = numbered(problem, placement, trees)
    assert placed is not None, "the model numbers channels by bank"
    return placed


def _why(model: PlacementModel, deadline: float) -> Infeasible:
    """The limits in the way: those that the cheapest placement exceeds."""
    model.model.minimize(model.price())
    solver = make_solver(max(_left(deadline), 2.0), _REASONS)
    status = solver.solve(model.model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Infeasible(())
    return Infeasible(tuple(violations_of(model, solver)))


def _left(deadline: float) -> float:
    return max(0.05, deadline - time.monotonic())


def violations_of(model: PlacementModel, solver: cp_model.CpSolver) -> list[Violation]:
    """The exceeded limits of a soft model's solution, in the order of the model."""
    found: list[Violation] = []
    for excess in model.excesses:
        amount = solver.value(excess.amount)
        if amount > 0 and len(found) < MAX_REASONS:
            where, detail = _describe(excess, model, solver)
            found.append(Violation(excess.constraint, where, excess.limit + amount, excess.limit, detail))
    return found


def _describe(excess: Excess, model: PlacementModel, solver: cp_model.CpSolver) -> tuple[str, str]:
    problem = model.problem
    if excess.constraint.startswith("core_"):
        return f"core {problem.nodes[excess.place].name}", ", ".join(_of_core(excess, model, solver))
    if excess.constraint == "word_alignment":
        stream = problem.streams[excess.place]
        ends = f"{problem.nodes[stream.source].name} and {problem.nodes[stream.target].name}"
        return f"stream {stream.stream}", f"{stream.token_bytes}-byte tokens; {ends} are not neighbours"
    if excess.constraint == "switch_ports":
        if excess.place < problem.limits.columns:
            return f"shim tile {excess.place}", ""
        link = list(problem.limits.links)[excess.place - problem.limits.columns]
        return f"{link.source} towards {link.side}", ""
    tile = "shim tile" if excess.constraint.startswith("shim") else "memory tile"
    return f"{tile} {excess.place}", ", ".join(dict.fromkeys(t.tensor for t in problem.transfers))


def _of_core(excess: Excess, model: PlacementModel, solver: cp_model.CpSolver) -> Iterator[str]:
    """What makes up the need of a core."""
    problem, node = model.problem, excess.place
    if excess.constraint == "core_memory":
        yield f"tiles and chain buffers {problem.nodes[node].bytes:,}"
        yield from _buffers(problem, model, solver, node)
        return
    into, out = problem.streams_of[node]
    if excess.constraint != "core_dma_out":
        yield from problem.tensor_names(node, "in")
    if excess.constraint != "core_dma_in":
        yield from problem.tensor_names(node, "out")
    streams = into if excess.constraint == "core_dma_in" else out if excess.constraint == "core_dma_out" else into + out
    routed = [problem.streams[s].stream for s in streams if not solver.boolean_value(model.shared[s])]
    if routed:
        neighbours = max(len(around) for around in problem.limits.adjacent.values())
        yield f"{', '.join(dict.fromkeys(routed))}: {len(routed)} streams that are left over by {neighbours} neighbours"


def _buffers(problem: Problem, model: PlacementModel, solver: cp_model.CpSolver, node: int) -> Iterator[str]:
    into, out = problem.streams_of[node]
    for numbers, held in ((into, model.at_target), (out, model.at_source)):
        for number in numbers:
            if solver.boolean_value(held[number]):
                yield f"{problem.streams[number].stream} {problem.streams[number].bytes:,}"
