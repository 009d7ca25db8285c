"""Cycles and resources of the circuit that CIRCT makes of a program: the open RTL flow.

The figures are those *of this circuit*, a dataflow circuit of handshakes whose loops begin a round every few cycles.
They are not a vendor's; what carries over are numbers, deadlocks and how designs compare.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from msgspec import field
from numpy.typing import ArrayLike, NDArray

from allo_dse.common.records import Array, Frozen, JsonObject, replace
from allo_dse.compiler.model.arguments import Arguments, numpy_dtype
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.device.device import FpgaDevice
from allo_dse.device.fpga_model import Resources
from allo_dse.eval.evaluator import Metrics, versioned
from allo_dse.eval.execute.run import folding_of
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.program import Program
from allo_dse.space.design import Design

from .circuit import Circuit, Task, Tile, build_circuit
from .tools import (
    SIMULATORS,
    LocalArray,
    RtlError,
    RtlKernel,
    Site,
    kept_or_made,
    kernels_verilog,
    renamed,
    require,
    run_tool,
    unavailable,
    yosys,
)

# SystemVerilog around the tasks' circuits: FIFOs, memories, a clock, and a monitor.
#
# Memories are behavioural and have any number of ports; a read or write takes a cycle. The bench stops when all tasks
# are done, or when nothing has moved for a while, and reports the waiting ports.


_HEAD = """\
`timescale 1ns/1ns
module bench;
  reg clock = 0, reset = 1;
  reg [63:0] cycles = 0, still = 0;
  always #1 clock = ~clock;
"""


def bench_text(circuit: Circuit, *, max_cycles: int, patience: int) -> str:
    """The test bench of a circuit; kernel `k` is module `kernel<k>`.

    Args:
        max_cycles: where to give up. patience: cycles without any access that mean a deadlock.
    """
    used = {task.streams[site.target] for _, task, _, site in circuit.sites if site.space == "stream"}
    lines = [_HEAD]
    for name, (width, words) in circuit.tensors.items():
        lines.append(f"  reg [{width - 1}:0] t_{name} [0:{words - 1}];")
    for number, fifo in enumerate(circuit.fifos):
        if number in used:
            lines.append(_fifo(number, fifo.width, fifo.depth))
    lines += [f"  reg d{number} = 0;" for number in range(len(circuit.tasks))]
    for number, task in enumerate(circuit.tasks):
        lines += _task(number, task, circuit.kernels[task.kernel])
    lines += _ends(circuit)
    lines.append(_control(circuit, used, max_cycles, patience))
    return "\n".join(lines) + "\nendmodule\n"


def _fifo(number: int, width: int, depth: int) -> str:
    name = f"f{number}"
    return (
        f"  wire [{width - 1}:0] {name}_put_data, {name}_get_data;\n"
        f"  wire {name}_put_valid, {name}_put_ready, {name}_get_valid, {name}_get_ready;\n"
        f"  wire [31:0] {name}_peak;\n"
        f"  df_fifo #({width}, {depth}) {name} (clock, reset, {name}_put_data, {name}_put_valid, {name}_put_ready,"
        f" {name}_get_data, {name}_get_valid, {name}_get_ready, {name}_peak);"
    )


def _task(number: int, task: Task, kernel: RtlKernel) -> list[str]:
    lines, ports = [f"  // {task.name}"], ["clock(clock)", "reset(reset)"]
    for argument, value in enumerate(task.pid):
        wire = f"p{number}_{argument}"
        lines.append(f"  wire {wire}_valid, {wire}_ready;")
        lines.append(f"  df_once {wire} (clock, reset, 1'b1, {wire}_ready, {wire}_valid);")
        ports += [f"in{argument}({kernel.index_bits}'d{value})", *_handshake(f"in{argument}", wire)]
    for local, array in enumerate(kernel.arrays):
        lines.append(_declaration(f"l{number}_{local}", array))
    for place, site in enumerate(kernel.sites):
        wire, port = f"s{number}_{place}", f"in{kernel.pids + place}"
        ports += _site_ports(port, wire, site)
        if site.space == "stream":
            lines += _stream_site(wire, site)
        else:
            lines += _memory_site(wire, site, task, number)
    start, done = f"in{kernel.pids + len(kernel.sites)}", f"d{number}"
    lines.append(f"  wire {done}_start_valid, {done}_start_ready, {done}_valid;")
    go = "1'b1" if task.after is None else f"d{task.after}"
    lines.append(f"  df_once {done}_start (clock, reset, {go}, {done}_start_ready, {done}_start_valid);")
    lines.append(f"  always @(posedge clock) if ({done}_valid && !reset) {done} <= 1;")
    ports += [*_handshake(start, f"{done}_start"), f"out0_valid({done}_valid)", "out0_ready(1'b1)"]
    lines.append(f"  kernel{task.kernel} k{number} ({', '.join('.' + port for port in ports)});")
    return lines


def _declaration(name: str, array: LocalArray) -> str:
    mask = (1 << array.width) - 1
    given = "".join(f" {name}[{at}] = {array.width}'d{value & mask};" for at, value in enumerate(array.initial))
    start = f" initial begin{given} end" if given else ""
    return f"  reg [{array.width - 1}:0] {name} [0:{array.words - 1}];{start}"


def _handshake(port: str, wire: str) -> list[str]:
    return [f"{port}_valid({wire}_valid)", f"{port}_ready({wire}_ready)"]


def _site_ports(port: str, wire: str, site: Site) -> list[str]:
    """Connect a kernel's port: an address goes out and data comes in, or both go out and a signal comes in."""
    reads = site.kind in ("load", "get")
    data, ask, answer, address = (
        ("ld0_data", "ld0_addr", "ld0_data", "ld0_addr") if reads else ("st0_data", "st0", "st0_done", "st0_address")
    )
    found = [f"{port}_{data}({wire}_data)", *_handshake(f"{port}_{answer}", f"{wire}_answer")]
    found += _handshake(f"{port}_{ask}", f"{wire}_ask")
    return found + [f"{port}_{address}({wire}_address)"] * (site.words > 1)


def _wires(wire: str, site: Site, data: str) -> str:
    address = f" wire [{max(0, (site.words - 1).bit_length() - 1)}:0] {wire}_address;" if site.words > 1 else ""
    return (
        f"  {data} [{site.width - 1}:0] {wire}_data;{address}"
        f" wire {wire}_ask_valid, {wire}_ask_ready, {wire}_answer_ready;"
        f" {'reg' if data == 'reg' or site.kind == 'store' else 'wire'} {wire}_answer_valid;"
        f" wire {wire}_fire = {wire}_ask_valid && {wire}_ask_ready;"
    )


def _stream_site(wire: str, site: Site) -> list[str]:
    """A place of a task at a FIFO, with wires of its own to the FIFO's end."""
    ask, answer = f"{wire}_ask_valid, {wire}_ask_ready", f"{wire}_answer_valid, {wire}_answer_ready"
    end = f"{wire}_{site.kind}"
    ports = f"{end}_data, {end}_valid, {end}_ready"
    parts = f"{ask}, {wire}_data, {answer}, {ports}" if site.kind == "get" else f"{wire}_data, {ask}, {answer}, {ports}"
    return [
        _wires(wire, site, "wire"),
        f"  wire [{site.width - 1}:0] {end}_data; wire {end}_valid, {end}_ready;",
        f"  df_{site.kind} #({site.width}) {wire} (clock, reset, {parts});",
    ]


def _ends(circuit: Circuit) -> list[str]:
    """Connect the ends of FIFOs to the places of one task, or of tasks that run in turn.

    They take turns, so at most one of them asks in any cycle.
    """
    places: dict[tuple[int, str], list[str]] = {}
    for number, task, place, site in circuit.sites:
        if site.space == "stream":
            places.setdefault((task.streams[site.target], site.kind), []).append(f"s{number}_{place}_{site.kind}")
    lines = []
    for (fifo, kind), ends in places.items():
        end = f"f{fifo}_{kind}"
        if kind == "get":
            lines += [f"  assign {one}_data = {end}_data, {one}_valid = {end}_valid;" for one in ends]
            lines.append(f"  assign {end}_ready = {' | '.join(f'{one}_ready' for one in ends)};")
        else:
            data = "".join(f"{one}_valid ? {one}_data : " for one in ends[:-1]) + f"{ends[-1]}_data"
            lines += [f"  assign {one}_ready = {end}_ready;" for one in ends]
            lines.append(f"  assign {end}_valid = {' | '.join(f'{one}_valid' for one in ends)}, {end}_data = {data};")
    return lines


def _position(tile: Tile, address: str) -> str:
    """Return the position in the tensor of an element of a tile."""
    terms, below = [str(tile.offset)], 1
    for extent, stride in reversed(list(zip(tile.shape, tile.strides, strict=True))):
        if extent > 1:
            terms.append(f"({address} / {below}) % {extent} * {stride}")
        below *= extent
    return " + ".join(terms)


def _memory_site(wire: str, site: Site, task: Task, number: int) -> list[str]:
    address = f"{wire}_address" if site.words > 1 else "0"
    if site.space == "local":
        element = f"l{number}_{site.target}[{address}]"
    else:
        tile = task.tiles[site.target]
        element = f"t_{tile.tensor}[{_position(tile, address)}]"
    access = f"{wire}_data <= {element};" if site.kind == "load" else f"{element} <= {wire}_data;"
    return [
        _wires(wire, site, "reg" if site.kind == "load" else "wire"),
        f"  assign {wire}_ask_ready = !{wire}_answer_valid;",
        f"  always @(posedge clock) if (reset) {wire}_answer_valid <= 0; else if ({wire}_fire) begin"
        f" {wire}_answer_valid <= 1; {access} end else if ({wire}_answer_ready) {wire}_answer_valid <= 0;",
    ]


def _control(circuit: Circuit, used: Iterable[int], max_cycles: int, patience: int) -> str:
    moved = " | ".join(f"s{number}_{place}_fire" for number, _, place, _ in circuit.sites) or "1'b0"
    done = " & ".join(f"d{number}" for number in range(len(circuit.tasks)))
    load = "".join(f'    $readmemh("{name}.in", t_{name});\n' for name in circuit.tensors)
    dump = "".join(f'        $writememh("{name}.out", t_{name});\n' for name in circuit.tensors)
    peaks = "".join(f'        $display("PEAK {number} %0d", f{number}_peak);\n' for number in sorted(used))
    waits = "".join(
        f"        if (s{number}_{place}_ask_valid && !s{number}_{place}_ask_ready)"
        f' $display("WAITS {number} {site.kind} {task.streams[site.target]}");\n'
        for number, task, place, site in circuit.sites
        if site.space == "stream"
    )
    return f"""\
  initial begin
{load}    repeat (4) @(posedge clock);
    reset <= 0;
  end
  always @(posedge clock) if (!reset) begin
    cycles <= cycles + 1;
    still <= ({moved}) ? 0 : still + 1;
    if ({done}) begin
        $display("DONE %0d", cycles);
{peaks}{dump}        $finish;
    end else if (still > {patience}) begin
        $display("STUCK %0d", cycles - still);
{peaks}{waits}        $finish;
    end else if (cycles > {max_cycles}) begin
        $display("LIMIT %0d", cycles);
        $finish;
    end
  end"""


# Resources of a circuit by Yosys: LUTs, flip-flops, multipliers and block RAM of Xilinx UltraScale+.


FAMILY = "xcup"
YOSYS_SECONDS = 1200
_LUT_RAM = {"RAM32X1S": 1, "RAM64X1S": 1, "RAM32X1D": 2, "RAM64X1D": 2, "RAM128X1D": 4, "RAM32M": 4, "RAM64M": 4}
_LUT_RAM |= {"RAM32M16": 8, "RAM64M8": 8, "RAM32X16DR8": 8, "RAM64X8SW": 8, "RAM512X1S": 8, "RAM256X1D": 8}


def circuit_resources(circuit: Circuit) -> dict[str, Resources]:
    """Synthesize each part of a circuit once, and return the resources of "kernels", "ports", "streams" and "arrays".

    Tasks of one kernel on one node use the same hardware in turn.

    LUTs used as memory or shift registers are counted in `lut`. Tensors lie outside the circuit. Local arrays are
    memory of two ports: up to 128 words in look-up tables, else blocks of 18 Kbit.

    Raises:
        RtlError: if Yosys is missing or fails.
    """
    require(synthesis=True)
    library = Path(__file__).with_name("stream.sv").read_text()
    total = dict.fromkeys(("kernels", "ports", "streams", "arrays"), Resources())
    needed: Counter[tuple[str, _Piece]] = Counter()
    counts = Counter(kernel for _, kernel in {(t.node, t.kernel) for t in circuit.tasks})
    kernels = [circuit.kernels[number] for number in counts]
    verilog = kernels_verilog([kernel.mlir for kernel in kernels])
    for kernel, text, count in zip(kernels, verilog, counts.values(), strict=True):
        needed["kernels", _Piece(text, kernel.symbol)] += count
        for site in kernel.sites:
            if site.space == "stream":
                needed["ports", _Piece(library, f"df_{site.kind}", (("WIDTH", site.width),))] += count
        for array in kernel.arrays:
            total["arrays"] += _array(array.width, array.words) * count
    for fifo in circuit.fifos:
        needed["streams", _Piece(library, "df_fifo", (("WIDTH", fifo.width), ("DEPTH", fifo.depth)))] += 1
    command, version = yosys()
    contents = {piece: piece.content(version) for _, piece in needed}
    cells = kept_or_made("rtl-cells", contents, partial(_run, command))  # one slow run makes all that are missing
    for (part, piece), count in needed.items():
        total[part] += _counted(json.loads(cells[piece])) * count
    return total


class _Piece(Frozen):
    """A module to synthesize, with the text it is in and its parameters."""

    verilog: str
    top: str
    parameters: tuple[tuple[str, int], ...] = ()

    def content(self, version: str) -> bytes:
        """Return the data that determine its cells."""
        return (version + self.script + self.verilog).encode()

    @property
    def script(self) -> str:
        parameters = "".join(f"chparam -set {name} {value} {self.top}; " for name, value in self.parameters)
        return f"{parameters}synth_xilinx -family {FAMILY} -top {self.top} -flatten -noiopad -noclkbuf"


def _array(width: int, words: int) -> Resources:
    """A local array: look-up tables of 64 bits up to 128 words, else block RAM as wide and deep as it can be set."""
    if words <= 128:
        return Resources(lut=width * -(-words // 64))
    return Resources(bram18=FpgaDevice.load("u280").arrays.bram18(words, width))


def _counted(cells: dict[str, int]) -> Resources:
    return Resources(
        lut=sum(n for name, n in cells.items() if name.startswith(("LUT", "SRL")))
        + sum(n * _LUT_RAM[name] for name, n in cells.items() if name in _LUT_RAM),
        ff=sum(n for name, n in cells.items() if name in ("FDRE", "FDSE", "FDCE", "FDPE")),
        dsp=sum(n for name, n in cells.items() if name.startswith("DSP48")),
        bram18=sum(n * (1 if name.startswith("RAMB18") else 2) for name, n in cells.items() if name.startswith("RAMB")),
    )


def _run(yosys: Sequence[str], pieces: list[_Piece]) -> list[str]:
    """Cells by type, as JSON. Yosys of PyPI, in WebAssembly, sees files below its working directory only."""
    script = []
    with tempfile.TemporaryDirectory(prefix="allo-dse-rtl-") as directory:
        path = Path(directory)
        for number, piece in enumerate(pieces):
            (path / f"{number}.sv").write_text(piece.verilog)
            stat = f"tee -o {number}.json stat -json -tech xilinx"
            script.append(f"design -reset; read_verilog -sv {number}.sv; {piece.script}; {stat}")
        run_tool([*yosys, "-q", "-p", "; ".join(script)], name="yosys", cwd=path, seconds=YOSYS_SECONDS)
        reports = [json.loads((path / f"{number}.json").read_text()) for number in range(len(pieces))]
    return [json.dumps(report["design"]["num_cells_by_type"]) for report in reports]


# Running a circuit in a Verilog simulator.


MAX_CYCLES = 10_000_000
PATIENCE = 2000


class Waiting(Frozen):
    """A task that waits at a stream that is empty ("get") or full ("put")."""

    task: str
    kind: str
    stream: str


class RtlResult(Frozen):
    """Result of running a program's circuit.

    Attributes:
        cycles: of the circuit, from the start to the end of its last task; to the last access before a deadlock.
        outputs: the program's tensors after the run, by name.
        deadlock: the tasks that wait at streams; empty if all ended.
        peak: largest number of words in each stream; a block is as many words as it has elements.
    """

    finished: bool
    cycles: int
    deadlock: tuple[Waiting, ...]
    peak: dict[str, int]
    outputs: dict[str, Array] = field(default_factory=dict)

    def explain(self) -> str:
        """Describe the tasks that wait, or the end of the run."""
        if self.finished:
            return f"the circuit ended after {self.cycles:,} cycles"
        words = {"put": ("put to", "full"), "get": ("get from", "empty")}
        waits = [f"  {w.task} waits to {words[w.kind][0]} {w.stream} ({words[w.kind][1]})" for w in self.deadlock]
        return "\n".join([f"deadlock after {self.cycles:,} cycles of the circuit:", *waits])


def run_circuit(
    circuit: Circuit,
    tensors: Mapping[str, NDArray[np.object_]],
    *,
    simulator: str | None = None,
    max_cycles: int = MAX_CYCLES,
    patience: int = PATIENCE,
    seconds: float = 600,
) -> RtlResult:
    """Run a circuit on tensors, flat arrays of Python integers that are written in place.

    Args:
        simulator: "iverilog" or "verilator"; by default the first of them that is installed.
        patience: cycles without any access that count as a deadlock.

    Raises:
        RtlError: if a tool is missing or fails, or the limit of cycles is reached.
    """
    require()
    name = simulator or next(s for s in SIMULATORS if shutil.which(s))
    with tempfile.TemporaryDirectory(prefix="allo-dse-rtl-") as directory:
        path = Path(directory)
        for tensor, values in tensors.items():
            mask = (1 << circuit.tensors[tensor][0]) - 1
            (path / f"{tensor}.in").write_text("".join(f"{int(value) & mask:x}\n" for value in values))
        design = [Path(__file__).with_name("stream.sv").read_text()]
        verilog = kernels_verilog([kernel.mlir for kernel in circuit.kernels])
        for number, (kernel, text) in enumerate(zip(circuit.kernels, verilog, strict=True)):
            design.append(renamed(text, kernel.symbol, f"kernel{number}"))
        design.append(bench_text(circuit, max_cycles=max_cycles, patience=patience))
        (path / "design.sv").write_text("\n".join(design))
        output = _simulate(path, name, seconds)
        run = _parse(circuit, output)
        if run.finished:
            for tensor, values in tensors.items():
                values[:] = _memory_words((path / f"{tensor}.out").read_text())
    return run


def _simulate(path: Path, simulator: str, seconds: float) -> str:
    if simulator == "iverilog":
        run_tool(["iverilog", "-g2012", "-o", "design.vvp", "design.sv"], cwd=path, seconds=seconds)
        return run_tool(["vvp", "-N", "design.vvp"], cwd=path, seconds=seconds)
    if simulator != "verilator":
        raise RtlError(f"unknown simulator {simulator!r}", hint="iverilog or verilator")
    options = ["--binary", "--timing", "-Wno-fatal", "-Wno-lint", "-Wno-style", "--top-module", "bench", "-O3"]
    run_tool(["verilator", *options, "design.sv"], cwd=path, seconds=seconds)
    return run_tool([str(path / "obj_dir" / "Vbench")], cwd=path, seconds=seconds)


def _parse(circuit: Circuit, output: str) -> RtlResult:
    finished, cycles, waiting, peak = False, -1, [], {}
    for line in output.splitlines():
        word, *rest = line.split() or [""]
        if word in ("DONE", "STUCK", "LIMIT"):
            finished, cycles = word == "DONE", int(rest[0])
            if word == "LIMIT":
                raise RtlError(f"the circuit did not end within {cycles:,} cycles", hint="raise max_cycles")
        elif word == "PEAK":
            peak[circuit.fifos[int(rest[0])].name] = int(rest[1])
        elif word == "WAITS":
            task, stream = circuit.tasks[int(rest[0])].name, circuit.fifos[int(rest[2])].name
            waiting.append(Waiting(task, rest[1], stream))
    if cycles < 0:
        raise RtlError(f"the simulator said nothing of the end: {output[-300:]}", hint="this is a fault of allo-dse")
    return RtlResult(finished, cycles, tuple(waiting), peak)


def _memory_words(text: str) -> list[int]:
    """Return the words of a memory dump; words without a value are undefined and read as 0."""
    words = (word for line in text.splitlines() if not line.startswith("//") for word in line.split())
    return [int(word, 16) if "x" not in word.lower() else 0 for word in words if not word.startswith("@")]


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
        overlap: let stream operations of one iteration overlap; see `backends.rtl.circuit.lower_kernel`.
        options: `simulator`, `max_cycles`, `patience`, `seconds` of `backends.rtl.evaluator.run_circuit`.

    Raises:
        RtlError: for what the flow cannot do (floating point, polling), or if a tool is missing or fails.
        SimulationError: for arguments that do not fit.
    """
    compiled, circuit = _circuit(program, depths, overlap)
    if not arrays:
        arrays = tuple(np.zeros(t.shape, numpy_dtype(t.dtype)) for t in compiled.tensors)
    arguments = Arguments(compiled, arrays)
    memory = {name: _integers(array) for name, array in arguments.by_name.items()}
    run: RtlResult = run_circuit(circuit, memory, **options)
    if run.finished:
        for name, array in arguments.by_name.items():
            _store(array, memory[name])
        arguments.write_back()
    outputs = {t.name: np.asarray(a) for t, a in zip(compiled.tensors, arrays, strict=True)}
    return replace(run, outputs=outputs)


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
    decided = dict(program.as_built.depths if isinstance(program, Design) else ()) | dict(depths or {})
    folding = folding_of(vmg, decided)
    return vmg.program, build_circuit(vmg.program, decided, overlap=overlap, folding=folding)


def _integers(array: Array) -> NDArray[np.object_]:
    """Elements as Python integers, unsigned, flat."""
    raw, size = array.tobytes(), array.dtype.itemsize
    return np.array([int.from_bytes(raw[i : i + size], "little") for i in range(0, len(raw), size)], object)


def _store(array: Array, values: NDArray[np.object_]) -> None:
    raw = b"".join(int(value).to_bytes(array.dtype.itemsize, "little") for value in values)
    array[...] = np.frombuffer(raw, array.dtype).reshape(array.shape)


class RtlEvaluator:
    """Measures designs by their open RTL circuit: cycles, and with `synthesize` its resources.

    Args:
        synthesize: whether to run Yosys as well, which takes seconds to a minute per kernel.
        overlap: see `rtl_simulate`.
        deadline_s: time limit of a design.
        depths: of streams, where the design does not say: "solve" for those that its backend builds, or "declared".
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
        """Return the missing tools and how to install them; None if the flow can run."""
        return unavailable() or (unavailable(synthesis=True) if self.synthesize else None)

    def evaluate(self, design: Design) -> Metrics:
        """`latency_cycles` of the circuit, and its resources.

        Raises:
            RtlError: for what the flow cannot do, and for deadlocks.
        """
        depths = dict((design.as_built if self.depths == "solve" else design).depths)
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
