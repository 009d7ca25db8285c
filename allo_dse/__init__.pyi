"""Public names and their modules: for type checkers, and for `lazy_exports` to import them when first used."""

from .backends.fpga.choices.clock import clock as clock
from .backends.fpga.choices.schedules import (
    adders as adders,
    dataflow as dataflow,
    interface as interface,
    lanes as lanes,
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
from .backends.fpga.hls.evaluator import HlsEvaluator as HlsEvaluator, HlsTool as HlsTool, HlsToolError as HlsToolError
from .backends.fpga.hls.retime import timed_by_report as timed_by_report
from .backends.fpga.report.report import HlsReport as HlsReport, HlsReportError as HlsReportError
from .backends.fpga.report.report_files import read_hls_report as read_hls_report
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
from .functions import check as check, draw as draw, place as place, record_trace as record_trace, simulate as simulate
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

__version__: str
__all__: list[str]
