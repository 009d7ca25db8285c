"""An HLS project: the kernel, a test bench, a host program and build scripts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from importlib import resources
from pathlib import Path

import jinja2
from msgspec import field

from allo_dse import __version__
from allo_dse.common.files import write_whole
from allo_dse.common.mlir.dialect import text_context
from allo_dse.common.quoting import tcl_word
from allo_dse.common.records import Frozen, once, replace
from allo_dse.compiler.program.compiled import ADDERS, CompiledProgram, Directive, of_region
from allo_dse.device.device import FpgaDevice
from allo_dse.eval.execute.run import Folding
from allo_dse.lang.storage import storage_dtype

from ..edges import buffered_streams, edged_program
from .cpp.expressions import PIDS, Names, identifier
from .cpp.operations import elements_of, initialiser, tables_of
from .cpp.streams import carriers
from .dataflow.edge_movers import Edges, edge_movers
from .dataflow.folding import emit_nodes, with_streams
from .dataflow.functions import TaskFunction, task_function
from .dataflow.movers import Arrival, Copiers, KernelStreams
from .dataflow.tensor_plan import ClassPlan, class_plans, groups_of, tensors_of
from .dataflow.top import (
    Argument,
    Top,
    call_group,
    call_movers,
    declare_stream,
    declare_tiles,
    interface_pragmas,
    used_streams,
)
from .task.pragmas import LoopPragmas, LoopSource, directives_of

# HLS C++ of a program: `emit_kernel`.


class Kernel(Frozen):
    """The parts of a kernel file.

    Attributes:
        tables: definitions of constant arrays.
        functions: of task classes, and of processes that move tensors.
        externals: declarations of vendor kernels.
        body: the statements of the top function.
        symbols: the C++ name of each task body, by its symbol.
        loops: per function and label of a loop, what it is in the source.
    """

    name: str
    arguments: tuple[Argument, ...]
    tables: tuple[str, ...]
    externals: tuple[str, ...]
    functions: tuple[str, ...]
    pragmas: tuple[str, ...]
    body: tuple[str, ...]
    loops: Mapping[str, Mapping[str, LoopSource]]
    symbols: Mapping[str, str]


def emit_kernel(
    program: CompiledProgram,
    *,
    schedule: Sequence[Directive] = (),
    depths: Mapping[str, int] | None = None,
    folding: Folding | None = None,
    streams: KernelStreams | None = None,
    port_bits: int,
) -> Kernel:
    """Translate a program to HLS C++.

    Args:
        schedule: directives beside those of the program.
        depths: of streams by name, where they differ from the declared ones.
        folding: which tasks share a process; each has one of its own by default.
        streams: tensors that are not in DRAM, of a folded program.
        port_bits: width of the device's AXI ports.

    Raises:
        AlloDseError: for a stream that the program does not have, or an operation without translation.
    """
    with text_context():
        directives = of_region(program, directives_of(program, schedule))
        edged = edged_program(program, directives)
        program = edged.program
        name = identifier(program.name)
        names = Names({name, *PIDS})
        symbols = {
            task_class.body.symbol: names.new(task_class.body.symbol)
            for kernel in program.kernels
            for task_class in kernel.classes
        }
        buffered = buffered_streams(program, directives)
        built = carriers(program, edged.program.depths_with(depths or {}), buffered)
        regions = frozenset((program.name, "top")) - {kernel.name for kernel in program.kernels}
        streams = streams or KernelStreams()
        plans = class_plans(program, symbols, directives, regions, streams.tables, folded=folding is not None)
        tables: dict[tuple[str, str], str] = {}  # names of constant arrays, each defined once
        positions = {tensor.name: position for position, tensor in enumerate(tensors_of(program))}
        functions: dict[str, TaskFunction] = {}
        copiers = Copiers(names)
        for plan in plans:
            does_nothing = len(list(plan.function.regions[0].blocks[0].operations)) == 1
            if not does_nothing and len(plan.members):
                constants = tables_of(plan.task_class.body.mlir).items()
                own = {symbol: once(tables, table, partial(names.new, symbol)) for symbol, table in constants}
                functions[plan.symbol] = task_function(plan, directives, regions, built, own, positions, copiers)
        pragmas = partial(LoopPragmas, directives=directives, regions=regions)
        top = Top(program, functions, built, names, pragmas, streams, copiers)
        used = [plan for plan in plans if plan.symbol in functions]
        edges = partial(edge_movers, top, edged, directives)
        if folding is None:
            nodes = _unfolded(top, used, edges)
        else:
            nodes = emit_nodes(top, used, with_streams(folding, len(edged.streams)), edges)
        arguments = tuple(sorted(top.arguments, key=lambda a: a.tensor))
        return Kernel(
            name,
            arguments,
            (*(_definition(name, *table) for table, name in tables.items()), *top.tables),
            tuple(dict.fromkeys(e for f in functions.values() for e in f.externals)),
            (*copiers.texts, *(f.text for f in functions.values()), *nodes),
            tuple(interface_pragmas(arguments, top.transfers, port_bits)),
            (*top.lines, "  ALLO_END_OF_DATAFLOW();"),
            {f.symbol: f.loops for f in functions.values()},
            {body: symbol for body, symbol in symbols.items() if symbol in functions},
        )


def _unfolded(top: Top, plans: list[ClassPlan], edges: Edges) -> list[str]:
    """One process per task; returns the functions of those that load and store tensors."""
    groups = [group for plan in plans for group in groups_of(plan)]
    for array in used_streams(top.program, plans):
        top.stream_names[array.name] = declare_stream(top, array.name, top.carriers[array.name], array.shape)
    declare_tiles(top, groups)
    loaded = edges("get")
    call_movers(top, "in")
    for number, group in enumerate(groups):
        call_group(top, number, group)
    call_movers(top, "out")
    return [*loaded, *edges("put"), *top.movers]


def _definition(name: str, type_: str, elements: str) -> str:
    shape, element = elements_of(type_)
    dims = "".join(f"[{n}]" for n in shape)
    return f"static const {element} {name}{dims} = {initialiser(elements, element)};"


PACKAGE = "allo_dse.backends.fpga.hls"
DEFAULT_PART, DEFAULT_CLOCK_NS = "xcu280-fsvh2892-2L-e", 3.33
DEFAULT_DEVICE = "u280"
RENDERED = (
    "kernel.cpp",
    "kernel.h",
    "tensors.h",
    "testbench.cpp",
    "host.cpp",
    "connectivity.cfg",
    "run_hls.tcl",
    "Makefile",
    "README.md",
)
"""Files that are written from a template each."""
HEADERS = (
    "allo_csim.h",
    "ap_axi_sdata.h",
    "ap_fixed.h",
    "ap_int.h",
    "hls_half.h",
    "hls_math.h",
    "hls_stream.h",
    "hls_streamofblocks.h",
    "hls_vector.h",
)
"""Replacements of the vendor's headers in C simulation."""


class Buffer(Frozen):
    """A tensor of the region as host programs hold it.

    Attributes:
        file: the name of its file, without the suffix.
        bytes: of an element in the file; `stride` of one in the card's memory.
        kind: what bits mean: "i" signed, "u" unsigned, "f" floating point, "b" bfloat16.
        tolerance: largest difference of an element, and root mean square of all, over that of the golden values.
        is_scratch: it is no argument of the program, and what it should hold is not checked.
        positions: of the kernel's arguments that mean it. argument: name of the first of these.
        stream: how it comes or goes where it is no buffer on a card but a stream between kernels. Its file has its
            elements in the order in which they do.
    """

    name: str
    file: str
    element: str
    shape: tuple[int, ...]
    bytes: int
    stride: int
    bits: int
    kind: str
    tolerance: tuple[float, float]
    is_scratch: bool
    is_value: bool
    writes: bool
    positions: tuple[int, ...]
    argument: str
    stream: Arrival | None = None

    @property
    def count(self) -> int:
        """Elements."""
        return math.prod(self.shape)


class PredictedLoop(Frozen):
    """A pipelined loop as the cost model sees it; `name` is its label in the C++ function."""

    function: str
    name: str
    trips: int
    ii: int
    depth: int
    cycles: int


class Prediction(Frozen):
    """Predicted results of a design before any tool has run.

    Attributes:
        source: the evaluator that predicts.
        resources: by name: lut, ff, dsp, bram18, uram.
    """

    source: str
    latency_cycles: int
    clock_mhz: float
    resources: Mapping[str, int]
    loops: tuple[PredictedLoop, ...]

    @property
    def latency_us(self) -> float:
        return self.latency_cycles / self.clock_mhz


class HlsProject(Frozen):
    """Files of a project by name, relative to its directory.

    Attributes:
        top: the name of the top function.
        functions: the C++ name of each task body, by its symbol.
        loops: per C++ function and label of a loop, what it is in the source.
        buffers: the region's tensors that the kernel uses, as files of the test bench.
        data: contents of the test bench's binary files, by name.
    """

    program: CompiledProgram
    top: str
    files: Mapping[str, str]
    functions: Mapping[str, str]
    loops: Mapping[str, Mapping[str, LoopSource]]
    buffers: tuple[Buffer, ...]
    externals: tuple[str, ...]
    data: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def hls_code(self) -> str:
        """The kernel's C++."""
        return self.files["kernel.cpp"]

    def write(self, directory: str | Path) -> list[Path]:
        """Write all files, making the directory; returns their paths."""
        written = []
        contents = {name: text.encode() for name, text in self.files.items()} | dict(self.data)
        for name, content in contents.items():
            path = Path(directory) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, content)
            written.append(path)
        return written

    def with_prediction(self, prediction: Prediction) -> HlsProject:
        """Return the project with a README that states the results the tools should find."""
        text = _environment().get_template("prediction.md.j2").render(prediction=prediction, top=self.top)
        return replace(self, files={**self.files, "README.md": f"{self.files['README.md']}\n{text}"})


def emit_project(
    program: CompiledProgram,
    *,
    schedule: Sequence[Directive] = (),
    depths: Mapping[str, int] | None = None,
    device: FpgaDevice | None = None,
    folding: Folding | None = None,
    streams: KernelStreams | None = None,
    tolerances: Mapping[str, tuple[float, float]] | None = None,
) -> HlsProject:
    """The HLS project of a program.

    Args:
        schedule: directives beside those of the program itself.
        depths: of streams by name, where they differ from the declared ones.
        device: an FPGA; its part and clock go into the scripts (a U280 at 3.33 ns by default).
        folding: which tasks share a process; each has one of its own by default.
        streams: tensors that are not in DRAM, of a folded program.
        tolerances: of results, see `Buffer`; none by default, so that floats are compared bit by bit.

    Raises:
        AlloDseError: for a stream that the program does not have, or an operation without translation.
    """
    board = device or FpgaDevice.load(DEFAULT_DEVICE)
    port_bits = board.external.port_bits
    kernel = emit_kernel(
        program, schedule=schedule, depths=depths, folding=folding, streams=streams, port_bits=port_bits
    )
    buffers = _buffers(program, kernel, tolerances or {})
    values = {
        "kernel": kernel,
        "buffers": buffers,
        "call": [
            argument.passed(next(b.name for b in buffers if number in b.positions))
            for number, argument in enumerate(kernel.arguments)
        ],
        "flow": "vivado" if any(a.extents for a in kernel.arguments) else "vitis",
        "shared": [b.file for b in buffers if len(b.positions) > 2],
        "header": "kernel.h",
        "source": next((k.location.file_name for k in program.kernels if k.location is not None), ""),
        "version": __version__,
        "fabric_adders": any(d.kind == ADDERS and d.options["impl"] == "fabric" for d in schedule),
        "banks": list(_banks(kernel, buffers, board)),
        "part": (device and device.part) or DEFAULT_PART,
        "clock_ns": device.clock.period_ns if device else DEFAULT_CLOCK_NS,
        "uncertainty": round(100 * device.clock.uncertainty) if device else None,
    }
    files = {name: _environment().get_template(f"{name}.j2").render(values) for name in RENDERED}
    files |= {name: _header(name) for name in ("allo_hls.h", "allo_check.h")}
    files |= {f"csim/{name}": _header(name) for name in HEADERS}
    return HlsProject(program, kernel.name, files, kernel.symbols, kernel.loops, buffers, kernel.externals)


def _buffers(
    program: CompiledProgram, kernel: Kernel, tolerances: Mapping[str, tuple[float, float]]
) -> tuple[Buffer, ...]:
    names, found = Names({a.name for a in kernel.arguments} | {kernel.name}), []
    for number, tensor in enumerate(tensors_of(program)):
        dtype = tensor.dtype
        own = [argument for argument in kernel.arguments if argument.tensor == number]
        if not own:
            continue
        size = storage_dtype(tensor.dtype).itemsize
        found.append(
            Buffer(
                name=names.new(f"{tensor.name}_buffer"),
                file=tensor.name,
                element=own[0].element,
                shape=tensor.shape or (1,),
                bytes=size,
                stride=1 << (size - 1).bit_length(),
                bits=dtype.bits,
                kind="b" if dtype.kind == "bfloat" else "f" if dtype.is_float else "i" if dtype.is_signed else "u",
                tolerance=tolerances.get(tensor.name, (0.0, 0.0)),
                is_scratch=tensor not in program.tensors,
                is_value=own[0].is_value,
                writes=any(argument.writes for argument in own),
                positions=tuple(map(kernel.arguments.index, own)),
                argument=own[0].name,
                stream=own[0].stream,
            )
        )
    return tuple(found)


def _banks(kernel: Kernel, buffers: Sequence[Buffer], device: FpgaDevice) -> Iterator[tuple[str, str]]:
    """The memory of each argument that is a pointer to DRAM: that of its tensor's port."""
    number = 0
    for buffer in buffers:
        arguments = [kernel.arguments[position] for position in buffer.positions]
        if buffer.is_value or buffer.stream or any(argument.extents for argument in arguments):
            continue
        for argument in arguments:
            yield argument.name, device.external.bank_of(number)
        number += 1


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader(PACKAGE, "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    made.filters["tcl_word"] = tcl_word
    return made


def _header(name: str) -> str:
    return (resources.files(PACKAGE) / "include" / name).read_text()
