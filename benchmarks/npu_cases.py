"""Published measurements of Ryzen AI NPUs as designs of the studies, for `npu_accuracy.py` and its test.

They lie in ../shared/facts beside the project and are no part of it; docs/npu_model.md says where they come from.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from allo_dse import AxisFold, Buffering, Design, Device, KernelFold, MeshFold, NpuSimulator, load_program
from allo_dse.device.device import NpuDevice
from allo_dse.lang import install
from allo_dse.lang.types import DType
from allo_dse.mapper.program import Program

install()

from allo.ir.types import bfloat16, float32, int8, int16, int32

from benchmarks import npu_programs
from studies import (
    elementwise_npu,
    gemm_npu,
    gemm_two_level_npu,
    gemv_npu,
    multihead_attention_npu,
    norm_npu,
    resnet_npu,
    rope_npu,
)

FACTS = Path(__file__).resolve().parents[2] / "shared" / "facts"
MEASURED = FACTS / "npu_measured"
TYPES = {"i8": int8, "i16": int16, "i32": int32, "bf16": bfloat16, "f32": float32}
CHAINED = AxisFold(1, "block", "chain")
CAST_ELEMENTS = 4096
UNDISTURBED_I16 = 73
"""The i16 runs are listed in the order of a sweep, sizes as text. Amid the sizes 256x512xN, from the 74th run on, most
times rise by 0.2 to 0.6 ms until the end, and nearly none does before."""


LAYOUTS = {
    "row,row": gemm_npu.gemm,
    "col,row": npu_programs.gemm_a_by_columns,
    "row,col": npu_programs.gemm_b_by_columns,
}
"""GEMM by the order in which A and B are stored."""

SOURCES = {
    "XDNA1 GEMM": "[ar]", "XDNA1 tile sweeps": "[ph]", "XDNA1 tile pairs": "[sb]", "XDNA2 tile pairs": "[sb]",
    "XDNA1": "[io]", "XDNA2": "[air]", "I ": "[io]", "J ": "[io]", "K ": "[io]", "M ": "[air]", "O ": "[air]",
    "Q ": "[rwkv]", "": "[iron]",
}  # fmt: skip
"""Sources of groups, as _npu.toml abbreviates them, by how a group's name begins."""

Change = Callable[[NpuDevice], NpuDevice]


@dataclass(frozen=True)
class Case:
    """One measurement.

    Attributes:
        group: what it is judged with.
        label: what was measured.
        designs: what runs; each after the first is begun within the same call.
        measured_us: how long it took.
        choice: measurements of one group among which a tile was chosen; empty where none was.
        work: operations, to compare tiles on slightly different sizes.
        relaunches: programs that are begun within the call beside the designs.
        disturbed: whether it is of the part of a sweep in which everything took longer.
        in_call: whether it is one launch of several in a call.
        configuration: what measurements that differ in tile, layout or columns only have in common.
    """

    group: str
    label: str
    designs: tuple[Design, ...]
    measured_us: float
    choice: str = ""
    work: float = 0.0
    relaunches: int = 0
    disturbed: bool = False
    in_call: bool = False
    configuration: str = ""

    @property
    def source(self) -> str:
        """The source as _npu.toml abbreviates it."""
        return next(source for start, source in SOURCES.items() if self.group.startswith(start))

    def predicted_us(self, change: Change | None = None) -> float:
        """The model's time, with the designs' devices changed."""
        total = 0.0
        for position, design in enumerate(self.designs):
            device = NpuDevice.of(design.device)
            if change is not None:
                device = change(device)
            total += NpuSimulator().evaluate(design.on(device)).latency_us
            cores = design.fold.node_count
            # A program that another one has replaced since the last call is begun anew.
            begins = self.relaunches + (len(self.designs) > 1 or self.in_call)
            # Each core gets its code and its descriptors.
            total += begins * device.board.relaunch_us * cores / device.max_nodes
            total -= device.launch_us if position or self.in_call else 0.0
        return total


def rows_of(path: Path) -> Iterator[dict[str, str]]:
    with path.open() as file:
        yield from csv.DictReader(file)


def sizes(text: str) -> tuple[int, ...]:
    """`64x32x128` as numbers."""
    return tuple(int(number) for number in text.split("x"))


@cache
def _program(function: Any, params: tuple[tuple[str, Any], ...]) -> Program:
    return load_program(function, **dict(params))


def design(
    function: Any, axes: Mapping[str, tuple[AxisFold, ...]], device: Device, buffering: Buffering, **params: Any
) -> Design:
    """A program with its kernels folded."""
    program = _program(function, tuple(params.items()))
    fold = MeshFold(tuple(KernelFold(name, own) for name, own in axes.items()))
    return Design(program, fold.normalised(program.vmg.graph), buffering, device)


Shape = tuple[int, int, int]


def gemm_design(
    shape: Shape,
    tile: Shape,
    types: tuple[DType, DType],
    cores: tuple[int, int],
    device: Device,
    output_depth: int = 2,
    layout: str = "row,row",
) -> Design:
    """The hand-written mapping: chain along k, outputs bundled cyclically onto the cores."""
    (m, k, n), (mt, kt, nt) = shape, tile
    axes = (CHAINED, AxisFold(cores[0], "cyclic"), AxisFold(cores[1], "cyclic"))
    return design(
        LAYOUTS[layout],
        {"gemm": axes},
        device,
        Buffering(output_depth=output_depth),
        **{"M": m, "K": k, "N": n, "Pm": m // mt, "Pk": k // kt, "Pn": n // nt, "TyI": types[0], "TyO": types[1]},
    )


# -- XDNA1 -------------------------------------------------------------------------------------------------------------


def npu1_gemms(device: Device | None = None, output_depth: int = 2) -> Iterator[Case]:
    """Whole calls of GEMMs with one tile each."""
    device = device or Device.load("npu1_4col")
    for element, tile, path in (
        ("i8", (64, 64, 128), MEASURED / "npu1_gemm_i8.csv"),
        ("bf16", (64, 64, 64), MEASURED / "npu1_gemm_bf16.csv"),
        ("i16", (64, 64, 64), FACTS / "npu_gemm_i16_measured.csv"),
    ):
        for number, row in enumerate(rows_of(path)):
            shape = (int(row["M"]), int(row["K"]), int(row["N"]))
            measured = float(row["latency_us"]) if "latency_us" in row else float(row["seconds"]) * 1e6
            cores = (int(row.get("rows", 4)), int(row.get("columns", 4)))
            group = f"XDNA1 GEMM {element}" + ("" if element != "i16" or min(shape) >= 512 else ", below 512")
            made = gemm_design(shape, tile, (TYPES[element],) * 2, cores, device, output_depth)
            disturbed = element == "i16" and number >= UNDISTURBED_I16
            yield Case(group, "x".join(map(str, shape)), (made,), measured, disturbed=disturbed)


def npu1_tiles() -> Iterator[Case]:
    """Sweeps over tiles on a Phoenix board."""
    device = Device.load("npu1_4col").with_options(board="ph", kernel_library="iron")
    for row in rows_of(MEASURED / "npu1_gemm_tiles.csv"):
        if row["gflops"]:
            shape, tile = sizes(row["MxKxN"]), sizes(row["tile_mxkxn"])
            assert len(shape) == len(tile) == 3
            operand, result = row["dtype"].split("->")
            types = (TYPES[operand], TYPES[result])
            made = gemm_design(shape, tile, types, (4, 4), device, int(row["output_buffers"]))
            work = 2e-3 * shape[0] * shape[1] * shape[2]
            sweep = f"{row['dtype']} {row['MxKxN']}"
            yield Case(
                "XDNA1 tile sweeps", f"{sweep}, {row['tile_mxkxn']}", (made,), work / float(row["gflops"]), sweep, work
            )


def tile_pairs() -> Iterator[Case]:
    """The two best tiles of a type, on sizes of about 4,000 that they divide."""
    cores = {"npu1": (4, 4), "npu2": (4, 8)}
    for row in rows_of(MEASURED / "gemm_tile_pairs.csv"):
        tile = sizes(row["tile_mxkxn"])
        assert len(tile) == 3
        rows, columns = cores[row["device"]]
        steps = (tile[0] * rows, tile[1], tile[2] * columns)
        shape = (steps[0] * (4224 // steps[0]), steps[1] * (4096 // steps[1]), steps[2] * (4224 // steps[2]))
        operand, result = row["dtype"].split("->")
        name = {"npu1": "npu1_4col", "npu2": "npu2"}[row["device"]]
        device = Device.load(name).with_options(board="sb", kernel_library="tuned")
        made = gemm_design(shape, tile, (TYPES[operand], TYPES[result]), (rows, columns), device, 1)
        work = 2e-6 * shape[0] * shape[1] * shape[2]
        pair = f"{row['device']} {row['dtype']}"
        group = f"{'XDNA1' if row['device'] == 'npu1' else 'XDNA2'} tile pairs"
        yield Case(group, f"{pair}, {row['tile_mxkxn']}", (made,), work / float(row["tops"]), pair, work)


def npu1_operators() -> Iterator[Case]:
    """Activations on 8 cores, and a ResNet bottleneck on 4."""
    device = Device.load("npu1_4col").with_options(board="ph_host")
    convolutions = Device.load(resnet_npu.DEVICE).with_options(board="ph_host", kernel_library="convolution")
    for row in rows_of(MEASURED / "npu1_operators.csv"):
        measured, label = float(row["latency_us"]), f"{row['op']} {row['shape']}"
        if row["op"] == "resnet_bottleneck":
            yield Case("XDNA1 bottleneck", label, (_bottleneck(sizes(row["shape"]), convolutions),), measured)
            continue
        length, cores = int(row["shape"]), int(row["cores"])
        made = _elementwise(row["op"], length, int(row["tile"]), cores, device)
        yield Case("XDNA1 elementwise", label, (made,), measured)


def _elementwise(op: str, length: int, tile: int, cores: int, device: Device) -> Design:
    axes = {"core": (AxisFold(cores, "cyclic"),)}
    return design(elementwise_npu.KERNELS[op], axes, device, Buffering(), N=length, P=length // tile)


def _bottleneck(shape: tuple[int, ...], device: Device) -> Design:
    height, width, channels = shape
    every = AxisFold(1)
    axes = {"conv1": (every, every), "conv2": (every, AxisFold(2)), "conv3": (every, every)}
    params = {"B": 1, "H": height, "W": width, "C": channels, "N": channels // 4, "P": 2}
    return design(resnet_npu.bottleneck, axes, device, Buffering(output_depth=1), **params)


# -- XDNA2 -------------------------------------------------------------------------------------------------------------


def npu2_operators() -> Iterator[Case]:
    """Operators of LLM inference."""
    for row in rows_of(MEASURED / "npu2_operators.csv"):
        yield npu2_case(row, float(row["latency_us"]))


def npu2_case(row: Mapping[str, str], measured_us: float) -> Case:
    """An operator as mlir-air maps it: `op`, `shape`, `columns` x `rows` cores, `tile` and `dtype` of its table."""
    columns, rows, op = int(row["columns"]), int(row["rows"]), row["op"]
    device = Device.load("npu2" if columns == 8 else f"npu2_{columns}col")
    label = f"{op} {row['shape']}, {columns}x{rows}, {row['tile']}"
    if op.startswith("gemm"):
        made = _npu2_gemm(row, columns, rows, device)
        return Case("XDNA2 GEMM", f"{label} {row['dtype']}", made, measured_us)
    if op == "attention":
        return Case("XDNA2 attention", label, (_attention(row["shape"]),), measured_us, relaunches=1)
    made = (_streaming(op, row, columns * rows, device),)
    return Case(f"XDNA2 {'elementwise' if op in elementwise_npu.PROGRAMS else op}", label, made, measured_us)


def _streaming(op: str, row: Mapping[str, str], cores: int, device: Device) -> Design:
    """An operator whose rows are shared out over the cores."""
    spread = {"core": (AxisFold(cores, "cyclic"),)}
    if op in elementwise_npu.PROGRAMS:
        return _elementwise(op, int(row["shape"]), int(row["tile"]), cores, device)
    m, n = sizes(row["shape"])
    if op == "gemv":
        rows_of_tile = int(row["tile"].split("/")[1])
        return design(gemv_npu.gemv_kernel, spread, device, Buffering(), M=m, K=n, P=m // rows_of_tile)
    if op == "rope":
        return design(rope_npu.rope, spread, device, Buffering(), M=m, D=n, P=m)
    return design(norm_npu.KERNELS[op], spread, device, Buffering(), M=m, N=n, P=m)


def _npu2_gemm(row: Mapping[str, str], columns: int, rows: int, device: Device) -> tuple[Design, ...]:
    """Rows of blocks of C over the columns, columns of blocks over the rows; "fused-cast" is a program after that."""
    (m, k, n), (mt, kt, nt) = sizes(row["shape"]), sizes(row["tile"].split()[0])
    outer = int(row["tile"].split("k ")[1].rstrip(")"))
    variant = row["op"].removeprefix("gemm_")
    by_hand = variant in ("external", "fused-cast")
    result = float32 if variant == "fused-cast" else TYPES[row["dtype"].split("->")[1]]
    params = {"M": m, "K": k, "N": n, "Pm": m // mt, "Pk": k // outer, "Pn": n // nt, "inner": kt}
    axes = {"gemm": (CHAINED, AxisFold(columns, "cyclic"), AxisFold(rows, "cyclic"))}
    library = device.with_options(kernel_library="air_external" if by_hand else "air")
    product = design(
        gemm_two_level_npu.gemm, axes, library, Buffering(output_depth=1), **params, TyI=bfloat16, TyO=result
    )
    if variant != "fused-cast":
        return (product,)
    spread = {"core": (AxisFold(8, "cyclic"),)}
    cast = design(elementwise_npu.cast_kernel, spread, device, Buffering(), N=m * n, P=m * n // CAST_ELEMENTS)
    return product, cast


def _attention(shape: str) -> Design:
    """Two heads and four blocks of queries over the columns, a cascade of four over the rows."""
    lengths, width, _, heads, mask = shape.split()
    length = sizes(lengths)[0]
    queries, pairs = (int(number) for number in heads.split("/"))
    axes = {"attend": (AxisFold(2), AxisFold(4, "cyclic"), AxisFold(4, "block", "chain"))}
    params = {"L": length, "D": int(width[1:]), "KV": pairs, "G": queries // pairs, "T": 64}
    depth = 2 if width == "d64" else 1  # with 128, two of everything do not fit the core
    buffering = Buffering(input_depth=depth, output_depth=1)
    device = Device.load(multihead_attention_npu.DEVICE)
    return design(
        multihead_attention_npu.attention_kernel, axes, device, buffering, **params, causal=int(mask == "causal")
    )


# -- Both, of other sources --------------------------------------------------------------------------------------------

IRON_CI = {"XDNA1": ("npu1", 4, "host"), "XDNA2": ("npu2", 8, "host")}
"""Device, columns and board of the whole calls that IRON's CI times, on Phoenix and Krackan."""


def more_measurements() -> Iterator[Case]:
    """Whole calls, kernels and launches inside a call, of IRON's CI, of Phoenix logs and of mlir-air's models."""
    for row in rows_of(MEASURED / "more_a.csv"):
        made = _more(row)
        if made is not None:
            group = row["config_group"].split("|")[0]
            launch = row["kind"] == "launch within a call"
            yield Case(group, f"{row['shape']}, {row['columns']}x{row['rows']}, {row['tile']} {row['layout']}", made,
                       float(row["measured_us"]), in_call=launch, configuration=row["config_group"])  # fmt: skip


def _more(row: Mapping[str, str]) -> tuple[Design, ...] | None:
    """A measurement's designs; None for what no study's program describes."""
    source, op = row["source"], row["op"]
    name, most, board = IRON_CI[row["device"]]
    columns, rows = int(row["columns"]), int(row["rows"])
    if row["device"] == "XDNA2" and not source.startswith("amd/IRON"):
        board = "default"
    if "jdominick05" in source:
        board = "ph"
    device = Device.load(f"{name}_{columns}col" if columns < most or name == "npu1" else name).with_options(board=board)
    if op == "gemm" and "?" not in row["tile"] and columns * rows > 1:  # another program of theirs on a single core
        shape, tile = sizes(row["shape"]), sizes(row["tile"])
        assert len(shape) == len(tile) == 3
        operand, result = row["dtype"].split("->")
        types = (TYPES[operand], TYPES[result])
        kernels = device.with_options(kernel_library="iron")
        depth = int(row["output_buffers"])
        return (gemm_design(shape, tile, types, (rows, columns), kernels, depth, row["layout"]),)
    if op.startswith("gemm_drain"):
        return _npu2_gemm({**row, "tile": row["tile"]}, columns, rows, device)
    if op == "gemv":
        m, k = sizes(row["shape"])
        step = 1 if row["tile"] == "?" else int(row["tile"].split("/")[1])
        spread = {"core": (AxisFold(columns * rows, "cyclic"),)}
        kernels = device.with_options(kernel_library="iron") if source.startswith("amd/IRON") else device
        return (design(gemv_npu.gemv_kernel, spread, kernels, Buffering(), M=m, K=k, P=m // max(step, m // 512)),)
    if op in ("gelu", "add", "axpy") and row["tile"]:
        length, tile_length = int(row["shape"]), int(row["tile"])
        kernels = device.with_options(kernel_library="iron")
        return (_elementwise("add" if op == "axpy" else op, length, tile_length, columns * rows, kernels),)
    if op == "layer_norm" and "x" in row["shape"]:
        return (_streaming("layer_norm", row, columns * rows, device),)
    return None


def all_cases() -> list[Case]:
    """Every measurement at hand."""
    sources = (npu1_gemms, npu1_tiles, tile_pairs, npu1_operators, npu2_operators, more_measurements)
    return [case for source in sources for case in source()]
