"""The variants in which one set of task bodies can be compiled."""

from __future__ import annotations

from msgspec import Struct


class Variant(Struct, frozen=True):
    """Features of compiled code beyond executing a network; a feature that is left out costs nothing.

    Attributes:
        record: write every stream operation and request into an event log.
        payload: compute values. Without it bodies keep only what decides on control flow and streams.
        registers: let puts of a pipelined loop wait behind later operations that are due earlier. Without, operations
            of every pipelined loop must be due in program order.
    """

    record: bool = False
    payload: bool = True
    registers: bool = False


PLAIN = Variant()
"""Values and times, no log."""
