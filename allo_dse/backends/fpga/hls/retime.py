"""An HLS report's intervals and depths, put in place of the cost model's.

The report names loops by the labels that the code generator gave them, a flattened nest by all its labels; the
innermost one says which loop of the task body is meant. The report's own latency of a dataflow region is wrong by up to
half, since the tool does not know how processes wait for each other; the simulator does (docs/timing.md, T2 to T8).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from allo_dse.common.errors import SimulationError
from allo_dse.common.records import Frozen, JsonObject, replace
from allo_dse.compiler.ir.nest import loops_of, read_nest
from allo_dse.compiler.program.compiled import CompiledProgram, TaskClass
from allo_dse.simulator.replay.trace import Trace
from allo_dse.simulator.replay.trace_data import IntArray, TraceData, TraceLoop, check_trace

from ..cost.task_cost import Measured
from ..mapping import FpgaMapping
from ..report.report import HlsLoop, HlsReport
from .project import HlsProject

_OTHER_DESIGN = "give the report of the design that the trace is of"


def timed_by_report(trace: Trace, report: HlsReport) -> Trace:
    """The same stream operations at the report's initiation intervals and pipeline depths.

    A process's loops are the pipelined loops of the module of its name (or `<name>_Pipeline_...`), in the report's
    order.

    Raises:
        SimulationError: if a process has no such module, a different number of loops or iterations, or an operation at
            a stage that its loop's pipeline does not have.
    """
    data = trace.data
    times = [(loop.ii, loop.depth) for loop in data.loops]
    for number, process in enumerate(data.processes):
        own = [at for at, loop in enumerate(data.loops) if loop.process == number]
        found = [
            loop
            for loop in report.all_loops()
            if (loop.module == process or loop.module.startswith(f"{process}_Pipeline_"))
            and loop.ii is not None
            and loop.depth is not None
        ]
        if len(found) != len(own):
            raise SimulationError(
                f"the report has {len(found)} pipelined loops of `{process}`, the trace has {len(own)}",
                hint=_OTHER_DESIGN,
            )
        for at, loop in zip(own, found, strict=True):
            trips, trip = loop.trip_count.exact, data.loops[at].trip
            if trips not in (None, trip):
                raise SimulationError(
                    f"loop {loop.name} of {loop.module} has {trips} iterations in the report, {trip} in the trace",
                    hint=_OTHER_DESIGN,
                )
            times[at] = loop.ii or 1, loop.depth or 1
    return with_times(trace, times)


def with_times(trace: Trace, times: Sequence[tuple[int, int]]) -> Trace:
    """The trace with other intervals and depths, one pair per loop.

    Operations that were due where their loop's depth puts them (T9) move with it; those with a stage of their own stay.

    Raises:
        TraceError: if a pipeline is not as deep as the stage of one of its operations.
    """
    data = trace.data
    loops = []
    for loop, (ii, depth) in zip(data.loops, times, strict=True):
        timed, ops = replace(loop, ii=ii, depth=depth), loop.ops
        if ops is not None:
            moved = (replace(op, stage=timed.stage(op.kind)) if op.stage == loop.stage(op.kind) else op for op in ops)
            timed = replace(timed, ops=tuple(moved))
        loops.append(timed)
    retimed = replace(data, loops=tuple(loops), listed=replace(data.listed, stage=_stages(data, loops)))
    check_trace(retimed)
    return Trace(retimed)


def _stages(data: TraceData, loops: Sequence[TraceLoop]) -> IntArray:
    """Stages of the listed events."""
    listed = data.listed
    before, after = (
        np.array([[loop.stage(kind) for kind in (0, 1)] for loop in every], np.int64).reshape(-1, 2)
        for every in (data.loops, loops)
    )
    default = listed.stage == before[listed.loop, listed.kind]
    return np.where(default, after[listed.loop, listed.kind], listed.stage)


Timings = Mapping[tuple[str, str], Mapping[int, Measured]]


class ReportTimes(Frozen):
    """Reported times of the loops and copies of a program.

    Attributes:
        timings: per kernel and task class, the report's times of a loop by the value number of its variable.
        copies: cycles of the process that loads or stores a tensor, by the tensor's name; the slower of both.
    """

    timings: Timings
    copies: Mapping[str, int]

    def to_dict(self) -> JsonObject:
        """As plain data, for a design's metrics."""
        loops = [
            [kernel, name, variable, known.ii, known.depth]
            for (kernel, name), own in self.timings.items()
            for variable, known in own.items()
        ]
        return {"loops": loops, "copies": dict(self.copies)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ReportTimes:
        """Read the result of `to_dict`."""
        timings: dict[tuple[str, str], dict[int, Measured]] = {}
        for kernel, name, variable, ii, depth in values["loops"]:
            timings.setdefault((kernel, name), {})[variable] = Measured(ii, depth)
        return cls(timings, dict(values["copies"]))


class Retiming(ReportTimes, frozen=True):
    """Parts of a report that were found in the program.

    Attributes:
        matched: number of the report's pipelined loops that belong to a task or a copy.
        unmatched: names of the other ones.
    """

    matched: int
    unmatched: tuple[str, ...]


def retiming(program: CompiledProgram, project: HlsProject, report: HlsReport) -> Retiming:
    """Find the loops of a report in the task bodies of the program that the project was made of."""
    classes = {task_class.body.symbol: task_class for task_class in program.task_classes}
    names = {function: symbol for symbol, function in project.functions.items()}
    variables = labelled(program, project)
    movers = {f"{verb}_{tensor.name}": tensor.name for tensor in program.tensors for verb in ("load", "store")}
    timings: dict[tuple[str, str], dict[int, Measured]] = {}
    matched, unmatched = 0, []
    for loop in report.all_loops():
        if not loop.pipelined or loop.ii is None or loop.depth is None:
            continue
        function = _function(loop, variables)
        variable = None if function is None else _variable(loop, variables[function])
        if function is None or variable is None:
            is_copy = _longest(movers, loop.module) is not None
            matched += is_copy
            unmatched += [] if is_copy else [f"{loop.module}/{loop.name}"]
            continue
        task_class = classes[names[function]]
        own = timings.setdefault((task_class.kernel, task_class.name), {})
        known = own.get(variable, Measured(0, 0))  # copies of a function can differ; the slower one counts
        own[variable] = Measured(max(known.ii, loop.ii), max(known.depth, loop.depth))
        matched += 1
    copies: dict[str, int] = {}
    for module in report.modules:
        if module.name in movers and module.latency.max is not None:
            name = movers[module.name]
            copies[name] = max(copies.get(name, 0), module.latency.max)
    return Retiming(timings, copies, matched, tuple(unmatched))


def labelled(program: CompiledProgram, project: HlsProject) -> dict[str, dict[str, int]]:
    """Per C++ function and label of a loop, the value number of the loop's variable in the task body."""
    classes = {task_class.body.symbol: task_class for task_class in program.task_classes}
    return {
        function: _variables(classes[symbol], list(project.loops.get(function, ())))
        for symbol, function in project.functions.items()
        if symbol in classes
    }


def retimed(mapping: FpgaMapping, found: ReportTimes) -> FpgaMapping:
    """The mapping with the report's intervals, depths and times of copies."""
    words = {tensor.name: math.prod(tensor.shape) for tensor in mapping.vmg.program.tensors}
    latency = mapping.device.external.latency_cycles  # which the simulator adds
    rates = {name: words[name] / max(1, cycles - latency) for name, cycles in found.copies.items()}
    return replace(mapping, measured=found.timings, rates=rates)


def _variables(task_class: TaskClass, labels: list[str]) -> dict[str, int]:
    """The variable of each labelled loop; the code generator labels loops in the order in which they stand."""
    nest = read_nest(task_class.body.mlir)
    loops = list(loops_of(nest.body))
    if len(loops) == len(labels):
        return {label: loop.variable for label, loop in zip(labels, loops, strict=True)}
    # Some loops were left out or written in several pieces: labels of source loops end with their numbers.
    numbers = {loop.source: loop.variable for loop in loops if loop.source is not None}
    ends = ((label, label.rsplit("_", 1)[-1]) for label in labels)
    return {label: numbers[int(end)] for label, end in ends if end.isdigit() and int(end) in numbers}


def _function(loop: HlsLoop, variables: Mapping[str, Mapping[str, int]]) -> str | None:
    """The function a loop is of: by its module's name; where the tool inlined the function, by a label of its own."""
    having = [name for name, labels in variables.items() if _variable(loop, labels) is not None]
    return _longest(variables, loop.module) or (having[0] if len(having) == 1 else None)


def _longest(names: Iterable[str], text: str) -> str | None:
    """The name that a module's name is, or begins with: the tool appends `_Pipeline_...`, `_1`, `_s`."""
    fitting = [name for name in names if text == name or text.startswith(f"{name}_")]
    return max(fitting, key=len, default=None)


def _variable(loop: HlsLoop, variables: Mapping[str, int]) -> int | None:
    """The variable of the innermost loop of a flattened nest, whose labels the report joins by `_`."""
    fitting = [label for label in variables if loop.name == label or loop.name.endswith(f"_{label}")]
    label = max(fitting, key=len, default=None)
    return None if label is None else variables[label]
