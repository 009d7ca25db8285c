"""Resources of a circuit, by Yosys: look-up tables, flip-flops, multipliers and block RAM of Xilinx UltraScale+."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from allo_dse.device.fpga_model import Resources
from allo_dse.ir import kept

from .circuit import Circuit
from .kernel_ports import RtlError
from .tools import kernels_verilog, run_tool, unavailable, yosys

FAMILY = "xcup"
_KIND = "rtl-cells"
_LUT_RAM = {"RAM32X1S": 1, "RAM64X1S": 1, "RAM32X1D": 2, "RAM64X1D": 2, "RAM128X1D": 4, "RAM32M": 4, "RAM64M": 4}
_LUT_RAM |= {"RAM32M16": 8, "RAM64M8": 8, "RAM32X16DR8": 8, "RAM64X8SW": 8, "RAM512X1S": 8, "RAM256X1D": 8}


def circuit_resources(circuit: Circuit, *, seconds: float = 1200) -> dict[str, Resources]:
    """Synthesize each part of a circuit once, and return the resources of "kernels", "ports", "streams" and "arrays".

    Tasks of one kernel on one node use the same hardware in turn.

    LUTs used as memory or shift registers are counted in `lut`. Tensors lie outside the circuit. Local arrays are
    memory of two ports: up to 128 words in look-up tables, else blocks of 18 Kbit.

    Raises:
        RtlError: if Yosys is missing or fails.
    """
    reason = unavailable(synthesis=True)
    if reason:
        raise RtlError(reason.split(": ")[0], hint=reason.split(": ", 1)[1])
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
    cells = _synthesize(list(dict.fromkeys(piece for _, piece in needed)), seconds)
    for (part, piece), count in needed.items():
        total[part] += _counted(cells[piece]) * count
    return total


class _Piece(Struct, frozen=True):
    """A module to synthesize, with the text it is in and its parameters."""

    verilog: str
    top: str
    parameters: tuple[tuple[str, int], ...] = ()

    def content(self, version: str) -> bytes:
        """Return the data that determine its cells."""
        return (version + self.script + self.verilog).encode()

    @property
    def script(self) -> str:
        return "; ".join(
            [
                *(f"chparam -set {name} {value} {self.top}" for name, value in self.parameters),
                f"synth_xilinx -family {FAMILY} -top {self.top} -flatten -noiopad -noclkbuf",
            ]
        )


def _array(width: int, words: int) -> Resources:
    """A local array: look-up tables of 64 bits up to 128 words, else block RAM as wide and deep as it can be set."""
    if words <= 128:
        return Resources(lut=width * -(-words // 64))
    shapes = ((512, 36), (1024, 18), (2048, 9), (4096, 4), (8192, 2), (16384, 1))
    return Resources(bram18=min(-(-words // deep) * -(-width // wide) for deep, wide in shapes))


def _counted(cells: dict[str, int]) -> Resources:
    return Resources(
        lut=sum(n for name, n in cells.items() if name.startswith(("LUT", "SRL")))
        + sum(n * _LUT_RAM[name] for name, n in cells.items() if name in _LUT_RAM),
        ff=sum(n for name, n in cells.items() if name in ("FDRE", "FDSE", "FDCE", "FDPE")),
        dsp=sum(n for name, n in cells.items() if name.startswith("DSP48")),
        bram18=sum(n * (1 if name.startswith("RAMB18") else 2) for name, n in cells.items() if name.startswith("RAMB")),
    )


def _synthesize(pieces: list[_Piece], seconds: float) -> dict[_Piece, dict[str, int]]:
    """Cells by type of each piece; one run of Yosys, which starts slowly, for all that are not known yet."""
    command, version = yosys()
    found = {piece: kept.known(_KIND, piece.content(version)) for piece in pieces}
    missing = [piece for piece, text in found.items() if text is None]
    for piece, text in zip(missing, _run(command, missing, seconds) if missing else (), strict=True):
        found[piece] = text.encode()
        kept.keep(_KIND, piece.content(version), text.encode())
    return {piece: json.loads(text) for piece, text in found.items() if text is not None}


def _run(yosys: Sequence[str], pieces: list[_Piece], seconds: float) -> list[str]:
    """Cells by type, as JSON. Yosys of PyPI, in WebAssembly, sees files below its working directory only."""
    script = []
    with tempfile.TemporaryDirectory(prefix="allo-dse-rtl-") as directory:
        path = Path(directory)
        for number, piece in enumerate(pieces):
            (path / f"{number}.sv").write_text(piece.verilog)
            stat = f"tee -o {number}.json stat -json -tech xilinx"
            script.append(f"design -reset; read_verilog -sv {number}.sv; {piece.script}; {stat}")
        run_tool([*yosys, "-q", "-p", "; ".join(script)], name="yosys", cwd=path, seconds=seconds)
        reports = [json.loads((path / f"{number}.json").read_text()) for number in range(len(pieces))]
    return [json.dumps(report["design"]["num_cells_by_type"]) for report in reports]
