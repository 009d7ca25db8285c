"""The run-time module: scheduler and table process, compiled once for all task bodies; and what bodies have of it."""

from __future__ import annotations

from collections.abc import Sequence

from allo_dse.ir.bindings import ir

from . import deferred, fifo, scheduler
from . import operation_tables as tables
from .emit import Emitter, function
from .record_fields import Slot
from .variant import Variant

START_BODY = "df_start_body"


def add_runtime(module: ir.Module, variant: Variant) -> None:
    """Add the scheduler and the table process."""
    with ir.Location.unknown():
        fifo.define_wakes(module)
        scheduler.define_requests(module)
        tables.define_table_process(module, variant)
        scheduler.define_scheduler(module, variant)


def add_bodies_runtime(module: ir.Module, starts: Sequence[str], variant: Variant, *, polls: bool) -> None:
    """Add what compiled bodies call, and `df_start_body(header, node, slot)`, by which the scheduler starts them.

    Args:
        starts: names of functions (header, node, arguments) that start bodies, from number 1 on.
        polls: whether any looks at how full its streams are.
    """
    ptr = Emitter.pointer_type()
    with ir.Location.unknown():
        fifo.define_wakes(module)
        if polls:
            scheduler.define_requests(module)
        if variant.registers:
            deferred.define_deferred(module, variant)
        op = function(module, START_BODY, [ptr, ptr, ptr], public=True)
        header, node, slot = op.arguments
        e = Emitter(op.entry_block)
        blocks = [e.new_block() for _ in starts]
        e.switch(e.sub(e.load(slot, Slot.BODY), 1), blocks[0], blocks)
        for block, name in zip(blocks, starts, strict=True):
            e.go(block)
            e.call(name, [header, node, e.load_ptr(slot, Slot.ARGUMENTS)])
            e.return_()
