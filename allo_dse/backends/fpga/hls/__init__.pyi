"""Public names and their modules: for type checkers, and for `lazy_exports` to import them when first used."""

from .build_modes import CSimulation as CSimulation, csim as csim
from .dataflow.movers import Arrival as Arrival, KernelStreams as KernelStreams
from .project import HlsProject as HlsProject, emit_project as emit_project

__all__: list[str]
