"""Code that writes the event log of a recorded run.

The log is a buffer that Python empties: when it is full, nodes begin no operation any more and the run loop returns.
"""

from __future__ import annotations

from allo_dse.ir.bindings import ir

from .emit import Emitter
from .record_fields import Event, Header, Node


def is_full(e: Emitter, header: ir.Value) -> ir.Value:
    return e.is_(e.load(header, Header.EVENT), "==", e.load(header, Header.EVENT_END))


def write(
    e: Emitter, header: ir.Value, node: ir.Value, what: ir.Value, on: ir.Value, requested: ir.Value, completed: ir.Value
) -> None:
    """Add an event; there must be room.

    Args:
        what: the operation, in the form of `Node.WAITS_IN`.
        on: the stream or resource.
        requested, completed: clock before and after it.
    """
    event = e.load_ptr(header, Header.EVENT)
    e.store(e.load(node, Node.SLOT), event, Event.SLOT)
    e.store(what, event, Event.WHAT)
    e.store(on, event, Event.ON)
    e.store(requested, event, Event.REQUESTED)
    e.store(completed, event, Event.COMPLETED)
    e.store(e.add(e.address(event), e.load(header, Header.EVENT_STEP)), header, Header.EVENT)
