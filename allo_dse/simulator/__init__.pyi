"""Public names and their modules: for type checkers, and for `lazy_exports` to import them when first used."""

from .codegen.signature import Body as Body, Tiles as Tiles
from .deadlock import DeadlockError as DeadlockError
from .engine.engine import compile_bodies as compile_bodies, table_engine as table_engine
from .engine.frames import repeated as repeated
from .engine.run_result import RunResult as RunResult, SimResult as SimResult
from .network.network import Network as Network, NetworkBuilder as NetworkBuilder
from .network.tables import Table as Table
from .replay.trace import Trace as Trace
from .replay.trace_build import Frames as Frames, Get as Get, Loop as Loop, Put as Put

__all__: list[str]
