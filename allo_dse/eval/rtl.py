"""Cycles and resources of the circuit that CIRCT makes of a program: the open RTL flow.

The figures are those *of this circuit*, a dataflow circuit of handshakes whose loops begin a round every few cycles.
They are not a vendor's; what carries over are numbers, deadlocks and how designs compare.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike, NDArray

from allo_dse.backends.rtl.circuit import Circuit, build_circuit
from allo_dse.backends.rtl.kernel_ports import RtlError
from allo_dse.backends.rtl.resources import circuit_resources
from allo_dse.backends.rtl.simulate import CircuitRun, Waiting, run_circuit
from allo_dse.backends.rtl.tools import unavailable
from allo_dse.common.aliases import Array, JsonObject
from allo_dse.device.device import FpgaDevice
from allo_dse.device.fpga_model import Resources
from allo_dse.frontend.model.arguments import Arguments, numpy_dtype
from allo_dse.lang.storage import is_wide
from allo_dse.lang.types import DType
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.program import Program
from allo_dse.program.compiled import CompiledProgram
from allo_dse.space.design import Design

from .evaluator import Metrics, versioned
from .fpga.depths import built_depths, decided_depths
from .hls.design_project import folding_of


class RtlResult(Struct, frozen=True):
    """What the circuit of a program did.

    Attributes:
        cycles: of the circuit, from the start to the end of its last task; to the last access before a deadlock.
        outputs: the program's tensors after the run, by name.
        deadlock: the tasks that wait at streams; empty if all ended.
        peak: words in each stream at most; a block is as many words as it has elements.
    """

    finished: bool
    cycles: int
    outputs: dict[str, Array]
    deadlock: tuple[Waiting, ...]
    peak: dict[str, int]

    def explain(self) -> str:
        """What the tasks wait for, or that they ended."""
        if self.finished:
            return f"the circuit ended after {self.cycles:,} cycles"
        words = {"put": ("put to", "full"), "get": ("get from", "empty")}
        waits = [f"  {w.task} waits to {words[w.kind][0]} {w.stream} ({words[w.kind][1]})" for w in self.deadlock]
        return "\n".join([f"deadlock after {self.cycles:,} cycles of the circuit:", *waits])


def rtl_simulate(
    program: Program | VMG | Design,
    *arrays: ArrayLike,
    depths: Mapping[str, int] | None = None,
    overlap: bool = False,
    **options: Any,
) -> RtlResult:
    """Run a program as a circuit: CIRCT makes SystemVerilog of its tasks, a Verilog simulator runs it.

    Args:
        arrays: the region's arguments in order, written in place; without any, zeros are used.
        depths: stream depths by array name, where they differ from the design's or the declared ones.
        overlap: let stream operations of one iteration overlap; see `backends.rtl.flat_kernel.lower_kernel`.
        options: `simulator`, `max_cycles`, `patience`, `seconds` of `backends.rtl.simulate.run_circuit`.

    Raises:
        RtlError: for what the flow cannot do (floating point, polling), or if a tool is missing or fails.
        SimulationError: for arguments that do not fit.
    """
    compiled, circuit = _circuit(program, depths, overlap)
    if not arrays:
        arrays = tuple(np.zeros(t.shape, numpy_dtype(t.dtype)) for t in compiled.tensors)
    arguments = Arguments(compiled, arrays)
    types = {tensor.name: tensor.dtype for tensor in compiled.tensors}
    memory = {name: _integers(array, types[name]) for name, array in arguments.by_name.items()}
    run: CircuitRun = run_circuit(circuit, memory, **options)
    if run.finished:
        for name, array in arguments.by_name.items():
            _store(array, memory[name], types[name])
        arguments.write_back()
    outputs = {t.name: np.asarray(a) for t, a in zip(compiled.tensors, arrays, strict=True)}
    return RtlResult(run.finished, run.cycles, outputs, run.waiting, run.peak)


def rtl_resources(
    program: Program | VMG | Design, *, depths: Mapping[str, int] | None = None, overlap: bool = False
) -> dict[str, Resources]:
    """Look-up tables, flip-flops, multipliers and block RAM of a program's circuit, by Yosys.

    Returns:
        Per part ("kernels", "ports", "streams", "arrays") and their sum as "total".

    Raises:
        RtlError: as `rtl_simulate`.
    """
    parts = circuit_resources(_circuit(program, depths, overlap)[1])
    return {**parts, "total": Resources.total(parts.values())}


def _circuit(
    program: Program | VMG | Design, depths: Mapping[str, int] | None, overlap: bool
) -> tuple[CompiledProgram, Circuit]:
    vmg = program if isinstance(program, VMG) else program.vmg
    decided = built_depths(program, depths)
    folding = folding_of(vmg, decided)
    return vmg.program, build_circuit(vmg.program, decided, overlap=overlap, folding=folding)


def _integers(array: Array, dtype: DType) -> NDArray[np.object_]:
    """Elements as Python integers, unsigned, flat."""
    if is_wide(dtype):
        size = array.dtype.itemsize
        raw = array.tobytes()
        return np.array([int.from_bytes(raw[i : i + size], "little") for i in range(0, len(raw), size)], object)
    return array.ravel().view(f"u{array.dtype.itemsize}").astype(object)


def _store(array: Array, values: NDArray[np.object_], dtype: DType) -> None:
    size = array.dtype.itemsize
    if is_wide(dtype):
        raw = b"".join(int(value).to_bytes(size, "little") for value in values)
        array[...] = np.frombuffer(raw, array.dtype).reshape(array.shape)
    else:
        array[...] = values.astype(f"u{size}").view(array.dtype).reshape(array.shape)


class RtlEvaluator:
    """Measures designs by their open RTL circuit: cycles, and with `synthesize` its resources.

    Args:
        synthesize: whether to run Yosys as well, which takes seconds to a minute per kernel.
        overlap: see `rtl_simulate`.
        deadline_s: time limit of a design.
        depths: of streams, where the design does not say; see `decided_depths`.
    """

    name = "rtl-circuit"
    version = "1"
    resource = "rtl"
    isolate = True

    def __init__(
        self,
        *,
        synthesize: bool = False,
        overlap: bool = False,
        deadline_s: float = 900,
        depths: Literal["solve", "declared"] = "solve",
    ) -> None:
        self.synthesize, self.overlap, self.deadline_s, self.depths = synthesize, overlap, deadline_s, depths
        self.version = versioned(self.version, synthesize=synthesize, overlap=overlap, declared=depths == "declared")

    def unavailable(self) -> str | None:
        """What is missing here and how to install it; None if the flow can run."""
        return unavailable() or (unavailable(synthesis=True) if self.synthesize else None)

    def evaluate(self, design: Design) -> Metrics:
        """`latency_cycles` of the circuit, and its resources.

        Raises:
            RtlError: for what the flow cannot do, and for deadlocks.
        """
        depths = decided_depths(design, self.depths if isinstance(design.device, FpgaDevice) else "declared")
        result = rtl_simulate(design, depths=depths, overlap=self.overlap, seconds=self.deadline_s)
        if not result.finished:
            raise RtlError(result.explain(), hint="raise the depths of the streams that are full")
        values: JsonObject = {
            "latency_cycles": result.cycles,
            "pe_count": design.vmg.node_count,
            "stream_depths": depths,
            "evaluator": f"{self.name} {self.version}",
        }
        if self.synthesize:
            total = rtl_resources(design, depths=depths, overlap=self.overlap)["total"]
            values |= {"lut": total.lut, "ff": total.ff, "dsp": total.dsp, "bram18": total.bram18}
        return Metrics(**values)
