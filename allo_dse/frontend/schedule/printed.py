"""A program as MLIR text, with what its schedule says as attributes of loops."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from allo_dse.program.compiled import CompiledProgram
from allo_dse.program.directive import Directive
from allo_dse.program.source import SourceLoop

from .body import LOOP


@dataclass(frozen=True)
class PrintedModule:
    """MLIR text: a function per task class. Loops have names (`loop_name`, `op_name` of a nest) and directives."""

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
                yield "".join(parts)

    def _attributes(self, loop: SourceLoop) -> Iterator[str]:
        """Name and directives of a loop, in the order of their names."""
        yield f'loop_name = "{loop.name}"'
        if loop.opens:
            yield f'op_name = "{loop.band}"'
        said = [one for one in self.program.schedule if loop.is_called(one.name)]
        yield from sorted(text for one in said if (text := _attribute(one)))


def _attribute(directive: Directive) -> str:
    options = directive.options
    if directive.kind == "pipeline":
        return f"pipeline_ii = {options.get('initiation_interval', 1)} : ui32"
    if directive.kind == "unroll":
        return f"unroll = {options.get('factor', 0)} : i32"
    return directive.kind if directive.kind in ("parallel", "dataflow") else ""
