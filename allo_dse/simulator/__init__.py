"""Networks of processes and bounded FIFOs, with exact times.

It knows streams, tasks, operation tables and shared resources, but no programs, mappings or devices. `codegen` and
`run_time` make machine code of task bodies and of the scheduler, `network` is the data of a run, `engine` runs it.
`replay` times recorded operations at other depths, `deadlock` explains blocked runs, `depths` searches FIFO depths.
`docs/timing.md` defines the time of every operation.

Imports: common.
Imported by: allo_dse, backends, cli, dashboard, drawing, eval, mapper.
"""

from __future__ import annotations

from allo_dse.common.imports import lazy_exports

__all__, __getattr__ = lazy_exports(__name__, __file__)
