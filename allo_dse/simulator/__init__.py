"""Networks of processes and bounded FIFOs, with exact times.

It knows streams, tasks, operation tables and shared resources, but no programs, mappings or devices. `codegen` and
`run_time` make machine code of task bodies and of the scheduler, `network` is the data of a run, `engine` runs it.
`replay` times recorded operations at other depths, `deadlock` explains blocked runs, `depths` searches FIFO depths.
`docs/timing.md` defines the time of every operation.

Imports: common.
Imported by: allo_dse, backends, cli, dashboard, drawing, eval, mapper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allo_dse.common.imports import lazy_exports

if TYPE_CHECKING:
    from .codegen.signature import Body as Body
    from .codegen.signature import Tiles as Tiles
    from .deadlock import DeadlockError as DeadlockError
    from .engine.engine import compile_bodies as compile_bodies
    from .engine.engine import table_engine as table_engine
    from .engine.frames import repeated as repeated
    from .engine.run_result import RunResult as RunResult
    from .engine.run_result import SimResult as SimResult
    from .network.network import Network as Network
    from .network.network import NetworkBuilder as NetworkBuilder
    from .network.tables import Table as Table
    from .replay.trace import Trace as Trace
    from .replay.trace_build import Frames as Frames
    from .replay.trace_build import Get as Get
    from .replay.trace_build import Loop as Loop
    from .replay.trace_build import Put as Put

__all__, __getattr__ = lazy_exports(
    __name__,
    {
        "codegen.signature": ["Body", "Tiles"],
        "deadlock": ["DeadlockError"],
        "engine.engine": ["compile_bodies", "table_engine"],
        "engine.frames": ["repeated"],
        "engine.run_result": ["RunResult", "SimResult"],
        "network.network": ["Network", "NetworkBuilder"],
        "network.tables": ["Table"],
        "replay.trace": ["Trace"],
        "replay.trace_build": ["Frames", "Get", "Loop", "Put"],
    },
)
