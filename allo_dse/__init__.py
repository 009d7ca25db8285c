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

# ruff: noqa: I001 - names are grouped by module
from __future__ import annotations

from typing import TYPE_CHECKING

from .common.imports import lazy_exports
from .common.plugins import register_target
from .space.backend import add_backend

if TYPE_CHECKING:
    from .backends.fpga.choices.clock import clock as clock
    from .backends.fpga.choices.schedules import (
        adders as adders,
        dataflow as dataflow,
        interface as interface,
        memory as memory,
        pack as pack,
        partition as partition,
        pipeline as pipeline,
        stream_depth as stream_depth,
        unroll as unroll,
    )
    from .backends.fpga.choices.stream_depths import StreamDepths as StreamDepths
    from .backends.fpga.depths.front import depth_front as depth_front
    from .backends.fpga.evaluator import FpgaSimulator as FpgaSimulator
    from .backends.fpga.hls.design_project import hls_project as hls_project
    from .backends.fpga.hls.evaluator import (
        HlsEvaluator as HlsEvaluator,
        HlsTool as HlsTool,
        HlsToolError as HlsToolError,
    )
    from .backends.fpga.hls.retime import timed_by_report as timed_by_report
    from .backends.fpga.report import (
        HlsReport as HlsReport,
        HlsReportError as HlsReportError,
        read_hls_report as read_hls_report,
    )
    from .backends.npu.board.run import DeviceWedged as DeviceWedged, NpuRun as NpuRun
    from .backends.npu.evaluator import NpuSimulator as NpuSimulator
    from .backends.npu.place.placed_design import Infeasible as Infeasible, PlacedDesign as PlacedDesign
    from .backends.rtl.evaluator import (
        RtlEvaluator as RtlEvaluator,
        rtl_resources as rtl_resources,
        rtl_simulate as rtl_simulate,
    )
    from .common.errors import (
        AlloDseError as AlloDseError,
        DeviceError as DeviceError,
        IllegalFold as IllegalFold,
        ProgramError as ProgramError,
        ProgramWarning as ProgramWarning,
        SimulationError as SimulationError,
        StudyError as StudyError,
    )
    from .device.device import Device as Device
    from .drawing import save_perfetto as save_perfetto
    from .eval.command import Command as Command, CommandError as CommandError, DesignRefused as DesignRefused
    from .eval.equivalence.compare import Difference as Difference, Equivalence as Equivalence, equivalent as equivalent
    from .eval.equivalence.data_values import Undecidable as Undecidable
    from .eval.evaluator import Evaluator as Evaluator, Metrics as Metrics
    from .functions import (
        check as check,
        draw as draw,
        place as place,
        record_trace as record_trace,
        simulate as simulate,
    )
    from .mapper.fold.fold_space import AxisFold as AxisFold, KernelFold as KernelFold, MeshFold as MeshFold
    from .mapper.fold.vmg import VMG as VMG
    from .mapper.program import Program as Program, load_program as load_program
    from .mapper.violation import Buffering as Buffering, Violation as Violation
    from .networks.compose import Composition as Composition, compose as compose
    from .networks.fronts import search_fronts as search_fronts
    from .networks.network import Network as Network
    from .networks.onnx.convert import from_onnx as from_onnx
    from .networks.onnx.torch import from_torch as from_torch, from_torch_file as from_torch_file
    from .simulator.engine.run_result import SimResult as SimResult
    from .simulator.replay.trace import Trace as Trace
    from .simulator.replay.trace_build import Frames as Frames, Get as Get, Loop as Loop, Put as Put
    from .space.choice import Ask as Ask, Choice as Choice, Question as Question, QuestionChoice as QuestionChoice
    from .space.design import Design as Design, Draft as Draft
    from .space.params import choices as choices, divisors as divisors, powers_of_two as powers_of_two
    from .space.sampler.optuna_sampler import EvolutionSampler as EvolutionSampler
    from .tune.earlier_runs import open_run as open_run
    from .tune.optuna_objective import objective as objective
    from .tune.results.result import Result as Result
    from .tune.search.objectives import maximize as maximize, minimize as minimize, require as require
    from .tune.search.promotion import Rung as Rung
    from .tune.study import Study as Study

__version__ = "0.2.0"

_names, __getattr__ = lazy_exports(__name__, __file__)
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
