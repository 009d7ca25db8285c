"""HLS C++ for AMD FPGAs: `emit_project` makes a project from a compiled program; `csim` runs it without the tool.

project = emit_project(program, schedule=schedule, depths={"pipe": 8}, device=Device.load("u280"))
project.write("gemm_hls")            # kernel, test bench, host program, scripts
c = csim(project, a, b, c)           # through g++ or clang++, with headers of ours

Imports: common, device, frontend, ir, lang, program.
Imported by: backends.rtl, dnn, eval, tune.
"""

from __future__ import annotations

from .csim import CSimulation, csim
from .dataflow.folding import Folding
from .dataflow.kernel_streams import Arrival, KernelStreams
from .project import HlsProject, emit_project

__all__ = ["Arrival", "CSimulation", "Folding", "HlsProject", "KernelStreams", "csim", "emit_project"]
