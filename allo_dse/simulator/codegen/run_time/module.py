"""The run-time module: scheduler, table process, and the compiled task bodies that are linked with them."""

from __future__ import annotations

from collections.abc import Sequence

from allo_dse.ir.bindings import ir

from . import deferred, fifo, scheduler
from . import operation_tables as tables
from .variant import Variant


def add_runtime(module: ir.Module, bodies: Sequence[str], variant: Variant) -> None:
    """Add the scheduler and the table process; `bodies` name the start functions of compiled bodies."""
    with ir.Location.unknown():
        fifo.define_wakes(module)
        if variant.registers:
            deferred.define_deferred(module, variant)
        tables.define_table_process(module, variant)
        scheduler.define_scheduler(module, bodies, variant)
