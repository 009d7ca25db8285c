"""allo-dse: an autotuner and design-space explorer for dataflow accelerator programs.

    import allo_dse as dse

    program = dse.load_program(gemm, Pm=32, Pn=32, Pk=32)     # a region, or a function that returns one
    folded = program.vmg.apply(mapping_primitives)            # the virtual mapping graph, folded
    dse.check(folded, dse.Device.load("npu1_4col"))           # violations of the device's limits; empty when it fits
    dse.place(folded, "npu1_4col")                            # tiles, routes and channels, or what forbids them
    dse.simulate(program, A, B, C)                            # numbers and cycles in one run
    dse.Trace.load("x.npz").replay(depths)                    # another tool's trace at other stream depths
    dse.read_hls_report("solution1")                          # what an HLS tool reported: loops, FIFOs, resources
    dse.Study("gemm", program=gemm, params={...}, device="npu1_4col", objectives=[dse.minimize("latency_us")]).run(500)

Names are imported when first used, so that `import allo_dse` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .lang.targets import register_target

if TYPE_CHECKING:
    from .api import check as check
    from .api import draw as draw
    from .api import place as place
    from .api import record_trace as record_trace
    from .api import simulate as simulate
    from .backends.device import Device as Device
    from .backends.hls_report import HlsReport as HlsReport
    from .backends.hls_report import HlsReportError as HlsReportError
    from .backends.hls_report import read_hls_report as read_hls_report
    from .errors import AlloDseError as AlloDseError
    from .errors import DeviceError as DeviceError
    from .errors import IllegalFold as IllegalFold
    from .errors import SimulationError as SimulationError
    from .errors import StudyError as StudyError
    from .eval.evaluator import Evaluator as Evaluator
    from .eval.evaluator import Metrics as Metrics
    from .eval.fpga import FpgaSimulator as FpgaSimulator
    from .eval.hls import HlsEvaluator as HlsEvaluator
    from .eval.hls_tool import HlsToolError as HlsToolError
    from .eval.npu import NpuSimulator as NpuSimulator
    from .eval.rtl import RtlEvaluator as RtlEvaluator
    from .eval.rtl import rtl_resources as rtl_resources
    from .eval.rtl import rtl_simulate as rtl_simulate
    from .eval.simulator.sim_result import SimResult as SimResult
    from .eval.simulator.trace import Trace as Trace
    from .eval.simulator.trace_build import Frames as Frames
    from .eval.simulator.trace_build import Get as Get
    from .eval.simulator.trace_build import Loop as Loop
    from .eval.simulator.trace_build import Put as Put
    from .lang.diagnostics import ProgramError as ProgramError
    from .lang.diagnostics import ProgramWarning as ProgramWarning
    from .mapper.buffering import Buffering as Buffering
    from .mapper.check import Violation as Violation
    from .mapper.folds import AxisFold as AxisFold
    from .mapper.folds import KernelFold as KernelFold
    from .mapper.folds import MeshFold as MeshFold
    from .mapper.place import Infeasible as Infeasible
    from .mapper.place import PlacedDesign as PlacedDesign
    from .mapper.program import Program as Program
    from .mapper.program import load_program as load_program
    from .mapper.vmg import VMG as VMG
    from .space.design import Design as Design
    from .space.params import choices as choices
    from .space.params import divisors as divisors
    from .space.params import powers_of_two as powers_of_two
    from .space.schedules import memory as memory
    from .space.schedules import pack as pack
    from .space.schedules import partition as partition
    from .space.schedules import pipeline as pipeline
    from .space.schedules import stream_depth as stream_depth
    from .space.schedules import unroll as unroll
    from .tune.ladder import Rung as Rung
    from .tune.objectives import maximize as maximize
    from .tune.objectives import minimize as minimize
    from .tune.objectives import require as require
    from .tune.result import Result as Result
    from .tune.study import Study as Study

__version__ = "0.1.0"

_HOME = {
    "api": ["check", "draw", "place", "record_trace", "simulate"],
    "backends.device": ["Device"],
    "backends.hls_report": ["HlsReport", "HlsReportError", "read_hls_report"],
    "errors": ["AlloDseError", "DeviceError", "IllegalFold", "SimulationError", "StudyError"],
    "eval.evaluator": ["Evaluator", "Metrics"],
    "eval.fpga": ["FpgaSimulator"],
    "eval.hls": ["HlsEvaluator"],
    "eval.hls_tool": ["HlsToolError"],
    "eval.npu": ["NpuSimulator"],
    "eval.simulator.sim_result": ["SimResult"],
    "eval.rtl": ["RtlEvaluator", "rtl_resources", "rtl_simulate"],
    "eval.simulator.trace": ["Trace"],
    "eval.simulator.trace_build": ["Frames", "Get", "Loop", "Put"],
    "lang.diagnostics": ["ProgramError", "ProgramWarning"],
    "mapper.buffering": ["Buffering"],
    "mapper.check": ["Violation"],
    "mapper.folds": ["AxisFold", "KernelFold", "MeshFold"],
    "mapper.place": ["Infeasible", "PlacedDesign"],
    "mapper.program": ["Program", "load_program"],
    "mapper.vmg": ["VMG"],
    "space.design": ["Design"],
    "space.params": ["choices", "divisors", "powers_of_two"],
    "space.schedules": ["memory", "pack", "partition", "pipeline", "stream_depth", "unroll"],
    "tune.ladder": ["Rung"],
    "tune.objectives": ["maximize", "minimize", "require"],
    "tune.result": ["Result"],
    "tune.study": ["Study"],
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}
__all__ = [*sorted(_MODULE_OF), "__version__"]


for _target in ("simulator", "llvm"):
    register_target(_target, "allo_dse.api:build_simulator")
for _target in ("aie", "aie-mlir"):
    register_target(_target, "allo_dse.api:build_aie")
for _target in ("vhls", "vitis_hls"):
    register_target(_target, "allo_dse.api:build_hls")


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'allo_dse' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
