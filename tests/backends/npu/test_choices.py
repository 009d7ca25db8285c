"""Kernel libraries as a choice of the search."""

import pytest

from allo_dse import NpuSimulator, check
from allo_dse.backends.npu.backend import KernelLibrary
from allo_dse.common.errors import StudyError
from allo_dse.device.device import Device, NpuDevice
from allo_dse.lang.types import DType
from allo_dse.mapper.program import Program
from allo_dse.space.choices.kernel_folds import KernelFolds
from allo_dse.space.choices.shared import OutputDepth
from allo_dse.space.space import Space

from ...space.support import NPU, space_over
from ...support.programs import FLOAT32, INT16, gemm_program, vector_add_program
from ...support.values import present


def gemm(tile: int, dtype: DType = INT16) -> Program:
    return Program.of(gemm_program(4 * tile, 4 * tile, 2 * tile, Pm=4, Pn=4, Pk=2, dtype=dtype))


@pytest.fixture
def space() -> Space:
    return space_over(lambda: gemm(32), KernelFolds(NPU), OutputDepth(), KernelLibrary(NPU, ["tuned"]))


def test_a_library_is_offered_where_its_contract_fits() -> None:
    choice = KernelLibrary(NPU, ["tuned"])
    assert choice.offered(gemm(32)) == ("allo", "tuned")
    assert choice.offered(gemm(6)) == ("allo",)
    assert choice.offered(gemm(32, FLOAT32)) == ("allo",)
    assert choice.offered(Program.of(vector_add_program(4))) == ("allo",)


def test_what_does_not_fit_is_done_by_another_library() -> None:
    tuned = NPU.with_options(kernel_library="tuned")
    types = ("i16", "i16", "i16")
    assert tuned.matmul_kernel(types, (64, 64, 64)).cycles(64, 64, 64) == NPU.kernels["tuned"]["i16"].cycles(64, 64, 64)
    assert tuned.matmul_kernel(types, (64, 63, 64)).cycles(64, 63, 64) == NPU.kernels["allo"]["i16"].cycles(64, 63, 64)
    assert tuned.matmul_kernel(("f32",) * 3, (8, 8, 8)).cycles(8, 8, 8) == NPU.kernels["tuned"]["other"].cycles(8, 8, 8)


def test_the_library_is_a_dimension_of_the_space(space: Space) -> None:
    designs = list(space.designs())
    assert len(designs) == space.count(10**6) == len({candidate.key for candidate in designs})
    libraries = [NpuDevice.of(candidate.design.device).kernel_library for candidate in designs]
    assert libraries.count("allo") == libraries.count("tuned")
    for candidate in designs[::11]:
        assert present(space.decode_genes(candidate.genes)).key == candidate.key


def test_cost_and_memory_follow_the_library(space: Space) -> None:
    own, tuned = (present(space.decode_genes({"kernels": library})).design for library in (0, 1))
    assert own.fold == tuned.fold
    assert check(own) == check(tuned) == []
    assert tuple(NpuDevice.of(design.device).reserved_core_bytes for design in (own, tuned)) == (3328, 1024)
    simulator = NpuSimulator()
    assert simulator.evaluate(tuned).latency_us < simulator.evaluate(own).latency_us


def test_a_program_without_a_fitting_kernel_keeps_the_devices_own() -> None:
    space = space_over(lambda: gemm(6), KernelFolds(NPU), KernelLibrary(NPU, ["tuned"]))
    candidate = present(space.decode_genes({"kernels": 1}))
    assert candidate.design.device is NPU
    assert "kernels" not in candidate.genes
    assert "kernels" not in space.encode(candidate.design)


@pytest.mark.parametrize(
    ("device", "message"), [("npu1_4col", "no kernel library 'fast'"), ("u280", "no kernel libraries")]
)
def test_unknown_libraries(device: str, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        KernelLibrary(Device.load(device), ["fast"])
