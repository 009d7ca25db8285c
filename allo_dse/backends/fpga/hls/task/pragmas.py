"""Pragmas and comments of loops and arrays: from the schedule and from places in the source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from allo_dse.common.mlir.bindings import ir, nested_ops
from allo_dse.common.records import Frozen
from allo_dse.compiler.program.compiled import (
    DATAFLOW,
    STREAM,
    CompiledProgram,
    Directive,
    TaskClass,
    lanes_in,
    lanes_of,
    stream_depth,
)
from allo_dse.compiler.program.tensors import SourceLocation

from ..cpp.expressions import identifier


class LoopSource(Frozen):
    """Text and pragmas to write for a loop.

    Attributes:
        label: the name in the HLS tool's report.
        variable: the counter's name.
        comment: where it stands in the source; empty inside a nest that is one operation.
    """

    label: str
    variable: str
    comment: str
    pragmas: tuple[str, ...]
    location: SourceLocation | None = None


class LoopPragmas(Frozen):
    """The schedule of one task class."""

    task_class: TaskClass
    directives: tuple[Directive, ...]
    regions: frozenset[str]

    def source(self, op: ir.Operation, rounds: int = 1) -> LoopSource:
        """Label, comment and pragmas of a loop of the body; of an operation on tiles it has as many rounds."""
        if "df.loop" not in op.attributes:
            return self._tile_loop(op, lanes_of(self.lanes, rounds))
        number = ir.IntegerAttr(op.attributes["df.loop"]).value
        loop = self.task_class.loops[number]
        name = loop.name.replace(".", "_")  # `i.outer`
        label = f"{identifier(name or 'while_')}_{number}".replace("__", "_")
        names = {loop.name, loop.label, self.task_class.loop_names[number], loop.grid if _is_innermost(op) else ""}
        pragmas = tuple(
            text
            for directive in self.directives
            if directive.name
            and directive.name in names
            and self._applies(directive)
            and (text := loop_pragma(directive))
        )
        return LoopSource(label, name or "i", place(loop.location), pragmas, loop.location)

    def _tile_loop(self, op: ir.Operation, at_once: int) -> LoopSource:
        """A loop of an operation on tiles: the next cost in its block, or around it, tells which.

        The innermost ones are pipelined.
        """
        depth, outer = 0, op
        pragmas: tuple[str, ...] = ("pipeline II=1",) if _is_innermost(op) else ()
        if pragmas and at_once > 1:
            pragmas = (*pragmas, f"unroll factor={at_once}")
        while outer is not None and outer.parent is not None:
            following = _cost_behind(outer)
            if following is not None:
                work = self.task_class.work[following]
                comment = f"{place(work.location)}: {work.kind}" if work.location and not depth else ""
                return LoopSource(f"{work.kind}_{following}", "ijklmn"[min(depth, 5)], comment, pragmas, work.location)
            outer, depth = outer.parent, depth + 1
        return LoopSource("tile", "ijklmn"[min(depth, 5)], "", pragmas)

    @property
    def lanes(self) -> int:
        """The number of elements that operations on tiles compute at once."""
        return lanes_in(self.directives)

    def array(self, name: str, variable: str, kept: Iterable[int], shape: Sequence[int]) -> list[str]:
        """Pragmas of an array that the source calls `name`, of whose dimensions C++ has those in `kept`."""
        dims = list(kept)
        banks = lanes_of(self.lanes, shape[-1]) if dims and dims[-1] == len(shape) - 1 else 1
        return [f"array_partition variable={variable} dim={len(dims)} cyclic factor={banks}"] * (banks > 1) + [
            text
            for directive in self.directives
            if directive.name == name and self._applies(directive) and (directive.kind != STREAM or self.overlaps)
            for text in array_pragmas(directive, variable, dims)
        ]

    @property
    def overlaps(self) -> bool:
        """True if the nests of the function run at once."""
        return any(d.kind == DATAFLOW and d.name == self.task_class.kernel for d in self.directives)

    def _applies(self, directive: Directive) -> bool:
        kernel = re.escape(self.task_class.kernel)
        return directive.scope in self.regions or re.fullmatch(kernel + r"(_\d+)*", directive.scope) is not None


def directives_of(program: CompiledProgram, schedule: Sequence[Directive]) -> tuple[Directive, ...]:
    """A program's own schedule, then the design's; the last one that names a loop or array dimension counts."""
    found: dict[tuple[object, ...], Directive] = {}
    for directive in (*program.schedule, *schedule):
        key = (directive.kind, directive.scope, directive.name, directive.options.get("dim"))
        found.pop(key, None)
        found[key] = directive
    return tuple(found.values())


def place(location: SourceLocation | None) -> str:
    """`file.py:12`"""
    return "" if location is None else f"{location.file_name}:{location.line}"


def loop_pragma(directive: Directive) -> str:
    """The pragma of a directive for loops, or nothing."""
    options = directive.options
    interval, factor = options.get("initiation_interval", 1), options.get("factor", 0)
    if directive.kind == "pipeline" and interval:
        return f"pipeline II={interval}{' rewind' if options.get('rewind') else ''}"
    if directive.kind == "unroll" and factor != 1:
        return f"unroll factor={factor}" if factor else "unroll"
    return ""


def array_pragmas(directive: Directive, variable: str, kept: Sequence[int]) -> list[str]:
    """The pragmas of a directive for arrays."""
    options = directive.options
    kind, factor, memory = options.get("partition_type", "complete"), options.get("factor", 0), options.get("memory")
    if directive.kind == "partition" and factor != 1:
        banks = "complete" if kind == "complete" or not factor else f"{kind} factor={factor}"
        wanted = [options["dim"] - 1] if options.get("dim") else list(kept)
        return [
            f"array_partition variable={variable} dim={kept.index(dim) + 1} {banks}" for dim in wanted if dim in kept
        ]
    if directive.kind == STREAM:
        return [f"stream variable={variable} type=fifo depth={stream_depth(directive)}"]
    if directive.kind == "place" and kept:
        if memory == "register":
            return [f"array_partition variable={variable} dim=0 complete"]
        if memory in ("bram", "uram", "lutram"):
            return [f"bind_storage variable={variable} type={options.get('type', 'ram_2p')} impl={memory}"]
    return []


def _is_innermost(op: ir.Operation) -> bool:
    return not any(inner.name in ("scf.for", "scf.while") for inner in nested_ops(op) if inner != op)


def _cost_behind(op: ir.Operation) -> int | None:
    """The site of the first cost behind an operation in its block."""
    passed = False
    for other in op.block.operations:
        if passed and other.operation.name == "df.cost":
            return int(ir.IntegerAttr(other.operation.attributes["site"]).value)
        passed = passed or other.operation == op
    return None
