"""Why a mapping cannot be placed: the limits that the cheapest solution of a soft model exceeds."""

from __future__ import annotations

from collections.abc import Iterator

from ortools.sat.python import cp_model

from ..model.violation import Violation
from .placement_model import Excess, PlacementModel
from .problem import Problem

MAX_REASONS = 8
"""Messages beyond these say nothing new."""


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
        return f"stream {stream.name}", f"{stream.token_bytes}-byte tokens; {ends} are not neighbours"
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
    routed = [problem.streams[s].name for s in streams if not solver.boolean_value(model.shared[s])]
    if routed:
        neighbours = max(len(around) for around in problem.limits.adjacent.values())
        yield f"{', '.join(dict.fromkeys(routed))}: {len(routed)} streams that are left over by {neighbours} neighbours"


def _buffers(problem: Problem, model: PlacementModel, solver: cp_model.CpSolver, node: int) -> Iterator[str]:
    into, out = problem.streams_of[node]
    for numbers, held in ((into, model.at_target), (out, model.at_source)):
        for number in numbers:
            if solver.boolean_value(held[number]):
                yield f"{problem.streams[number].name} {problem.streams[number].bytes:,}"
