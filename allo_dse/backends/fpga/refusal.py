"""Errors for programs whose control is not known before they run: where, which expression, and what to do."""

from __future__ import annotations

import linecache

from allo_dse.common.errors import StaticControlError
from allo_dse.program.locations import SourceLocation
from allo_dse.program.tasks import TaskClass

REMEDY = (
    "use bounds and conditions of loop variables, process ids and constants, joined by and, or, not; "
    "or give the study inputs= on which it is timed"
)
"""What helps where control depends on data."""


def refusal(reason: str, location: SourceLocation | None, hint: str = REMEDY) -> StaticControlError:
    """An error that names the line, and what stands there."""
    if location is None:
        return StaticControlError(f"no static times: {reason}", hint=hint)
    text = linecache.getline(location.file, location.line).strip()
    quoted = f"`{text}`: " if text else ""
    return StaticControlError(f"{location}: {quoted}{reason}", hint=hint)


def place_of(task_class: TaskClass, loop: int | None = None, op: int | None = None) -> SourceLocation | None:
    """Return the source location of a loop or a stream operation by its number, or else of the task class."""
    if loop is not None and 0 <= loop < len(task_class.loops):
        return task_class.loops[loop].location
    if op is not None and 0 <= op < len(task_class.stream_ops):
        return task_class.stream_ops[op].location
    return task_class.location
