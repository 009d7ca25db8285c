"""Primitives that only hardware knows: they become directives, which code generators and cost models read."""

from __future__ import annotations

from collections.abc import Mapping

from allo_dse.ir.bindings import ir
from allo_dse.lang.diagnostics import ProgramError
from allo_dse.program.directive import Directive

from ..regions.schedules import partition_options
from .body import Body
from .find import Found


def loop_directive(kind: str, found: Found, options: Mapping[str, object]) -> Directive:
    """A directive about one loop.

    Raises:
        ProgramError: for an interval or a factor that is not one.
    """
    source = found.body.source(found.op)
    for option, least in (("initiation_interval", 1), ("factor", 0)):
        value = options.get(option, least)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ProgramError(f"{kind}({source.name}): {option} must be an integer of at least {least}, not {value!r}")
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
