"""Tensors that stream at the region's edge: which ones, through which interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from allo_dse.common.records import MOST_KEPT, Frozen
from allo_dse.compiler.ir.nest import loops_of, read_nest
from allo_dse.compiler.program.compiled import DATAFLOW, CompiledProgram, Directive, is_region, kernel_of, of_region
from allo_dse.compiler.schedule.edges import Edged, EdgeTensor, edge_tensors, with_edges
from allo_dse.lang.types import DType

from .cost.memory import OUTSTANDING
from .cost.plan import LoopPlan, Planner

INTERFACE = "interface"
"""The kind of directives about the ports of tensors."""
M_AXI, AXIS = "m_axi", "axis"


class Transfers(Frozen):
    """Transactions of an AXI adapter. Defaults are those of Vitis HLS (UG1399, "pragma HLS interface").

    Attributes:
        burst: elements of one burst. outstanding: requests under way.
    """

    burst: int = 16
    outstanding: int = OUTSTANDING


def has_axis(dtype: DType) -> bool:
    """Return whether the generated C++ sends elements of a type through an AXI-Stream port."""
    return dtype.bits in (8, 16, 32, 64) and not dtype.is_fixed and (dtype.kind, dtype.bits) != ("float", 16)


def _options(about: Sequence[Directive]) -> Mapping[str, Any]:
    return next((d.options for d in reversed(about) if d.kind == INTERFACE), {})


def interface_of(about: Sequence[Directive]) -> str | None:
    """Return the interface that directives about a tensor say."""
    return _options(about).get("mode")


def transfers_of(about: Sequence[Directive]) -> Transfers:
    """Return the transactions that directives about a tensor say."""
    said = _options(about)
    return Transfers(**{name: said[name] for name in ("burst", "outstanding") if name in said})


def edged_program(program: CompiledProgram, schedule: Sequence[Directive]) -> Edged:
    """The program with streams at its edge, as a schedule has them.

    A tensor that its only task accesses once, in order, is a stream if nothing else is said of its place and no round
    of the loop around needs several elements: they would pass one by one.
    """
    return _edged(program, tuple(d for d in schedule if d.kind in _DECIDING))


_DECIDING = ("pipeline", "unroll", "place", INTERFACE, DATAFLOW)


@lru_cache(MOST_KEPT)
def _edged(program: CompiledProgram, schedule: tuple[Directive, ...]) -> Edged:
    edges = edge_tensors(program)
    every = of_region(program, (*program.schedule, *schedule))
    names = (name for name, edge in edges.items() if _streams(program, edge, every, schedule))
    return with_edges(program, frozenset(names))


def _streams(
    program: CompiledProgram, edge: EdgeTensor, every: Sequence[Directive], schedule: Sequence[Directive]
) -> bool:
    about = [
        d
        for d in every
        if (d.name == edge.tensor.name and is_region(d.scope, program))
        or (d.name == edge.argument and d.kind == "place" and kernel_of(d.scope, program) == edge.kernel)
    ]
    places = [d.options["memory"] for d in about if d.kind == "place"]
    if (is_port := interface_of(about) == AXIS) or places:
        return is_port or places[-1] == "stream"
    if any(d.kind == DATAFLOW and d.scope == edge.kernel for d in every):
        return False
    kernel = program.kernel(edge.kernel)
    (task_class,) = (one for one in kernel.classes if any(p.tensor == edge.tensor for p in one.used_ports))
    nest = read_nest(task_class.body.mlir)
    said = Planner(program, task_class, nest).plan(schedule).loops
    trips = {loop.source: loop.trips.constant for loop in loops_of(nest.body) if loop.trips is not None}
    for loops in edge.loops:
        pipelined = False
        for number in loops:
            own = said.get(-1 if number is None else number, LoopPlan())
            if (trips[number] if pipelined or not own.unroll else own.unroll) > 1:
                return False
            pipelined = pipelined or own.interval is not None
    return True
