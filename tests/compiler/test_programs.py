"""Whole programs: what they compile to, and what the streamless ones compute."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from allo_dse.compiler import compile_region
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.lang.types import DType, bfloat16, int8, int16, int32

from . import samples
from .execute import run, verify_bodies

Golden = Callable[[str, str], None]


def bodies(program: CompiledProgram) -> str:
    return "\n".join(c.body.mlir for k in program.kernels for c in k.classes)


@pytest.mark.parametrize(
    "program",
    [
        samples.gemm,
        samples.gemm_with_string_layouts,
        samples.systolic,
        samples.producer_consumer,
        samples.tiled,
        samples.hierarchical,
        samples.data_dependent,
        samples.everything,
    ],
)
def test_every_body_is_valid_mlir(program: Callable[[], object]) -> None:
    compiled = compile_region(program)
    verify_bodies(compiled)
    assert compiled.warnings == ()


def test_golden_gemm(golden: Golden) -> None:
    golden("gemm.mlir", bodies(compile_region(samples.gemm, {"M": 16, "N": 16, "K": 24, "Pm": 2, "Pn": 2, "Pk": 3})))


def test_golden_gemm_bfloat16(golden: Golden) -> None:
    parameters = {"M": 8, "N": 8, "K": 8, "Pm": 1, "Pn": 1, "Pk": 1, "TyI": bfloat16, "TyO": bfloat16}
    golden("gemm_bf16.mlir", bodies(compile_region(samples.gemm, parameters)))


def test_golden_systolic(golden: Golden) -> None:
    golden("systolic.mlir", bodies(compile_region(samples.systolic)))


def test_gemm_classes() -> None:
    program = compile_region(samples.gemm, {"Pk": 4})
    (kernel,) = program.kernels
    assert kernel.mesh == (4, 32, 32)
    assert kernel.class_table.shape == (4, 1, 1)
    assert kernel.class_table.ravel().tolist() == [0, 1, 1, 2]
    first, middle, last = kernel.classes
    kinds = [[op.kind for op in c.work] for c in kernel.classes]
    assert kinds == [["fill", "matmul", "add"], ["matmul", "add"], ["matmul", "add", "copy"]]
    assert first.work[1].shape == (64, 512, 64)
    assert first.work[1].dtypes == (int16, int16, int16)
    assert [(p.direction, p.tokens) for p in middle.stream_ports] == [("get", 1), ("put", 1)]
    assert [(p.direction, p.tokens) for p in last.stream_ports] == [("get", 1)]
    get, put = middle.stream_ports
    assert (get.index.matrix, get.index.offset) == (((1, 0, 0), (0, 1, 0), (0, 0, 1)), (-1, 0, 0))
    assert put.index.offset == (0, 0, 0)
    a, b, c = last.tensor_ports
    assert (a.layout, a.tile_shape, a.reads, a.writes) == ((1, 0), (64, 512), True, False)
    assert (b.layout, b.tile_shape, b.reads, b.writes) == ((0, 2), (512, 64), True, False)
    assert (c.layout, c.tile_shape, c.reads, c.writes) == ((1, 2), (64, 64), False, True)
    assert not first.tensor_ports[2].writes
    assert program.streams[0].shape == (3, 32, 32)
    assert str(middle.stream_ops[0].location).endswith(f":{middle.stream_ports[0].location.line}:30")  # type: ignore[union-attr]


def test_gemm_without_split_has_an_empty_stream_array() -> None:
    program = compile_region(samples.gemm, {"Pk": 1})
    assert program.stream_count == 0
    assert len(program.kernels[0].classes) == 1
    assert program.warnings == ()


def test_equal_tiles_give_equal_text_whatever_the_mesh() -> None:
    small = compile_region(samples.gemm, {"M": 128, "N": 128, "K": 192, "Pm": 2, "Pn": 2, "Pk": 3})
    large = compile_region(samples.gemm, {"M": 512, "N": 256, "K": 512, "Pm": 8, "Pn": 4, "Pk": 8})
    assert bodies(small) == bodies(large)


def test_string_layouts_count_axes_from_the_last() -> None:
    (kernel,) = compile_region(samples.gemm_with_string_layouts).kernels
    assert [p.layout for p in kernel.classes[0].tensor_ports] == [(1, 0), (0, 2), (1, 2)]


@pytest.mark.parametrize("types", [(int16, int16), (int8, int8), (int8, int16), (int8, int32)])
def test_integer_gemm_wraps_like_numpy(types: tuple[DType, DType]) -> None:
    inputs, outputs = types
    parameters = {"M": 64, "N": 64, "K": 32, "Pm": 2, "Pn": 4, "Pk": 1, "TyI": inputs, "TyO": outputs}
    program = compile_region(samples.gemm, parameters)
    rng = np.random.default_rng(0)
    limit = np.iinfo(inputs.name)
    a = rng.integers(limit.min, limit.max, (64, 32), endpoint=True).astype(inputs.name)
    b = rng.integers(limit.min, limit.max, (32, 64), endpoint=True).astype(inputs.name)
    c = np.zeros((64, 64), outputs.name)
    run(program, a, b, c)
    np.testing.assert_array_equal(c, a.astype(outputs.name) @ b.astype(outputs.name))


def test_tiled_and_hierarchical_numbers() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((2, 16, 16), dtype=np.float32)
    outputs = [np.zeros((16, 16), np.float32) for _ in range(3)]
    run(compile_region(samples.tiled, {"M": 16, "N": 16, "K": 16}), a, b, outputs[0])
    program = compile_region(samples.hierarchical)
    assert [(k.name, k.mesh) for k in program.kernels] == [("product_0_tile", (2, 2)), ("product_1_tile", (4, 4))]
    run(program, a, b, outputs[1], outputs[2])
    for output in outputs:
        np.testing.assert_allclose(output, a @ b, rtol=1e-5)


def test_data_dependent_numbers() -> None:
    a = np.random.default_rng(0).integers(-128, 127, 64).astype(np.int8)
    b = np.zeros(64, np.int32)
    run(compile_region(samples.data_dependent), a, b, np.array(7, np.int32))
    assert b.tolist() == samples.data_dependent_reference(a, 7)


def test_systolic_classes_do_not_grow_with_the_array() -> None:
    small, large = (compile_region(samples.systolic, {"M": p, "N": p}) for p in (2, 64))
    assert len(small.kernels[0].classes) == len(large.kernels[0].classes) == 6
    interior = large.kernels[0].classes[large.kernels[0].class_table[1, 1]]
    assert [(p.direction, p.stream.name, p.tokens) for p in interior.stream_ports] == [
        ("get", "east", 8),
        ("get", "south", 8),
        ("put", "east", 8),
        ("put", "south", 8),
    ]
    assert [(op.kind, op.count) for op in interior.work] == [("loop", 8)]
