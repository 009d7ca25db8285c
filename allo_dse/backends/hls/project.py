"""An HLS project: the kernel, a test bench, a host program and build scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path

import jinja2

from allo_dse.device.device import FpgaDevice
from allo_dse.lang.storage import storage_dtype
from allo_dse.program.compiled import CompiledProgram
from allo_dse.program.directive import Directive

from .cpp.names import Names
from .dataflow.folding import Folding
from .dataflow.tensor_plan import tensors_of
from .emit import Kernel, emit_kernel
from .task.pragmas import LoopSource

PACKAGE = "allo_dse.backends.hls"
DEFAULT_PART, DEFAULT_CLOCK_NS = "xcu280-fsvh2892-2L-e", 3.33
HEADERS = (
    "allo_csim.h",
    "ap_axi_sdata.h",
    "ap_fixed.h",
    "ap_int.h",
    "hls_half.h",
    "hls_math.h",
    "hls_stream.h",
    "hls_vector.h",
)
"""What stands for the vendor's headers in C simulation."""


@dataclass(frozen=True)
class Buffer:
    """A tensor of the region as host programs hold it.

    Attributes:
        file: the name of its file, without the suffix.
        bytes: of an element in the file; `stride` of one in the card's memory.
        positions: of the kernel's arguments that mean it.
    """

    name: str
    file: str
    element: str
    count: int
    bytes: int
    stride: int
    bits: int
    is_value: bool
    writes: bool
    positions: tuple[int, ...]


@dataclass(frozen=True)
class HlsProject:
    """Files of a project by name, relative to its directory.

    Attributes:
        top: the name of the top function.
        functions: the C++ name of each task body, by its symbol.
        loops: per C++ function and label of a loop, what it is in the source.
        buffers: the region's tensors that the kernel uses, as files of the test bench.
    """

    program: CompiledProgram
    top: str
    files: Mapping[str, str]
    functions: Mapping[str, str]
    loops: Mapping[str, Mapping[str, LoopSource]]
    buffers: tuple[Buffer, ...]
    externals: tuple[str, ...]

    @property
    def hls_code(self) -> str:
        """The kernel's C++."""
        return self.files["kernel.cpp"]

    def write(self, directory: str | Path) -> list[Path]:
        """Write all files, making the directory; returns their paths."""
        written = []
        for name, text in self.files.items():
            path = Path(directory) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            written.append(path)
        return written


def emit_project(
    program: CompiledProgram,
    *,
    schedule: Sequence[Directive] = (),
    depths: Mapping[str, int] | None = None,
    device: FpgaDevice | None = None,
    folding: Folding | None = None,
) -> HlsProject:
    """The HLS project of a program.

    Args:
        schedule: directives beside those of the program itself.
        depths: of streams by name, where they differ from the declared ones.
        device: an FPGA; its part and clock go into the scripts (a U280 at 3.33 ns by default).
        folding: which tasks share a process; each has one of its own by default.

    Raises:
        AlloDseError: for a stream that the program does not have, or an operation without translation.
    """
    kernel = emit_kernel(program, schedule=schedule, depths=depths, folding=folding)
    buffers = _buffers(program, kernel)
    values = {
        "kernel": kernel,
        "buffers": buffers,
        "call": [a.passed(_buffer(buffers, i).name) for i, a in enumerate(kernel.arguments)],
        "flow": "vivado" if any(a.extents for a in kernel.arguments) else "vitis",
        "shared": [b.file for b in buffers if len(b.positions) > 2],
        "header": "kernel.h",
        "source": _source(program),
        "version": _version(),
        **_target(device),
    }
    names = ("kernel.cpp", "kernel.h", "testbench.cpp", "host.cpp", "run_hls.tcl", "Makefile", "README.md")
    files = {name: _environment().get_template(f"{name}.j2").render(values) for name in names}
    files["allo_hls.h"] = _header("allo_hls.h")
    files |= {f"csim/{name}": _header(name) for name in HEADERS}
    return HlsProject(program, kernel.name, files, kernel.symbols, kernel.loops, buffers, kernel.externals)


def _buffers(program: CompiledProgram, kernel: Kernel) -> tuple[Buffer, ...]:
    names, found = Names({a.name for a in kernel.arguments} | {kernel.name}), []
    for number, tensor in enumerate(tensors_of(program)):
        own = [(i, a) for i, a in enumerate(kernel.arguments) if a.tensor == number]
        if not own:
            continue
        size = storage_dtype(tensor.dtype).itemsize
        found.append(
            Buffer(
                name=names.new(f"{tensor.name}_buffer"),
                file=tensor.name,
                element=own[0][1].element,
                count=own[0][1].size,
                bytes=size,
                stride=1 << (size - 1).bit_length(),
                bits=tensor.dtype.bits,
                is_value=own[0][1].is_value,
                writes=any(a.writes for _, a in own),
                positions=tuple(i for i, _ in own),
            )
        )
    return tuple(found)


def _buffer(buffers: Sequence[Buffer], position: int) -> Buffer:
    return next(b for b in buffers if position in b.positions)


def _target(device: FpgaDevice | None) -> dict[str, str | float | None]:
    """Part and clock for the scripts."""
    if device is None:
        return {"part": DEFAULT_PART, "clock_ns": DEFAULT_CLOCK_NS, "uncertainty": None}
    return {
        "part": device.part or DEFAULT_PART,
        "clock_ns": device.clock.period_ns,
        "uncertainty": round(100 * device.clock.uncertainty),
    }


def _source(program: CompiledProgram) -> str:
    """The file that the program is from."""
    locations = [kernel.location for kernel in program.kernels if kernel.location is not None]
    return Path(locations[0].file).name if locations else ""


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("allo-dse")
    except metadata.PackageNotFoundError:
        return "(not installed)"


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader(PACKAGE, "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


@lru_cache
def _header(name: str) -> str:
    return (resources.files(PACKAGE) / "include" / name).read_text()
