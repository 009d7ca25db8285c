"""allo-dse: an autotuner and design-space explorer for dataflow accelerator programs.

    import allo_dse as dse

    program = dse.load_program(gemm, Pm=32, Pn=32, Pk=32)     # a region, or a function that returns one
    folded = program.vmg.apply(mapping_primitives)            # the virtual mapping graph, folded
    dse.check(folded, dse.Device.load("npu1_4col"))           # violations of the device's limits; empty when it fits
    dse.place(folded, "npu1_4col")                            # tiles, routes and channels, or what forbids them
    dse.simulate(program, A, B, C)                            # numbers and cycles in one run
    dse.equivalent(program, folded)                           # whether they compute the same from all inputs
    dse.Trace.load("x.npz").replay(depths)                    # another tool's trace at other stream depths
    dse.read_hls_report("solution1")                          # what an HLS tool reported: loops, FIFOs, resources
    dse.Study("gemm", program=gemm, params={...}, device="npu1_4col", objectives=[dse.minimize("latency_us")]).run(500)

Names are imported when first used, so that `import allo_dse` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .common.exports import lazy_exports
from .lang.targets import register_target

if TYPE_CHECKING:
    from .backends.hls_report import HlsReport as HlsReport
    from .backends.hls_report import HlsReportError as HlsReportError
    from .backends.hls_report import read_hls_report as read_hls_report
    from .common.errors import AlloDseError as AlloDseError
    from .common.errors import DeviceError as DeviceError
    from .common.errors import IllegalFold as IllegalFold
    from .common.errors import SimulationError as SimulationError
    from .common.errors import StudyError as StudyError
    from .device.device import Device as Device
    from .dnn.compose import Composition as Composition
    from .dnn.compose import compose as compose
    from .dnn.fronts import search_fronts as search_fronts
    from .dnn.network import Network as Network
    from .dnn.onnx.convert import from_onnx as from_onnx
    from .dnn.onnx.torch import from_torch as from_torch
    from .dnn.onnx.torch import from_torch_file as from_torch_file
    from .drawing import save_occupancy as save_occupancy
    from .drawing import save_perfetto as save_perfetto
    from .drawing import save_timeline as save_timeline
    from .eval.equivalence.compare import Difference as Difference
    from .eval.equivalence.compare import Equivalence as Equivalence
    from .eval.equivalence.compare import equivalent as equivalent
    from .eval.equivalence.data_values import Undecidable as Undecidable
    from .eval.evaluator import Evaluator as Evaluator
    from .eval.evaluator import Metrics as Metrics
    from .eval.fpga.depth_front import depth_front as depth_front
    from .eval.fpga.evaluator import FpgaSimulator as FpgaSimulator
    from .eval.hardware.command import Command as Command
    from .eval.hardware.command import CommandError as CommandError
    from .eval.hardware.command import DesignRefused as DesignRefused
    from .eval.hardware.npu_run import DeviceWedged as DeviceWedged
    from .eval.hardware.npu_run import NpuRun as NpuRun
    from .eval.hls.design_project import hls_project as hls_project
    from .eval.hls.evaluator import HlsEvaluator as HlsEvaluator
    from .eval.hls.evaluator import HlsTool as HlsTool
    from .eval.hls.hls_tool import HlsToolError as HlsToolError
    from .eval.hls.report_trace import timed_by_report as timed_by_report
    from .eval.npu.evaluator import NpuSimulator as NpuSimulator
    from .eval.public.functions import check as check
    from .eval.public.functions import draw as draw
    from .eval.public.functions import place as place
    from .eval.public.functions import record_trace as record_trace
    from .eval.public.functions import simulate as simulate
    from .eval.rtl import RtlEvaluator as RtlEvaluator
    from .eval.rtl import rtl_resources as rtl_resources
    from .eval.rtl import rtl_simulate as rtl_simulate
    from .lang.diagnostics import ProgramError as ProgramError
    from .lang.diagnostics import ProgramWarning as ProgramWarning
    from .mapper.fold.vmg import VMG as VMG
    from .mapper.model.buffering import Buffering as Buffering
    from .mapper.model.violation import Violation as Violation
    from .mapper.place.placed_design import Infeasible as Infeasible
    from .mapper.place.placed_design import PlacedDesign as PlacedDesign
    from .mapper.program import Program as Program
    from .mapper.program import load_program as load_program
    from .mapper.search.fold_space import AxisFold as AxisFold
    from .mapper.search.fold_space import KernelFold as KernelFold
    from .mapper.search.fold_space import MeshFold as MeshFold
    from .simulator.engine.sim_result import SimResult as SimResult
    from .simulator.replay.trace import Trace as Trace
    from .simulator.trace.build import Frames as Frames
    from .simulator.trace.build import Get as Get
    from .simulator.trace.build import Loop as Loop
    from .simulator.trace.build import Put as Put
    from .space.choice import Ask as Ask
    from .space.choice import Choice as Choice
    from .space.choice import Question as Question
    from .space.choice import QuestionChoice as QuestionChoice
    from .space.choices.schedules import adders as adders
    from .space.choices.schedules import memory as memory
    from .space.choices.schedules import pack as pack
    from .space.choices.schedules import partition as partition
    from .space.choices.schedules import pipeline as pipeline
    from .space.choices.schedules import stream_depth as stream_depth
    from .space.choices.schedules import unroll as unroll
    from .space.choices.stream_depths import StreamDepths as StreamDepths
    from .space.design import Design as Design
    from .space.draft import Draft as Draft
    from .space.params import choices as choices
    from .space.params import divisors as divisors
    from .space.params import powers_of_two as powers_of_two
    from .space.sampler.optuna_sampler import EvolutionSampler as EvolutionSampler
    from .tune.opened import open_run as open_run
    from .tune.results.study_result import Result as Result
    from .tune.search.ladder import Rung as Rung
    from .tune.search.objectives import maximize as maximize
    from .tune.search.objectives import minimize as minimize
    from .tune.search.objectives import require as require
    from .tune.study import Study as Study

__version__ = "0.2.0"

_names, __getattr__ = lazy_exports(
    __name__,
    {
        "eval.public.functions": ["check", "draw", "place", "record_trace", "simulate"],
        "device.device": ["Device"],
        "dnn.compose": ["Composition", "compose"],
        "dnn.fronts": ["search_fronts"],
        "dnn.network": ["Network"],
        "dnn.onnx.convert": ["from_onnx"],
        "dnn.onnx.torch": ["from_torch", "from_torch_file"],
        "drawing": ["save_occupancy", "save_perfetto", "save_timeline"],
        "backends.hls_report": ["HlsReport", "HlsReportError", "read_hls_report"],
        "common.errors": ["AlloDseError", "DeviceError", "IllegalFold", "SimulationError", "StudyError"],
        "eval.equivalence.compare": ["Difference", "Equivalence", "equivalent"],
        "eval.equivalence.data_values": ["Undecidable"],
        "eval.evaluator": ["Evaluator", "Metrics"],
        "eval.fpga.depth_front": ["depth_front"],
        "eval.fpga.evaluator": ["FpgaSimulator"],
        "eval.hardware.command": ["Command", "CommandError", "DesignRefused"],
        "eval.hardware.npu_run": ["DeviceWedged", "NpuRun"],
        "eval.hls.evaluator": ["HlsEvaluator", "HlsTool"],
        "eval.hls.design_project": ["hls_project"],
        "eval.hls.hls_tool": ["HlsToolError"],
        "eval.hls.report_trace": ["timed_by_report"],
        "eval.npu.evaluator": ["NpuSimulator"],
        "simulator.engine.sim_result": ["SimResult"],
        "eval.rtl": ["RtlEvaluator", "rtl_resources", "rtl_simulate"],
        "simulator.replay.trace": ["Trace"],
        "simulator.trace.build": ["Frames", "Get", "Loop", "Put"],
        "lang.diagnostics": ["ProgramError", "ProgramWarning"],
        "mapper.model.buffering": ["Buffering"],
        "mapper.model.violation": ["Violation"],
        "mapper.search.fold_space": ["AxisFold", "KernelFold", "MeshFold"],
        "mapper.place.placed_design": ["Infeasible", "PlacedDesign"],
        "mapper.program": ["Program", "load_program"],
        "mapper.fold.vmg": ["VMG"],
        "space.choices.stream_depths": ["StreamDepths"],
        "space.design": ["Design"],
        "space.draft": ["Draft"],
        "space.params": ["choices", "divisors", "powers_of_two"],
        "space.sampler.optuna_sampler": ["EvolutionSampler"],
        "space.choice": ["Ask", "Choice", "Question", "QuestionChoice"],
        "space.choices.schedules": ["adders", "memory", "pack", "partition", "pipeline", "stream_depth", "unroll"],
        "tune.search.ladder": ["Rung"],
        "tune.search.objectives": ["maximize", "minimize", "require"],
        "tune.opened": ["open_run"],
        "tune.results.study_result": ["Result"],
        "tune.study": ["Study"],
    },
)
__all__ = [*_names, "__version__"]


for _target in ("simulator", "llvm"):
    register_target(_target, "allo_dse.eval.public.built:SimulatorModule")
for _target in ("aie", "aie-mlir"):
    register_target(_target, "allo_dse.eval.public.built:build_aie")
for _target in ("vhls", "vitis_hls"):
    register_target(_target, "allo_dse.eval.public.built:HlsModule")


def __dir__() -> list[str]:
    return __all__
