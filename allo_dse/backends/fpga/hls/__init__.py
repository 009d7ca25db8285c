"""HLS C++ for AMD FPGAs: `emit_project` makes a project from a compiled program; `csim` runs it without the tool.

    project = emit_project(program, schedule=schedule, depths={"pipe": 8}, device=Device.load("u280"))
    project.write("gemm_hls")            # kernel, test bench, host program, scripts
    c = csim(project, a, b, c)           # through g++ or clang++, with headers of ours

Imports: allo_dse, backends.fpga, backends.fpga.cost, backends.fpga.depths, backends.fpga.report, common, compiler,
device, eval, lang, mapper, simulator, space.
Imported by: backends.fpga, networks.
"""

from __future__ import annotations

from .build_modes import csim
from .project import emit_project

__all__ = ["csim", "emit_project"]
