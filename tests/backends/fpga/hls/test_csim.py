"""Generated C++ computes what the simulator computes, through g++ and clang++ with the headers of allo-dse."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import allo_dse as dse
from allo_dse.backends.fpga.hls import csim, emit_project
from allo_dse.backends.fpga.hls.build_modes import CSimulation
from allo_dse.common.errors import SimulationError
from allo_dse.common.records import replace
from allo_dse.compiler.model.arguments import numpy_dtype
from allo_dse.compiler.program.compiled import Directive
from allo_dse.lang import install
from allo_dse.lang.types import DType, bfloat16

install()

from studies import gemm_npu, gemm_zcu102, polybench_fpga, systolic_fpga
from tests.compiler import samples
from tests.support.random_programs import random_program

from ..cost.programs import by_constant
from . import programs
from .batch import Batch
from .recorded import Recorded, record

needs_gcc = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
needs_clang = pytest.mark.skipif(shutil.which("clang++") is None, reason="clang++ is not installed")
SAMPLES: dict[str, tuple[Callable[..., object], dict[str, Any]]] = {
    "gemm": (samples.gemm, {"M": 16, "N": 16, "K": 24, "Pm": 1, "Pn": 2, "Pk": 3}),
    "gemm_bf16": (samples.gemm, {"M": 8, "N": 8, "K": 8, "Pm": 1, "Pn": 1, "Pk": 2, "TyI": bfloat16}),
    "layouts": (samples.gemm_with_string_layouts, {"M": 8, "N": 8, "K": 16}),
    "systolic": (samples.systolic, {}),
    "producer_consumer": (samples.producer_consumer, {}),
    "tiled": (samples.tiled, {"M": 8, "N": 8, "K": 8}),
    "hierarchical": (samples.hierarchical, {"M": 8, "N": 8, "K": 8}),
    "data_dependent": (samples.data_dependent, {}),
}
STUDIES: dict[str, tuple[Callable[..., object], dict[str, Any]]] = {
    "systolic_plain": (systolic_fpga.plain, {"M": 8, "N": 4, "K": 6, "P": 2}),
    "systolic_daisy": (systolic_fpga.daisy, {"M": 8, "N": 4, "K": 6, "P": 2}),
    "gemm_zcu102": (gemm_zcu102.tiled, {"M": 8, "N": 8, "K": 5, "Pm": 2, "Pn": 4}),
    "gemm": (polybench_fpga.gemm, {"H": 4, "J": 6, "K": 5, "P": 2}),
    "two_mm": (polybench_fpga.two_mm, {"H": 4, "J": 5, "K": 6, "L": 3, "P": 2}),
    "three_mm": (polybench_fpga.three_mm, {"H": 4, "J": 4, "K": 3, "L": 4, "M": 5, "P": 2, "W": 2}),
    "atax": (polybench_fpga.atax, {"M": 4, "N": 6, "P": 2, "W": 2}),
    "bicg": (polybench_fpga.bicg, {"M": 4, "N": 6, "P": 2, "W": 2}),
    "mvt": (polybench_fpga.mvt, {"N": 8, "P": 2}),
    "gesummv": (polybench_fpga.gesummv, {"N": 8, "P": 2, "V": 4}),
    "gemm_npu": (gemm_npu.gemm, {"M": 8, "N": 8, "K": 8, "Pm": 2, "Pn": 2, "Pk": 2}),
}
RECORDED = ("tests.compiler.test_language", "tests.compiler.test_streams", "tests.compiler.test_called_regions")


def random_array(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> Any:
    target = numpy_dtype(dtype)
    if target.kind == "V":
        return np.frombuffer(rng.bytes(int(np.prod(shape)) * target.itemsize), target).reshape(shape).copy()
    if dtype.is_float:
        return rng.uniform(-2, 2, shape).astype(target)
    bits = dtype.bits if not dtype.is_signed else dtype.bits - 1
    low = 0 if not dtype.is_signed else -(1 << bits)
    return rng.integers(low, (1 << bits) - 1, shape, endpoint=True, dtype=target)


def random_run(name: str, program: dse.Program) -> Recorded:
    rng = np.random.default_rng(7)
    before = tuple(random_array(rng, tensor.dtype, tensor.shape) for tensor in program.tensors)
    after = tuple(array.copy() for array in before)
    dse.simulate(program, *after)
    return Recorded(name, program, before, after)


@lru_cache(maxsize=1)
def own_runs() -> list[Recorded]:
    runs = [random_run(name, dse.load_program(source, **params)) for name, (source, params) in SAMPLES.items()]
    runs += [random_run(name, dse.load_program(source, **params)) for name, (source, params) in STUDIES.items()]
    return runs + [random_run(source.__name__, dse.load_program(source)) for source in programs.ALL]


def compare(runs: list[Recorded], compiler: str, directory: Path) -> None:
    names = [f"k{number}" for number in range(len(runs))]
    batch = Batch({name: emit_project(run.program) for name, run in zip(names, runs, strict=True)}, compiler, directory)
    for name, run in zip(names, runs, strict=True):
        for tensor, got, wanted in zip(run.program.tensors, batch.run(name, *run.before), run.after, strict=True):
            if isinstance(wanted, np.ndarray):
                assert_equal(got, wanted, f"{run.name}: {tensor.name}")


def assert_equal(got: Any, wanted: Any, where: str) -> None:
    if wanted.dtype.kind == "f" or wanted.dtype.name == "bfloat16":
        tolerance = 2e-5 if wanted.dtype.itemsize > 2 else 2e-2
        np.testing.assert_allclose(
            got.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=1e-6, err_msg=where
        )
    else:
        np.testing.assert_array_equal(got, wanted, err_msg=where)


@needs_gcc
def test_quotients_and_remainders_by_constants(tmp_path: Path) -> None:
    values = np.array([*range(-20, 20), -(2**31), 2**31 - 1] * 7, np.int32)[:256]
    results = {
        (operation, n): result.astype(np.int32)
        for n in (1, 8, 7)
        for operation, result in (("//", values // n), ("%", values % n), ("/", np.trunc(values / n)))
    }
    programs_of = (dse.load_program(by_constant(*key)) for key in results)
    batch = Batch({f"k{number}": emit_project(one) for number, one in enumerate(programs_of)}, "g++", tmp_path)
    for number, (key, result) in enumerate(results.items()):
        found = batch.run(f"k{number}", values, np.zeros_like(values))[1]
        np.testing.assert_array_equal(found, result, err_msg=str(key))


@needs_gcc
def test_programs_through_gcc(tmp_path: Path) -> None:
    compare(own_runs(), "g++", tmp_path)


@needs_clang
def test_programs_through_clang(tmp_path: Path) -> None:
    compare(own_runs(), "clang++", tmp_path)


@needs_gcc
@pytest.mark.parametrize("module", RECORDED)
def test_programs_of_the_front_ends_tests(module: str, tmp_path: Path) -> None:
    runs = record(module)
    assert len(runs) >= 5
    compare(runs, "g++", tmp_path)


@needs_gcc
def test_random_arithmetic(tmp_path: Path) -> None:
    """Integers of all widths and signs, also where C++ has promotions and conversions of its own."""
    runs = []
    for seed in range(25):
        program = random_program(seed, widths_matter=True)
        loaded = dse.load_program(program.region(tmp_path / f"program{seed}.py"))
        before = tuple(program.arrays(np.random.default_rng(seed)))
        after = tuple(array.copy() for array in before)
        dse.simulate(loaded, *after)
        runs.append(Recorded(f"random program {seed}", loaded, before, after))
    compare(runs, "g++", tmp_path)


def scheduled_runs() -> list[tuple[Recorded, tuple[Directive, ...]]]:
    """Programs with tensors moved in wide words, or in memory on the chip."""
    scaled = random_run("scaled_rows", dse.load_program(programs.scaled_rows))
    array = random_run("systolic", dse.load_program(systolic_fpga.plain, M=8, N=8, K=8, P=2))
    sharded = random_run("gemm", dse.load_program(gemm_zcu102.tiled, M=8, N=8, K=4, Pm=2, Pn=2))
    numbers = random_run("numbers", dse.load_program(programs.numbers))
    return [
        (scaled, pack(scaled, A=64, B=128)),
        (array, pack(array, A=32, B=64, C=32)),
        (sharded, pack(sharded, B=32) + place(sharded, "A", "C")),
        (array, place(array, "A", "B", "C")),
        (numbers, pack(numbers, F=64, H=32) + place(numbers, "X", "U")),
    ]


def pack(run: Recorded, **bits: int) -> tuple[Directive, ...]:
    return tuple(Directive("pack", run.program.name, tensor, {"bits": width}) for tensor, width in bits.items())


def place(run: Recorded, *tensors: str) -> tuple[Directive, ...]:
    return tuple(Directive("place", run.program.name, tensor, {"memory": "onchip"}) for tensor in tensors)


@needs_gcc
def test_wide_words_and_memory_on_the_chip(tmp_path: Path) -> None:
    runs = scheduled_runs()
    projects = {f"k{n}": emit_project(run.program, schedule=schedule) for n, (run, schedule) in enumerate(runs)}
    assert "hls::vector<int16_t, 4>" in projects["k0"].hls_code
    assert "#pragma HLS interface ap_memory port=A" in projects["k2"].hls_code
    assert "m_axi" not in projects["k3"].hls_code
    batch = Batch(projects, "g++", tmp_path)
    for name, (run, _) in zip(projects, runs, strict=True):
        for got, wanted in zip(batch.run(name, *run.before), run.after, strict=True):
            assert_equal(got, wanted, f"{name} {run.name}")


@needs_gcc
def test_state_lives_as_long_as_the_simulation() -> None:
    array = np.zeros((3, 4), np.int32)
    with CSimulation(emit_project(dse.load_program(programs.counter))) as simulation:
        simulation(array)
        simulation(array)
    np.testing.assert_array_equal(array[:, 0], [12, 14, 16])


@needs_gcc
def test_deadlock_names_the_processes_that_wait() -> None:
    project = emit_project(dse.load_program(programs.starved))
    with pytest.raises(SimulationError, match="deadlock") as caught:
        csim(project, np.arange(8, dtype=np.int32), np.zeros(8, np.int32))
    assert "source_all waits: first is full" in str(caught.value)
    assert "sink_all waits: second is empty" in str(caught.value)


@needs_gcc
def test_deeper_streams_clear_it() -> None:
    project = emit_project(dse.load_program(programs.starved), depths={"first": 8})
    _, b = csim(project, np.arange(8, dtype=np.int32), np.zeros(8, np.int32))
    np.testing.assert_array_equal(b, 2 * np.arange(8))


@needs_gcc
def test_a_run_has_a_time_limit() -> None:
    project = emit_project(dse.load_program(programs.polling))
    endless = dict(project.files)
    endless["kernel.cpp"] = endless["kernel.cpp"].replace("ALLO_PROCESS(source_all", "if (0) ALLO_PROCESS(source_all")
    project = replace(project, files=endless)
    with pytest.raises(SimulationError, match="time limit"):
        csim(project, np.zeros(12, np.int32), np.zeros(12, np.int32), seconds=0.3)


def test_without_a_compiler_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    project = emit_project(dse.load_program(programs.feedback))
    with pytest.raises(SimulationError, match="needs a C\\+\\+ compiler"):
        csim(project, np.zeros(16, np.int32), np.zeros(16, np.int32))


def test_vendor_kernels_have_no_cpp_here() -> None:
    project = emit_project(dse.load_program(samples.everything))
    assert 'extern "C" void vendor_scale(int32_t [8], int32_t [8]);' in project.hls_code
    with pytest.raises(SimulationError, match="vendor kernels"):
        CSimulation(project)
