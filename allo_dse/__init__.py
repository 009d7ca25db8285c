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

from .common.imports import lazy_exports
from .common.plugins import register_target
from .space.backend import add_backend

if TYPE_CHECKING:
    from .backends.fpga.choices.clock import clock as clock
    from .backends.fpga.choices.schedules import adders as adders
    from .backends.fpga.choices.schedules import dataflow as dataflow
    from .backends.fpga.choices.schedules import interface as interface
    from .backends.fpga.choices.schedules import lanes as lanes
    from .backends.fpga.choices.schedules import memory as memory
    from .backends.fpga.choices.schedules import pack as pack
    from .backends.fpga.choices.schedules import partition as partition
    from .backends.fpga.choices.schedules import pipeline as pipeline
    from .backends.fpga.choices.schedules import stream_depth as stream_depth
    from .backends.fpga.choices.schedules import unroll as unroll
    from .backends.fpga.choices.stream_depths import StreamDepths as StreamDepths
    from .backends.fpga.depths.front import depth_front as depth_front
    from .backends.fpga.evaluator import FpgaSimulator as FpgaSimulator
    from .backends.fpga.hls.design_project import hls_project as hls_project
    from .backends.fpga.hls.evaluator import HlsEvaluator as HlsEvaluator
    from .backends.fpga.hls.evaluator import HlsTool as HlsTool
    from .backends.fpga.hls.evaluator import HlsToolError as HlsToolError
    from .backends.fpga.hls.retime import timed_by_report as timed_by_report
    from .backends.fpga.report import HlsReport as HlsReport
    from .backends.fpga.report import HlsReportError as HlsReportError
    from .backends.fpga.report import read_hls_report as read_hls_report
    from .backends.npu.board.run import DeviceWedged as DeviceWedged
    from .backends.npu.board.run import NpuRun as NpuRun
    from .backends.npu.evaluator import NpuSimulator as NpuSimulator
    from .backends.npu.place.placed_design import Infeasible as Infeasible
    from .backends.npu.place.placed_design import PlacedDesign as PlacedDesign
    from .backends.rtl.evaluator import RtlEvaluator as RtlEvaluator
    from .backends.rtl.evaluator import rtl_resources as rtl_resources
    from .backends.rtl.evaluator import rtl_simulate as rtl_simulate
    from .common.errors import AlloDseError as AlloDseError
    from .common.errors import DeviceError as DeviceError
    from .common.errors import IllegalFold as IllegalFold
    from .common.errors import ProgramError as ProgramError
    from .common.errors import ProgramWarning as ProgramWarning
    from .common.errors import SimulationError as SimulationError
    from .common.errors import StudyError as StudyError
    from .device.device import Device as Device
    from .drawing import save_perfetto as save_perfetto
    from .eval.command import Command as Command
    from .eval.command import CommandError as CommandError
    from .eval.command import DesignRefused as DesignRefused
    from .eval.equivalence.compare import Difference as Difference
    from .eval.equivalence.compare import Equivalence as Equivalence
    from .eval.equivalence.compare import equivalent as equivalent
    from .eval.equivalence.data_values import Undecidable as Undecidable
    from .eval.evaluator import Evaluator as Evaluator
    from .eval.evaluator import Metrics as Metrics
    from .functions import check as check
    from .functions import draw as draw
    from .functions import place as place
    from .functions import record_trace as record_trace
    from .functions import simulate as simulate
    from .mapper.fold.fold_space import AxisFold as AxisFold
    from .mapper.fold.fold_space import KernelFold as KernelFold
    from .mapper.fold.fold_space import MeshFold as MeshFold
    from .mapper.fold.vmg import VMG as VMG
    from .mapper.program import Program as Program
    from .mapper.program import load_program as load_program
    from .mapper.violation import Buffering as Buffering
    from .mapper.violation import Violation as Violation
    from .networks.compose import Composition as Composition
    from .networks.compose import compose as compose
    from .networks.fronts import search_fronts as search_fronts
    from .networks.network import Network as Network
    from .networks.onnx.convert import from_onnx as from_onnx
    from .networks.onnx.torch import from_torch as from_torch
    from .networks.onnx.torch import from_torch_file as from_torch_file
    from .simulator.engine.run_result import SimResult as SimResult
    from .simulator.replay.trace import Trace as Trace
    from .simulator.replay.trace_build import Frames as Frames
    from .simulator.replay.trace_build import Get as Get
    from .simulator.replay.trace_build import Loop as Loop
    from .simulator.replay.trace_build import Put as Put
    from .space.choice import Ask as Ask
    from .space.choice import Choice as Choice
    from .space.choice import Question as Question
    from .space.choice import QuestionChoice as QuestionChoice
    from .space.design import Design as Design
    from .space.design import Draft as Draft
    from .space.params import choices as choices
    from .space.params import divisors as divisors
    from .space.params import powers_of_two as powers_of_two
    from .space.sampler.optuna_sampler import EvolutionSampler as EvolutionSampler
    from .tune.earlier_runs import open_run as open_run
    from .tune.optuna_objective import objective as objective
    from .tune.results.result import Result as Result
    from .tune.search.objectives import maximize as maximize
    from .tune.search.objectives import minimize as minimize
    from .tune.search.objectives import require as require
    from .tune.search.promotion import Rung as Rung
    from .tune.study import Study as Study

__version__ = "0.2.0"

_names, __getattr__ = lazy_exports(
    __name__,
    {
        "backends.fpga.choices.clock": ["clock"],
        "backends.fpga.choices.schedules": [
            "adders",
            "dataflow",
            "interface",
            "lanes",
            "memory",
            "pack",
            "partition",
            "pipeline",
            "stream_depth",
            "unroll",
        ],
        "backends.fpga.choices.stream_depths": ["StreamDepths"],
        "backends.fpga.depths.front": ["depth_front"],
        "backends.fpga.evaluator": ["FpgaSimulator"],
        "backends.fpga.hls.design_project": ["hls_project"],
        "backends.fpga.hls.evaluator": ["HlsEvaluator", "HlsTool", "HlsToolError"],
        "backends.fpga.hls.retime": ["timed_by_report"],
        "backends.fpga.report": ["HlsReport", "HlsReportError", "read_hls_report"],
        "backends.npu.board.run": ["DeviceWedged", "NpuRun"],
        "backends.npu.evaluator": ["NpuSimulator"],
        "backends.npu.place.placed_design": ["Infeasible", "PlacedDesign"],
        "backends.rtl.evaluator": ["RtlEvaluator", "rtl_resources", "rtl_simulate"],
        "common.errors": [
            "AlloDseError",
            "DeviceError",
            "IllegalFold",
            "ProgramError",
            "ProgramWarning",
            "SimulationError",
            "StudyError",
        ],
        "device.device": ["Device"],
        "drawing": ["save_perfetto"],
        "eval.command": ["Command", "CommandError", "DesignRefused"],
        "eval.equivalence.compare": ["Difference", "Equivalence", "equivalent"],
        "eval.equivalence.data_values": ["Undecidable"],
        "eval.evaluator": ["Evaluator", "Metrics"],
        "functions": ["check", "draw", "place", "record_trace", "simulate"],
        "mapper.fold.fold_space": ["AxisFold", "KernelFold", "MeshFold"],
        "mapper.fold.vmg": ["VMG"],
        "mapper.program": ["Program", "load_program"],
        "mapper.violation": ["Buffering", "Violation"],
        "networks.compose": ["Composition", "compose"],
        "networks.fronts": ["search_fronts"],
        "networks.network": ["Network"],
        "networks.onnx.convert": ["from_onnx"],
        "networks.onnx.torch": ["from_torch", "from_torch_file"],
        "simulator.engine.run_result": ["SimResult"],
        "simulator.replay.trace": ["Trace"],
        "simulator.replay.trace_build": ["Frames", "Get", "Loop", "Put"],
        "space.choice": ["Ask", "Choice", "Question", "QuestionChoice"],
        "space.design": ["Design", "Draft"],
        "space.params": ["choices", "divisors", "powers_of_two"],
        "space.sampler.optuna_sampler": ["EvolutionSampler"],
        "tune.earlier_runs": ["open_run"],
        "tune.optuna_objective": ["objective"],
        "tune.results.result": ["Result"],
        "tune.search.objectives": ["maximize", "minimize", "require"],
        "tune.search.promotion": ["Rung"],
        "tune.study": ["Study"],
    },
)
__all__ = [*_names, "__version__"]


for _kind, _class in (("npu", "npu.backend:NpuBackend"), ("fpga", "fpga.backend:FpgaBackend")):
    add_backend(_kind, f"allo_dse.backends.{_class}")
for _target in ("simulator", "llvm"):
    register_target(_target, "allo_dse.eval.execute.built_module:SimulatorModule")
for _target in ("aie", "aie-mlir"):
    register_target(_target, "allo_dse.eval.execute.built_module:build_aie")
for _target in ("vhls", "vitis_hls"):
    register_target(_target, "allo_dse.backends.fpga.hls.built_module:HlsModule")


def __dir__() -> list[str]:
    return __all__
