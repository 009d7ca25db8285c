"""What a task costs on an NPU core."""

from __future__ import annotations

import pytest

from allo_dse.backends.npu.costs import class_cycles
from allo_dse.common.errors import SimulationError
from allo_dse.compiler.program.compiled import TaskClass
from allo_dse.device.device import NpuDevice
from allo_dse.lang import install
from allo_dse.lang.externals import define_external
from allo_dse.mapper.program import load_program

install()

import allo
import allo.dataflow as df
from allo.backend.aie.external_kernel import ExternalModule
from allo.ir.types import float32

from studies.gemm_npu import gemm

DEVICE = NpuDevice.load("npu1_4col")


def test_adding_to_an_accumulator_in_place_is_part_of_the_matrix_kernel() -> None:
    program = load_program(gemm, M=256, N=256, K=256, Pm=4, Pn=4, Pk=4)
    first, middle, last = (class_cycles(cls, DEVICE) for cls in program.kernels[0].classes)
    kernel = DEVICE.kernel_cost("i16", "i16", "i16").cycles(64, 64, 64)
    assert middle == last == kernel
    assert first == kernel + DEVICE.elementwise_cost("fill").cycles(64 * 64 * 2)


def test_adding_a_tile_of_another_shape_than_the_accumulator_costs_as_much_as_without_a_product() -> None:
    @df.region()
    def region(A: float32[8, 8], B: float32[8, 8], X: float32[8, 16], C: float32[8, 8], Y: float32[8, 16]):
        @df.kernel(mapping=[1], args=[A, B, X, C, Y])
        def core(a: float32[8, 8], b: float32[8, 8], x: float32[8, 16], c: float32[8, 8], y: float32[8, 16]):
            c[:, :] = allo.matmul(a, b)
            y[:, :] = allo.add(x, x)

    (cls,) = load_program(region).kernels[0].classes
    dtypes = next(op for op in cls.work if op.kind == "matmul").dtypes
    kernel = DEVICE.matmul_kernel(dtypes, (8, 8, 8)).cycles(8, 8, 8)
    addition = DEVICE.elementwise_cost("add").cycles(8 * 16 * 4)
    assert class_cycles(cls, DEVICE) >= kernel + addition


def program_with_vendor_kernel(top: str) -> TaskClass:
    vendor = ExternalModule(top=top, impl_path="kernel.cc", input_idx=[0], output_idx=[1])

    @df.region()
    def region(A: float32[16], B: float32[16]):
        @df.kernel(mapping=[1], args=[A, B])
        def core(a: float32[16], b: float32[16]):
            vendor(a, b)

    return load_program(region).kernels[0].classes[0]


def test_a_vendor_kernel_costs_what_the_study_says() -> None:
    define_external("twice", lambda a: 2 * a, cycles=lambda a, b: 7 * a[0])
    assert class_cycles(program_with_vendor_kernel("twice"), DEVICE) == 7 * 16


def test_a_vendor_kernel_without_cycles_is_named() -> None:
    define_external("thrice", lambda a: 3 * a)
    with pytest.raises(SimulationError, match="it is not known how many cycles the vendor kernel 'thrice' takes"):
        class_cycles(program_with_vendor_kernel("thrice"), DEVICE)
