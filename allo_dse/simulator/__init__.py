"""Networks of processes and bounded FIFOs, exactly timed: a product of its own.

It knows streams, tasks, operation tables and shared resources, and nothing of programs, mappings or devices.
Floors, each importing those before it: `codegen` (machine code of task bodies and of
the scheduler), `network` (what a run executes, as data), `engine` (runs, timelines), `steady` (exact times
of long regular runs), `trace` (recorded operations), `replay` (their times at other depths). `docs/timing.md` defines
when an operation happens.

Imports: common, ir.
Imported by: allo_dse, backends, cli, dashboard, drawing, eval, mapper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allo_dse.common.exports import lazy_exports

if TYPE_CHECKING:
    from .codegen.lowering.signature import Body as Body
    from .codegen.lowering.signature import Tiles as Tiles
    from .codegen.run_time.record_fields import Arbitration as Arbitration
    from .deadlock.explain import DeadlockError as DeadlockError
    from .engine.engine import compile_bodies as compile_bodies
    from .engine.engine import table_engine as table_engine
    from .engine.run_result import RunResult as RunResult
    from .engine.sim_result import SimResult as SimResult
    from .network.memories import Axi as Axi
    from .network.memories import read_port as read_port
    from .network.memories import write_port as write_port
    from .network.network import Network as Network
    from .network.network import NetworkBuilder as NetworkBuilder
    from .network.tables import Table as Table
    from .replay.trace import Trace as Trace
    from .steady.repeated_frames import repeated as repeated
    from .trace.build import Frames as Frames
    from .trace.build import Get as Get
    from .trace.build import Loop as Loop
    from .trace.build import Put as Put

__all__, __getattr__ = lazy_exports(
    __name__,
    {
        "codegen.lowering.signature": ["Body", "Tiles"],
        "codegen.run_time.record_fields": ["Arbitration"],
        "deadlock.explain": ["DeadlockError"],
        "engine.engine": ["compile_bodies", "table_engine"],
        "engine.run_result": ["RunResult"],
        "engine.sim_result": ["SimResult"],
        "network.memories": ["Axi", "read_port", "write_port"],
        "network.network": ["Network", "NetworkBuilder"],
        "network.tables": ["Table"],
        "replay.trace": ["Trace"],
        "steady.repeated_frames": ["repeated"],
        "trace.build": ["Frames", "Get", "Loop", "Put"],
    },
)
