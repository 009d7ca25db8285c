"""Public names and their modules: for type checkers, and for `lazy_exports` to import them when first used."""

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

__all__: list[str]
