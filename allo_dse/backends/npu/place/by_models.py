"""Placement where nodes exchange streams, or where routes are scarce: by CP-SAT.

1. Nodes are placed by CP-SAT, with the transport plan's columns, near the memory tiles they exchange tiles with; routes
   are found by negotiated congestion. Where nodes can only be neighbours, chains of them are tried upright first: there
   are few such placements, and their routes do not cross. This decides nearly all mappings.
2. If no routes are found, one model of placement, columns and routes decides.
3. If a model has no solution, the same model with limits that may be exceeded at a price says which, and by how much.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from ortools.sat.python import cp_model

from allo_dse.common.cp_sat import answer
from allo_dse.mapper.violation import Violation

from .exact_model import JointModel
from .placed_design import Infeasible, PlacedDesign
from .placement_model import Excess, PlacementModel
from .problem import Placement, Problem
from .router import nets_of, numbered, route, routed

MAX_REASONS = 8
"""Messages beyond these say nothing new."""

# Deterministic seconds for shortening wires, once a placement is known to exist.
_POLISH = 0.2
_WORK = 20.0  # for a full search; about as many seconds on an idle machine
# The same for finding the reasons, once it is known that no placement exists.
_REASONS = 1.0


def search(problem: Problem, start: Placement | None, deadline: float) -> PlacedDesign | Infeasible:
    """Tiles, columns and routes, or the limits in the way.

    Args:
        start: a placement that keeps the limits of all cores, without quick routes; None when none is known.
        deadline: of `time.monotonic`.
    """
    if start is not None:
        return _exact(problem, start, deadline)
    if problem.neighbours:
        upright = PlacementModel(problem)
        upright.keep_in_columns()
        _, placement = _quick(upright, deadline, work=_POLISH)
        if placement is not None and (placed := routed(problem, placement)) is not None:
            return placed
    status, placement = _quick(PlacementModel(problem), deadline)
    if status == cp_model.INFEASIBLE:
        return _why(PlacementModel(problem, soft=True), deadline)
    if placement is not None and (placed := routed(problem, placement)) is not None:
        return placed
    return _exact(problem, placement, deadline)


def _quick(
    model: PlacementModel, deadline: float, work: float = _WORK
) -> tuple[cp_model.CpSolverStatus, Placement | None]:
    """A placement with short wires, with the columns of the plan.

    Args:
        work: deterministic seconds to find any placement in.
    """
    model.model.minimize(model.wires())
    # A relaxation bounds the wires too loosely to close the gap, and takes a third of the time.
    status, solver = answer(model.model, work=_POLISH, seconds=_left(deadline), gap=0.1, linear=0)
    if status == cp_model.UNKNOWN:
        model.model.clear_objective()  # type: ignore[no-untyped-call]
        status, solver = answer(model.model, work=work, seconds=_left(deadline))
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return status, None
    return status, model.read(solver, [transfer.column for transfer in model.problem.transfers])


def _exact(problem: Problem, start: Placement | None, deadline: float) -> PlacedDesign | Infeasible:
    model = JointModel(problem)
    if start is not None:
        model.hint(start)
    status, solver = answer(model.model, work=_WORK, seconds=_left(deadline))
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
    """Return the limits that the cheapest placement exceeds."""
    model.model.minimize(model.price())
    status, solver = answer(model.model, work=_REASONS, seconds=max(_left(deadline), 2.0))
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
    """Describe the items that make up the need of a core."""
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
    far = [problem.streams[s].stream for s in streams if not solver.boolean_value(model.shared[s])]
    if far:
        neighbours = max(len(around) for around in problem.limits.adjacent.values())
        yield f"{', '.join(dict.fromkeys(far))}: {len(far)} streams that are left over by {neighbours} neighbours"


def _buffers(problem: Problem, model: PlacementModel, solver: cp_model.CpSolver, node: int) -> Iterator[str]:
    into, out = problem.streams_of[node]
    for numbers, held in ((into, model.at_target), (out, model.at_source)):
        for number in numbers:
            if solver.boolean_value(held[number]):
                yield f"{problem.streams[number].stream} {problem.streams[number].bytes:,}"
