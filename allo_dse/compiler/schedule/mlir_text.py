"""A program as MLIR text, with its schedule's directives as attributes of loops."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from allo_dse.common.mlir.bindings import ir
from allo_dse.common.records import Frozen

from ..ir.nest import LOOP
from ..program.compiled import CompiledProgram, Directive
from ..program.tensors import SourceLoop
from ..regions.schedules import partition_options, require_numbers
from .body import Body
from .lookup import Found

_VALUE = re.compile(
    r" *(?P<name>%\w+)(?::\d+)? = (?:arith\.constant (?P<number>-?\d+) : index$|affine\.apply (?P<map>affine_map<.*)$)?"
)
_LOOP = re.compile(r"scf\.for (?P<name>%\w+) = (?P<low>%\w+) to (?P<high>%\w+) step (?P<step>%\w+) {$")


class PrintedModule(Frozen):
    """MLIR text: a function per task class. Loops have names (`loop_name`, `op_name` of a nest) and directives.

    Loops whose bounds are known, or follow the pid, are `affine.for`, their bounds where one looks for them.
    """

    program: CompiledProgram

    def __str__(self) -> str:
        lines = [line for text in self._functions() for line in text.splitlines() if line]
        return "\n".join(["module {", *(f"  {line}" for line in lines), "}"])

    def _functions(self) -> Iterator[str]:
        for kernel in self.program.kernels:
            for task_class in kernel.classes:
                loops = [", ".join(self._attributes(loop)) for loop in task_class.loops]
                parts = re.split(rf"({LOOP} = \d+ : i64)", task_class.body.mlir)
                for position in range(1, len(parts), 2):
                    number = int(parts[position].split()[2])
                    parts[position] += f", {loops[number]}"
                yield with_affine_loops("".join(parts))

    def _attributes(self, loop: SourceLoop) -> Iterator[str]:
        """Name and directives of a loop, in the order of their names."""
        yield f'loop_name = "{loop.name}"'
        if loop.opens:
            yield f'op_name = "{loop.band}"'
        said = [one for one in self.program.schedule if loop.is_called(one.name)]
        yield from sorted(text for one in said if (text := _attribute(one)))


def with_affine_loops(text: str) -> str:
    """The same function, its loops `affine.for` where the values they run between and their step allow it."""
    bounds: dict[str, str] = {}  # by name: sibling blocks may reuse one, and the last definition applies

    def loop(found: re.Match[str]) -> str:
        low, high, step = (bounds.get(value, "") for value in found.group("low", "high", "step"))
        if not (low and high and step.isdecimal()):
            return found.group()
        return f"affine.for {found['name']} = {low} to {high}{'' if step == '1' else f' step {step}'} {{"

    lines = []
    for line in text.splitlines():
        if value := _VALUE.match(line):
            bounds[value["name"]] = value["number"] or value["map"] or ""
        lines.append(_LOOP.sub(loop, line))
    used = Counter(re.findall(r"%\w+", "\n".join(lines)))
    # A line that only computes a bound is unused once its loop states the bound itself.
    found = ((line, _VALUE.match(line)) for line in lines)
    return "\n".join(line for line, v in found if not (v and (v["number"] or v["map"]) and used[v["name"]] == 1))


def _attribute(directive: Directive) -> str:
    options = directive.options
    if directive.kind == "pipeline":
        return f"pipeline_ii = {options.get('initiation_interval', 1)} : ui32"
    if directive.kind == "unroll":
        return f"unroll = {options.get('factor', 0)} : i32"
    return directive.kind if directive.kind in ("parallel", "dataflow") else ""


# Primitives for hardware alone become directives, which code generators and cost models read.


def loop_directive(kind: str, found: Found, options: Mapping[str, object]) -> Directive:
    """A directive about one loop.

    Raises:
        ProgramError: for an interval or a factor that is not one.
    """
    source = found.body.source(found.op)
    require_numbers(kind, source.name, options)
    return Directive(kind, found.body.task_class.kernel, source.label, dict(options))


def partition_directive(body: Body, array: ir.Value, target: str, options: Mapping[str, object]) -> Directive:
    """A directive about one array.

    Raises:
        ProgramError: for a dimension or a number of banks that the array cannot have.
    """
    shape = tuple(ir.MemRefType(array.type).shape)
    return Directive(
        "partition", body.task_class.kernel, body.name_of(array), partition_options(target, shape, dict(options))
    )
