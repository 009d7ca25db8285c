"""What each term of the NPU timing model does, and to what alone."""

from __future__ import annotations

import pytest

from allo_dse import AxisFold, Buffering, Design, KernelFold, MeshFold, NpuSimulator, load_program
from allo_dse.backends.npu.calibration import parameters_of
from allo_dse.backends.npu.costs import class_cycles
from allo_dse.backends.npu.evaluator import NpuBounds
from allo_dse.backends.npu.recording import NpuLabels, record_npu
from allo_dse.device.device import Device, NpuDevice
from allo_dse.lang import install
from allo_dse.mapper.program import Program

install()

from allo.ir.types import int8

from studies.elementwise_npu import KERNELS
from studies.gemm_npu import gemm
from studies.gemm_two_level_npu import gemm as two_level
from studies.gemv_npu import gemv_kernel

NPU1, NPU2 = NpuDevice.load("npu1_4col"), NpuDevice.load("npu2")


def gemm_us(device: Device, m: int, k: int, n: int) -> float:
    """An i8 GEMM of 64x64x128 tiles on 4x4 cores."""
    program = load_program(gemm, M=m, K=k, N=n, Pm=m // 64, Pk=k // 64, Pn=n // 128, TyI=int8, TyO=int8)
    axes = (AxisFold(1, "block", "chain"), AxisFold(4, "cyclic"), AxisFold(4, "cyclic"))
    fold = MeshFold((KernelFold("gemm", axes, (1, 2)),)).normalised(program.vmg.graph)
    return float(NpuSimulator().evaluate(Design(program, fold, Buffering(), device)).latency_us)


def spread(program: Program, device: Device, cores: int) -> Design:
    fold = MeshFold((KernelFold("core", (AxisFold(cores, "cyclic"),)),)).normalised(program.vmg.graph)
    return Design(program, fold, Buffering(), device)


def elementwise_us(op: str, device: Device, cores: int, length: int = 1 << 18) -> float:
    program = load_program(KERNELS[op], N=length, P=length // 2048)
    return float(NpuSimulator().evaluate(spread(program, device, cores)).latency_us)


@pytest.mark.parametrize(
    ("k", "n", "slow"),
    [(1024, 4096, True), (512, 4096, False), (1024, 2048, False), (1024, 4608, False), (4096, 1024, False)],
)
def test_rows_of_a_page_are_slow_to_walk_down(k: int, n: int, slow: bool) -> None:
    """Those of B, when B is larger than the reach; A is walked along its rows."""
    plain = NPU1.with_options(page_slowdown=1.0)
    assert (gemm_us(NPU1.with_options(page_slowdown=6.0), 256, k, n) > gemm_us(plain, 256, k, n)) is slow


def test_reading_does_not_hold_up_writing() -> None:
    """ReLU reads as much as it writes, and takes as long as one of them."""
    board = NPU2.board
    slow = NPU2.with_options(dram_gb_s=1.0, launch_us=0.0, dram_burst_half_bytes=0.0)
    assert elementwise_us("relu", slow, 8) == pytest.approx(2 * (1 << 18) / 1e3, rel=0.02)
    assert board.dram_us(4096, 4096, paged=False) < board.dram_us(4096, 64, paged=False)


@pytest.mark.parametrize("cores", [1, 4])
def test_an_operand_over_two_channels_fills_a_column_and_no_more(cores: int) -> None:
    device = NpuDevice.load("npu2_1col").with_options(kernel_library="iron", launch_us=0.0)
    program = load_program(gemv_kernel, M=2048, K=2048, P=512)
    made, bounds = spread(program, device, cores), NpuBounds()
    us = NpuSimulator().evaluate(made).latency_us
    gb_s = 2 * 2048 * 2048 / us / 1e3
    assert 12.5 < gb_s <= 2 * 4 * device.board.clock_ghz
    assert all(bounds(made, level)["latency_us"][0] <= us for level in range(bounds.levels))
    found = record_npu(made)
    assert isinstance(found.labels, NpuLabels)
    assert len(found.labels.processes) == found.network.task_count
    assert 2 * len(found.labels.buffers) == found.network.stream_count


def test_a_function_of_a_kernel_library_is_fitted_by_itself() -> None:
    program = load_program(KERNELS["gelu"], N=1 << 14, P=8)
    device = NPU2.with_options(kernel_library="iron")
    fitted = {str(parameter) for parameter in parameters_of([spread(program, device, 8)], device)}
    assert "elementwise.iron.gelu.bytes_per_cycle" in fitted
    assert "elementwise.gelu.bytes_per_cycle" not in fitted


def test_functions_have_prices_of_their_own() -> None:
    fast, slow = elementwise_us("relu", NPU1, 8), elementwise_us("gelu", NPU1, 8)
    assert slow - NPU1.board.launch_us > 3 * (fast - NPU1.board.launch_us)


def test_a_host_that_writes_descriptors_ahead_holds_nothing_up() -> None:
    waiting = gemm_us(NPU1.with_options(host_rewrite_us=1e-9), 2048, 256, 2048)
    assert gemm_us(NPU1.with_options(host_rewrite_us=0.0), 2048, 256, 2048) < waiting
    assert gemm_us(NPU1.with_options(host_rewrite_us=3.0), 2048, 256, 2048) > waiting


def test_tasks_and_results_cost_beside_the_calls() -> None:
    program = load_program(two_level)
    kernel = NPU2.kernels["air"]["bf16"]
    device = NPU2.with_options(kernel_library="air")
    middle, last = (class_cycles(cls, device) for cls in program.kernels[0].classes[1:])
    calls = 2 * kernel.cycles(32, 32, 32) + 2 * device.scalar_loop.cycles_per_iteration
    assert middle == calls + kernel.task_cycles + device.scalar_loop.task_cycles
    assert last == middle + kernel.drain_cycles_per_byte * 32 * 32 * 4


def test_a_matrix_by_a_vector_has_a_kernel_of_its_own() -> None:
    (cls,) = load_program(gemv_kernel, M=64, K=128, P=8).kernels[0].classes
    assert class_cycles(cls, NPU2) == NPU2.kernels["allo"]["vector"].cycles(8, 128, 1)
    assert class_cycles(cls, NPU1) == NPU1.kernel_cost("bf16", "bf16", "bf16").cycles(8, 128, 1)
