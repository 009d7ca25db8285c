"""Device checks: every limit passes when it is just met and is reported, alone, when it is just exceeded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.common.records import replace
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.compiler.program.tensors import SharedTensor, StreamArray, Tensor, TensorPort
from allo_dse.device.device import NpuDevice
from allo_dse.mapper.fold.fold_space import AxisFold, KernelFold, MeshFold
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.violation import CONSTRAINTS, Buffering, Violation

from ...support.programs import (
    BFLOAT16,
    FLOAT32,
    INT8,
    INT16,
    INT32,
    affine,
    gemm_program,
    get,
    graph_program,
    mesh_program,
    one_class_kernel,
    put,
    sharded,
    unit,
)

NPU = NpuDevice.load("npu1_4col")


def gemm(program: CompiledProgram, k: int = 1, m: int = 4, n: int = 4) -> VMG:
    axes = (AxisFold(k, "block", "chain"), AxisFold(m, "cyclic"), AxisFold(n, "cyclic"))
    return VMG.of(program).fold(MeshFold((KernelFold("gemm", axes),)))


def changed(device: NpuDevice, changes: Mapping[str, Any]) -> NpuDevice:
    """A device with other limits, given as {"core.memory_bytes": 1000}."""
    content = {field: getattr(device, field) for field in NpuDevice.model_fields}
    for path, value in changes.items():
        *tables, key = path.split(".")
        content[tables[0]] = _with(content[tables[0]], [*tables[1:], key], value)
    return NpuDevice.model_validate(content)


def _with(model: Any, path: Sequence[str], value: Any) -> Any:
    inner = value if len(path) == 1 else _with(getattr(model, path[0]), path[1:], value)
    return model.model_copy(update={path[0]: inner})


def kernels_program(*kernels: tuple[Sequence[str], Sequence[str]], shape: tuple[int, ...] = (4, 8)) -> VMG:
    """One single-task kernel per (tensors read, tensors written); every tensor is used whole."""
    names = dict.fromkeys(name for reads, writes in kernels for name in (*reads, *writes))
    tensors = {name: Tensor(name, INT16, shape) for name in names}
    layout = (None,) * len(shape)
    result = []
    for number, (reads, writes) in enumerate(kernels):
        ports = [sharded(i, tensors[name], (1,), layout, reads=True) for i, name in enumerate(reads)]
        ports += [sharded(len(reads) + i, tensors[name], (1,), layout, writes=True) for i, name in enumerate(writes)]
        result.append(one_class_kernel(f"k{number}", (1,), [p.tensor for p in ports], ports))
    return VMG.of(CompiledProgram("kernels", tuple(tensors.values()), (), tuple(result)))


HAND_WRITTEN = gemm(gemm_program())
ALIKE = "core gemm_0_0_0-…x64 and 15 like it"
MEMORY_TILES = "4 memory tiles"
JOINS = "4 input flows of A, 4 input flows of B, 16 output flows of C"


def test_the_hand_written_mapping_fits() -> None:
    assert NpuMapping(HAND_WRITTEN, NPU).violations == ()


@pytest.mark.parametrize(
    ("constraint", "limit", "value", "smaller", "message"),
    [
        (
            "core_memory",
            "core.memory_bytes",
            52480,
            52479,
            f"data memory on {ALIKE}: needs 52,480 bytes, has 52,479 bytes "
            "(inputs 32,768, outputs 16,384, reserved 3,328)",
        ),
        ("core_dma_in", "core.dma_in", 2, 1, f"DMA in-channels on {ALIKE}: needs 2, has 1 (A, B)"),
        (
            "core_descriptors",
            "core.buffer_descriptors",
            6,
            5,
            f"buffer descriptors on {ALIKE}: needs 6, has 5 (2 inputs with depth 2, 1 outputs with depth 2)",
        ),
        ("core_locks", "core.locks", 6, 5, f"locks on {ALIKE}: needs 6, has 5 (A, B, C)"),
        (
            "memory_tile_dma_in",
            "memory_tile.dma_in",
            5,
            4,
            f"DMA in-channels on {MEMORY_TILES}: needs 18, has 16 ({JOINS})",
        ),
        (
            "memory_tile_dma_out",
            "memory_tile.dma_out",
            3,
            2,
            f"DMA out-channels on {MEMORY_TILES}: needs 12, has 8 ({JOINS})",
        ),
        (
            "memory_tile_memory",
            "memory_tile.memory_bytes",
            98304,
            98303,
            "memory on memory tile 0: needs 98,304 bytes, has 98,303 bytes (A 16,384, B 16,384, C 65,536)",
        ),
        (
            "memory_tile_descriptors",
            "memory_tile.buffer_descriptors",
            28,
            26,
            "buffer descriptors on memory tile 0: needs 14, has 13 "
            "(in one of 2 banks, which channels use by turns; in all: A 4, B 4, C 16)",
        ),
        ("memory_tile_locks", "memory_tile.locks", 18, 17, "locks on memory tile 0: needs 18, has 17"),
        ("shim_descriptors", "shim.buffer_descriptors", 3, 2, "buffer descriptors on shim tile 0: needs 3, has 2"),
        (
            "descriptor_length",
            "core.descriptor.length_bits",
            12,
            11,
            f"words in one descriptor on {ALIKE}: needs 2,048, has 2,047 (A)",
        ),
        (
            "descriptor_stride",
            "shim.descriptor.step_bits",
            10,
            9,
            "words from row to row of a tile on tensor A: needs 1,024, has 512 (tiles 64x64)",
        ),
    ],
)
def test_limits_of_the_hand_written_mapping(
    constraint: str, limit: str, value: int, smaller: int, message: str
) -> None:
    """With five channels into each memory tile, inputs share four transfers: 4 + 16 are just enough."""
    assert NpuMapping(HAND_WRITTEN, changed(NPU, {limit: value})).violations == ()
    violations = NpuMapping(HAND_WRITTEN, changed(NPU, {limit: smaller})).violations
    assert str(violations[0]) == message
    assert {v.constraint for v in violations} == {constraint}


def test_compute_tiles() -> None:
    assert NpuMapping(VMG.of(mesh_program((16,))), NPU).violations == ()
    (violation,) = NpuMapping(VMG.of(mesh_program((17,))), NPU).violations
    assert str(violation) == "compute tiles on npu1_4col: needs 17, has 16 (4 columns of 4 cores)"


def test_far_too_many_nodes_are_only_counted() -> None:
    unfolded = VMG.of(gemm_program())
    assert [v.constraint for v in NpuMapping(unfolded, NPU).violations] == ["compute_tiles"]


def test_host_buffers() -> None:
    assert NpuMapping(kernels_program((["A", "B"], []), (["C"], ["D"])), NPU).violations == ()
    (violation,) = NpuMapping(kernels_program((["A", "B"], []), (["C", "D"], ["E"])), NPU).violations
    assert violation.constraint == "host_buffers"
    assert str(violation) == "host buffers on the host: needs 5, has 4 (A, B, C, D, E)"


def test_core_channels_for_tensors() -> None:
    assert NpuMapping(kernels_program((["A", "B"], ["C", "D"])), NPU).violations == ()
    (violation,) = NpuMapping(kernels_program((["A", "B", "C"], ["D"])), NPU).violations
    assert str(violation) == "DMA in-channels on core k0_0: needs 3, has 2 (A, B, C)"
    (violation,) = NpuMapping(kernels_program((["D"], ["A", "B", "C"])), NPU).violations
    assert violation.constraint == "core_dma_out"
    assert str(violation) == "DMA out-channels on core k0_0: needs 3, has 2 (A, B, C)"


def test_chained_tasks_share_the_channel_of_a_tensor() -> None:
    """Three kernels that read A and one tensor each: merged where tensor, layout and direction agree."""
    vmg = kernels_program((["A", "B"], []), (["A"], ["C"]))
    assert NpuMapping(vmg.chain("k0_0", "k1_0"), NPU).violations == ()
    vmg = kernels_program((["A", "B"], []), (["A", "D"], ["C"]))
    (violation,) = NpuMapping(vmg.chain("k0_0", "k1_0"), NPU).violations
    assert str(violation) == "DMA in-channels on core k0_0-…: needs 3, has 2 (A, B, D)"


def test_streams_beyond_the_neighbours_need_channels() -> None:
    def star(leaves: int) -> VMG:
        return VMG.of(graph_program([(f"p{i}", "sink") for i in range(leaves)]))

    assert NpuMapping(star(6), NPU).violations == ()
    (violation,) = NpuMapping(star(7), NPU).violations
    assert violation == Violation("core_dma_in", "core sink_0", 3, 2, "3 of s0, s1, s2, s3, s4, s5, s6")


def test_streams_to_peers_use_channels_of_both_directions() -> None:
    def hub(peers: int) -> VMG:
        ins, outs = [(f"p{i}", "hub") for i in range(peers // 2)], [("hub", f"c{i}") for i in range(peers - peers // 2)]
        return VMG.of(graph_program([*ins, *outs]))

    locks = changed(NPU, {"core.locks": 64})
    assert NpuMapping(hub(8), locks).violations == ()
    (violation,) = NpuMapping(hub(9), locks).violations
    assert (violation.constraint, violation.needed, violation.limit) == ("core_dma_in", 3, 2)


def test_core_locks_count_streams() -> None:
    assert NpuMapping(VMG.of(graph_program([("a", "b")] * 8)), NPU).violations == ()
    (violation,) = NpuMapping(VMG.of(graph_program([("a", "b")] * 9)), NPU).violations
    assert (violation.constraint, violation.where, violation.needed) == ("core_locks", "core a_0", 18)


def test_core_descriptors_grow_with_depth() -> None:
    vmg = gemm(gemm_program(M=64, N=64, K=64, Pm=4, Pn=4, Pk=4))
    assert NpuMapping(vmg, NPU, Buffering(input_depth=7)).violations == ()
    (violation,) = NpuMapping(vmg, NPU, Buffering(input_depth=8)).violations
    assert (violation.constraint, violation.needed, violation.limit) == ("core_descriptors", 18, 16)


def test_shim_channels() -> None:
    one = NpuDevice.load("npu1_1col")
    assert NpuMapping(kernels_program((["A"], ["C"]), (["B"], ["D"])), one).violations == ()
    (violation,) = NpuMapping(kernels_program((["A", "B"], []), (["C"], [])), one).violations
    assert violation.constraint == "shim_dma_out"
    assert str(violation) == (
        "DMA channels from DRAM on 1 shim tile: needs 3, has 2 "
        "(1 input flow of A, 1 input flow of B, 1 input flow of C)"
    )
    (violation,) = NpuMapping(kernels_program(([], ["A", "B"]), ([], ["C"])), one).violations
    assert (violation.constraint, violation.needed, violation.limit) == ("shim_dma_in", 3, 2)


def uneven_program() -> VMG:
    """Six tasks with a tile of A each and eleven with a tile of B each (six of them the same tasks)."""
    a, b = Tensor("A", INT16, (24,)), Tensor("B", INT16, (44,))
    low = TensorPort(1, b, (0,), (4,), affine((11,), ((1,),), (0,)), False, True)
    high = TensorPort(0, b, (0,), (4,), affine((11,), ((1,),), (6,)), False, True)
    first = one_class_kernel("first", (6,), (a, b), [sharded(0, a, (6,), (0,), reads=True), low])
    second = one_class_kernel("second", (5,), (b,), [high])
    return VMG.of(CompiledProgram("uneven", (a, b), (), (first, second)))


def test_totals_that_fit_but_not_column_by_column() -> None:
    """A column that distributes six inputs has no channel left to join outputs, and one column cannot join eleven."""
    wires = {"interconnect.core.south": (6, 6), "interconnect.memory_tile.north": (6, 6)}
    two = changed(NPU, {"array.columns": 2, "array.core_rows": 8, **wires})
    (violation,) = NpuMapping(uneven_program(), two).violations
    assert violation.constraint == "column_assignment"
    assert str(violation) == (
        "columns on the array: needs 3, has 2 (6 input flows of A, 11 output flows of B; per column "
        "2 shim channels in, 2 out, 6 memory-tile channels in, 6 out, 6 streams from cores)"
    )
    assert NpuMapping(uneven_program(), changed(two, {"array.columns": 3})).violations == ()


def test_outputs_need_wires_down_to_the_memory_tiles() -> None:
    """Eleven outputs on two columns: DMA channels for twelve, wires for eight."""
    two = changed(NPU, {"array.columns": 2, "array.core_rows": 8})
    (violation,) = NpuMapping(uneven_program(), two).violations
    assert str(violation) == (
        "stream-switch ports on 2 memory tiles from the north: needs 11, has 8 "
        "(6 input flows of A, 11 output flows of B)"
    )


def test_rows_of_half_words_cannot_be_moved() -> None:
    vmg = gemm(gemm_program(M=32, N=32, K=32, Pm=4, Pn=32, Pk=4), n=4)
    violations = NpuMapping(vmg, NPU).violations
    assert [v.constraint for v in violations] == ["word_alignment"] * 2
    assert str(violations[0]) == (
        "bytes beyond whole words on tensor B: needs 2, has 0 "
        "(rows of 2 bytes in tiles 8x1 of int16; DMA moves 32-bit words)"
    )


def test_memory_that_tasks_share_is_out_of_reach() -> None:
    """Said first, and alone: what moves such arrays is not planned."""
    program = kernels_program((["A"], ["B"])).program
    shared = SharedTensor(Tensor("core_x_7", INT16, (8,)), np.zeros(8))
    (violation,) = NpuMapping(VMG.of(replace(program, shared=(shared,))), NPU).violations
    assert violation.constraint == "shared_arrays"
    assert str(violation).startswith("arrays that tasks on several tiles share")
    assert "core_x_7" in str(violation)


def test_violations_are_collected() -> None:
    """Two tensors too many, a tile too large and one shim: everything is said at once."""
    vmg = kernels_program((["A", "B", "C"], ["D", "E"]), shape=(128, 128))
    found = {v.constraint for v in NpuMapping(vmg, NpuDevice.load("npu1_1col")).violations}
    assert found == {"host_buffers", "core_dma_in", "core_memory", "shim_dma_out"}


def test_nodes_alike_with_as_many_streams_are_judged_by_their_peers() -> None:
    """c_0 and c_1 get seven tokens each: c_0 from one node, c_1 from seven, of which three are no neighbours."""
    own = affine((2,), unit(1, 0))
    arrays = [StreamArray(f"s{n}", INT32, (4,), 2, (2,)) for n in range(7)]
    kernels = [one_class_kernel(f"p{n}", (2,), streams=[put(array, own)]) for n, array in enumerate(arrays)]
    kernels.append(one_class_kernel("c", (2,), streams=[get(array, own) for array in arrays]))
    vmg = VMG.of(CompiledProgram("peers", (), tuple(arrays), tuple(kernels)))
    tasks = [f"p{n}_0" for n in range(7)]
    for at in range(1, 7):
        vmg = vmg.chain("-".join(tasks[:at]), tasks[at])
    (found,) = (v for v in NpuMapping(vmg, NPU).violations if v.constraint == "core_dma_in")
    assert (found.where, found.needed, found.limit) == ("core c_1 and 1 like it", 3, 2)


def test_every_constraint_is_named_in_a_test() -> None:
    here = Path(__file__).parent
    files = [Path(__file__), here.parent / "fpga" / "test_fpga_limits.py", here / "place" / "test_place.py"]
    files += [here / "movement" / "test_stream_depths.py", here / "test_hangs.py"]
    files.append(here.parent / "fpga" / "test_ping_pong.py")
    source = "".join(file.read_text(encoding="utf-8") for file in files)
    assert [name for name in CONSTRAINTS if f'"{name}"' not in source] == []


@pytest.mark.parametrize(
    ("tile", "dtype", "out", "library", "fits"),
    [
        ((64, 64, 64), INT16, INT16, "allo", True),
        ((128, 64, 64), BFLOAT16, FLOAT32, "allo", False),
        ((64, 64, 64), BFLOAT16, FLOAT32, "allo", True),
        ((128, 64, 32), BFLOAT16, FLOAT32, "allo", True),
        ((64, 128, 32), BFLOAT16, FLOAT32, "allo", True),
        ((64, 64, 32), BFLOAT16, FLOAT32, "allo", True),
        ((128, 32, 64), BFLOAT16, FLOAT32, "allo", True),
        ((64, 32, 128), BFLOAT16, FLOAT32, "allo", True),
        ((96, 112, 96), INT8, INT16, "tuned", True),
        ((80, 104, 128), INT8, INT16, "tuned", True),
        ((96, 56, 96), BFLOAT16, BFLOAT16, "tuned", True),
        ((96, 48, 112), BFLOAT16, BFLOAT16, "tuned", True),
    ],
)
def test_published_tiles(tile: tuple[int, int, int], dtype: Any, out: Any, library: str, fits: bool) -> None:
    """Tiles m x k x n that were built, or could not be, with one output buffer ([ph], [sb])."""
    m, k, n = tile
    vmg = gemm(gemm_program(M=8 * m, K=8 * k, N=8 * n, Pm=8, Pn=8, Pk=8, dtype=dtype, out=out))
    violations = NpuMapping(vmg, NPU.with_options(kernel_library=library), Buffering(output_depth=1)).violations
    assert [v.constraint for v in violations] == ([] if fits else ["core_memory"])


@given(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4]), st.randoms())
def test_the_order_of_nodes_does_not_matter(k: int, m: int, n: int, random: Any) -> None:
    vmg = gemm(gemm_program(M=32, N=32, K=32, Pm=4, Pn=4, Pk=4), k, m, n)
    groups = list(vmg.groups)
    random.shuffle(groups)
    other = replace(vmg, groups=tuple(groups))
    device = NpuDevice.load("npu1_2col")
    plans = [NpuMapping(graph, device).transport for graph in (vmg, other)]
    assert len({tuple((t.tensor, t.column, len(t.flows)) for t in plan.transfers) for plan in plans}) == 1
    found = [{(v.constraint, v.needed, v.limit) for v in NpuMapping(g, device).violations} for g in (vmg, other)]
    assert found[0] == found[1]


def test_every_constraint_is_documented() -> None:
    text = (Path(__file__).parents[3] / "docs" / "devices.md").read_text(encoding="utf-8")
    assert [name for name in CONSTRAINTS if f"`{name}`" not in text] == []
