"""Running a circuit in a Verilog simulator."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from .circuit import Circuit
from .kernel_ports import RtlError
from .testbench import bench_text
from .tools import SIMULATORS, kernels_verilog, renamed, run_tool, unavailable

MAX_CYCLES = 10_000_000
PATIENCE = 2000


class Waiting(Struct, frozen=True):
    """A task that waits at a stream that is empty ("get") or full ("put")."""

    task: str
    kind: str
    stream: str


class CircuitRun(Struct, frozen=True):
    """Result of a circuit simulation.

    Attributes:
        cycles: from the start to the end of the last task, or to the last access before a deadlock.
        waiting: the tasks at streams, where the circuit got stuck.
        peak: words in each FIFO at most.
    """

    finished: bool
    cycles: int
    waiting: tuple[Waiting, ...]
    peak: dict[str, int]


def run_circuit(
    circuit: Circuit,
    tensors: Mapping[str, NDArray[np.object_]],
    *,
    simulator: str | None = None,
    max_cycles: int = MAX_CYCLES,
    patience: int = PATIENCE,
    seconds: float = 600,
) -> CircuitRun:
    """Run a circuit on tensors, flat arrays of Python integers that are written in place.

    Args:
        simulator: "iverilog" or "verilator"; by default the first of them that is installed.
        patience: cycles without any access that are taken for a deadlock.

    Raises:
        RtlError: if a tool is missing or fails, or the limit of cycles is reached.
    """
    reason = unavailable()
    if reason:
        raise RtlError(reason.split(": ")[0], hint=reason.split(": ", 1)[1])
    name = simulator or next(s for s in SIMULATORS if shutil.which(s))
    with tempfile.TemporaryDirectory(prefix="allo-dse-rtl-") as directory:
        path = Path(directory)
        for tensor, values in tensors.items():
            (path / f"{tensor}.in").write_text(_hex(values, circuit.tensors[tensor][0]))
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
                values[:] = _integers((path / f"{tensor}.out").read_text())
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


def _parse(circuit: Circuit, output: str) -> CircuitRun:
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
    return CircuitRun(finished, cycles, tuple(waiting), peak)


def _hex(values: NDArray[np.object_], width: int) -> str:
    mask = (1 << width) - 1
    return "\n".join(f"{int(value) & mask:x}" for value in values) + "\n"


def _integers(text: str) -> list[int]:
    """Words of a memory dump; what was never written nor given is undefined and read as 0."""
    words = (word for line in text.splitlines() if not line.startswith("//") for word in line.split())
    return [int(word, 16) if "x" not in word.lower() else 0 for word in words if not word.startswith("@")]
