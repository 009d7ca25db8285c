"""HLS C++ of a program: `emit_kernel`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from msgspec import Struct

from allo_dse.common.mlir.dialect import text_context
from allo_dse.common.records import once
from allo_dse.compiler.program.compiled import CompiledProgram, Directive, of_region
from allo_dse.compiler.schedule.edges import Edged
from allo_dse.eval.processes import Folding

from ..edges import edged_program
from .cpp.expressions import PIDS, Names, identifier
from .cpp.operations import elements_of, initialiser, tables_of
from .cpp.streams import carriers
from .dataflow.edge_movers import EdgeMovers
from .dataflow.folding import emit_nodes, with_streams
from .dataflow.functions import TaskFunction, task_function
from .dataflow.movers import Copiers, KernelStreams
from .dataflow.tensor_plan import ClassPlan, class_plans, tensor_options, tensors_of
from .dataflow.top import (
    Argument,
    Top,
    call_group,
    call_movers,
    declare_streams,
    declare_tiles,
    interface_pragmas,
    ordered_groups,
    used_streams,
)
from .task.pragmas import LoopPragmas, LoopSource, directives_of


class Kernel(Struct, frozen=True):
    """The parts of a kernel file.

    Attributes:
        tables: definitions of constant arrays.
        functions: of task classes, and of processes that move tensors.
        externals: declarations of vendor kernels.
        body: the statements of the top function.
        symbols: the C++ name of each task body, by its symbol.
        loops: per function and label of a loop, what it is in the source.
    """

    name: str
    arguments: tuple[Argument, ...]
    tables: tuple[str, ...]
    externals: tuple[str, ...]
    functions: tuple[str, ...]
    pragmas: tuple[str, ...]
    body: tuple[str, ...]
    loops: Mapping[str, Mapping[str, LoopSource]]
    symbols: Mapping[str, str]


def emit_kernel(
    program: CompiledProgram,
    *,
    schedule: Sequence[Directive] = (),
    depths: Mapping[str, int] | None = None,
    folding: Folding | None = None,
    streams: KernelStreams | None = None,
) -> Kernel:
    """Translate a program to HLS C++.

    Args:
        schedule: directives beside those of the program.
        depths: of streams by name, where they differ from the declared ones.
        folding: which tasks share a process; each has one of its own by default.
        streams: tensors that pass from kernel to kernel, of a folded program.

    Raises:
        AlloDseError: for a stream that the program does not have, or an operation without translation.
    """
    with text_context():
        directives = of_region(program, directives_of(program, schedule))
        edged = edged_program(program, directives)
        built = edged.program.depths_with(depths or {})
        return _emit(edged, directives, built, folding, streams or KernelStreams())


def _emit(
    edged: Edged,
    directives: tuple[Directive, ...],
    depths: dict[str, int],
    folding: Folding | None,
    streams: KernelStreams,
) -> Kernel:
    program = edged.program
    name = identifier(program.name)
    names = Names({name, *PIDS})
    symbols = {
        task_class.body.symbol: names.new(task_class.body.symbol)
        for kernel in program.kernels
        for task_class in kernel.classes
    }
    built = carriers(program, depths)
    regions = frozenset((program.name, "top")) - {kernel.name for kernel in program.kernels}
    options = tensor_options(program, directives, regions)
    plans = class_plans(program, symbols, options, folded=folding is not None)
    tables: dict[tuple[str, str], str] = {}  # names of constant arrays, each defined once
    positions = {tensor.name: position for position, tensor in enumerate(tensors_of(program))}
    functions: dict[str, TaskFunction] = {}
    copiers = Copiers(names)
    for plan in plans:
        if not plan.is_empty and len(plan.members):
            constants = tables_of(plan.task_class.body.mlir).items()
            own = {symbol: once(tables, table, partial(names.new, symbol)) for symbol, table in constants}
            functions[plan.symbol] = task_function(plan, directives, regions, built, own, positions, copiers)
    pragmas = partial(LoopPragmas, directives=directives, regions=regions)
    top = Top(program, functions, built, names, pragmas, streams, copiers)
    used = [plan for plan in plans if plan.symbol in functions]
    edges = EdgeMovers(top, edged, directives)
    if folding is None:
        nodes = _unfolded(top, used, edges)
    else:
        nodes = emit_nodes(top, used, with_streams(folding, len(edged.streams)), edges)
    arguments = tuple(sorted(top.arguments, key=lambda a: a.tensor))
    return Kernel(
        name,
        arguments,
        tuple(_definition(name, *table) for table, name in tables.items()),
        tuple(dict.fromkeys(e for f in functions.values() for e in f.externals)),
        (*copiers.texts, *(f.text for f in functions.values()), *nodes),
        tuple(interface_pragmas(arguments, top.transfers)),
        (*top.lines, "  ALLO_END_OF_DATAFLOW();"),
        {f.symbol: f.loops for f in functions.values()},
        {body: symbol for body, symbol in symbols.items() if symbol in functions},
    )


def _unfolded(top: Top, plans: list[ClassPlan], edges: EdgeMovers) -> list[str]:
    """One process per task; returns the functions of those that load and store tensors."""
    groups = ordered_groups(plans)
    declare_streams(top, used_streams(top.program, plans))
    declare_tiles(top, groups)
    edges.call("get")
    call_movers(top, "in")
    for number, group in enumerate(groups):
        call_group(top, number, group)
    call_movers(top, "out")
    edges.call("put")
    return [*edges.texts, *top.movers]


def _definition(name: str, type_: str, elements: str) -> str:
    shape, element = elements_of(type_)
    dims = "".join(f"[{n}]" for n in shape)
    return f"static const {element} {name}{dims} = {initialiser(elements, element)};"
