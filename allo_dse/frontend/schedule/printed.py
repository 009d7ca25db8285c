"""A program as MLIR text, with what its schedule says as attributes of loops."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from allo_dse.program.compiled import CompiledProgram
from allo_dse.program.directive import Directive
from allo_dse.program.locations import SourceLoop

from .body import LOOP

_BOUND = re.compile(
    r"^ *(%\w+) = (?:arith\.constant (-?\d+) : index|affine\.apply (affine_map<.*\)>\(.*\)))$", re.MULTILINE
)
_LOOP = re.compile(r"scf\.for (?P<name>%\w+) = (?P<low>%\w+) to (?P<high>%\w+) step (?P<step>%\w+) {$", re.MULTILINE)


@dataclass(frozen=True)
class PrintedModule:
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
                yield _with_affine_loops("".join(parts))

    def _attributes(self, loop: SourceLoop) -> Iterator[str]:
        """Name and directives of a loop, in the order of their names."""
        yield f'loop_name = "{loop.name}"'
        if loop.opens:
            yield f'op_name = "{loop.band}"'
        said = [one for one in self.program.schedule if loop.is_called(one.name)]
        yield from sorted(text for one in said if (text := _attribute(one)))


def _with_affine_loops(text: str) -> str:
    """The same function, its loops `affine.for` where the values they run between and their step allow it."""
    bounds = {name: number or mapped for name, number, mapped in _BOUND.findall(text)}

    def loop(found: re.Match[str]) -> str:
        low, high, step = (bounds.get(value, "") for value in found.group("low", "high", "step"))
        if not (low and high and step.isdecimal()):
            return found.group()
        return f"affine.for {found['name']} = {low} to {high}{'' if step == '1' else f' step {step}'} {{"

    text = _LOOP.sub(loop, text)
    used = Counter(re.findall(r"%\w+", text))
    return _BOUND.sub(lambda bound: bound.group() if used[bound[1]] > 1 else "", text)


def _attribute(directive: Directive) -> str:
    options = directive.options
    if directive.kind == "pipeline":
        return f"pipeline_ii = {options.get('initiation_interval', 1)} : ui32"
    if directive.kind == "unroll":
        return f"unroll = {options.get('factor', 0)} : i32"
    return directive.kind if directive.kind in ("parallel", "dataflow") else ""
